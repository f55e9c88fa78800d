"""Gates for simulated sidecars, and what must hold of them; each class is one claim.

Only what sidecars reported counts: a send whose commit was never answered is left out. So is what a
person retries, but for its own claim.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import amqsidecar_breaker
import amqsidecar_order
import amqsidecar_pace
import amqsidecar_windows
from amqsidecar.broker import Resend
from amqsidecar.engine.gates import Gates
from amqsidecar.model.event import AnyEvent, DestinationBlocked, Resent, Scheduled
from amqsidecar.model.schedule import DueRow
from amqsidecar.plugin import Gate
from amqsidecar.store import RowDelays
from simulation.checkers import Checker, End, History
from support.gates import gate_of

WINDOWED = "queue://invoices"
"""Its window is open in each even minute."""


def group_of(_encoding: str, message: bytes) -> str | None:
    """Return the group of a simulated message: one of three has none."""
    number = int(message[1:])
    return f"g{number % 2}" if number % 3 else None


class GateMaker:
    """Makes new gates for each process; the seed decides what they allow."""

    def __init__(self, seed: int, history: History) -> None:
        chance = random.Random(f"gates {seed}")
        self._history = history
        self.messages, self.per_ms = chance.choice([(1, 100), (1, 900), (3, 1_000), (2, 5_000)])
        self._share = chance.choice([0.4, 0.9])
        # Why not always: who keeps an order rarely queues up for a pace.
        self.verdict_ms = chance.choice([100, 3_000, 20_000]) if seed % 2 else 0
        history.pace = (self.messages, self.per_ms)
        history.verdict_ms = self.verdict_ms

    def make(self) -> Gates:
        window = {"opens": "*/2 * * * *", "open_for_minutes": 1}
        breaking = {
            "share": self._share,
            "least": 3,
            "window_ms": 20_000,
            "probe": 1,
            "wait_ms": 3_000,
            "most_wait_ms": 20_000,
            "verdict_ms": 1_000,
        }
        gates: dict[str, Gate] = {
            "windows": gate_of(
                amqsidecar_windows.plugin, entries=[{"queue": "invoices", "windows": [window]}]
            ),
            "breaker": gate_of(amqsidecar_breaker.plugin, default_entry=breaking),
            "pace": gate_of(
                amqsidecar_pace.plugin,
                default_entry={"messages": self.messages, "per_ms": self.per_ms},
            ),
        }
        if self.verdict_ms:
            gates["order"] = gate_of(
                amqsidecar_order.plugin, default_entry={"verdict_ms": self.verdict_ms}
            )
        return _Watched(gates, self._history)


class _Watched(Gates):
    """Reports to the history which rows wait."""

    def __init__(self, gates: Mapping[str, Gate], history: History) -> None:
        super().__init__(gates)
        self._history = history

    def choose(
        self, tx: RowDelays, rows: Sequence[DueRow], now_ms: int, events: list[AnyEvent]
    ) -> list[DueRow]:
        passing = super().choose(tx, rows, now_ms, events)
        self._history.let_wait(sorted({row.id for row in rows} - {row.id for row in passing}))
        return passing


class PersonAware(Checker):
    """Knows which rows a person has retried: they go until a person says otherwise."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._retried: set[int] = set()
        self._unsent: dict[int, str] = {}
        self._is_by_rules = True

    def operated(self, action: str, ids: Iterable[str], row_ids: Iterable[int]) -> None:
        rows = dict(zip(row_ids, ids, strict=True))
        if action == "retry":
            self._retried.update(rows)
            self._unsent.update(rows)
        elif action == "hold":
            self._retried.difference_update(rows)
            for row_id in rows:
                self._unsent.pop(row_id, None)

    def sent(self, resend: Resend) -> None:
        """Note whether a person asked for this send."""
        one = resend.message.decode()
        row_id = next((row_id for row_id, other in self._unsent.items() if other == one), None)
        self._is_by_rules = row_id is None
        if row_id is not None:
            del self._unsent[row_id]

    def by_rules(self, events: Iterable[AnyEvent]) -> Iterator[Resent]:
        """Yield re-sends that no person asked for."""
        for event in events:
            if isinstance(event, Resent) and event.id not in self._retried:
                yield event


class NowMeansNow(PersonAware):
    """No gate delays a row that a person retried."""

    def let_wait(self, row_ids: Iterable[int]) -> None:
        for row_id in self._retried.intersection(row_ids):
            self.broken(f"a gate lets row {row_id} wait, which a person retried")


class Paced(PersonAware):
    """In no time more is sent to a destination than the pace allows.

    What was sent by another process does not count; a step of the wall clock excuses nothing.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._sent_ms: dict[str, list[int]] = defaultdict(list)

    def began(self) -> None:
        self._sent_ms.clear()

    def told(self, events: Sequence[AnyEvent]) -> None:
        messages, per_ms = self.history.pace
        for event in self.by_rules(events):
            if event.at_ms > self.history.sidecar_now_ms():
                continue
            sent_ms = self._sent_ms[event.destination]
            sent_ms.append(event.at_ms)
            for count, at_ms in enumerate(reversed(sent_ms), 1):
                time_ms = event.at_ms - at_ms
                if count * per_ms > messages * (per_ms + time_ms):
                    self.broken(f"{count} went to {event.destination} in {time_ms} ms")
                    return


class InWindow(PersonAware):
    """Nothing is sent while its window is closed."""

    def told(self, events: Sequence[AnyEvent]) -> None:
        for event in self.by_rules(events):
            if event.destination == WINDOWED:
                at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
                if at.minute % 2:
                    self.broken(f"one went to {WINDOWED} at {at:%H:%M:%S}")


class StaysOpen(PersonAware):
    """Until a breaker's wait is over, nothing goes past it, whatever is done to the wall clock."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._open: dict[str, tuple[int, int]] = {}

    def began(self) -> None:
        self._open.clear()

    def told(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            if event.at_ms > self.history.sidecar_now_ms():
                continue
            if isinstance(event, DestinationBlocked) and event.reason.startswith("breaker: open"):
                self._open[event.destination] = (event.at_ms, event.retry_at_ms)
            for sent in self.by_rules([event]):
                from_ms, until_ms = self._open.get(sent.destination, (0, 0))
                if from_ms <= sent.at_ms < until_ms:
                    self.broken(f"one went to {sent.destination} {until_ms - sent.at_ms} ms early")


class OneOfAGroup(PersonAware):
    """What goes while another of its group may still come back, a person has sent.

    Whoever sent that one: another process, too. What was sent before the clock was set does not
    count for a process that began later.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._last: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        self._was_set = False

    def jumped(self, before_ms: int, after_ms: int) -> None:
        self._was_set = True

    def began(self) -> None:
        if self._was_set:
            self._last.clear()

    def sent(self, resend: Resend) -> None:
        super().sent(resend)
        group = group_of("", resend.message) if self.history.verdict_ms else None
        if resend.is_final or group is None:
            return
        one, now_ms = resend.message.decode(), self.history.sidecar_now_ms()
        last = self._last[resend.destination.name, group]
        for other, at_ms in last.items():
            time_ms = now_ms - at_ms
            if other != one and time_ms < self.history.verdict_ms and self._is_by_rules:
                self.broken(f"{one} went {time_ms} ms after {other}")
        last[one] = now_ms


class InOrder(PersonAware):
    """Nothing goes while the schedule has one of its group that died before it.

    Only what was reported counts; the identity of a message is known when it is sent.
    """

    def __init__(self, history: History) -> None:
        super().__init__(history)
        self._waiting: dict[str, tuple[str, int]] = {}
        self._went: list[tuple[str, list[str]]] = []

    def told(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Scheduled):
                self._waiting[event.redelivery_id] = (event.destination, event.id)

    def operated(self, action: str, ids: Iterable[str], row_ids: Iterable[int]) -> None:
        super().operated(action, ids, row_ids)
        if action == "cancel":
            gone = set(row_ids)
            left = {name: one for name, one in self._waiting.items() if one[1] not in gone}
            self._waiting = left

    def sent(self, resend: Resend) -> None:
        super().sent(resend)
        self._waiting.pop(resend.redelivery_id, None)
        if resend.is_final or not self._is_by_rules:
            return
        store, _, _ = resend.redelivery_id.partition("-")
        before = [
            name
            for name, (destination, _) in self._waiting.items()
            if destination == str(resend.destination)
            and name.startswith(f"{store}-")
            and name < resend.redelivery_id
        ]
        self._went.append((resend.message.decode(), before))

    def ended(self, end: End) -> None:
        if not self.history.verdict_ms:
            return
        ones = {name: one for one, names in self.history.names.items() for name in names}
        for one, before in self._went:
            group = group_of("", one.encode())
            for other in filter(None, map(ones.get, before)):
                if group is not None and group_of("", other.encode()) == group:
                    self.broken(f"{one} went before {other}, which died before it")


GATE_CHECKERS: tuple[type[Checker], ...] = (
    Paced,
    InWindow,
    StaysOpen,
    NowMeansNow,
    OneOfAGroup,
    InOrder,
)
