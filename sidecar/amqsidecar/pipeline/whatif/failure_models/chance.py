"""Chance: each attempt succeeds by its own, whatever the time."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from amqsidecar.pipeline.whatif.attempts import Mask, Reach, Tries
from amqsidecar.pipeline.whatif.curve import Numbers
from amqsidecar.pipeline.whatif.failure_model import FailureKind
from amqsidecar.pipeline.whatif.failure_models.draws import Draws
from amqsidecar.pipeline.whatif.fitting import Counted, logistic, maximise

_FURTHER: Final = 2
"""Attempts are alike by this model: twice as many as history made are within reach."""
_SHORTER: Final = 10
"""... and waits of a tenth of the shortest."""
_SOONER_MS: Final = 300_000
"""... and not by more than this: what happens within minutes no attempt shows."""


@dataclass(frozen=True)
class ChanceRate:
    """The rate of the k-th attempt, 0-based: first / (1 + fading * k).

    Fading comes from chances that differ between messages, as of a beta distribution: the messages
    with good chances are the first to go.
    """

    first: float
    fading: float

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt."""
        faded = self.first / (1 + self.fading * np.arange(tries.at_ms.shape[1]))
        return np.broadcast_to(faded, tries.at_ms.shape)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        least_ms = max(reach.least_wait_ms / _SHORTER, reach.least_wait_ms - _SOONER_MS)
        is_quick = planned.waited_ms < least_ms
        return is_quick | (np.arange(planned.at_ms.shape[1]) >= _FURTHER * reach.number)


class RateBy(StrEnum):
    """What the rate of an attempt may depend on; times count in octaves.

    Why all: under one policy number, wait and time of an attempt say the same.
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
    """The rate of each attempt by its place, whatever else."""

    by: RateBy
    places: Numbers
    rates: Numbers

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt."""
        return np.interp(self.by.of(tries), self.places, self.rates)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        places = self.by.of(planned)
        if self.by is RateBy.NUMBER:
            return np.asarray(places >= reach.number)
        is_early = self.by is RateBy.WAIT and planned.waited_ms < reach.least_wait_ms
        return np.asarray((places > self.places[-1] + 1) | is_early)


def fit_places(history: Counted, *, by: RateBy) -> Draws:
    """Return the likeliest model by this place."""
    known = history.known
    is_known, counts = known.is_known, history.counts[:, None] * known.is_known
    exact = np.where(is_known, by.of(known), 0.0)
    _, which = np.unique(exact.round(), return_inverse=True)
    tried, won, at = (
        np.bincount(which.ravel(), (counts * one).ravel())
        for one in (is_known, known.has_succeeded, exact)
    )
    # Why one at least: none may be known.
    is_there = (tried > 0) | (len(tried) == 1)
    rates = (won + 0.5) / (tried + 1)
    places = at / np.maximum(tried, 1)
    return Draws(FailureKind.CHANCE, PlaceRate(by, places[is_there], rates[is_there]), 0.0)


def fit_chance(history: Counted) -> Draws:
    """Return the likeliest model with one chance, which may fade."""

    def model(first: float, fading: float, never: float) -> Draws:
        rate = ChanceRate(logistic(first), float(np.exp(np.clip(fading, -9.0, 5.0))))
        return Draws(FailureKind.CHANCE, rate, logistic(never))

    return model(*maximise(model, (0.0, -1.0, -3.0), history))
