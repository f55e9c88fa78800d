"""The service without a store: the broker keeps waiting messages."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from amqsidecar.broker import IntakeQueue, Link, MoveSession
from amqsidecar.engine.blockage import Blockages
from amqsidecar.engine.broker_held_queues import INSTANCE, PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.loss import Losses
from amqsidecar.engine.move_cycle import MoveEngine
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination
from amqsidecar.runtime.work import EngineParts, MakeJudge, OpenedLink, Work


def open_to_move(link: Link) -> MoveSession:
    """Open a link without a token and make the two queues that the engine needs.

    Raises:
        LinkLost: the broker can't be reached.
        BrokerRefused: the broker can't hold waiting messages, or denies us; nothing was taken.
    """
    session = link.move()
    with ExitStack() as stack:
        stack.callback(session.close)
        for queue in (WAITING_QUEUE, PARKED_QUEUE):
            problem = session.send_terms(queue, makes=True).problem or session.waiting_problem(
                queue
            )
            if problem is not None:
                raise BrokerRefused(f"{queue} is needed where store.url is broker: {problem}")
        stack.pop_all()
    return session


class BrokerHeldMode:
    """Opens links that move dead letters on a broker that keeps waiting messages."""

    def __init__(
        self, *, make_link: Callable[[str], Link], make_judge: MakeJudge, parts: EngineParts
    ) -> None:
        self._make_link = make_link
        self._make_judge = make_judge
        self._parts = parts
        self._blockages = Blockages()
        self._losses = Losses()

    def open(self) -> OpenedLink:
        """Open a link and make the queues that it needs; see `OpenLink`."""
        link = open_to_move(self._make_link(INSTANCE))
        # Why at once: there is no token, and the broker itself delivers due messages.
        return OpenedLink(INSTANCE, link, lambda _is_stopped, _wake_at: self._work(link))

    def _work(self, link: MoveSession) -> Work:
        names = IntakeNames(link.description.kind)
        bound = self._parts.cycle_size(link)
        engine = MoveEngine(
            link=link,
            judge=self._make_judge(link, names),
            uid=secrets.token_hex(8),
            clock=self._parts.clock,
            max_messages=bound,
            observe=self._parts.observe,
            blockages=self._blockages,
            losses=self._losses,
            crash_point=self._parts.crash_point,
        )
        return _Moving(engine, names, bound)


class _Moving:
    """See `Work`; there is no store, no backlog, no token and no final queue that is read."""

    def __init__(self, engine: MoveEngine, names: IntakeNames, cycle_size: int) -> None:
        self.engine = engine
        self.names = names
        self.cycle_size = cycle_size

    def queues_besides(self) -> Sequence[IntakeQueue]:
        return ()

    def meet(self, queues: Sequence[Destination]) -> None:
        pass

    def look_for_tokens(self) -> None:
        pass

    def tend(self) -> bool:
        return False
