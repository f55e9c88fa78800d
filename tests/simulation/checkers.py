"""What must hold in every simulated history: each class is one claim.

A message is known by its body, which nothing alters. A message that was in a cycle in doubt (a loud
`CycleInDoubt`) may be there twice, as promised; it is never allowed to be missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from amqsidecar.broker import Resend
from amqsidecar.clock import SLEW
from amqsidecar.model.event import (
    AnyEvent,
    DeadLettered,
    Discarded,
    Held,
    Parked,
    Received,
    Resent,
    Returned,
)
from amqsidecar.model.schedule import RowState, RowView
from support.brokers.memory import StoredMessage, Watcher
from support.virtual_clock import VirtualClock

FINAL_QUEUE = "DLQ.exhausted"


class Violation(NamedTuple):
    """A claim that did not hold."""

    checker: str
    words: str


@dataclass
class End:
    """How a history ended, when all faults were over and everything had time to drain.

    Attributes:
        places: of each message, such as `DLQ`, `consumed`, or `a store`.
        journals: of each store, the events by redelivery id.
        rows: of each store, with the body.
        lying: redelivery ids of messages that a store says lie in their final queue.
        told: what observers were told.
        is_quiet: nothing moves any more.
    """

    places: dict[str, list[str]]
    journals: Sequence[Callable[[str], Sequence[AnyEvent]]]
    rows: list[list[tuple[RowView, str]]]
    lying: list[str]
    told: list[AnyEvent]
    is_quiet: bool


class Told(Watcher):
    """Called with what happens to broker, clock, sidecars and messages; does nothing."""

    def jumped(self, before_ms: int, after_ms: int) -> None:
        """The wall clock was set."""

    def operated(self, action: str, ids: Iterable[str], row_ids: Iterable[int]) -> None:
        """A person did something to these messages, which wait as these rows."""

    def let_wait(self, row_ids: Iterable[int]) -> None:
        """Gates delay these rows."""

    def purged(self) -> None:
        """A person removed the token."""

    def lost(self, ids: Iterable[str]) -> None:
        """A link ended while these were being sent."""

    def fell(self, error: Exception) -> None:
        """A turn of the engine ended with an unexpected error."""

    def began(self) -> None:
        """A process began: its clock, and gates where it has some, know nothing yet."""

    def told(self, events: Sequence[AnyEvent]) -> None:
        """A sidecar reported what happened."""

    def stood(self, full: str, waiting: Sequence[str]) -> None:
        """After the faults one queue was full for long, and these still waited for another one."""

    def ended(self, end: End) -> None:
        """Nothing more will happen."""


class Checker(Told):
    """One claim about a history, checked step by step."""

    def __init__(self, history: History) -> None:
        self.history = history

    def broken(self, words: str) -> None:
        """Say that the claim does not hold."""
        self.history.violations.append(Violation(type(self).__name__, words))


class Conserved(Checker):
    """At the end each message is in exactly one place."""

    def ended(self, end: End) -> None:
        for one in self.history.origins:
            places = end.places.get(one, [])
            is_right = places if one in self.history.doubted else len(places) == 1
            if not is_right:
                self.broken(f"{one} is in {places}")
        for one in end.places.keys() - self.history.origins.keys():
            self.broken(f"{one} came from nowhere")


class SentOnce(Checker):
    """The broker gets each message at most once per count, and at most once as a final one."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._seen: set[tuple[str, int]] = set()

    def sent(self, resend: Resend) -> None:
        one = resend.message.decode()
        key = (one, -1 if resend.is_final else resend.redelivery_count)
        if key in self._seen and one not in self.history.doubted:
            self.broken(f"{one} was sent again with count {resend.redelivery_count}")
        self._seen.add(key)


class NeverEarly(Checker):
    """No redelivery is sent before its delay has passed, whatever is done to the wall clock.

    The delay counts from the moment at which the broker handed the dead letter out. It passes by
    the time of the machine, a twentieth faster at most (`clock.py`). A process that
    begins believes the wall clock or the stored time, so that all steps count as passed time where
    one began meanwhile. A person may make a message due.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        # Why by count as well: a dead letter that was taken may come again after the next death of
        # its message, where accepting is no part of the transaction.
        self._taken_ms: dict[tuple[str, int], int] = {}
        self._believes: set[tuple[str, int]] = set()
        self._set_by_ms = 0
        self._excused: set[str] = set()

    def handed(self, message: StoredMessage) -> None:
        death = (message.body.decode(), message.redelivery_count)
        if death in self._taken_ms:
            # Why: perhaps it was decided when it was handed out for the first time.
            return
        self._taken_ms[death] = self.history.clock.current_ms
        self._excused.discard(death[0])

    def jumped(self, before_ms: int, after_ms: int) -> None:
        self._set_by_ms += abs(after_ms - before_ms)

    def began(self) -> None:
        self._believes.update(self._taken_ms)

    def operated(self, action: str, ids: Iterable[str], row_ids: Iterable[int]) -> None:
        if action in ("retry", "cancel"):
            self._excused.update(ids)

    def sent(self, resend: Resend) -> None:
        one, history = resend.message.decode(), self.history
        if resend.is_final or one in self._excused or one in history.doubted:
            return
        death = (one, resend.redelivery_count - 1)
        passed_ms = history.clock.current_ms - self._taken_ms[death]
        passed_ms += passed_ms // SLEW + 1
        if death in self._believes:
            passed_ms += self._set_by_ms
        if passed_ms < history.delay_ms:
            self.broken(f"{one} was sent {history.delay_ms - passed_ms} ms early")


class CountsGrow(Checker):
    """Each redelivery carries the count of the one before plus one; a final one the last count."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._counts: Counter[str] = Counter()

    def sent(self, resend: Resend) -> None:
        one = resend.message.decode()
        expected = self._counts[one] + (0 if resend.is_final else 1)
        if resend.redelivery_count != expected and one not in self.history.doubted:
            self.broken(f"{one} carries {resend.redelivery_count} in place of {expected}")
        self._counts[one] = resend.redelivery_count


class GoesHome(Checker):
    """A redelivery goes to where the message died, a final one to the final queue."""

    def sent(self, resend: Resend) -> None:
        one = resend.message.decode()
        expected = FINAL_QUEUE if resend.is_final else self.history.origins.get(one)
        if resend.destination.name != expected:
            self.broken(f"{one} went to {resend.destination.name}, not to {expected}")


class KnownToLie(Checker):
    """Of each message in the final queue one store knows so, and of no other."""

    def ended(self, end: End) -> None:
        known = Counter(end.lying)
        for one in self.history.origins.keys() - self.history.doubted:
            told = sum(known[name] for name in self.history.names[one])
            lies = end.places.get(one, []).count(FINAL_QUEUE)
            if told != lies:
                self.broken(f"{one} lies there {lies} times, {told} rows say so")


class TokenGrows(Checker):
    """The number on the token only grows until it is removed."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._newest = -1

    def committed(self, token: int) -> None:
        if token <= self._newest:
            self.broken(f"token {token} follows {self._newest}")
        self._newest = token

    def purged(self) -> None:
        self._newest = -1


_MOVES = (Received, Returned, Resent, DeadLettered, Discarded)


class JournalEqualsState(Checker):
    """The stored events of a message agree with its takes, its sends, and its row."""

    TERMINAL = (Resent, DeadLettered, Discarded)

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._sent: dict[str, list[Resend]] = defaultdict(list)
        self._accepted: Counter[str] = Counter()

    def sent(self, resend: Resend) -> None:
        self._sent[resend.message.decode()].append(resend)

    def accepted(self, message: StoredMessage) -> None:
        self._accepted[message.body.decode()] += 1

    def ended(self, end: End) -> None:
        rows = [{body: row for row, body in of_store} for of_store in end.rows]
        for one in self.history.origins:
            names = self.history.names[one]
            if one in self.history.doubted or not names:
                continue
            if len(names) > 1:
                self.broken(f"{one} has several redelivery ids: {sorted(names)}")
                continue
            (name,) = names
            told = [journal(name) for journal in end.journals]
            self._check_counts(one, [event for events in told for event in events])
            for events, of_store in zip(told, rows, strict=True):
                self._check_state(one, events, of_store.get(one))

    def _check_counts(self, one: str, events: Sequence[AnyEvent]) -> None:
        taken = sum(isinstance(event, Received | Returned) for event in events)
        if taken != self._accepted[one]:
            self.broken(f"{one} was taken {self._accepted[one]} times, the journal says {taken}")
        sent = sorted((one.is_final, one.redelivery_count) for one in self._sent[one])
        told = sorted(
            (isinstance(event, DeadLettered), event.redelivery_count)
            for event in events
            if isinstance(event, DeadLettered | Resent)
        )
        if sent != told:
            self.broken(f"{one} was sent as {sent}, the journal says {told}")

    def _check_state(self, one: str, events: Sequence[AnyEvent], row: RowView | None) -> None:
        last = events[-1] if events else None
        expected: RowState | None
        taken_or_sent = [event for event in events if isinstance(event, _MOVES)]
        match last:
            # Nobody takes back here: an act on an exhausted message leaves it where it lies.
            case _ if taken_or_sent and isinstance(taken_or_sent[-1], DeadLettered):
                expected = None
            case Held():
                expected = RowState.HELD
            case Parked():
                expected = RowState.PARKED
            case None:
                expected = None
            case _:
                expected = None if isinstance(last, self.TERMINAL) else RowState.WAITING
        found = None if row is None else row.state
        if found != expected:
            self.broken(f"{one} is {found}, the journal ends with {last}")


class ToldIsTrue(Checker):
    """What log and metrics reported is in the journal."""

    def ended(self, end: End) -> None:
        journals: dict[str, list[AnyEvent]] = {}
        excused = self.history.doubted_names()
        for event in end.told:
            name = event.redelivery_id
            if not name or name in excused:
                continue
            if name not in journals:
                journals[name] = [one for journal in end.journals for one in journal(name)]
            if event not in journals[name]:
                self.broken(f"told, but not in the journal: {event}")


class ParkedForCause(Checker):
    """Only a message that was refused, or in the air when a link ended, is parked."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._causes: set[str] = set()

    def refused(self, resend: Resend) -> None:
        self._causes.add(resend.message.decode())

    def purged(self) -> None:
        """A person removed the token."""

    def lost(self, ids: Iterable[str]) -> None:
        self._causes.update(ids)

    def ended(self, end: End) -> None:
        for row, one in (pair for of_store in end.rows for pair in of_store):
            if row.state is RowState.PARKED and one not in self._causes:
                self.broken(f"{one} is parked: {row.reason}")


class BacklogHeld(Checker):
    """All that lay in the dead-letter queue at the first start is held, and nothing younger.

    As long as nothing was taken for good, a start is the first one.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._most: int | None = None

    def accepted(self, message: StoredMessage) -> None:
        if self._most is None:
            self._most = len(self.history.origins)

    def ended(self, end: End) -> None:
        least, most = self.history.backlog, self._most or 0
        if self.history.doubted:
            return
        held = sum(
            isinstance(event, Held) and event.actor is None
            for name in set().union(*self.history.names.values())
            for journal in end.journals
            for event in journal(name)
        )
        if not (least <= held <= most if least else held == 0):
            self.broken(f"{held} are held in place of {least} to {most}")


class Drains(Checker):
    """After the faults nothing waits: all is delivered, or kept for a person."""

    def ended(self, end: End) -> None:
        if not end.is_quiet:
            self.broken("it does not come to rest")
        for row, one in (pair for of_store in end.rows for pair in of_store):
            if row.state is not RowState.PARKED or row.in_flight:
                self.broken(f"{one} is left as {row.state} for {row.destination}: {row.reason}")
        for one, places in end.places.items():
            if "DLQ" in places:
                self.broken(f"{one} is left in the dead-letter queue")


class OthersFlow(Checker):
    """While one destination is full, all that goes elsewhere gets there."""

    def stood(self, full: str, waiting: Sequence[str]) -> None:
        for one in waiting:
            self.broken(f"{one} waits though only {full} is full")


class NeverFalls(Checker):
    """Nothing but a lost link and a failing store ends a turn."""

    def fell(self, error: Exception) -> None:
        self.broken(f"{type(error).__name__}: {error}")


CHECKERS: tuple[type[Checker], ...] = (
    Conserved,
    SentOnce,
    NeverEarly,
    CountsGrow,
    GoesHome,
    KnownToLie,
    TokenGrows,
    JournalEqualsState,
    ToldIsTrue,
    ParkedForCause,
    BacklogHeld,
    Drains,
    OthersFlow,
    NeverFalls,
)
_STEPS = [name for name in (*vars(Watcher), *vars(Told)) if not name.startswith("_")]


class History(Told):
    """Reports events to every checker, and keeps what several of them need.

    Attributes:
        origins: of all messages that ever died, where they died first.
        names: the redelivery ids that each message has had.
        doubted: messages that were in a cycle in doubt.
        sidecar_now_ms: returns the time of the first sidecar's process.
        delay_ms: what the rules give each redelivery.
        backlog: how many dead letters were there before the first start, where that is a backlog.
        pace: maximum messages, and the milliseconds for them, where sidecars have gates.
        verdict_ms: how long nothing else of a message group goes; 0 = sidecars keep no order.
    """

    def __init__(
        self,
        clock: VirtualClock,
        delay_ms: int,
        backlog: int,
        checkers: Sequence[type[Checker]] = CHECKERS,
    ) -> None:
        self.clock = clock
        self.sidecar_now_ms = clock.now_ms
        self.delay_ms = delay_ms
        self.backlog = backlog
        self.pace = (0, 0)
        self.verdict_ms = 0
        self.origins: dict[str, str] = {}
        self.doubted: set[str] = set()
        self.names: dict[str, set[str]] = defaultdict(set)
        self.violations: list[Violation] = []
        self.note: Callable[..., None] | None = None
        made = [one(self) for one in checkers]
        for name in _STEPS:
            hooks = [
                getattr(one, name)
                for one in made
                if getattr(type(one), name) is not getattr(Told, name)
            ]
            if name == "sent":
                hooks.insert(0, self._learn_name)
            setattr(self, name, _all_of(name, hooks, self))

    def _learn_name(self, resend: Resend) -> None:
        self.names[resend.message.decode()].add(resend.redelivery_id)

    def doubted_names(self) -> set[str]:
        """Return the redelivery ids of all doubted messages."""
        return set().union(*(self.names[one] for one in self.doubted))


def _all_of(name: str, hooks: list[Callable[..., None]], history: History) -> Callable[..., None]:
    def call(*values: object) -> None:
        if history.note is not None and name not in ("ended", "told"):
            history.note(name, *values)
        for hook in hooks:
            hook(*values)

    return call
