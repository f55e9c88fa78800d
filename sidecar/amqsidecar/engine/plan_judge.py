"""The judgement on a message that a plan redelivers, taken from the plan."""

from collections.abc import Mapping, Sequence

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.judging.judge import MOST_REDELIVERIES, Judgement
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.model.event import Retried
from amqsidecar.model.provenance import kept_message_id
from amqsidecar.model.schedule import RowState, TakenRow


class Assignment(msgspec.Struct, frozen=True):
    """Where a planned message goes, and when."""

    destination: str
    due_at_ms: int


class PlanJudge:
    """Gives each delivery the plan's verdict; only planned ones may come.

    A message is sent as a person's `retry` of a parked one would send it: its count goes on. It
    gets one more delivery, and if it dies of that, the rules say what they would have said.
    """

    def __init__(self, send_rules: SendRules, actor: str) -> None:
        """Make it.

        Args:
            send_rules: where no message is sent.
            actor: the person or program that acts, for the history.
        """
        self.send_rules = send_rules
        self._actor = actor
        self._assignments: Mapping[str, Assignment] = {}

    def expect(self, assignments: Mapping[str, Assignment]) -> None:
        """From now on messages of these redelivery ids come, and no others."""
        self._assignments = assignments

    def prepare(self, _deliveries: Sequence[Delivery], /) -> None:
        """Do nothing: the plan names each message."""

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the judgement on a delivery; see `Judge.judge`."""
        del uid, is_backlog
        provenance = delivery.provenance
        redelivery_id = provenance.redelivery_id or ""
        assignment = self._assignments[redelivery_id]
        row = TakenRow(
            id=row_id,
            state=RowState.WAITING,
            due_at_ms=max(now_ms, assignment.due_at_ms),
            destination=assignment.destination,
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
            encoding=delivery.encoding,
            message=delivery.message,
        )
        event = Retried(
            at_ms=now_ms,
            id=row_id,
            redelivery_id=redelivery_id,
            destination=assignment.destination,
            actor=self._actor,
        )
        return Judgement(row, (event,))
