"""Which failure models a history supports, and how much.

Each model is fitted to one half of the messages and asked how likely the other half is. A model
that explains more gets more weight; with thin evidence several have some. Unexplained variation is
measured on the same halves: failures that come together, in periods from 30 s to a day or of one
message, and success by attempt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import le
from typing import Final

import numpy as np

from amqsidecar.pipeline.whatif.attempts import (
    MOST_REACHED,
    Indexes,
    KnownTries,
    Mask,
    Reach,
    WindowCounts,
    reach_of,
)
from amqsidecar.pipeline.whatif.curve import Numbers
from amqsidecar.pipeline.whatif.fitting import (
    Counted,
    counted,
    each,
    fit_any_repair,
    fit_chance,
    fit_outage,
    fit_places,
    fit_weibull_repair,
)
from amqsidecar.pipeline.whatif.models import FailureKind, FailureModel, RateBy, Repair
from amqsidecar.pipeline.whatif.windows import rates_between, tried_windows, window_rates

_BY_THEMSELVES: Final[Mapping[str, Callable[[Counted], FailureModel]]] = {
    "chance": fit_chance,
    **{f"chance by {place}": partial(fit_places, by=place) for place in RateBy},
    "repair, Weibull": fit_weibull_repair,
    "repair, any time": fit_any_repair,
}
_OUTAGE, _STALE = "outage", "chance by time"
_PRIOR: Final[Mapping[str, float]] = {
    "chance": 1.0,
    "repair, Weibull": 1.0,
    **{f"chance by {place}": 0.025 for place in RateBy},
    "repair, any time": 0.05,
    _OUTAGE: 0.5,
}
"""Weights of models that explain a history equally well; fewer parameters weigh more."""

_UNTOLD: Final = 0.25
"""Weight of a rival that the history can't tell from the likeliest, beside that."""
_POISON: Final = 0.05
"""Poison: later re-sends succeed less than this share of the first re-sends' rate."""
LEAST_WEIGHT: Final = 0.01
"""Models with less are left out of a forecast."""
_DECISIVE_MESSAGES: Final = 300.0
"""More messages than these don't make one model surer than another: none is quite true."""
_SURE: Final = 2.0
_DOUBT: Final = 0.04
"""No model is quite true. `make bench-whatif` checks whether the intervals hold with this."""
SCALES_MS: Final = (30_000, 600_000, 3_600_000, 21_600_000, 86_400_000)
"""Periods in which failures may come together."""
_MOST_SWINGS: Final = (0.2, 0.07, 0.035, 0.035, 0.07, 0.06)
"""By scale. Why more in 30 s: there a model misses when exactly an outage begins and ends."""
_MOST_MISFIT: Final = 0.05
_SURE_DISTANCE: Final = 3.0
"""Standard deviations of a share."""


@dataclass(frozen=True)
class Evidence:
    """The evidence in the history of a destination and cause group about its failures.

    Attributes:
        messages: number of messages that it comes from.
        success_by_attempt: share of the re-sends of each number that succeeded.
        waited_ms: median wait before the re-sends of each number.
        over_dispersion: variance of the failures in a period beside that of independent ones, by
            `SCALES_MS`: 1 where messages fail by themselves, more where they fail together.
        left_over: how far the success rate swings between periods beyond the models' probability of
            each re-send, by `SCALES_MS`, and last between messages: a standard deviation; 0 = no
            more than by chance.
        misfit: mean distance between the models' success by attempt and history's, or the largest
            of one attempt beyond chance.
    """

    messages: int
    success_by_attempt: tuple[float, ...]
    waited_ms: tuple[float, ...]
    over_dispersion: tuple[float, ...]
    left_over: tuple[float, ...]
    misfit: float

    @property
    def is_supported(self) -> bool:
        """Whether any model explains the history well enough for a forecast."""
        is_explained = all(map(le, self.left_over, _MOST_SWINGS))
        return is_explained and self.misfit <= _MOST_MISFIT


@dataclass(frozen=True)
class Ensemble:
    """Models with weights for the messages of one destination and cause group.

    Attributes:
        models: models with at least `LEAST_WEIGHT`, the likeliest first.
        weights: weights of these; they sum to 1.
        reach: the range that history tried.
        evidence: the evidence for the weights.
        any_repair: repair at any time, regardless of its weight.
        messages: number of messages of the history.
    """

    models: Sequence[FailureModel]
    weights: Sequence[float]
    reach: Reach
    evidence: Evidence
    any_repair: Repair
    messages: int

    @property
    def doubt(self) -> float:
        """Standard deviation of a forecast for messages that are treated in another way."""
        return _DOUBT + self.evidence.misfit + max(self.evidence.left_over[1:], default=0.0) / 2

    def weight_of(self, kind: FailureKind) -> float:
        """Return the weight of all models of a kind."""
        of_kind = (
            weight
            for model, weight in zip(self.models, self.weights, strict=True)
            if model.kind is kind
        )
        return sum(of_kind, 0.0)


def fit_ensemble(
    known: KnownTries, died_ms: Numbers, is_first: Mask, windows: WindowCounts, messages: int
) -> Ensemble:
    """Return the models of the messages of a destination and cause group, weighted.

    Args:
        known: the messages; a sample does.
        died_ms: their first deaths.
        is_first: which belong to the first half.
        messages: how many there are, of which `known` may be a sample.
    """
    # Why all twice: of few messages one half may have none.
    parts = (is_first, ~is_first) if 0 < is_first.sum() < len(is_first) else (is_first | True,) * 2
    periods = _periods(known, died_ms)
    shares = np.broadcast_to(success_by_attempt(known), known.at_ms.shape)
    by_chance = [dispersion(known, shares, period) for period in periods[:-1]]
    # Why only then: independent failures don't need it, and it takes long to fit.
    is_shared = any(one.is_sure for one in by_chance)
    rates = rates_between(windows) if is_shared else None
    is_tried = tried_windows(windows)
    halves = [_fit_all(known.take(part), rates, is_tried) for part in parts]
    others = known.take(parts[1]), known.take(parts[0])
    likely = {
        name: sum(
            float(fitted[name].log_likelihood(other).sum())
            for fitted, other in zip(halves, others, strict=True)
        )
        for name in halves[0]
    }
    names = sorted(likely, key=lambda name: -likely[name])
    whole = _fit_all(known, window_rates(windows) if is_shared else None, is_tried)
    best = _foretold(known, parts, [(fitted[names[0]],) for fitted in halves], (1.0,))
    scale = max(1.0, dispersion(known, best, periods[0]).ratio)
    scale *= max(1.0, len(known.at_ms) / _DECISIVE_MESSAGES)
    weights = np.array(
        [_PRIOR[name] * np.exp((likely[name] - likely[names[0]]) / scale) for name in names]
    )
    weights = np.where(weights / weights.sum() >= LEAST_WEIGHT, weights, 0.0)
    if not is_shared:
        weights = _with_rival(weights, names, known)
    weights /= weights.sum()
    kept = sorted(np.flatnonzero(weights).tolist(), key=lambda at: -weights[at])
    shown = tuple(float(weights[at]) for at in kept)
    foretold = _foretold(
        known, parts, [tuple(fitted[names[at]] for at in kept) for fitted in halves], shown
    )
    left = [dispersion(known, foretold, period) for period in periods]
    tried = known.is_known.sum(axis=0)
    is_told = tried > 0
    expected = np.where(known.is_known, foretold, 0.0).sum(axis=0) / np.maximum(tried, 1)
    distance = np.abs(expected - shares[0])
    by_chance_too = _SURE_DISTANCE * np.sqrt(expected * (1 - expected) / np.maximum(tried, 1))
    largest = np.where(tried >= MOST_REACHED, distance - by_chance_too, 0.0).max(initial=0.0)
    misfit = max((distance * tried).sum() / max(1, tried.sum()), largest)
    return Ensemble(
        models=[whole[names[at]] for at in kept],
        weights=shown,
        reach=reach_of(known),
        evidence=Evidence(
            messages=len(known.at_ms),
            success_by_attempt=tuple(shares[0][is_told].tolist()),
            waited_ms=tuple(
                float(np.median(known.waited_ms[known.is_known[:, column], column]))
                for column in np.flatnonzero(is_told)
            ),
            over_dispersion=tuple(one.ratio for one in by_chance),
            left_over=tuple(one.swing if one.is_sure else 0.0 for one in left),
            misfit=float(misfit),
        ),
        any_repair=fit_any_repair(counted(known)),
        messages=messages,
    )


def _fit_all(
    known: KnownTries, window_rates: Numbers | None, is_tried: Mask
) -> dict[str, FailureModel]:
    """Return every model; without rates, those in which messages fail by themselves."""
    history = counted(known)
    models = {name: fit(history) for name, fit in _BY_THEMSELVES.items()}
    if window_rates is not None:
        models[_OUTAGE] = fit_outage(each(known), window_rates, is_tried)
    return models


def _foretold(
    known: KnownTries,
    parts: Sequence[Mask],
    halves: Sequence[Sequence[FailureModel]],
    weights: Sequence[float],
) -> Numbers:
    """Return the probability of success of each re-send, by models of the other half.

    Given that all before it failed, and as these failures make one model likelier than another.
    """
    rates = np.zeros(known.at_ms.shape)
    for part, models in zip(parts[::-1], halves, strict=True):
        here = known.take(part)
        still_open = sum(
            weight * model.open_shares(here) for model, weight in zip(models, weights, strict=True)
        )
        before = np.hstack([np.ones((len(here.at_ms), 1)), np.asarray(still_open)[:, :-1]])
        rates[part] = 1 - still_open / np.maximum(before, 1e-12)
    return rates


def _periods(known: KnownTries, died_ms: Numbers) -> list[Indexes]:
    """Return the number of the period of each known re-send, by scale; last, of its message."""
    is_known = known.is_known
    at_ms = (died_ms[:, None] + np.where(is_known, known.at_ms, 0.0))[is_known]
    rows = np.nonzero(is_known)[0]
    numbers = [at_ms // scale for scale in SCALES_MS]
    return [np.unique(one, return_inverse=True)[1] for one in (*numbers, rows)]


@dataclass(frozen=True)
class Dispersion:
    """How far outcomes of the same period come together.

    Attributes:
        ratio: variance of a period's successes over that of independent successes; 1 = no excess.
        swing: standard deviation of the success rate between periods, without chance.
        is_sure: whether it exceeds chance.
    """

    ratio: float
    swing: float
    is_sure: bool


def dispersion(known: KnownTries, rates: Numbers, period: Indexes) -> Dispersion:
    """Return how far outcomes with these probabilities come together.

    Args:
        known: the messages.
        rates: probability of success of each re-send, by the assumed reason.
        period: number of the period of each known re-send.
    """
    rate = np.clip(rates[known.is_known], 1e-3, 1 - 1e-3)
    missed = known.has_succeeded[known.is_known] - rate
    together = np.bincount(period)
    is_shared = together >= 2
    if not is_shared.any():
        return Dispersion(1.0, 0.0, is_sure=False)
    squares = np.bincount(period, missed)[is_shared] ** 2
    expected = np.bincount(period, rate * (1 - rate))[is_shared]
    # Why not `expected`: only products of two different outcomes of a period count here.
    crossed = squares - np.bincount(period, missed**2)[is_shared]
    pairs = (together[is_shared] * (together[is_shared] - 1.0)).sum()
    return Dispersion(
        ratio=float(squares.sum() / expected.sum()),
        swing=float(np.sqrt(max(0.0, crossed.sum() / pairs))),
        is_sure=bool(crossed.sum() > _SURE * np.sqrt((2 * expected**2).sum())),
    )


def _with_rival(weights: Numbers, names: Sequence[str], known: KnownTries) -> Numbers:
    """Return weights of models, with some for a rival that the history can't rule out.

    The rival counts where re-sends after the first succeed less often: messages may grow too old.
    If hardly any succeeds, it is poison.
    """
    tried, won = (one.sum(axis=0) for one in (known.is_known, known.has_succeeded))
    first, later = (won[one].sum() / max(1, tried[one].sum()) for one in (slice(1), slice(1, None)))
    is_worse = later < first - _SURE * np.sqrt(first * (1 - first) / max(1, tried[:1].sum()))
    if not is_worse or later <= _POISON * first:
        return weights
    rival = names.index(_STALE)
    added = _UNTOLD * (weights.sum() - weights[rival])
    return np.where(np.arange(len(names)) == rival, np.maximum(weights, added), weights)


def success_by_attempt(known: KnownTries) -> Numbers:
    """Return the share of the re-sends of each number that succeeded; 0 where there were none."""
    tried = known.is_known.sum(axis=0)
    shares: Numbers = known.has_succeeded.sum(axis=0) / np.maximum(tried, 1)
    return shares
