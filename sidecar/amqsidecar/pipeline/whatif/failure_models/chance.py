"""Chance: each attempt succeeds by its own, which may depend on the wait before it."""

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
_MINUTE_MS: Final = 60_000.0


@dataclass(frozen=True)
class ChanceRate:
    """The rate of the k-th attempt: (1 - exp(-base * (wait / 1 min) ** power)) / (1 + fading * k).

    k is 0-based. Fading comes from chances that differ between messages, as of a beta
    distribution: the messages with good chances are the first to go. A power of 0 means that the
    wait makes no difference; of 1, that something is repaired at any moment of it.
    """

    base: float
    power: float
    fading: float

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt."""
        waited = np.where(tries.is_made, np.maximum(tries.waited_ms, 1.0), 1.0) / _MINUTE_MS
        rate = -np.expm1(-np.minimum(self.base * waited**self.power, 20.0))
        faded: Numbers = rate / (1 + self.fading * np.arange(tries.at_ms.shape[1]))
        return faded

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        numbers = np.arange(planned.at_ms.shape[1])
        is_foreign = planned.waited_ms < reach.least_wait_ms / _SHORTER
        if self.power > _FELT:
            is_foreign = is_foreign | (planned.waited_ms > reach.waited_ms)
        return is_foreign | (numbers >= _FURTHER * reach.number)


_FELT: Final = 0.1
"""A power from which on the wait makes a difference."""


def fit_chance(history: Counted) -> Draws:
    """Return the likeliest model in which the wait makes no difference."""

    def model(base: float, fading: float, never: float) -> Draws:
        return _draws(base, 0.0, float(np.exp(np.clip(fading, -9.0, 5.0))), never)

    return maximise(model, (-0.4, -1.0, -3.0), history)


def fit_rested_chance(history: Counted) -> Draws:
    """Return the likeliest model in which only the wait makes a difference."""

    def model(base: float, power: float, never: float) -> Draws:
        return _draws(base, float(np.clip(power, 0.0, 3.0)), 0.0, never)

    return maximise(model, (-1.0, 0.5, -3.0), history)


def _draws(base: float, power: float, fading: float, never: float) -> Draws:
    rate = ChanceRate(float(np.exp(np.clip(base, -10.0, 3.0))), power, fading)
    return Draws(FailureKind.CHANCE, rate, logistic(never))
