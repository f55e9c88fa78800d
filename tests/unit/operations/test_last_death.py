"""The last death of a message, and its links to log systems."""

import pytest

from amqsidecar.config.load import load_config
from amqsidecar.errors import ConfigError
from amqsidecar.model.event import AMBIGUOUS, AnyEvent, Explained, Received, Resent, Returned
from amqsidecar.operations.last_death import LastDeath, last_death, log_links

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NOTE = Explained(
    at_ms=3,
    destination="queue://a",
    cause="shop.X: a\n\tat shop.A.b(A.java:1)",
    consumer="orders 1.4",
    traceparent=f"00-{TRACE}-00f067aa0ba902b7-01",
)
DIED = Received(at_ms=1, redelivery_id="r-1", source="queue://DLQ", cause="in the broker's words")


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([], None),
        ([Resent(at_ms=1, destination="a", redelivery_count=1, lateness_ms=0)], None),
        ([DIED], LastDeath(redelivery_id="r-1", at_ms=1, cause="in the broker's words")),
        (
            [DIED, NOTE],
            LastDeath(
                redelivery_id="r-1",
                at_ms=1,
                cause=NOTE.cause,
                consumer="orders 1.4",
                trace_id=TRACE,
            ),
        ),
        (
            [DIED, Explained(at_ms=2, destination="a", cause="other", answer=AMBIGUOUS)],
            LastDeath(redelivery_id="r-1", at_ms=1, cause="in the broker's words"),
        ),
        (
            [DIED, NOTE, Returned(at_ms=9, redelivery_id="r-1", source="queue://DLQ")],
            LastDeath(redelivery_id="r-1", at_ms=9, cause=None),
        ),
    ],
)
def test_the_last_death_has_the_words_of_its_own_note(
    history: list[AnyEvent], found: LastDeath | None
) -> None:
    assert last_death(history) == found


def test_links_have_time_consumer_and_trace_and_only_what_is_known() -> None:
    templates = {
        "logs": "https://logs/?from={from}&to={to_ms}",
        "traces": "https://traces/{trace_id}?service={consumer}",
    }
    bare = LastDeath(redelivery_id="r", at_ms=1_700_000_000_000, cause=None)
    logs = "https://logs/?from=2023-11-14T22%3A08%3A20.000%2B00%3A00&to=1700000300000"
    assert log_links(templates, bare) == {"logs": logs}
    noted = LastDeath(
        redelivery_id="r", at_ms=1_700_000_000_000, cause=None, consumer='a"&b', trace_id=TRACE
    )
    assert log_links(templates, noted) == {
        "logs": logs,
        "traces": f"https://traces/{TRACE}?service=a%22%26b",
    }
    assert log_links(templates, None) == {}


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ("{logs: 'javascript:alert(1)'}", "logs: expected a URL of http or https"),
        ("{logs: 'https://logs/{id}'}", r"logs: expected \{from\}, .*, found \{id\}"),
        ("[https://logs]", "expected a mapping from name to URL"),
    ],
)
def test_a_link_that_can_not_work_is_refused(links: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(None, (f"http.links={links}",), {})
