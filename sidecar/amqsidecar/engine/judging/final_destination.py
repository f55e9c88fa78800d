"""Where a final dead letter goes: the one answer that run, explain and doctor give."""

from collections.abc import Callable

from amqsidecar.model.decision import DeadLetterTo
from amqsidecar.model.destination import Destination, final_queue


def final_destination(
    decision: DeadLetterTo,
    source: Destination,
    is_intake: Callable[[Destination], bool],
    suffix: str,
) -> Destination:
    """Return the queue for exhausted messages: never one that the intake reads, never a topic.

    Where no rule names it, it belongs to the queue that the message was read from. Rules of
    Classic's kind without a strategy say nothing of Artemis, and little of a Classic that has one.

    Args:
        source: the dead-letter queue that the message was read from.
        is_intake: returns whether the intake reads a queue.
        suffix: `redelivery.final_suffix`.
    """
    decided = decision.destination
    if decision.is_assumed or not decided.is_queue:
        decided = source
    return final_queue(decided, suffix) if is_intake(decided) else decided
