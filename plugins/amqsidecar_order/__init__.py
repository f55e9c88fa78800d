"""Gate `order`: the messages of one group go in the order of their first death, one at a time.

The store names the first message of a group in the schedule; the gate remembers which messages of
each group are *out*: re-sent, and not long enough ago to be sure that they don't come back. A
message that comes back is first again, because it died first. So the gate needs no report of
returns, and forgets a group `verdict_ms` after its last re-send. It can't know what was out before
it was made: then the first of a group waits as if one were.
"""

from dataclasses import dataclass

from amqsidecar.plugin import (
    Destination,
    DueMessage,
    EntriesPlugin,
    EntryFinder,
    GateEntries,
    GatePlugin,
    GroupPlace,
    OptionReader,
    RowState,
    RuleSource,
    Wait,
)

ASK_AGAIN_MS = 60_000
"""The longest time for which it is believed that the first of a group stays: a person may act."""

GROUPS_MAX = 100_000
"""Maximum groups with a message out at a time; the others wait."""

CLEAR_EVERY_MS = 1_000
"""So often those are forgotten that have nothing out."""


@dataclass(frozen=True, slots=True)
class Order:
    """The options of one entry: a message is delivered if it stays away for `verdict_ms`."""

    verdict_ms: int
    source: RuleSource

    def __str__(self) -> str:
        return f"one of a group at a time, the next after {self.verdict_ms} ms ({self.source})"


@dataclass(slots=True)
class Out:
    """Messages of a group that may still come back.

    Attributes:
        verdict_ms: as in `Order`.
        redelivery_id: of the last one that went.
        others_until_ms: when those that went before it got through.
        until_ms: when the last one got through; None = it is not known yet whether it has arrived.
    """

    verdict_ms: int
    redelivery_id: str
    others_until_ms: int
    until_ms: int | None = None

    def all_through_ms(self, now_ms: int) -> int:
        """Return when all of them got through."""
        latest_ms = now_ms + self.verdict_ms
        # Why also then: the clock was set back.
        if self.until_ms is None or self.until_ms > latest_ms:
            self.until_ms = latest_ms
        return max(self.until_ms, self.others_through_ms(now_ms))

    def others_through_ms(self, now_ms: int) -> int:
        """Return when all but the last one got through."""
        self.others_until_ms = min(self.others_until_ms, now_ms + self.verdict_ms)
        return self.others_until_ms

    def through_ms(self, redelivery_id: str, now_ms: int) -> int:
        """Return when all but one got through: that one is in the schedule, so it isn't out."""
        if redelivery_id == self.redelivery_id:
            return self.others_through_ms(now_ms)
        return self.all_through_ms(now_ms)


class OrderGate:
    """Keeps the order of each group at each destination by itself."""

    def __init__(self, options: GateEntries[Order]) -> None:
        self._finder = EntryFinder(options)
        self._out: dict[tuple[Destination, str], Out] = {}
        self._began_ms: int | None = None
        self._cleared_ms = 0

    def describe(self, destination: Destination) -> str | None:
        """Return the options that act on a destination."""
        return self._finder.describe(destination)

    def wait_of(self, message: DueMessage, now_ms: int) -> Wait | None:
        """Return until when a message of a group waits for others of it."""
        began_ms = self._began(now_ms)
        if message.group is None or message.place is None:
            return None
        order = self._finder.find(message.destination)
        if order is None:
            return None
        out = self._out.get((message.destination, message.group))
        if message.place.before:
            until_ms, why = _turn(message.place, order.verdict_ms, now_ms)
        elif out is not None:
            until_ms = out.through_ms(message.redelivery_id, now_ms)
            why = "another message of its group was re-sent and may still come back"
        elif len(self._out) >= GROUPS_MAX and not self._makes_room(now_ms):
            until_ms = now_ms + order.verdict_ms
            why = f"{GROUPS_MAX} other groups have one that was re-sent and may still come back"
        else:
            until_ms = began_ms + order.verdict_ms
            why = "another message of its group may have been re-sent before the start"
        return None if until_ms <= now_ms else Wait(until_ms, f"order: {why} ({order.source})")

    def passed(self, message: DueMessage, now_ms: int) -> None:
        """Remember that it is out."""
        began_ms = self._began(now_ms)
        order = None if message.group is None else self._finder.find(message.destination)
        if order is None or message.group is None:
            return
        key = (message.destination, message.group)
        out = self._out.get(key)
        if out is not None:
            others_ms = out.through_ms(message.redelivery_id, now_ms)
        elif len(self._out) < GROUPS_MAX:
            others_ms = began_ms + order.verdict_ms
        else:
            return
        self._out[key] = Out(order.verdict_ms, message.redelivery_id, others_ms)

    def arrived(self, message: DueMessage, now_ms: int) -> None:
        """From now on it counts how long it has not come back."""
        out = self._out.get((message.destination, message.group or ""))
        if out is None:
            return
        if message.redelivery_id == out.redelivery_id:
            out.until_ms = now_ms + out.verdict_ms
        else:
            out.others_until_ms = now_ms + out.verdict_ms

    def resent(self, destination: Destination, now_ms: int) -> None:
        """Do nothing: `arrived` names the message."""

    def returned(self, destination: Destination, now_ms: int) -> None:
        """Do nothing: the schedule knows the first message."""

    def _began(self, now_ms: int) -> int:
        """Return since when it knows all unreturned messages."""
        if self._began_ms is None or self._began_ms > now_ms:
            # Why also then: the clock was set back.
            self._began_ms = now_ms
        return self._began_ms

    def _makes_room(self, now_ms: int) -> bool:
        """Forget groups without unreturned messages; return whether there is room for another."""
        if abs(now_ms - self._cleared_ms) >= CLEAR_EVERY_MS:
            self._cleared_ms = now_ms
            kept = {
                key: out for key, out in self._out.items() if out.all_through_ms(now_ms) > now_ms
            }
            self._out = kept
        return len(self._out) < GROUPS_MAX


def _turn(place: GroupPlace, verdict_ms: int, now_ms: int) -> tuple[int, str]:
    """Return when a message may be the first of its group, if all before it get through.

    Those further back ask later, so that a long group costs little. If a person disposes of the
    first one meanwhile, no message waits much longer than that.
    """
    why = f"message {place.first_id} of its group goes first"
    until_ms = now_ms + ASK_AGAIN_MS + (place.before - 1) * verdict_ms
    if place.first_state is not RowState.WAITING:
        event = place.first_awaits
        ends = f"it waits for {event}" if event else "a person must decide"
        return until_ms, f"{why}, and is {place.first_state}: {ends}"
    return min(until_ms, max(now_ms, place.first_due_at_ms) + place.before * verdict_ms), why


def _read(reader: OptionReader) -> Order:
    return Order(
        verdict_ms=reader.integer("verdict_ms", 10_000, least=100, most=86_400_000),
        source=reader.source,
    )


plugin: GatePlugin = EntriesPlugin("order", _read, OrderGate)
