"""Maximum likelihood over messages that are alike and counted."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from amqsidecar.pipeline.whatif.attempts import KnownTries, Mask
from amqsidecar.pipeline.whatif.curve import EDGES_MS, NEVER, Numbers, cell_of, fit_curve
from amqsidecar.pipeline.whatif.models import (
    ChanceRate,
    Draws,
    FailureKind,
    FailureModel,
    PlaceRate,
    RateBy,
    Repair,
    WindowRate,
    finite,
)

_MOST_TRIALS = 400


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
    """Return messages with equal times and outcomes once, with their number.

    Times within 5 % count as equal. The windows come from one of the messages: models that use
    windows take every message.
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
    model: Callable[..., FailureModel], start: tuple[float, ...], history: Counted
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


def fit_outage(history: Counted, rates: Numbers, is_tried: Mask) -> Draws:
    """Return the model of a group of messages by the rates of their destination's windows."""

    def model(factor: float, never: float) -> Draws:
        return Draws(
            FailureKind.DOWN_OR_LOADED,
            WindowRate(rates, is_tried, float(np.exp(min(factor, 2.0)))),
            logistic(never),
        )

    return model(*maximise(model, (0.0, -4.0), history))


def fit_any_repair(history: Counted) -> Repair:
    """Return the model with the likeliest distribution; see `curve.fit_curve`."""
    failed, recovered = history.known.failed_ms, history.known.recovered_ms
    cells = np.where(np.isinf(recovered), NEVER, cell_of(finite(recovered)))
    return Repair(fit_curve(cell_of(failed), cells, history.counts))


def fit_weibull_repair(history: Counted) -> Repair:
    """Return the model with a Weibull distribution, of which the exponential one is a case."""

    def model(scale: float, power: float, never: float) -> Repair:
        return Repair((1 - logistic(never)) * _weibull(scale, np.exp(np.clip(power, -1.0, 1.5))))

    return model(*maximise(model, (np.log(600_000.0), 0.0, -3.0), history))


def _weibull(scale: float, power: float) -> Numbers:
    return -np.expm1(-np.exp(np.minimum(power * (np.log(EDGES_MS) - scale), 5.0)))
