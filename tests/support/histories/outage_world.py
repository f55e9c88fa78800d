"""A world with known truth: destinations that fail for a while, messages that never succeed.

One seed decides when messages come, which are poison, and when a destination is out of order. A
policy acts in it as a sidecar would, and leaves the events that a journal would hold. Another
policy in the same world meets the same messages and the same outages: what it comes to is the truth
that a prediction is held against.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Redeliver
from amqsidecar.model.destination import parse_destination
from amqsidecar.pipeline.tables import EVENTS
from amqsidecar.plugin import Decider

START_MS = 1_790_000_000_000
OUTAGE_CAUSE = "java.net.ConnectException: Connection refused"
POISON_CAUSE = "java.lang.IllegalArgumentException: no such customer"

Rows = list[tuple[object, ...]]
"""Events, as `EVENTS`."""


@dataclass(frozen=True)
class Place:
    """A destination and how it fails.

    Attributes:
        name: such as `queue://orders`.
        gap_ms: mean time between two messages.
        up_ms: mean time between two outages; exponential.
        outage_ms: median length of an outage.
        outage_spread: sigma of the logarithm of that length.
        poison_share: of all messages.
    """

    name: str
    gap_ms: float
    up_ms: float
    outage_ms: float
    outage_spread: float
    poison_share: float


@dataclass(frozen=True)
class Dying:
    """A message that died at least once.

    Attributes:
        number: its place among those of the world.
        died_ms: its first death, since `START_MS`.
    """

    number: int
    place: int
    died_ms: int
    is_poison: bool


@dataclass(frozen=True)
class Truth:
    """What a policy came to.

    Attributes:
        messages: how many died.
        recovery_ms: times from first death to recovery, of those that recovered.
        resends: re-sends in all.
    """

    messages: int
    recovery_ms: Sequence[int]
    resends: int

    @property
    def share(self) -> float:
        return len(self.recovery_ms) / self.messages

    @property
    def mean_ms(self) -> float:
        return float(np.mean(self.recovery_ms))


class OutageWorld:
    """Destinations, outages and messages, all from one seed.

    Args:
        back_ms: how long a message takes to die again: half to one and a half of that.
        late_ms: how late the sidecar is at most.
    """

    def __init__(
        self, seed: int, places: Sequence[Place], span_ms: int, *, back_ms: int, late_ms: int
    ) -> None:
        self.places = places
        self.span_ms = span_ms
        self._seed, self._back_ms, self._late_ms = seed, back_ms, late_ms
        chance = np.random.default_rng(seed)
        self._outages: list[tuple[np.ndarray, np.ndarray]] = []
        self.dying: list[Dying] = []
        for index, place in enumerate(places):
            # Why ten times the span: a policy may be slow, and the world goes on.
            count = int(10 * span_ms / place.up_ms) + 10
            up = chance.exponential(place.up_ms, count)
            down = place.outage_ms * np.exp(chance.normal(0.0, place.outage_spread, count))
            begins = np.cumsum(up) + np.concatenate([[0.0], np.cumsum(down)[:-1]])
            self._outages.append((begins, begins + down))
            comes = np.cumsum(chance.exponential(place.gap_ms, int(2 * span_ms / place.gap_ms)))
            comes = comes[comes < span_ms]
            poison = chance.random(len(comes)) < place.poison_share
            for at, is_poison in zip(comes.astype(int).tolist(), poison.tolist(), strict=True):
                if is_poison or self.are_out(index, np.array(at)):
                    self.dying.append(Dying(len(self.dying), index, at, is_poison))

    def are_out(self, place: int, at_ms: np.ndarray) -> np.ndarray:
        """Return the times at which a destination is out of order."""
        begins, ends = self._outages[place]
        latest = np.searchsorted(begins, at_ms, side="right") - 1
        return (latest >= 0) & (at_ms < ends[latest])

    def works_again_ms(self, place: int, at_ms: float) -> float:
        """Return when the outage ends that a destination has at a time."""
        begins, ends = self._outages[place]
        return float(ends[np.searchsorted(begins, at_ms, side="right") - 1])

    def run(self, decider: Decider, until_ms: int) -> tuple[dict[str, Truth], Rows]:
        """Play a policy; return its results by destination, and the events of `EVENTS`.

        Args:
            decider: the policy.
            until_ms: the end of the observation, since `START_MS`.
        """
        delay_of = lru_cache(None)(lambda name, count: _delay(decider, name, count))
        totals: dict[str, list[list[int]]] = {place.name: [[], [], []] for place in self.places}
        rows: Rows = []
        for one in self.dying:
            name = self.places[one.place].name
            journal = _Journal(rows, self._seed, one, name)
            sends, recovered_ms = self._live(one, name, delay_of, until_ms, journal)
            messages, recoveries, resends = totals[name]
            messages.append(1)
            resends.append(sends)
            if recovered_ms is not None:
                recoveries.append(recovered_ms)
        truth = {
            name: Truth(len(messages), recoveries, sum(resends))
            for name, (messages, recoveries, resends) in totals.items()
            if messages
        }
        return truth, rows

    def _live(
        self,
        one: Dying,
        name: str,
        delay_of: Callable[[str, int], int | None],
        until_ms: int,
        journal: "_Journal",
    ) -> tuple[int, int | None]:
        """Return how often a message was re-sent, and when it recovered."""
        # Why a source of its own: another policy must not change what other messages meet.
        chance = np.random.default_rng([self._seed, one.number])
        died_ms, count = one.died_ms, 0
        while True:
            journal.died(died_ms, count)
            delay_ms = delay_of(name, count)
            if delay_ms is None:
                journal.exhausted(died_ms)
                return count, None
            late_ms = int(chance.integers(0, self._late_ms + 1))
            sent_ms = died_ms + delay_ms + late_ms
            journal.scheduled(died_ms, delay_ms, count + 1)
            if sent_ms >= until_ms:
                return count, None
            count += 1
            journal.resent(sent_ms, late_ms, count)
            if not one.is_poison and not self.are_out(one.place, np.array(sent_ms)):
                return count, sent_ms - one.died_ms
            died_ms = sent_ms + int(self._back_ms * (0.5 + chance.random()))
            if died_ms >= until_ms:
                return count, None


def write_events(rows: Rows, folder: Path) -> None:
    """Write a table of events as Spark would."""
    schema = to_arrow_schema(EVENTS, timezone="UTC")
    columns = zip(*rows, strict=True)
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)]
    folder.mkdir()
    parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()


def _delay(decider: Decider, name: str, count: int) -> int | None:
    decision = decider.decide(DeadLetter(parse_destination(name), count), None)
    return max(0, decision.delay_ms) if isinstance(decision, Redeliver) else None


_EMPTY: dict[str, object] = dict.fromkeys(EVENTS.names)


class _Journal:
    """Writes one message's events as rows of `EVENTS`."""

    def __init__(self, rows: Rows, seed: int, one: Dying, name: str) -> None:
        self._rows, self._name = rows, name
        self._row_id = one.number + 1
        self._id = f"w{seed}.{one.number}"
        self._cause = POISON_CAUSE if one.is_poison else OUTAGE_CAUSE

    def _write(self, kind: str, at_ms: int, values: Mapping[str, object]) -> None:
        known = _EMPTY | {
            "stream": "world",
            "segment": 1,
            "position": len(self._rows),
            "sidecar": "world",
            "type": kind,
            "at": _time(at_ms),
            "row_id": self._row_id,
            "redelivery_id": self._id,
            **values,
        }
        self._rows.append(tuple(known.values()))

    def died(self, at_ms: int, count: int) -> None:
        values = {
            "source": "queue://ActiveMQ.DLQ",
            "origin": self._name,
            "cause_group": self._cause,
            "expired": False,
            "persistent": True,
            "redelivery_count": count,
            "size_bytes": 100,
        }
        self._write("received" if count == 0 else "returned", at_ms, values)

    def scheduled(self, at_ms: int, delay_ms: int, count: int) -> None:
        values = {
            "destination": self._name,
            "delay_ms": delay_ms,
            "due_at": _time(at_ms + delay_ms),
            "redelivery_count": count,
            "rule": "world",
        }
        self._write("scheduled", at_ms, values)

    def resent(self, at_ms: int, late_ms: int, count: int) -> None:
        values = {"destination": self._name, "redelivery_count": count, "lateness_ms": late_ms}
        self._write("resent", at_ms, values)

    def exhausted(self, at_ms: int) -> None:
        values = {"destination": "queue://ActiveMQ.DLQ.exhausted", "rule": "world"}
        self._write("exhausted", at_ms, values)


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp((START_MS + at_ms) / 1000, UTC)
