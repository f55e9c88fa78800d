"""The log has problems one by one, floods as sums, and no secrets."""

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from amqsidecar.config.secrets import Secret
from amqsidecar.model.event import (
    CycleInDoubt,
    CycleRecovered,
    DestinationBlocked,
    Discarded,
    Exhausted,
    Parked,
    Received,
    Resent,
)
from amqsidecar.telemetry.logs import (
    MAX_LINES_PER_KIND,
    MAX_TEXT,
    LogEvents,
    configure_logs,
    cut,
)

QUEUE = "queue://orders"


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The log as JSON, with logging as it was afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    target = io.StringIO()
    configure_logs("info", "json", target)
    yield target
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def events_of(stream: io.StringIO) -> list[object]:
    return [line["event"] for line in lines(stream)]


def parked(reason: str = "no origin", row_id: int = 7) -> Parked:
    return Parked(at_ms=1, id=row_id, redelivery_id=f"a-{row_id}", destination=QUEUE, reason=reason)


def resent() -> Resent:
    return Resent(at_ms=1, destination=QUEUE, redelivery_count=1, lateness_ms=0)


def test_a_problem_has_a_line_of_its_own(stream: io.StringIO) -> None:
    LogEvents(FakeClock()).observe([parked()])
    (line,) = lines(stream)
    assert line.pop("at")
    assert line == {
        "level": "info",
        "logger": "amqsidecar.events",
        "event": "parked",
        "id": 7,
        "redelivery_id": "a-7",
        "destination": QUEUE,
        "reason": "no origin",
    }


def test_every_kind_of_problem_is_reported(stream: io.StringIO) -> None:
    LogEvents(FakeClock()).observe(
        [
            Exhausted(at_ms=1, id=1, destination=QUEUE, rule="r"),
            DestinationBlocked(at_ms=1, destination=QUEUE, reason="full", retry_at_ms=5001),
            CycleRecovered(at_ms=1, cycle=3, verdict="committed", taken_count=1, sent_count=2),
            CycleInDoubt(at_ms=1, cycle=4, taken_count=1, sent_count=2, reason="no token"),
        ]
    )
    told = {line["event"]: line for line in lines(stream)}
    assert set(told) == {"exhausted", "destination_blocked", "cycle_recovered", "cycle_in_doubt"}
    assert told["destination_blocked"]["retry_in_s"] == 5
    assert told["cycle_in_doubt"]["level"] == "warning"


def test_a_doubt_about_nothing_does_not_alarm(stream: io.StringIO) -> None:
    events = [
        in_doubt(0, 0, token_is_missing=True),
        in_doubt(1, 0, token_is_missing=True),
        in_doubt(0, 1, token_is_missing=True),
        in_doubt(0, 0, token_is_missing=False),
    ]
    LogEvents(FakeClock()).observe(events)
    meanings = [line["meaning"] for line in lines(stream)]
    assert ["copies are possible" in meaning for meaning in meanings] == [False, True, True, True]
    assert "no cycle was unfinished" in meanings[0]


def in_doubt(taken_count: int, sent_count: int, *, token_is_missing: bool) -> CycleInDoubt:
    return CycleInDoubt(
        at_ms=1,
        cycle=4,
        taken_count=taken_count,
        sent_count=sent_count,
        reason="said",
        token_is_missing=token_is_missing,
    )


def test_a_flood_is_one_line_a_second(stream: io.StringIO) -> None:
    clock = FakeClock()
    log = LogEvents(clock)
    for _ in range(10):
        log.observe([Received(at_ms=1, source=QUEUE), resent(), resent()])
    assert lines(stream) == []
    clock.now_s += 1.0
    log.flush_if_due()
    (line,) = lines(stream)
    assert (line["event"], line["received"], line["resent"]) == ("summary", 10, 20)
    clock.now_s += 1.0
    log.flush_if_due()
    assert len(lines(stream)) == 1


def test_a_flood_of_problems_is_summed_up_too(stream: io.StringIO) -> None:
    clock = FakeClock()
    log = LogEvents(clock)
    log.observe([parked(row_id=number) for number in range(1000)])
    log.observe([parked()])
    log.flush()
    assert events_of(stream) == ["parked"] * MAX_LINES_PER_KIND + ["summary"]
    assert lines(stream)[-1]["parked"] == 1001
    log.observe([parked()])
    assert events_of(stream)[-1] == "parked"


def test_discards_of_a_person_leave_the_lines_of_a_period_to_those_of_rules(
    stream: io.StringIO,
) -> None:
    log = LogEvents(FakeClock())
    log.observe([discarded(number, "cli:ada") for number in range(MAX_LINES_PER_KIND)])
    log.observe([discarded(9, None)])
    log.flush()
    assert events_of(stream) == ["discarded", "summary"]
    assert (lines(stream)[0]["level"], lines(stream)[0]["rule"]) == ("warning", "a rule")
    assert lines(stream)[-1]["discarded"] == MAX_LINES_PER_KIND + 1


def discarded(row_id: int, actor: str | None) -> Discarded:
    return Discarded(
        at_ms=1, id=row_id, redelivery_id="r", destination=QUEUE, rule="a rule", actor=actor
    )


def test_nothing_happened_says_nothing(stream: io.StringIO) -> None:
    log = LogEvents(FakeClock())
    log.observe([])
    log.flush()
    assert stream.getvalue() == ""


def test_a_line_for_people_has_no_character_that_acts_on_a_terminal() -> None:
    target = io.StringIO()
    configure_logs("info", "text", target)
    structlog.get_logger("ours").info("ev", name="a\x9b2J", cause="b\x1b]0;t\x07\u202e\nforged")
    try:
        raise OSError("c\x1b[2J")
    except OSError:
        structlog.get_logger("ours").exception("failed")
    text = target.getvalue()
    assert "name=a‹U+009B›2J" in text
    assert "\n    raise OSError" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]|^forged", text, re.MULTILINE)


def test_a_long_cause_is_cut_to_one_line(stream: io.StringIO) -> None:
    LogEvents(FakeClock()).observe([parked("java.lang.Exception\n\tat x.y.Z\n" * 500)])
    reason = lines(stream)[0]["reason"]
    assert isinstance(reason, str)
    assert len(reason) == MAX_TEXT
    assert "\n" not in reason
    assert cut("short") == "short"


@pytest.mark.parametrize(
    "text", ["amqp://user:geheim@host:5672", "at amqp://geheim@h and openwire://u:geheim@h2"]
)
def test_logins_are_cut_out_of_urls(stream: io.StringIO, text: str) -> None:
    structlog.get_logger("ours").warning("link_down", reason=text)
    logging.getLogger("theirs").error("failed: %s", text)
    try:
        raise OSError(text)
    except OSError:
        logging.getLogger("theirs").exception("failed")
    assert len(lines(stream)) == 3
    assert "geheim" not in stream.getvalue()
    assert "host" in stream.getvalue() or "h2" in stream.getvalue()


def test_a_secret_is_stars(stream: io.StringIO) -> None:
    structlog.get_logger("ours").warning("x", password=Secret("geheim"))
    assert "geheim" not in stream.getvalue()


def test_the_level_holds_for_ours_and_theirs(stream: io.StringIO) -> None:
    configure_logs("warning", "json", stream)
    structlog.get_logger("ours").info("no")
    logging.getLogger("theirs").info("no")
    structlog.get_logger("ours").warning("yes")
    logging.getLogger("theirs").warning("yes")
    assert events_of(stream) == ["yes", "yes"]


def test_text_is_for_people(stream: io.StringIO) -> None:
    configure_logs("info", "text", stream)
    structlog.get_logger("ours").info("link_up", broker="artemis")
    assert "link_up" in stream.getvalue()
    assert "broker=artemis" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_the_log_goes_to_standard_error(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("info", "json")
    structlog.get_logger("ours").info("here")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "here" in captured.err
