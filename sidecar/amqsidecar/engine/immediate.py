"""Redeliveries without a delay: sent by the cycle that takes them, and never written as a row.

The broker's transaction accepts the dead letter and sends the message to its origin, so that the
message is always in exactly one of the two. Only a proven destination gets such messages: after any
failure it must first take a re-send from the schedule. A message that the broker refuses stays in
the dead-letter queue, and is stored when it is taken next.
Messages kept in their queues (`from_place.py`) go to unproven destinations, too, or stay in hand.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from amqsidecar.broker import Resend
from amqsidecar.engine.send_gate import GateAction, GateAnswer, SendGate
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.schedule import DueRow, Recall, RowState, TakenRow

CYCLE_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that a cycle sends at most, with all that is due; less than a store claims."""

DESTINATIONS_MAX = 10_000
"""Destinations remembered; beyond it all are forgotten, and proven again."""


class ImmediateChoice(NamedTuple):
    """The rows that a cycle takes.

    Attributes:
        sent: in this cycle, as `resends`.
        left: rows that stay in hand, by number, with the reason; None = a later cycle sends them.
    """

    sent: list[TakenRow]
    resends: list[Resend]
    stored: list[TakenRow]
    left: dict[int, GateAnswer | None]


class ImmediateSends:
    """Chooses the rows that need not be stored, and remembers the destinations that take them.

    It belongs to one link: after a lost one, the engine of the next one begins with another.
    """

    def __init__(self, gate: SendGate) -> None:
        self._gate = gate
        self._proven: set[str] = set()

    @property
    def has_places(self) -> bool:
        """Whether any destination is proven."""
        return bool(self._proven)

    def note_taken(self, rows: Iterable[DueRow]) -> None:
        """Take note that the broker took these; those without a delay prove their destinations."""
        self._proven.update(
            row.destination for row in rows if not row.delay_ms and not row.is_final
        )
        if len(self._proven) > DESTINATIONS_MAX:
            self._proven.clear()

    def forget(self) -> None:
        """Take note that something went wrong: all is stored first until it is proven anew."""
        self._proven.clear()

    def choose(
        self,
        taken: Sequence[TakenRow],
        replacing: Iterable[int],
        now_ms: int,
        due: Sequence[DueRow],
        limit: int,
        *,
        may_send: bool = True,
    ) -> ImmediateChoice:
        """Return the rows to send in this cycle, the rows to store, and those to leave in hand.

        Args:
            taken: rows that the cycle takes.
            replacing: numbers of rows that replace other rows; they are stored.
            due: rows that the cycle sends from the schedule.
            limit: maximum rows sent, including `due`.
            may_send: False = only messages kept in their queues are sent.
        """
        chosen = ImmediateChoice([], [], [], {})
        sent, resends, stored, left = chosen
        answers: dict[tuple[str, bool], GateAnswer | None] = {}
        replacing = frozenset(replacing)
        limit -= len(due)
        left_bytes = CYCLE_BYTES_MAX - sum(len(row.message) for row in due)
        for row in taken:
            is_due = row.state is RowState.WAITING and not row.is_final and row.due_at_ms <= now_ms
            lies = row.recall is Recall.RULES
            if not is_due or not (lies or may_send):
                stored.append(row)
                continue
            place = (row.destination, lies)
            admitted: Resend | GateAnswer | None = None
            fits = len(row.message) <= left_bytes or (lies and not sent)
            if len(sent) < limit and fits and (lies or row.id not in replacing):
                if place not in answers:
                    answers[place] = self._answer(*place)
                if (answer := answers[place]) is not None:
                    is_open = answer.action is GateAction.SEND
                    admitted = self._gate.admit(row, answer) if is_open else answer
            if isinstance(admitted, Resend):
                sent.append(row)
                resends.append(admitted)
                left_bytes -= len(row.message)
            elif lies:
                left[row.id] = admitted
            else:
                # Why: later messages must not overtake it.
                answers[place] = None
                stored.append(row)
        return chosen

    def _answer(self, name: str, lies: bool) -> GateAnswer | None:
        """Return the gate's answer about a destination that takes messages; None = store them."""
        if not lies and name not in self._proven:
            return None
        answer = self._gate.ask(parse_destination(name))
        return answer if lies or answer.action is GateAction.SEND else None
