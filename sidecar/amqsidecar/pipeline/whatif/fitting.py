"""Maximum likelihood over messages that are alike and counted."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import minimize

from amqsidecar.pipeline.whatif.attempts import KnownTries
from amqsidecar.pipeline.whatif.curve import Numbers, cell_of

_MOST_TRIALS = 400


class _Likely(Protocol):
    def log_likelihood(self, known: KnownTries) -> Numbers: ...


@dataclass(frozen=True)
class Counted:
    """Messages, and how many are like each."""

    known: KnownTries
    counts: Numbers

    @property
    def messages(self) -> float:
        """How many there are."""
        return float(self.counts.sum())


def counted(known: KnownTries) -> Counted:
    """Return messages of the same times and outcomes once, with their number.

    Times count as the same within 5 %. Windows are those of one of them: models that look at these
    take every message.
    """
    cells = np.where(known.is_made, cell_of(np.where(known.is_made, known.at_ms, 0.0)), -1)
    keys = np.hstack([cells, known.has_failed, known.has_succeeded])
    _, rows, counts = np.unique(keys, axis=0, return_index=True, return_counts=True)
    return Counted(known.take(rows), counts.astype(np.float64))


def each(known: KnownTries) -> Counted:
    """Return every message for itself."""
    return Counted(known, np.ones(len(known.at_ms)))


def logistic(value: float) -> float:
    """Return a probability for any number, never quite 0 or 1."""
    return 1 / (1 + math.exp(-min(max(value, -12.0), 12.0)))


def maximise(
    model: Callable[..., _Likely], start: tuple[float, ...], history: Counted
) -> Iterator[float]:
    """Return the parameters of a model that make the history likeliest, from a start."""

    def unlikely(parameters: Numbers) -> float:
        likely = model(*map(float, parameters)).log_likelihood(history.known)
        return -float((likely * history.counts).sum())

    best = minimize(
        unlikely, start, method="Nelder-Mead",
        options={"maxfev": _MOST_TRIALS, "xatol": 1e-3, "fatol": 1e-3},
    )  # fmt: skip
    return map(float, best.x)
