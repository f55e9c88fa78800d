"""Reads the owner of an instance, and the end of its interrupted cycle, from the token."""

from enum import Enum, auto
from zlib import crc32

import msgspec

from amqsidecar.broker import TakeSession
from amqsidecar.clock import Clock
from amqsidecar.engine.cycle_events import CycleObserver
from amqsidecar.errors import CommitRefused, ConfigError, LinkLost, Problem, SendsRefused
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent, CycleInDoubt, CycleRecovered
from amqsidecar.model.operation import OperationState, changed_to
from amqsidecar.model.schedule import RowFilter, RowState, StoreState
from amqsidecar.store import Store, StoreTransaction

TOKEN_QUEUE_PREFIX = "amqsidecar.token."  # noqa: S105 - the name of a queue
"""Followed by the name of an instance."""

_EXAMINERS = "doctor-"


NOT_OF_ONE_TIME = "store and broker are from different points in time"
HOLDER = f"the service: {NOT_OF_ONE_TIME}"
"""The holder of messages that may have been sent since the store or the broker was set back."""

_LOOK_S = 1.0
"""How long a token is waited for that may not be there."""
_GLANCE_S = 0.05
"""The same where the broker reports no token; it is then asked again."""

_WAITING = RowFilter(state=RowState.WAITING)


def is_examiner(instance: str) -> bool:
    """Whether an instance is an examination by `doctor`, or a remnant of one, not a sidecar."""
    return instance.startswith(_EXAMINERS)


class LastCycle(Enum):
    """How the store's last cycle ended, as the token shows."""

    CLEAN = auto()  # no cycle is unfinished, and the token agrees
    COMMITTED = auto()  # the unfinished cycle happened
    ROLLED_BACK = auto()  # the unfinished cycle did not happen
    IN_DOUBT = auto()  # the token is gone or foreign: the outcome is unknown


def judge_token(state: StoreState, token: int | None) -> LastCycle:
    """Return how the last cycle ended.

    Args:
        state: the state that opening the store returned.
        token: the number on the token; None = the token is known to be missing.
    """
    if state.unfinished is None:
        return LastCycle.CLEAN if token == state.cycle else LastCycle.IN_DOUBT
    if token == state.unfinished.cycle:
        return LastCycle.COMMITTED
    if token == state.cycle:
        return LastCycle.ROLLED_BACK
    return LastCycle.IN_DOUBT


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is ours.

    Attributes:
        cycle: the last finished one, from which to go on.
        uid: of the store; see `StoreState`.
        token_is_behind: the token in hand has a lower number than the cycle before that.
    """

    cycle: int
    uid: str
    token_is_behind: bool


class Recovery:
    """Becomes the owner of an instance and settles its last cycle.

    Args:
        link: must be open.
        store: has the unfinished cycle.
        observe: called with the settled cycle.
        adopts_tokens: whether a store without a token takes one that it has not made.
    """

    def __init__(
        self,
        link: TakeSession,
        store: Store,
        clock: Clock,
        observe: CycleObserver,
        *,
        adopts_tokens: bool = True,
    ) -> None:
        self._link = link
        self._store = store
        self._clock = clock
        self._observe = observe
        self._uid = ""
        self._adopts_tokens = adopts_tokens

    def own(self, state: StoreState, wait_s: float) -> Owned | None:
        """Take the token and settle its cycle; None = another process holds it, try again.

        Args:
            state: the state that opening the store returned.
            wait_s: how long to wait for the token.

        Raises:
            LinkLost: the connection is gone.
            ConfigError: the token is of another store, and this one does not adopt it.
        """
        is_known, token = self._take_token(state, wait_s)
        if not is_known:
            return None
        now_ms = self._clock.now_ms()
        events: list[AnyEvent] = []
        self._uid = state.uid
        first = self._leap(0)
        # Why the first: process or link may have ended right after it made its first token.
        foreign = None if token == first else token
        if not (state.token_created or self._adopts_tokens) and foreign is not None:
            raise _another_stores(state.instance)
        last = judge_token(state, token) if state.token_created else None
        is_set_back = last is LastCycle.IN_DOUBT and token is not None
        held_count = self._hold_all(state, now_ms) if is_set_back else 0
        with self._store.transaction() as tx:
            if last is None:
                cycle = first if foreign is None else self._leap(foreign)
            else:
                cycle = self._settle(tx, state, token, last, now_ms, events, held_count)
        if events:
            self._observe(events, None)
        if token is None:
            self._link.token.create(cycle)
            if self._link.token.take(wait_s) != cycle:
                # Why another number: the other process was slow to give its token back.
                return None
        elif not state.token_created and foreign is not None:
            self._exchange(cycle)
            token = cycle
        if not state.token_created:
            with self._store.transaction() as tx:
                tx.set_cycle(cycle)
                tx.set_token_created()
        is_behind = token is not None and token < cycle - 1
        return Owned(cycle=cycle, uid=self._uid, token_is_behind=is_behind)

    def _take_token(self, state: StoreState, wait_s: float) -> tuple[bool, int | None]:
        """Return whether the token's holder is known, and its number; None = there is none."""
        link = self._link
        if state.token_created:
            timeout_s = wait_s
        else:
            # Why ask first: most new stores have no token, and to wait for none takes all the time.
            timeout_s = min(wait_s, _GLANCE_S if link.token.exists() is False else _LOOK_S)
        token = link.token.take(timeout_s)
        if token is not None:
            return True, token
        if not state.token_created:
            # Why: a second token would take the queue from another process of the same name.
            return not link.token.exists(), None
        # Why twice: a predecessor's commit in flight may be between its take and its send.
        if link.token.exists() is not False:
            return False, None
        token = link.token.take(_LOOK_S)
        return token is not None or link.token.exists() is False, token

    def _exchange(self, cycle: int) -> None:
        """Exchange another store's token, before the store counts on one of this number.

        If the process dies inside, the next start finds either token, and neither is the store's.
        """
        try:
            self._link.commit_cycle([], [], cycle)
        except (SendsRefused, CommitRefused) as refused:
            raise LinkLost(f"another store's token can't be taken over: {refused}") from refused

    def _leap(self, cycle: int) -> int:
        """Return a cycle number that no other store of this instance name can reach.

        Without it the next number could be that of a cycle which another store has begun and could
        not commit: that one would take our token for the proof that it was.
        """
        return cycle + 2 + crc32(self._uid.encode())

    def _hold_all(self, state: StoreState, now_ms: int) -> int:
        """Hold all waiting rows: store and broker are from different times; return how many.

        A restored store has rows that were sent since; a restored broker has dead letters that were
        taken since. Only a person can decide which.

        Promise: after a crash the next start holds the remaining rows, for the token is unchanged
        until `_settle` is durable.
        """
        if state.unfinished is not None:
            with self._store.transaction() as tx:
                tx.settle_in_doubt(state.unfinished.cycle)
        for operation in self._store.open_operations():
            self._store.change_operation(
                operation.id,
                lambda one: changed_to(
                    one, OperationState.PAUSED, now_ms, "service", NOT_OF_ONE_TIME
                ),
            )

        def live_on(_matched: int, _changed: int) -> None:
            # Why: millions take minutes; a broker ends a link that says nothing, a lease runs out.
            self._link.wait(0.001)
            self._store.keep()

        return self._store.change(_WAITING, row_changes.hold(now_ms, HOLDER), live_on)

    def _settle(
        self,
        tx: StoreTransaction,
        state: StoreState,
        token: int | None,
        last: LastCycle,
        now_ms: int,
        events: list[AnyEvent],
        held_count: int,
    ) -> int:
        """Finish, undo or doubt the store's last cycle; return the number to go on from."""
        unfinished = state.unfinished
        cycle = max(state.cycle, token or 0)
        if last is LastCycle.IN_DOUBT:
            if unfinished is not None:
                if token is None:
                    tx.settle_in_doubt(unfinished.cycle)
                cycle = max(cycle, unfinished.cycle)
            said = "the token is missing" if token is None else f"the token says {token}"
            after = (
                "" if token is None else f"; {NOT_OF_ONE_TIME}, {held_count} that waited are held"
            )
            events.append(
                CycleInDoubt(
                    at_ms=now_ms,
                    cycle=state.cycle if unfinished is None else unfinished.cycle,
                    taken_count=0 if unfinished is None else unfinished.taken_count,
                    sent_count=0 if unfinished is None else unfinished.sent_count,
                    reason=f"{said}, the store's last finished cycle is {state.cycle}{after}",
                    token_is_missing=token is None,
                )
            )
            # Why: an older state of the store may have been brought back. It would give row numbers
            # again, and so redelivery ids, that messages in the broker have already.
            if token is not None:
                self._uid = tx.renew_uid()
                cycle = self._leap(cycle)
            else:
                tx.skip_ids()
            tx.set_cycle(cycle)
        elif unfinished is not None:
            committed = last is LastCycle.COMMITTED
            if committed:
                tx.finish_cycle(unfinished.cycle)
            else:
                tx.undo_cycle(unfinished.cycle)
            events.append(
                CycleRecovered(
                    at_ms=now_ms,
                    cycle=unfinished.cycle,
                    verdict="committed" if committed else "rolled_back",
                    taken_count=unfinished.taken_count,
                    sent_count=unfinished.sent_count,
                )
            )
        if events:
            tx.record(events)
        return cycle


def _another_stores(instance: str) -> ConfigError:
    what = (
        f"this store is new, and the token in {TOKEN_QUEUE_PREFIX}{instance} is of another store "
        "of this instance name; messages waiting there would not be sent. Start with that store, "
        "or, if it is lost or empty, set store.accept_orphans=true"
    )
    return ConfigError([Problem("store.url", what)])
