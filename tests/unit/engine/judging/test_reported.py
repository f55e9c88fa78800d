"""Reports of events outside are taken out of the intake, and leave no row."""

import pytest

from amqsidecar.broker import Delivery
from amqsidecar.engine.judging.judge import Judgement
from amqsidecar.engine.judging.reported import ReportJudge, Reports
from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.messages.cause_notes import read_event_name
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.signal import LONGEST_SIGNAL, Signal

PLACE = queue("amqsidecar.events.a")


class Others:
    """Judges everything else."""

    def judge(self, *_: object, **__: object) -> Judgement:
        raise LookupError


def judged(
    body: str, source: Destination = PLACE, origin: Destination | None = None
) -> tuple[Judgement, list[str]]:
    unreadable: list[str] = []
    reports = Reports(queue=PLACE, read=read_event_name, report_unreadable=unreadable.append)
    judge = ReportJudge(Others(), reports)  # type: ignore[arg-type]
    message = kept([(b"destination", b"x")], body.encode())
    delivery = Delivery(None, source, message, Provenance(origin=origin), ENCODING)
    return judge.judge(delivery, "uid", 1, 5_000, is_backlog=True), unreadable


@pytest.mark.parametrize(
    ("source", "origin"),
    [
        (PLACE, None),
        (queue("address::amqsidecar.events.a"), None),
        (queue("DLQ"), PLACE),
    ],
    ids=str,
)
def test_a_report_and_a_dead_letter_of_one_are_signals(
    source: Destination, origin: Destination | None
) -> None:
    judgement, unreadable = judged(" invoice-4711\n", source, origin)
    signal = Signal(name="invoice-4711", at_ms=5_000, author="queue://amqsidecar.events.a")
    assert judgement == Judgement(None, (), signal=signal)
    assert unreadable == []


@pytest.mark.parametrize("body", ["", " ", "x" * (LONGEST_SIGNAL + 1), "a\x07b", "x" * 300_000])
def test_what_names_no_event_is_dropped_and_said_without_its_content(body: str) -> None:
    judgement, [reason] = judged(body)
    assert judgement == Judgement(None, ())
    assert "xx" not in reason


def test_what_lies_elsewhere_is_judged_by_others() -> None:
    with pytest.raises(LookupError):
        judged("invoice-4711", queue("DLQ"), queue("amqsidecar.events.b"))
