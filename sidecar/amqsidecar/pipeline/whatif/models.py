"""Failure models: why re-sends of one kind of message fail.

A model is fitted to the history of a destination and cause group (`fitting.py`). It says how likely
that history is, and how another policy's re-sends of the same messages would end.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from amqsidecar.pipeline.whatif.attempts import KnownTries, Mask, Reach, Tries
from amqsidecar.pipeline.whatif.curve import EDGES_MS, Numbers, not_yet, share_by

_TINY = 1e-9
_FURTHER: Final = 2
"""Attempts are alike by chance: twice as many as history made are within reach."""
_SHORTER: Final = 10
"""... and waits of a tenth of the shortest."""
_SOONER_MS: Final = 300_000
"""... but shorter by at most this: attempts don't show changes within minutes."""


class FailureKind(StrEnum):
    """The reason that a model assumes; as tables and the report name it."""

    TIME = "time"
    """Time heals: something is broken for a time that differs by message."""
    CHANCE = "chance"
    """Each attempt fails by chance, which may differ from one to the next."""
    DOWN_OR_LOADED = "down_or_loaded"
    """The destination is out of order, for all messages at the same time."""


# Rates: `of` returns the probability of success of each attempt, of a message that can succeed;
# `is_beyond`, which attempts are beyond the range that history shows.


@dataclass(frozen=True)
class ChanceRate:
    """The rate of the k-th attempt, 0-based: first / (1 + fading * k).

    Fading comes from chances that differ between messages, as of a beta distribution: the messages
    with good chances are the first to go.
    """

    first: float
    fading: float

    def of(self, tries: Tries) -> Numbers:
        faded = self.first / (1 + self.fading * np.arange(tries.at_ms.shape[1]))
        return np.broadcast_to(faded, tries.at_ms.shape)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        least_ms = max(reach.least_wait_ms / _SHORTER, reach.least_wait_ms - _SOONER_MS)
        is_quick = planned.waited_ms < least_ms
        return is_quick | (np.arange(planned.at_ms.shape[1]) >= _FURTHER * reach.number)


class RateBy(StrEnum):
    """The variable that the rate of an attempt depends on; times count in octaves.

    Why all: under a single policy, number, wait and time of an attempt are equivalent.
    """

    NUMBER = "number"
    WAIT = "wait"
    TIME = "time"

    def of(self, tries: Tries) -> Numbers:
        """Return the place of each attempt."""
        if self is RateBy.NUMBER:
            return np.broadcast_to(np.arange(tries.at_ms.shape[1], dtype=float), tries.at_ms.shape)
        return np.log2(np.maximum(tries.waited_ms if self is RateBy.WAIT else tries.at_ms, 1.0))


@dataclass(frozen=True)
class PlaceRate:
    """The rate of each attempt by its place alone."""

    by: RateBy
    places: Numbers
    rates: Numbers

    def of(self, tries: Tries) -> Numbers:
        return np.interp(self.by.of(tries), self.places, self.rates)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        places = self.by.of(planned)
        if self.by is RateBy.NUMBER:
            return np.asarray(places >= reach.number)
        is_early = self.by is RateBy.WAIT and planned.waited_ms < reach.least_wait_ms
        return np.asarray((places > self.places[-1] + 1) | is_early)


@dataclass(frozen=True)
class WindowRate:
    """The success rate of each window, times a factor.

    Attributes:
        rates: by index of the window.
        is_tried: whether history re-sent a message near it; likewise.
    """

    rates: Numbers
    is_tried: Mask
    factor: float

    def of(self, tries: Tries) -> Numbers:
        return np.clip(self.rates[tries.window] * self.factor, 1e-4, 0.995)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        return ~self.is_tried[planned.window] | reach.is_too_early(planned)


Rate = ChanceRate | PlaceRate | WindowRate


@dataclass(frozen=True)
class Draws:
    """A model in which attempts succeed independently, each with its own probability.

    Some messages may never succeed. A planned re-send and history's re-send of the same
    number share their luck: a success at a small probability stays one at a greater probability.
    So a policy that repeats history gets history's outcomes.

    Attributes:
        rate: success rate of each attempt.
        never: share of the messages that never succeed.
    """

    kind: FailureKind
    rate: Rate
    never: float

    def log_likelihood(self, known: KnownTries) -> Numbers:
        _, all_of_it = likelihoods(self.rate.of(known), known)
        never = np.where(known.has_recovered, 0.0, self.never)
        return np.log(np.maximum(never + (1 - self.never) * all_of_it, 1e-300))

    def open_after(self, known: KnownTries, planned: Tries) -> Numbers:
        missed, _ = likelihoods(self.rate.of(known), known)
        lost = self.never / np.maximum(self.never + (1 - self.never) * missed, _TINY)
        lost = np.where(known.has_recovered, 0.0, lost)[:, None]
        return lost + (1 - lost) * np.cumprod(1 - coupled(self.rate, known, planned), axis=1)

    def open_shares(self, planned: Tries) -> Numbers:
        rate = np.where(planned.is_made, self.rate.of(planned), 0.0)
        return self.never + (1 - self.never) * np.cumprod(1 - rate, axis=1)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        is_late = planned.at_ms > reach.at_ms
        return planned.is_made & (is_late | self.rate.is_beyond(planned, reach))


def likelihoods(rate: Numbers, known: KnownTries) -> tuple[Numbers, Numbers]:
    """Return, by message, the probability of its failures, and of all its outcomes."""
    missed = np.where(known.has_failed, 1 - rate, 1.0).prod(axis=1)
    return missed, missed * np.where(known.has_succeeded, rate, 1.0).prod(axis=1)


def coupled(rate: Rate, known: KnownTries, planned: Tries) -> Numbers:
    """Return the probability that each planned re-send succeeds, given the one of its number."""
    count = min(known.at_ms.shape[1], planned.at_ms.shape[1])
    before, now = rate.of(known)[:, :count], rate.of(planned)
    has_failed, has_succeeded = known.has_failed[:, :count], known.has_succeeded[:, :count]
    same = now[:, :count]
    # Why not by the quotient alone: even an attempt with a tiny rate succeeded here.
    is_likelier = now[:, :count] >= before
    same = np.where(
        has_succeeded, np.where(is_likelier, 1.0, same / np.maximum(before, _TINY)), same
    )
    more = np.maximum(0.0, (now[:, :count] - before) / np.maximum(1 - before, _TINY))
    same = np.where(has_failed, more, same)
    return np.where(planned.is_made, np.hstack([same, now[:, count:]]), 0.0)


@dataclass(frozen=True)
class Repair:
    """Each message becomes recoverable at one moment and stays so, or never does.

    Attributes:
        curve: the share that is recoverable by the end of each cell; see `curve`.
    """

    curve: Numbers

    @property
    def kind(self) -> FailureKind:
        return FailureKind.TIME

    def log_likelihood(self, known: KnownTries) -> Numbers:
        return np.log(np.maximum(self.likelihood(known), 1e-6))

    def likelihood(self, known: KnownTries) -> Numbers:
        """Return the probability of each message's outcomes."""
        failed, recovered = known.failed_ms, known.recovered_ms
        before = np.where(failed < 0, 0.0, share_by(self.curve, failed))
        by_then = np.where(np.isinf(recovered), 1.0, share_by(self.curve, finite(recovered)))
        likely: Numbers = np.maximum(by_then - before, 0.0)
        return likely

    def open_after(self, known: KnownTries, planned: Tries) -> Numbers:
        failed, recovered = known.failed_ms[:, None], known.recovered_ms[:, None]
        at = np.where(planned.is_made, planned.at_ms, -1.0)
        is_open = not_yet(self.curve, at, failed, recovered)
        return np.minimum.accumulate(np.where(planned.is_made, is_open, 1.0), axis=1)

    def open_shares(self, planned: Tries) -> Numbers:
        done = np.where(planned.is_made, share_by(self.curve, finite(planned.at_ms)), 0.0)
        return 1 - np.maximum.accumulate(done, axis=1)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        return planned.is_made & ((planned.at_ms > reach.at_ms) | reach.is_too_early(planned))


def finite(at_ms: Numbers) -> Numbers:
    """Return times with the end of the grid in place of infinity."""
    return np.where(np.isfinite(at_ms), at_ms, EDGES_MS[-1])


FailureModel = Draws | Repair
"""One fitted model; immutable, and shipped to Spark's tasks.

`log_likelihood` is the logarithm of the probability of each message's outcomes. `open_after` is the
probability that a message has not recovered after each planned re-send, as if all before it failed:
0 or 1 where history has the outcome; it never grows along a row, and columns of re-sends that are
not made have the value before them. `open_shares` is the same for messages without a history.
`is_beyond` marks planned re-sends beyond the range that history shows, by this model.
"""
