"""Messages that stay in a queue of Artemis, and why: stuck, too large, or made by AMQP clients.

Quirk (Artemis 2.44): when a STOMP connection dies while it has messages in hand, the first one of
each subscription may be left between the queue and its consumers (why:
`amqsidecar.brokers.stomp_artemis.token`). It is safe in the journal, and no consumer gets it before
the broker is restarted. No listing of the management shows it, so a token that is left there
can't be read. It happens to consumers of applications as well, through the listener or not.

Dead letters that AMQP clients have made stay where only Core reads: the broker would convert them.
"""

import json
from collections.abc import Sequence
from typing import Final

from amqsidecar.brokers.artemis.management import (
    ArtemisQuestions,
    ManagementQuestion,
    QueueRow,
    of_queue,
)
from amqsidecar.formats.amqp_artemis_message import CORE_NUMBER
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.left_behind import LeftBehind

STUCK: Final = "stuck_in_broker"
MEANING = (
    "the broker counts them as handed out, and no consumer has them: their consumer died at the "
    "wrong moment, or disconnected and left its transaction open; if they stay, restart the "
    "broker, and they are handed out again"
)

MEANING_HALTED = (
    "the broker counts the token of this instance as handed out, and no consumer has it: an open "
    "transaction has it, or a sidecar of an older version died at the wrong moment; nothing is "
    "taken or sent, and nothing is lost; if it stays, restart the broker, and the token comes back"
)


class StuckMessages:
    """Compares each queue's count of messages handed out with its consumers' counts."""

    def __init__(self, management: ArtemisQuestions) -> None:
        self._management = management
        self._before: dict[str, int] = {}

    def look(self, read: Sequence[Destination]) -> tuple[LeftBehind, ...]:
        """Return messages stuck now and at the last call; call at intervals of seconds.

        Args:
            read: queues whose consumers are asked how many messages they hold. Other queues are
                checked only while they have no consumer.
        """
        names = {one.name.rpartition("::")[2]: one for one in read}
        now: dict[str, int] = {}
        lasting: list[LeftBehind] = []
        for row in self._management.delivering_queues():
            if row.consumer_count and row.name not in names:
                continue
            now[row.name] = row.delivering_count - _held(self._management, row)
            count = min(now[row.name], self._before.get(row.name, 0))
            if count > 0:
                place = names.get(row.name) or queue(row.name)
                lasting.append(LeftBehind(place, STUCK, count, MEANING))
        self._before = now
        return tuple(lasting)


class StuckToken:
    """Finds a token that does not come although no other connection can get it."""

    def __init__(self, management: ArtemisQuestions, token_queue: Destination) -> None:
        self._management = management
        self._queue = token_queue
        self._before = 0

    def look(self) -> tuple[LeftBehind, ...]:
        """Return messages stuck now and at the last call; call at intervals of seconds.

        Call it only while this connection alone gets the queue's messages, and has no token.
        """
        before, self._before = self._before, self._management.durable_count(self._queue.name) or 0
        stuck = min(before, self._before)
        return (LeftBehind(self._queue, STUCK, stuck, MEANING_HALTED),) if stuck else ()


def _held(management: ArtemisQuestions, row: QueueRow) -> int:
    """Return how many messages of a queue its consumers hold; all where they can't be asked."""
    if not row.consumer_count:
        return 0
    listed = management.ask(ManagementQuestion(f"queue.{row.name}", "listConsumersAsJSON"))
    if not listed.is_ok:
        return row.delivering_count
    return sum(
        int(one.get("messagesInTransit", 0)) + int(one.get("messagesAcknowledgedAwaitingCommit", 0))
        for one in json.loads(listed.value)
    )


def left_too_large(queue: Destination, count: int) -> LeftBehind:
    """Report messages of a queue that are too large to take."""
    meaning = (
        "they are larger than 256 MiB, the most that is taken of a message: move them with the "
        "broker's console"
    )
    return LeftBehind(queue, "too_large", count, meaning)


MADE_BY_AMQP: Final = (
    f'("m.x-opt-ORIG-ADDRESS" IS NOT NULL OR (_AMQ_AD IS NOT NULL AND {CORE_NUMBER} IS NULL))'
)
"""Selector of AMQP clients' messages: no other dead letters have annotations.

A consumer may give a message up by a copy, which did not die. `_AMQ_AD` identifies it. Why the
number: an application may write `_AMQ_AD` on a Core message, and each Core dead letter has one.

Why not `__AMQ_CID IS NULL`: the Core API without JMS, STOMP and MQTT don't set that property.
"""

MADE_BY_OTHERS: Final = (
    f'("m.x-opt-ORIG-ADDRESS" IS NULL AND (_AMQ_AD IS NULL OR {CORE_NUMBER} IS NOT NULL))'
)
"""Selector of everything else, also of messages without an origin."""

MADE_BY_AMQP_REASON: Final = "made_by_amqp"


def why_left_by_core() -> str:
    """Return how to take AMQP clients' messages where `broker.url` chose Core alone."""
    return "use artemis:// in broker.url"


def left_amqp_made(
    management: ArtemisQuestions, queues: Sequence[Destination], why: str
) -> tuple[LeftBehind, ...]:
    """Return how many AMQP messages stay in each queue; () = none, or the broker can't be asked.

    Quirk (Artemis 2.44): `countMessages` with a filter looks at the first 200 messages only.

    Args:
        management: asks the broker.
        queues: to count in.
        why: reason why they are not read over AMQP; "" = they are.
    """
    if not why:
        return ()
    answers = management.ask_all([of_queue(one, "countMessages", MADE_BY_AMQP) for one in queues])
    meaning = f"AMQP clients have made them, and the broker would convert them for Core: {why}"
    return tuple(
        LeftBehind(one, MADE_BY_AMQP_REASON, int(answer.value), meaning, at_least=True)
        for one, answer in zip(queues, answers, strict=True)
        if answer.is_ok and answer.value
    )
