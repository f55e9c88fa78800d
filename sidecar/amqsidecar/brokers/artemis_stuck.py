"""Dead letters that Artemis counts as handed out although nobody has them.

Quirk (Artemis 2.44): when a STOMP connection dies while messages are handed over or acknowledged, a
few may be left between the queue and its consumers. They are safe in the journal, and nobody gets
them before the broker is started again.
"""

import json
from collections.abc import Sequence

from amqsidecar.broker import LeftBehind
from amqsidecar.brokers.artemis_management import ArtemisQuestions, Question
from amqsidecar.model.destination import Destination

REASON = "stuck_in_broker"
MEANING = (
    "the broker counts them as handed out, and no consumer has them: a connection died in the "
    "wrong moment, or whoever took them has gone and left its transaction open; if they stay, "
    "start the broker anew, and they are handed out again"
)


class StuckMessages:
    """Compares what queues have handed out with what their consumers hold, look by look."""

    def __init__(self, management: ArtemisQuestions) -> None:
        self._management = management
        self._before: dict[Destination, int] = {}

    def look(self, queues: Sequence[Destination]) -> tuple[LeftBehind, ...]:
        """Return what was stuck at this look and the one before; call at intervals of seconds."""
        if self._management.missing is not None:
            return ()
        now = {queue: self._count(queue) for queue in queues}
        lasting = {queue: min(count, self._before.get(queue, 0)) for queue, count in now.items()}
        self._before = now
        return tuple(
            LeftBehind(queue, REASON, count, MEANING) for queue, count in lasting.items() if count
        )

    def _count(self, queue: Destination) -> int:
        resource = f"queue.{queue.name.rpartition('::')[2]}"
        handed_out = self._management.ask(Question(resource, attribute="DeliveringCount"))
        if not handed_out.is_ok or not handed_out.value:
            return 0
        consumers = self._management.ask(Question(resource, "listConsumersAsJSON"))
        if not consumers.is_ok:
            return 0
        held = sum(
            int(consumer.get("messagesInTransit", 0))
            + int(consumer.get("messagesAcknowledgedAwaitingCommit", 0))
            for consumer in json.loads(consumers.value)
        )
        return max(0, int(handed_out.value) - held)
