"""Success rates of attempts: by chance alone, by the time since the last death, by load."""

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


@dataclass(frozen=True)
class ChanceRate:
    """The rate of the k-th attempt is `first / (1 + fading * k)`, k from 0.

    Fading comes from chances that differ between messages, as of a beta distribution: the messages
    with good chances are the first to go.
    """

    first: float
    fading: float

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt."""
        numbers = np.arange(tries.at_ms.shape[1])
        return np.broadcast_to(self.first / (1 + self.fading * numbers), tries.at_ms.shape)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        """Return which attempts lie beyond what history shows."""
        numbers = np.arange(planned.at_ms.shape[1])
        return np.broadcast_to(numbers >= _FURTHER * reach.number, planned.at_ms.shape)


def fit_chance(history: Counted) -> Draws:
    """Return the model with one chance for all messages, but those that never succeed."""

    def model(first: float, never: float) -> Draws:
        return Draws(FailureKind.CHANCE, ChanceRate(logistic(first), 0.0), logistic(never))

    return maximise(model, (0.0, -3.0), history)


def fit_uneven_chance(history: Counted) -> Draws:
    """Return the model with chances that differ between messages."""

    def model(first: float, fading: float, never: float) -> Draws:
        rate = ChanceRate(logistic(first), float(np.exp(min(fading, 5.0))))
        return Draws(FailureKind.CHANCE, rate, logistic(never))

    return maximise(model, (0.0, -1.0, -3.0), history)


@dataclass(frozen=True)
class RestRate:
    """The rate after a wait: 1 - exp(-(wait / scale) ** power).

    A power of 0 is chance; a power of 1, repair at any moment.
    """

    scale_ms: float
    power: float

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt."""
        waited = np.where(tries.is_made, np.maximum(tries.waited_ms, 1.0), 1.0)
        return -np.expm1(-np.exp(np.minimum(self.power * np.log(waited / self.scale_ms), 5.0)))

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        """Return which attempts lie beyond what history shows."""
        return planned.waited_ms > reach.waited_ms


def fit_rest(history: Counted) -> Draws:
    """Return the model by the time since the attempt before."""

    def model(scale: float, power: float, never: float) -> Draws:
        rate = RestRate(float(np.exp(np.clip(scale, 0.0, 30.0))), float(np.exp(min(power, 2.0))))
        return Draws(FailureKind.REST, rate, logistic(never))

    return maximise(model, (np.log(300_000.0), -0.7, -3.0), history)


def fit_load(history: Counted) -> Draws:
    """Return the model by the deliveries of the same window."""

    def model(at: float, power: float, never: float) -> Draws:
        rate = LoadRate(float(np.exp(np.clip(at, -5.0, 20.0))), float(np.exp(min(power, 2.0))))
        return Draws(FailureKind.LOAD, rate, logistic(never))

    return maximise(model, (3.0, 0.0, -3.0), history)


@dataclass(frozen=True)
class LoadRate:
    """The rate among n deliveries of a window: 1 / (1 + (n / bears) ** power)."""

    bears: float
    power: float

    def of(self, tries: Tries) -> Numbers:
        """Return the probability of each attempt."""
        return self.at(tries.load)

    def at(self, load: Numbers) -> Numbers:
        """Return the rate at each load."""
        return 1 / (1 + (np.maximum(load, 1.0) / self.bears) ** self.power)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        """Return which attempts lie beyond what history shows."""
        return planned.load > reach.load
