"""Redeliveries straight out of dead-letter queues: sent by the cycle that takes them.

So a message is always in its dead-letter queue or at its origin, never in the schedule alone. It is
requested once nothing forbids its send; a message that can't be sent after all is given back.
"""

from collections.abc import Mapping, Sequence

from amqsidecar.engine.dispatch import Dispatch
from amqsidecar.engine.gates import Gates
from amqsidecar.engine.refusals import Refusals
from amqsidecar.model.event import AnyEvent, Parked
from amqsidecar.model.schedule import DueRow, GroupPlace, RowView

_KEPT = ["id", "due_at_ms", "destination", "redelivery_id", "redelivery_count", "delay_ms"]


class FromPlace:
    """The messages that may be sent straight from their queues, by row; outlives links.

    Attributes:
        admitted: rows that may be sent now.
        later_ms: until when the other rows wait.
        refusals: by their destinations.
        refused: why a message is not sent automatically; a person decides about it.
        gives_back: a message in hand can't be sent now.
        whole: queues that are read whole: every message that arrives is taken.
    """

    def __init__(self) -> None:
        self.admitted: set[int] = set()
        self.later_ms: dict[int, int] = {}
        self.refusals = Refusals()
        self.refused: dict[int, str] = {}
        self.gives_back = False
        self.whole: frozenset[str] = frozenset()

    def admit(
        self,
        rows: Sequence[RowView],
        dispatch: Dispatch,
        gates: Gates,
        encodings: Sequence[str],
        now_ms: int,
    ) -> list[AnyEvent]:
        """Admit the due rows that can be sent now; return the events."""
        events: list[AnyEvent] = []
        for encoding in encodings:
            # Why the first: the link re-reads a message of another encoding.
            due = [
                _due(row, encoding)
                for row in rows
                if encoding == (row.encoding if row.encoding in encodings else encodings[0])
            ]
            sendable = dispatch.choose(self, due, encoding, now_ms, events, hides_others=True)
            passing = gates.choose(self, sendable, now_ms, events)
            self.admitted.update(row.id for row in passing)
        return [one for one in events if not isinstance(one, Parked)]

    def group_places(self, _ids: Sequence[int]) -> Mapping[int, GroupPlace]:
        """Return none: groups have no order here."""
        return {}

    def postpone(
        self, ids: Sequence[int], due_at_ms: int, _reason: str = "", _gate: str | None = None
    ) -> None:
        """Ask about these rows again at that time."""
        self.admitted.difference_update(ids)
        self.later_ms.update(dict.fromkeys(ids, due_at_ms))

    def park(self, ids: Sequence[int], reason: str) -> None:
        """Leave messages to a person, where they lie."""
        for row_id in ids:
            self.admitted.discard(row_id)
            self.refusals.forget(row_id)
            self.refused[row_id] = reason


def _due(row: RowView, encoding: str) -> DueRow:
    kept = {name: getattr(row, name) for name in _KEPT}
    return DueRow(is_final=False, expiration_ms=0, encoding=encoding, message=b"", **kept)
