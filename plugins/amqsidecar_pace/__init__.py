"""Gate `pace`: limits the re-sends to a destination per time.

For each destination: a bucket that holds `messages` and is filled again in `per_ms`. So in any time
of t milliseconds at most `messages` x (1 + t / `per_ms`) are sent there, by the sidecar's clock.
What is too much queues up: each message is given a slot, and waits until then; a slot is for as
many as the bucket holds. Slots are a little further apart than the bucket needs, so that what comes
late to its slot still finds it full.
"""

from dataclasses import dataclass

from amqsidecar.plugin import (
    Destination,
    DueMessage,
    EntriesPlugin,
    EntryFinder,
    GateEntries,
    GatePlugin,
    OptionReader,
    RuleSource,
    Wait,
)

LANES_MAX = 10_000
"""Maximum destinations paced separately at a time; more share one pace."""

STALL_MS = 5_000
"""Time without a send after a slot was due, after which the queue is replaced by a new one."""

CLEAR_EVERY_MS = 1_000
"""So often those are forgotten that nothing has to be remembered of."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The limit of one entry: `messages` per `per_ms`."""

    messages: int
    per_ms: int
    source: RuleSource

    @property
    def slot_ms(self) -> int:
        """The time between two slots: a twentieth more than the bucket needs."""
        return self.per_ms + max(1, self.per_ms // 20)

    def __str__(self) -> str:
        return f"{self.messages} per {self.per_ms} ms ({self.source})"


class Lane:
    """The bucket and the queue of one destination.

    Times of the bucket are multiplied by `messages`, so that all numbers are whole: it is full when
    `_empty_until` is now, and one message moves that by `per_ms`.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._stall = (STALL_MS + pace.slot_ms) * pace.messages
        self._empty_until = 0
        self._seen_ms = 0
        self._first_ms = self._last_ms = 0
        self._last_count = 0

    def is_idle(self, now_ms: int) -> bool:
        """Return whether it remembers nothing: the bucket is full and no message has a slot."""
        return self._empty_until <= now_ms * self._pace.messages and self._last_ms <= now_ms

    def may_go(self, due_at_ms: int, now_ms: int) -> bool:
        """Return whether a message may be taken out of the bucket now.

        While others queue only those go that have waited for their slot.
        """
        if now_ms < self._seen_ms:
            # Why: the clock was set back; the slots that were given are far away now.
            self._last_ms = 0
        self._seen_ms = now_ms
        if now_ms * self._pace.messages - self._empty_until >= self._stall:
            # Why: messages with slots were held, cancelled or blocked, so the slots stay empty.
            self._last_ms = 0
        scaled, room = now_ms * self._pace.messages, self._pace.messages * self._pace.per_ms
        self._empty_until = min(self._empty_until, scaled + room)
        is_free = max(self._empty_until, scaled) + self._pace.per_ms <= scaled + room
        return is_free and (self._last_ms <= now_ms or self._has_slot(due_at_ms))

    def take(self, now_ms: int) -> None:
        """Take one message out of the bucket."""
        scaled = now_ms * self._pace.messages
        self._empty_until = max(self._empty_until, scaled) + self._pace.per_ms

    def give_slot(self, now_ms: int) -> int:
        """Return when one more message may go, behind all that wait."""
        if self._last_ms <= now_ms:
            full_ms = -(-self._empty_until // self._pace.messages)
            self._first_ms = self._last_ms = max(full_ms, now_ms + 1)
            self._last_count = 0
        elif self._last_count == self._pace.messages:
            self._last_ms += self._pace.slot_ms
            self._last_count = 0
        self._last_count += 1
        return self._last_ms

    def _has_slot(self, due_at_ms: int) -> bool:
        since_ms = due_at_ms - self._first_ms
        return since_ms >= 0 and since_ms % self._pace.slot_ms == 0


class PaceGate:
    """Paces each destination by itself."""

    def __init__(self, options: GateEntries[Pace]) -> None:
        self._finder = EntryFinder(options)
        self._lanes: dict[Destination, Lane] = {}
        self._shared: dict[Pace, Lane] = {}
        self._cleared_ms = 0

    def describe(self, destination: Destination) -> str | None:
        """Return the options that act on a destination."""
        return self._finder.describe(destination)

    def wait_of(self, message: DueMessage, now_ms: int) -> Wait | None:
        """Return the slot that a message gets; None = the bucket has one for it."""
        pace = self._finder.find(message.destination)
        if pace is None:
            return None
        lane = self._lane(message.destination, pace, now_ms)
        if lane.may_go(message.due_at_ms, now_ms):
            return None
        return Wait(lane.give_slot(now_ms), f"pace: {pace}")

    def passed(self, message: DueMessage, now_ms: int) -> None:
        """Take it out of the bucket."""
        pace = self._finder.find(message.destination)
        if pace is not None:
            self._lane(message.destination, pace, now_ms).take(now_ms)

    def resent(self, destination: Destination, now_ms: int) -> None:
        """Count nothing: it counted when it passed."""

    def returned(self, destination: Destination, now_ms: int) -> None:
        """Count nothing."""

    def _lane(self, destination: Destination, pace: Pace, now_ms: int) -> Lane:
        lane = self._lanes.get(destination)
        if lane is not None:
            return lane
        if len(self._lanes) >= LANES_MAX and abs(now_ms - self._cleared_ms) >= CLEAR_EVERY_MS:
            self._cleared_ms = now_ms
            kept = {name: one for name, one in self._lanes.items() if not one.is_idle(now_ms)}
            self._lanes = kept
        if len(self._lanes) >= LANES_MAX:
            return self._shared.setdefault(pace, Lane(pace))
        return self._lanes.setdefault(destination, Lane(pace))


def _read(reader: OptionReader) -> Pace:
    return Pace(
        messages=reader.integer("messages", 1, least=1, most=1_000_000),
        per_ms=reader.integer("per_ms", 1_000, least=100, most=86_400_000),
        source=reader.source,
    )


plugin: GatePlugin = EntriesPlugin("pace", _read, PaceGate)
