"""Messages that Artemis counts as handed out although nobody has them.

Quirk (Artemis 2.44): when a STOMP connection dies while it has messages in hand, a few may be left
between the queue and its consumers. They are safe in the journal, and nobody gets them before the
broker is started again. No listing of the management shows them, so that it can't be read what a
token says that is among them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from amqsidecar.broker import LeftBehind
from amqsidecar.brokers.artemis_management import ArtemisQuestions, Question
from amqsidecar.model.destination import Destination

REASON = "stuck_in_broker"
MEANING = (
    "the broker counts them as handed out, and no consumer has them: a connection died in the "
    "wrong moment, or whoever took them has gone and left its transaction open; if they stay, "
    "start the broker anew, and they are handed out again"
)

MEANING_HALTED = (
    "the broker counts the token of this instance as handed out, and no consumer has it: a "
    "connection died in the wrong moment; nothing is taken or sent, and nothing is lost; if it "
    "stays, start the broker anew, and the token comes back; it does not come over another wire"
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
        now = {queue: _look(self._management, queue).stuck for queue in queues}
        lasting = {queue: min(count, self._before.get(queue, 0)) for queue, count in now.items()}
        self._before = now
        return tuple(
            LeftBehind(queue, REASON, count, MEANING) for queue, count in lasting.items() if count
        )


class StuckToken:
    """Does so with the queue of a token that is waited for."""

    def __init__(self, management: ArtemisQuestions, token_queue: Destination) -> None:
        self._management = management
        self._queue = token_queue
        self._before = _NOTHING

    def look(self) -> tuple[LeftBehind, ...]:
        """Return the token if it was stuck at this look and the one before, and nobody worked.

        Why: between two questions another instance may exchange it, again and again.
        """
        if self._management.missing is not None:
            return ()
        before, self._before = self._before, _look(self._management, self._queue)
        if not before.stuck or self._before != before:
            return ()
        return (LeftBehind(self._queue, REASON, before.stuck, MEANING_HALTED),)


class _Look(NamedTuple):
    """One look at a queue.

    Attributes:
        stuck: how many messages are handed out, and in the hand of no consumer.
        delivered: how many each consumer has been handed so far, by its id.
    """

    stuck: int
    delivered: Mapping[int, int]


_NOTHING = _Look(0, {})


def _look(management: ArtemisQuestions, queue: Destination) -> _Look:
    resource = f"queue.{queue.name.rpartition('::')[2]}"
    handed_out = management.ask(Question(resource, attribute="DeliveringCount"))
    if not handed_out.is_ok or not handed_out.value:
        return _NOTHING
    listed = management.ask(Question(resource, "listConsumersAsJSON"))
    if not listed.is_ok:
        return _NOTHING
    consumers = json.loads(listed.value)
    held = sum(
        int(one.get("messagesInTransit", 0)) + int(one.get("messagesAcknowledgedAwaitingCommit", 0))
        for one in consumers
    )
    delivered = {one["consumerID"]: int(one.get("messagesDelivered", 0)) for one in consumers}
    return _Look(max(0, int(handed_out.value) - held), delivered)
