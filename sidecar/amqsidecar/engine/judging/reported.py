"""Takes reports of events outside out of the intake; another judge decides about the rest."""

from collections.abc import Callable, Sequence

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.judging.judge import Judgement, Judging
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.errors import UndecodableMessage
from amqsidecar.model.destination import Destination
from amqsidecar.model.signal import Signal


class OwnQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue of messages for the sidecar itself."""

    queue: Destination

    def is_at(self, destination: Destination) -> bool:
        """Return whether a destination is this queue."""
        return destination.name.rsplit("::", 1)[-1] == self.queue.name

    def is_of(self, delivery: Delivery) -> bool:
        """Return whether a delivery lay in this queue, or is a dead letter of it."""
        origin = delivery.provenance.origin
        return self.is_at(delivery.source) or (origin is not None and self.is_at(origin))


class Reports(OwnQueue, frozen=True, kw_only=True):
    """The queue of reports of events outside.

    Attributes:
        read: encoding and message to the name of an event; raises UndecodableMessage.
        report_unreadable: called with the reason why a report can't be read.
    """

    read: Callable[[str, bytes], str]
    report_unreadable: Callable[[str], None]


class ReportJudge:
    """Judges with reports; asks another judge for the verdicts."""

    def __init__(self, judge: Judging, reports: Reports) -> None:
        self._judge = judge
        self._reports = reports

    @property
    def send_rules(self) -> SendRules:
        """See `Judging`."""
        return self._judge.send_rules

    def prepare(self, deliveries: Sequence[Delivery], /) -> Sequence[Delivery]:
        """See `Judging`."""
        return self._judge.prepare(deliveries)

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the verdict on a delivery; a report is a signal, and leaves no row."""
        reports = self._reports
        if not reports.is_of(delivery):
            return self._judge.judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog)
        try:
            name = reports.read(delivery.encoding, delivery.message)
        except UndecodableMessage as error:
            reports.report_unreadable(str(error))
            return Judgement(None, ())
        signal = Signal(name=name, at_ms=now_ms, author=str(reports.queue))
        return Judgement(None, (), signal=signal)
