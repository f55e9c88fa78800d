"""What a service without a store needs of a link."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from amqsidecar.broker import IntakeQueue, Link, LookSession, MoveSession
from amqsidecar.engine.broker_held_queues import PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.errors import BrokerRefused

INSTANCE = "broker-held"
"""Names the connections of a service without a store."""


def open_to_move(link: Link) -> MoveSession:
    """Open a link without a token and make the two queues that the engine needs.

    Raises:
        LinkLost: the broker can't be reached.
        BrokerRefused: the broker can't keep what waits, or we may not use it; nothing was taken.
    """
    session = link.move()
    with ExitStack() as stack:
        stack.callback(session.close)
        for queue in (WAITING_QUEUE, PARKED_QUEUE):
            problem = session.prepare_final(queue) or session.waiting_problem(queue)
            if problem is not None:
                raise BrokerRefused(f"{queue} is needed where store.url is broker: {problem}")
        stack.pop_all()
    return session


def named_with_waiting(named: Sequence[IntakeQueue]) -> tuple[IntakeQueue, ...]:
    """Return the queues that an operator named, and our own; none named = none."""
    return (*named, IntakeQueue(WAITING_QUEUE)) if named else ()


def found_with_waiting(
    find: Callable[[LookSession], Sequence[IntakeQueue]],
) -> Callable[[LookSession], Sequence[IntakeQueue]]:
    """Return what finds the same queues, and our own."""
    return lambda link: (*find(link), IntakeQueue(WAITING_QUEUE))
