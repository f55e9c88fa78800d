"""Dead letters that AMQP clients have made: the broker would convert them for a Core client."""

from collections.abc import Sequence
from typing import Final

from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion
from amqsidecar.formats.amqp_artemis_message import CORE_NUMBER
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

MADE_BY_AMQP: Final = (
    f'("m.x-opt-ORIG-ADDRESS" IS NOT NULL OR (_AMQ_AD IS NOT NULL AND {CORE_NUMBER} IS NULL))'
)
"""Selector of AMQP clients' messages: of dead ones only those have annotations.

A consumer may give a message up by a copy, which did not die. `_AMQ_AD` identifies it; why the
number: an application may write `_AMQ_AD` on a Core message, and each of those that died has one.

Why not `__AMQ_CID IS NULL`: the Core API without JMS, STOMP and MQTT don't set that property.
"""

MADE_BY_OTHERS: Final = (
    f'("m.x-opt-ORIG-ADDRESS" IS NULL AND (_AMQ_AD IS NULL OR {CORE_NUMBER} IS NOT NULL))'
)
"""Selector of everything else, also of messages without an origin."""

REASON: Final = "made_by_amqp"


def why_left_by_core() -> str:
    """Return the fix where Core alone was chosen."""
    return "use artemis:// in broker.url"


def left_amqp_made(
    management: ArtemisQuestions, queues: Sequence[Destination], why: str
) -> tuple[LeftBehind, ...]:
    """Return how many of these stay in each queue; () = none, or the broker can't be asked.

    Quirk (Artemis 2.44): `countMessages` with a filter looks at the first 200 messages only.

    Args:
        management: asks the broker.
        queues: to look into.
        why: they are not read over AMQP; "" = they are.
    """
    if not why:
        return ()
    answers = management.ask_all(
        [
            ManagementQuestion(
                f"queue.{one.name.rpartition('::')[2]}", "countMessages", (MADE_BY_AMQP,)
            )
            for one in queues
        ]
    )
    meaning = f"AMQP clients have made them, and the broker would convert them for Core: {why}"
    return tuple(
        LeftBehind(one, REASON, int(answer.value), meaning, at_least=True)
        for one, answer in zip(queues, answers, strict=True)
        if answer.is_ok and answer.value
    )
