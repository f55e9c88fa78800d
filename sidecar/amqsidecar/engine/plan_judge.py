"""What becomes of a message that a plan redelivers: what the plan says of it."""

from collections.abc import Mapping, Sequence

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judge import MOST_REDELIVERIES, Judgement
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import Retried
from amqsidecar.model.provenance import kept_message_id
from amqsidecar.model.schedule import RowState, TakenRow


class Errand(msgspec.Struct, frozen=True):
    """Where a planned message goes, and when."""

    destination: str
    due_at_ms: int


class PlanJudge:
    """Gives each delivery what the plan says; only planned ones may come.

    A message is sent as a person's `retry` of a parked one would send it: its count goes on. It
    gets one more delivery, and if it dies of that, the rules say what they would have said.
    """

    def __init__(self, names: IntakeNames, encoding: str, actor: str) -> None:
        """Make it.

        Args:
            names: of the queues that are read now.
            encoding: of the link's messages.
            actor: the person or program that acts, for the history.
        """
        self._names = names
        self._encoding = encoding
        self._actor = actor
        self._errands: Mapping[str, Errand] = {}

    def expect(self, errands: Mapping[str, Errand]) -> None:
        """From now on messages of these redelivery ids come, and no others."""
        self._errands = errands

    def is_intake(self, destination: Destination) -> bool:
        """Return whether a destination is one that is read."""
        return self._names.covers(destination)

    def resend_problem(self, _destination: Destination, /) -> None:
        """Return None: a plan is executed on Artemis, whose link says what can be sent where."""

    def prepare(self, _deliveries: Sequence[Delivery], /) -> None:
        """Do nothing: the plan knows each of them."""

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the verdict on a delivery; see `Judge.judge`."""
        del uid, is_backlog
        provenance = delivery.provenance
        redelivery_id = provenance.redelivery_id or ""
        errand = self._errands[redelivery_id]
        row = TakenRow(
            id=row_id,
            state=RowState.WAITING,
            due_at_ms=max(now_ms, errand.due_at_ms),
            destination=errand.destination,
            is_final=False,
            source=str(delivery.source),
            redelivery_id=redelivery_id,
            redelivery_count=min(provenance.redelivery_count + 1, MOST_REDELIVERIES),
            delay_ms=0,
            expiration_ms=0,
            rule=self._actor,
            cause=provenance.cause,
            message_id=kept_message_id(provenance.message_id),
            received_at_ms=now_ms,
            encoding=self._encoding,
            message=delivery.message,
        )
        event = Retried(
            at_ms=now_ms,
            id=row_id,
            redelivery_id=redelivery_id,
            destination=errand.destination,
            actor=self._actor,
        )
        return Judgement(row, (event,))
