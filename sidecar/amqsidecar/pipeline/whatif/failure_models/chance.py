"""Chance: each attempt succeeds by its own, whatever the time."""

from dataclasses import dataclass
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
        is_quick = planned.waited_ms < reach.least_wait_ms / _SHORTER
        return is_quick | (np.arange(planned.at_ms.shape[1]) >= _FURTHER * reach.number)


@dataclass(frozen=True)
class NumberRate:
    """The rate of each attempt by its number, whatever else.

    Why: under one policy the number of an attempt and its time say the same.
    """

    rates: Numbers

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt."""
        numbers = np.minimum(np.arange(tries.at_ms.shape[1]), len(self.rates) - 1)
        return np.broadcast_to(self.rates[numbers], tries.at_ms.shape)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        is_further = np.arange(planned.at_ms.shape[1]) >= reach.number
        return np.broadcast_to(is_further, planned.at_ms.shape)


def fit_numbers(history: Counted) -> Draws:
    """Return the likeliest model by the number of an attempt."""
    won = history.counts @ history.known.has_succeeded
    rates = (won + 0.5) / (history.counts @ history.known.is_known + 1)
    return Draws(FailureKind.CHANCE, NumberRate(rates), never=0.0)


def fit_chance(history: Counted) -> Draws:
    """Return the likeliest model with one chance, which may fade."""

    def model(first: float, fading: float, never: float) -> Draws:
        rate = ChanceRate(logistic(first), float(np.exp(np.clip(fading, -9.0, 5.0))))
        return Draws(FailureKind.CHANCE, rate, logistic(never))

    return model(*maximise(model, (0.0, -1.0, -3.0), history))
