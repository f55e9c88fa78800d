"""Redelivers planned messages that lie in queues of a broker, by cycles of an own instance."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from amqsidecar.broker import IntakeQueue, Link, TakesChosen, TakeSession
from amqsidecar.clock import Clock
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.plan_judge import Assignment, PlanJudge
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.engine.send_gate import SendGate
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.event import AnyEvent, DestinationBlocked, Parked, Retried
from amqsidecar.model.redrive import PlannedMessage
from amqsidecar.model.schedule import RowState
from amqsidecar.runtime.redrive.redrive import LogInOutdated, was_redriven
from amqsidecar.schedule import Schedule
from amqsidecar.store import Store

NOT_CHOSEN = (
    "only over AMQP on Artemis can chosen messages be taken out of a queue of any length (Classic "
    "shows a selector no more than the first few hundred): move these in the broker's own console"
)
NOT_OURS = "another process executes this plan and holds the token {}"

NOT_IN_QUEUE = "not_in_queue"
"""Reason: the queue does not hold it, or another consumer has it."""

NOT_HANDED_OVER = "not_handed_over"
"""Reason: the queue holds it, and the broker does not give it to us."""

NO_ROUTE = "no_route"
"""Reason: what is sent to its destination now would get lost, or is the broker's or ours."""

_TOKEN_WAIT_S = 2.0
_TOKEN_TRIES = 5
_LOOK_S = 0.2
_LONGEST_LOOK_S = 30.0
_LOOKS_MAX = 15


class QueueHand:
    """One link with its engine; see `Hand`."""

    def __init__(
        self,
        link: TakeSession,
        chooser: TakesChosen,
        store: Store,
        *,
        final_suffix: str,
        allowed_origins: Sequence[str],
        plan_id: str,
        clock: Clock,
        max_messages: int,
        say: Callable[[str], None],
        crash_point: CrashPoint,
        login_outdated: Callable[[float], bool],
    ) -> None:
        """Make it; the link and the store are open."""
        self._link = link
        self._login_outdated = login_outdated
        self._since_s = clock.monotonic_s()
        self._chooser = chooser
        self._store = store
        self._clock = clock
        self._say = say
        self._actor = f"redrive:{plan_id}"
        self._names = IntakeNames(link.description.kind)
        rules = SendRules(
            link.description.kind,
            self._names.covers,
            final_suffix,
            allowed_origins=allowed_origins,
        )
        self._judge = PlanJudge(rules, self._actor)
        self._gate = SendGate(link, rules)
        self.engine = CycleEngine(
            link=link,
            store=store,
            judge=self._judge,
            backlog=BacklogGate(lambda _source: 0, holds=False, threshold=0),
            clock=clock,
            limits=CycleLimits(max_taken=max_messages, max_sent=max_messages),
            observe=self._observe,
            crash_point=crash_point,
        )
        self._pending: dict[str, Destination] = {}
        self._looks = 0
        self._look_s = _LOOK_S
        self._look_at_s = 0.0
        self.taken = 0
        self.left: Counter[str] = Counter()

    def begin(self, batch: Sequence[PlannedMessage], began_ms: int) -> None:
        """Choose the messages of a batch that were not taken in an earlier run."""
        self.taken, self.left, self._pending = 0, Counter(), {}
        self._looks, self._look_s = 0, max(_LOOK_S, self._look_s / 2)
        assignments = {}
        for message in batch:
            if was_redriven(self._store, message.redelivery_id, self._actor):
                self.taken += 1
            elif (answer := self._gate.ask(parse_destination(message.destination))).reason:
                self.left[NO_ROUTE] += 1
                self._say(f"{message.redelivery_id} stays in its queue: {answer}")
            else:
                self._pending[message.redelivery_id] = parse_destination(message.source)
                due_at_ms = began_ms + message.offset_ms
                assignments[message.redelivery_id] = Assignment(message.destination, due_at_ms)
        self._judge.expect(assignments)
        queues = self._pending_by_queue()
        self._names.replace([IntakeQueue(queue) for queue in queues])
        if queues:
            self._chooser.choose(queues)
            self._wait_for_look()

    def _pending_by_queue(self) -> dict[Destination, list[str]]:
        queues: dict[Destination, list[str]] = {}
        for redelivery_id, queue in self._pending.items():
            queues.setdefault(queue, []).append(redelivery_id)
        return queues

    def step(self, wait_s: float) -> None:
        """Run a cycle, or find out which messages are missing.

        Raises:
            LinkLost, StoreUnavailable: as `Hand.step`.
            LogInOutdated: between cycles, as soon as a newer token exists; logging in with it.
        """
        if self._login_outdated(self._since_s):
            self.engine.settle_up()
            raise LogInOutdated("a newer token exists: logging in with it")
        if not self._pending:
            self.engine.turn(wait_s)
            return
        look_in_s = max(0.0, self._look_at_s - self._clock.monotonic_s())
        has_run = self.engine.turn(min(wait_s, look_in_s))
        if not has_run and self._pending and self._clock.monotonic_s() >= self._look_at_s:
            self._look_for_missing()

    def _look_for_missing(self) -> None:
        # Why nothing is read meanwhile: the broker does not report what is on its way to us.
        self._chooser.choose({})
        self._looks += 1
        for queue, ids in self._pending_by_queue().items():
            if not self._chooser.holds_chosen(queue, ids):
                self._leave(ids, NOT_IN_QUEUE)
            elif self._looks >= _LOOKS_MAX:
                self._leave(ids, NOT_HANDED_OVER)
        self._chooser.choose(self._pending_by_queue())
        # Why longer: the broker searches a queue from its start, which may be long.
        self._look_s = min(2 * self._look_s, _LONGEST_LOOK_S)
        self._wait_for_look()

    def _wait_for_look(self) -> None:
        self._look_at_s = self._clock.monotonic_s() + self._look_s

    def _leave(self, ids: Sequence[str], reason: str) -> None:
        for redelivery_id in ids:
            del self._pending[redelivery_id]
        self.left[reason] += len(ids)

    def _observe(self, events: Sequence[AnyEvent], _stats: CycleStats | None) -> None:
        for event in events:
            match event:
                case Retried():
                    del self._pending[event.redelivery_id]
                    self.taken += 1
                    self._looks = 0
                    self._wait_for_look()
                case DestinationBlocked():
                    self._say(f"{event.destination} accepts no messages now: {event.reason}")
                case Parked():
                    self._say(f"{event.redelivery_id} is parked: {event.reason}")
                case _:
                    pass

    @property
    def is_done(self) -> bool:
        """Whether each message of the batch was taken or left."""
        return not self._pending

    def unsent(self) -> tuple[int, int]:
        """Return how many of the taken ones wait to be sent, and how many are parked."""
        self.engine.settle_up()
        tallies = self._store.tallies()
        waiting = sum(one.count for one in tallies if one.state is RowState.WAITING)
        return waiting, sum(one.count for one in tallies) - waiting

    def wake(self) -> None:
        """End a running wait."""
        self._link.wake()


@contextmanager
def queue_hand(
    make_link: Callable[[str], Link],
    schedule: Schedule,
    *,
    final_suffix: str,
    allowed_origins: Sequence[str],
    plan_id: str,
    clock: Clock,
    max_messages: int,
    say: Callable[[str], None],
    crash_point: CrashPoint,
    login_outdated: Callable[[float], bool],
) -> Iterator[QueueHand]:
    """Become the plan's only executor over schedule and link; settle what was interrupted.

    Args:
        make_link: to the broker, for an instance.
        schedule: of this execution only.
        final_suffix: `redelivery.final_suffix`.
        allowed_origins: `redelivery.allowed_origins`.
        plan_id: names the plan.
        clock: of the cycles.
        max_messages: of one cycle.
        say: called with sentences for the operator.
        crash_point: called with the point of a cycle that was reached.
        login_outdated: whether a link that was up at this monotonic time has to log in again.

    Raises:
        BrokerRefused: the wire can't choose messages, or the broker refuses us.
        LinkLost: the broker can't be reached, or another process executes the plan.
        StoreUnavailable: the store can't be opened.
    """
    state = schedule.reopen()
    opened = make_link(state.instance)
    if not opened.takes_chosen:
        schedule.close()
        raise BrokerRefused(NOT_CHOSEN)
    link = opened.take(TOKEN_QUEUE_PREFIX + state.instance)
    try:
        chooser = link.features.choosing
        if chooser is None:
            raise BrokerRefused(NOT_CHOSEN)
        hand = QueueHand(
            link,
            chooser,
            schedule,
            final_suffix=final_suffix,
            allowed_origins=allowed_origins,
            plan_id=plan_id,
            clock=clock,
            max_messages=max_messages,
            say=say,
            crash_point=crash_point,
            login_outdated=login_outdated,
        )
        for _ in range(_TOKEN_TRIES):
            if hand.engine.recover(state, _TOKEN_WAIT_S):
                break
            # Why: an attempt that fails may have settled the last cycle before.
            state = schedule.state()
        else:
            raise LinkLost(NOT_OURS.format(TOKEN_QUEUE_PREFIX + state.instance))
        yield hand
        hand.engine.settle_up()
    finally:
        link.close()
        schedule.close()
