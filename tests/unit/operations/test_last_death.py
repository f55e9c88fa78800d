"""The last death of a message, and its links to log systems."""

import msgspec
import pytest

from amqsidecar.config.load import load_config
from amqsidecar.errors import ConfigError
from amqsidecar.model.event import AMBIGUOUS, AnyEvent, Explained, Received, Resent, Returned
from amqsidecar.model.trace_context import own_context
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
    assert log_links(templates, 0.0, bare) == {"logs": logs}
    noted = LastDeath(
        redelivery_id="r", at_ms=1_700_000_000_000, cause=None, consumer='a"&b', trace_id=TRACE
    )
    assert log_links(templates, 0.0, noted) == {
        "logs": logs,
        "traces": f"https://traces/{TRACE}?service=a%22%26b",
    }
    assert log_links(templates, 0.0, None) == {}


def test_the_trace_is_the_producers_where_no_note_names_another() -> None:
    producer = "0af7651916cd43dd8448eb211c80319c"
    died = msgspec.structs.replace(DIED, traceparent=f"00-{producer}-00f067aa0ba902b7-01")
    assert getattr(last_death([died]), "trace_id", None) == producer
    assert getattr(last_death([died, NOTE]), "trace_id", None) == TRACE


def test_the_trace_of_the_attempts_is_linked_where_the_message_is_traced() -> None:
    templates = {"attempts": "https://traces/{attempts_trace_id}"}
    death = last_death([DIED])
    assert log_links(templates, 0.0, death) == {}
    own = own_context("r-1").trace_id
    assert log_links(templates, 1.0, death) == {"attempts": f"https://traces/{own}"}


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
