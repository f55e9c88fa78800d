"""Executes a plan of bulk redelivery, batch by batch; interrupted anywhere, it goes on there.

What was redelivered is in the history of the store that did it (`Retried`, by this plan), written
in the transaction that did it. So a batch that was interrupted is begun again, and what was done of
it is known; how many batches are done stands in a file beside.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Event as Flag
from typing import Protocol

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.errors import LinkLost, StoreUnavailable
from amqsidecar.model.event import Retried
from amqsidecar.model.redrive import PlannedMessage, PlannedPlace
from amqsidecar.runtime.redrive.progress import ProgressFile
from amqsidecar.store import Store

BATCH_MAX = 500
BATCH_CHARACTERS_MAX = 60_000
"""Of redelivery ids: they are asked for in one frame, of which Artemis takes 128 KiB."""

AHEAD_MS = 10_000
"""Maximum time between taking a message out of its queue and sending it."""

STEP_S = 1.0
RECONNECT_S = 2.0

ANOTHER_PLACE = "in_another_place"
ANOTHER_SIDECAR = "of_another_sidecar"


class LogInOutdated(LinkLost):
    """There is a newer token to log in with: the next hand logs in with it, at once."""


class Plan(Protocol):
    """The plan to execute."""

    plan_id: str
    message_count: int

    def messages(self, first_number: int) -> Iterator[PlannedMessage]:
        """Yield the rows from a number on, by number."""
        ...


class Hand(Protocol):
    """Redelivers the messages of one place, one batch at a time."""

    def begin(self, batch: Sequence[PlannedMessage], began_ms: int) -> None:
        """Redeliver these messages, each at its offset from a time; `step` does it."""
        ...

    def step(self, wait_s: float) -> None:
        """Do the pending work, or wait at most this long.

        Raises:
            LinkLost, StoreUnavailable: a new hand has to begin the batch again.
            LogInOutdated: so it has, without a pause.
        """
        ...

    @property
    def is_done(self) -> bool:
        """Whether each message of the batch was taken or left."""
        ...

    @property
    def taken(self) -> int:
        """How many messages of the batch were taken, in this run or before."""
        ...

    @property
    def left(self) -> Mapping[str, int]:
        """How many messages of the batch were left where they are, by reason."""
        ...

    def unsent(self) -> tuple[int, int]:
        """Return how many of the taken ones wait to be sent, and how many are parked."""
        ...

    def wake(self) -> None:
        """End a running wait; may be called by a signal handler."""
        ...


class RedriveTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the execution of a plan so far, over all its runs.

    Attributes:
        planned: rows of the plan.
        sent: messages that were sent; those of a store: made due, their sidecar sends them.
        waiting: taken out of their queue, and not sent yet.
        parked: taken, and can't be sent; they wait for a person in the execution's own store.
        left: messages that were not touched, by reason.
        stopped: it was ended before all was done; the same command does the rest.
    """

    plan_id: str
    planned: int
    sent: int
    waiting: int
    parked: int
    left: dict[str, int]
    stopped: bool


class Redrive:
    """One run of an execution."""

    def __init__(
        self,
        *,
        plan: Plan,
        place: PlannedPlace,
        sidecar: str | None,
        open_hand: Callable[[], AbstractContextManager[Hand]],
        progress: ProgressFile,
        clock: Clock,
        advance: Callable[[int], None],
        say: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            plan: the plan to execute.
            place: only messages that lie there.
            sidecar: only messages of this one; None = of all.
            open_hand: opens what redelivers them; raises what `Hand.step` does.
            progress: where the execution stands.
            clock: paces.
            advance: called with the number of rows that are newly done.
            say: called with sentences for the operator.
        """
        self._plan = plan
        self._place = place
        self._sidecar = sidecar
        self._open_hand = open_hand
        self._file = progress
        self._clock = clock
        self._advance = advance
        self._say = say
        self._stop = Flag()
        self._hand: Hand | None = None

    def stop(self) -> None:
        """Finish the running cycle, then leave `run`; may be called by a signal handler."""
        self._stop.set()
        if self._hand is not None:
            self._hand.wake()

    def run(self) -> RedriveTotals:
        """Execute the plan from where it stands.

        Raises:
            LinkLost, StoreUnavailable: it can't be begun; later they are waited out.
            BrokerRefused: the broker or the wire can't do it.
        """
        has_begun = False
        while True:
            try:
                with self._open_hand() as hand:
                    self._hand, has_begun = hand, True
                    return self._run(hand)
            except LogInOutdated as error:
                self._say(str(error))
            except (LinkLost, StoreUnavailable) as error:
                if not has_begun:
                    raise
                self._say(f"{error}; it is tried again")
                self._stop.wait(RECONNECT_S)
                if self._stop.is_set():
                    raise
            finally:
                self._hand = None

    def _run(self, hand: Hand) -> RedriveTotals:
        progress = self._file.progress
        batches = _Batches(self._plan.messages(progress.next_number), self._is_ours)
        began_ms: int | None = None
        while not self._stop.is_set() and (offset_ms := batches.next_offset_ms) is not None:
            now_ms = int(self._clock.monotonic_s() * 1000)
            # Why the later: what was late before does not make the rest come faster.
            late_ms = now_ms - offset_ms
            began_ms = late_ms if began_ms is None else max(began_ms, late_ms)
            passed_ms = now_ms - began_ms
            horizon_ms = passed_ms + AHEAD_MS
            if offset_ms > horizon_ms:
                hand.step(min(STEP_S, (offset_ms - horizon_ms) / 1000))
                continue
            batch, foreign, next_number = batches.take(horizon_ms)
            hand.begin(batch, self._clock.now_ms() - passed_ms)
            while not hand.is_done:
                if self._stop.is_set():
                    return self._outcome(hand, hand.taken)
                hand.step(STEP_S)
            done = next_number - self._file.progress.next_number
            self._file.add(next_number, hand.taken, foreign + Counter(hand.left))
            self._advance(done)
        while not self._stop.is_set() and hand.unsent()[0]:
            hand.step(STEP_S)
        return self._outcome(hand, 0)

    def _is_ours(self, message: PlannedMessage) -> str:
        """Return why a message is not ours; "" = it is."""
        if message.place is not self._place:
            return ANOTHER_PLACE
        if self._sidecar is not None and message.sidecar != self._sidecar:
            return ANOTHER_SIDECAR
        return ""

    def _outcome(self, hand: Hand, taken_of_batch: int) -> RedriveTotals:
        progress = self._file.progress
        waiting, parked = hand.unsent()
        return RedriveTotals(
            plan_id=self._plan.plan_id,
            planned=self._plan.message_count,
            sent=progress.taken + taken_of_batch - waiting - parked,
            waiting=waiting,
            parked=parked,
            left=progress.left,
            stopped=progress.next_number < self._plan.message_count or waiting > 0,
        )


class _Batches:
    """Cuts the rows of a plan into batches."""

    def __init__(
        self, messages: Iterator[PlannedMessage], why_not: Callable[[PlannedMessage], str]
    ) -> None:
        self._messages = messages
        self._why_not = why_not
        self._next = next(messages, None)

    @property
    def next_offset_ms(self) -> int | None:
        """The offset of the next row; None = there are no more."""
        return None if self._next is None else self._next.offset_ms

    def take(self, horizon_ms: int) -> tuple[list[PlannedMessage], Counter[str], int]:
        """Return the next rows, how many others were passed over and why, and the number to go on.

        Args:
            horizon_ms: the largest offset.
        """
        batch: list[PlannedMessage] = []
        others: Counter[str] = Counter()
        characters = next_number = 0
        while self._next is not None and self._next.offset_ms <= horizon_ms:
            message = self._next
            characters += len(message.redelivery_id)
            is_full = len(batch) + others.total() >= BATCH_MAX or characters > BATCH_CHARACTERS_MAX
            if next_number and is_full:
                break
            next_number = message.number + 1
            if reason := self._why_not(message):
                others[reason] += 1
            else:
                batch.append(message)
            self._next = next(self._messages, None)
        return batch, others, next_number


def was_redriven(store: Store, redelivery_id: str, actor: str) -> bool:
    """Return whether a store's history shows a plan's redelivery of a message."""
    return any(
        isinstance(event, Retried) and event.actor == actor
        for event in store.history(redelivery_id)
    )
