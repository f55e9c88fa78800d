"""What a service without a store needs of a link."""

from collections.abc import Callable, Sequence
from typing import cast

from amqsidecar.broker import IntakeQueue, Link
from amqsidecar.engine.broker_held_queues import NOT_KEPT, PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.engine.move_cycle import MovingLink
from amqsidecar.errors import BrokerRefused

INSTANCE = "broker-held"
"""Names the connections of a service without a store."""


def open_to_move(link: Link) -> MovingLink:
    """Open a link without a token and make the two queues that the engine needs.

    Raises:
        LinkLost: the broker can't be reached.
        BrokerRefused: the broker can't keep what waits, or we may not use it; nothing was taken.
    """
    if link.features.delayed is None:
        link.open(None)
        raise BrokerRefused(NOT_KEPT[link.description.kind])
    moving = cast(MovingLink, link)
    moving.open_to_move()
    for queue in (WAITING_QUEUE, PARKED_QUEUE):
        problem = moving.prepare_final(queue) or moving.waiting_problem(queue)
        if problem is not None:
            raise BrokerRefused(f"{queue} is needed where store.url is broker: {problem}")
    return moving


def named_with_waiting(named: Sequence[IntakeQueue]) -> tuple[IntakeQueue, ...]:
    """Return the queues that an operator named, and our own; none named = none."""
    return (*named, IntakeQueue(WAITING_QUEUE)) if named else ()


def found_with_waiting(
    find: Callable[[Link], Sequence[IntakeQueue]],
) -> Callable[[Link], Sequence[IntakeQueue]]:
    """Return what finds the same queues, and our own."""
    return lambda link: (*find(link), IntakeQueue(WAITING_QUEUE))
