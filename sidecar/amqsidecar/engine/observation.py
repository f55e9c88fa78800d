"""The decisions of a sidecar that only observes.

Pure, and judged by the same `Judge` and `BacklogGate` that a cycle uses. Each dead letter counts
once, however often it is seen.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.backlog import BacklogGate
from amqsidecar.engine.judging.judge import Judge, Judgement
from amqsidecar.model.destination import Destination
from amqsidecar.model.event import Discarded, Exhausted, Held, Parked, Received, Returned, Scheduled

SEEN_MAX = 100_000
"""Maximum dead letters remembered; beyond it, the least recently seen is forgotten."""

REDELIVER, DEAD_LETTER, DISCARD, PARK, HOLD = "redeliver", "dead_letter", "discard", "park", "hold"
OTHERS = "others"
_NAMES_MAX = 200
_REASONS_MAX = 50
_UID = "observed"


class Observed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One dead letter and the decision on it.

    Attributes:
        action: redeliver, dead_letter, discard, park or hold.
        message_id: as consumers see it; None = it has none.
        source: the dead-letter queue that it lies in.
        origin: where it died; None = it does not show it.
        destination: where it would go; of what is held, once it is released.
        redelivery_count: count that the sent message would carry.
        delay_ms: how long it would wait, redeliveries only.
        rule: the rule that decides, or why it would be parked or held.
    """

    action: str
    message_id: str | None
    source: str
    origin: str | None
    destination: str
    redelivery_count: int
    delay_ms: int
    rule: str


class ObservedDeaths:
    """The observations so far, over all links of a process.

    Attributes:
        tally: the totals.
        skipped_count: dead letters that were not judged, because more are in view than can be
            remembered.
    """

    def __init__(
        self, *, holds_backlog: bool, backlog_threshold: int, seen_max: int = SEEN_MAX
    ) -> None:
        self.tally = ObservationTally()
        self.skipped_count = 0
        self._seen_max = seen_max
        self._seen: dict[bytes, int] = {}
        self._turn = 0
        self._row_id = 0
        self._has_looked = False
        self._old: Counter[str] = Counter()
        self._gate = BacklogGate(self._count_old, holds=holds_backlog, threshold=backlog_threshold)

    def begin_look(self) -> None:
        """Begin to go through all queues once."""
        self._turn += 1

    def look(self, judge: Judge, found: Sequence[Delivery], now_ms: int) -> list[Observed]:
        """Return the decisions on new dead letters of one queue.

        What is found by the end of the first look is backlog as it would be for a sidecar that
        starts now.
        """
        if not self._has_looked:
            self._old |= Counter(str(delivery.source) for delivery in found)
        return self._judge_new(judge, found, now_ms)

    def end_look(self) -> None:
        """All queues were browsed once; later finds are new."""
        self._has_looked = True

    def hear(self, judge: Judge, heard: Iterable[Delivery], now_ms: int) -> list[Observed]:
        """Return the decisions on new deaths that the broker announced."""
        return self._judge_new(judge, heard, now_ms)

    def _judge_new(
        self, judge: Judge, deliveries: Iterable[Delivery], now_ms: int
    ) -> list[Observed]:
        new = []
        for delivery in deliveries:
            if not self._is_new(delivery):
                continue
            self._row_id += 1
            is_backlog = self._gate.is_backlog(delivery.source)
            judgement = judge.judge(delivery, _UID, self._row_id, now_ms, is_backlog=is_backlog)
            new.append(describe(delivery, judgement))
        self._gate.commit()
        self.tally.add(new)
        return new

    def _is_new(self, delivery: Delivery) -> bool:
        key = _identity(delivery)
        is_new = self._seen.pop(key, None) is None
        if is_new and len(self._seen) >= self._seen_max:
            oldest = next(iter(self._seen))
            if self._seen[oldest] == self._turn:
                # Why: forgotten while it is in view, it would count again at the next look.
                self.skipped_count += 1
                return False
            del self._seen[oldest]
        self._seen[key] = self._turn
        return is_new

    def _count_old(self, source: Destination) -> int:
        return self._old[str(source)]


def _identity(delivery: Delivery) -> bytes:
    """Return the identity of a dead letter: its queue, its id, and its redeliveries."""
    provenance = delivery.provenance
    text = f"{delivery.source}\0{provenance.message_id}\0{provenance.redelivery_count}"
    identity = blake2b(text.encode(errors="surrogatepass"), digest_size=16)
    if not provenance.message_id:
        handle = delivery.handle
        identity.update(b"\0message" if handle is None else b"\0handle")
        identity.update(delivery.message if handle is None else repr(handle).encode())
    return identity.digest()


def describe(delivery: Delivery, judgement: Judgement) -> Observed:
    """Return a judgement as an observer reports it."""
    received = judgement.events[0]
    assert isinstance(received, Received | Returned)  # noqa: S101 - the judge begins with it
    action, destination, rule = PARK, received.source, ""
    delay_ms, count = 0, delivery.provenance.redelivery_count
    for event in judgement.events[1:]:
        match event:
            case Scheduled():
                action, rule = REDELIVER, event.rule
                delay_ms, count = event.delay_ms, event.redelivery_count
            case Exhausted():
                action, rule = DEAD_LETTER, event.rule
            case Discarded():
                action, rule = DISCARD, event.rule
            case Parked():
                action, rule = PARK, event.reason
            case Held():
                action, rule = HOLD, f"{event.reason}; {rule}" if rule else event.reason
            case _:
                continue
        destination = event.destination
    return Observed(
        action=action,
        message_id=delivery.provenance.message_id,
        source=str(delivery.source),
        origin=received.origin,
        destination=destination,
        redelivery_count=count,
        delay_ms=delay_ms,
        rule=rule,
    )


class ObservationTally:
    """Counts over everything that was observed, in bounded memory.

    Attributes:
        actions: dead letters by action.
        destinations: by where they would go, then by action; beyond 200 names, by `others`.
        reasons: of those parked or held; beyond 50, by `others`.
        delays_ms: shortest and longest delay; None = nothing would be redelivered.
    """

    def __init__(self) -> None:
        self.actions: Counter[str] = Counter()
        self.destinations: dict[str, Counter[str]] = {}
        self.reasons: Counter[str] = Counter()
        self.delays_ms: tuple[int, int] | None = None

    def add(self, items: Iterable[Observed]) -> None:
        """Count these too."""
        for item in items:
            self.actions[item.action] += 1
            name = item.destination
            if name not in self.destinations and len(self.destinations) >= _NAMES_MAX:
                name = OTHERS
            self.destinations.setdefault(name, Counter())[item.action] += 1
            if item.action == REDELIVER:
                low, high = self.delays_ms or (item.delay_ms, item.delay_ms)
                self.delays_ms = (min(low, item.delay_ms), max(high, item.delay_ms))
            elif item.action in (PARK, HOLD):
                reason = item.rule.partition(";")[0] if item.action == HOLD else item.rule
                if reason not in self.reasons and len(self.reasons) >= _REASONS_MAX:
                    reason = OTHERS
                self.reasons[reason] += 1

    def sentence(self) -> str:
        """Return the totals as a sentence."""
        total = self.actions.total()
        if not total:
            return "no dead letter was seen"
        told = f"would have re-sent {self.actions[REDELIVER]} of {total}"
        if self.delays_ms is not None:
            low, high = (f"{delay / 1000:g} s" for delay in self.delays_ms)
            told += f" after {low}" if low == high else f" after {low} to {high}"
        for action, words in (
            (DEAD_LETTER, "moved to a final dead-letter queue"),
            (DISCARD, "discarded"),
            (HOLD, "held"),
            (PARK, "parked"),
        ):
            if self.actions[action]:
                told += f", {self.actions[action]} {words}"
        if self.reasons:
            common = self.reasons.most_common(3)
            told += "; because: " + "; ".join(f"{reason} ({count})" for reason, count in common)
        return told
