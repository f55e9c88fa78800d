"""Which failure models a history supports, and how much.

Each model is fitted to one half of the messages and asked how likely the other half is. A model
that explains more gets more weight; where the evidence is thin several have some. What no model
explains is measured too: failures that come together in the same window, and success by attempt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from amqsidecar.pipeline.whatif.attempts import KnownTries, Mask, Reach, WindowCounts, reach_of
from amqsidecar.pipeline.whatif.curve import Numbers
from amqsidecar.pipeline.whatif.failure_model import FailureKind, FailureModel
from amqsidecar.pipeline.whatif.failure_models.chance import (
    fit_chance,
    fit_load,
    fit_rest,
    fit_uneven_chance,
)
from amqsidecar.pipeline.whatif.failure_models.outage import fit_outage, window_rates
from amqsidecar.pipeline.whatif.failure_models.repair import (
    Repair,
    fit_any_repair,
    fit_lognormal_repair,
    fit_mixture,
    fit_weibull_repair,
)
from amqsidecar.pipeline.whatif.fitting import Counted, counted, each

_SIMPLE: Final[Mapping[str, Callable[[Counted], FailureModel]]] = {
    "chance": fit_chance,
    "uneven chance": fit_uneven_chance,
    "rest": fit_rest,
    "repair, Weibull": fit_weibull_repair,
    "repair, lognormal": fit_lognormal_repair,
    "repair, any time": fit_any_repair,
    "mixture": fit_mixture,
}
_OUTAGE, _LOAD = "outage", "load"
_PRIOR: Final[Mapping[str, float]] = {
    "chance": 1.0,
    "uneven chance": 0.5,
    "rest": 0.5,
    "repair, Weibull": 0.7,
    "repair, lognormal": 0.7,
    "repair, any time": 0.05,
    "mixture": 0.35,
    _OUTAGE: 0.5,
    _LOAD: 0.3,
}
"""What models weigh that explain a history equally well: those with fewer parameters more.

Any history can be explained by repair at any time, so that it has to be the only explanation.
"""

LEAST_WEIGHT: Final = 0.01
"""Models with less are left out of a forecast."""
_DECISIVE_MESSAGES: Final = 1_000.0
"""More messages than these don't make one model surer than another: none is quite true."""
_SURE: Final = 2.0
_DOUBT: Final = 0.02
"""No model is quite true. `make bench-whatif` checks whether the intervals hold with this."""
_MOST_OVER_DISPERSION: Final = 4.0
_MOST_MISFIT: Final = 0.1


@dataclass(frozen=True)
class Evidence:
    """The evidence in the history of a destination and cause group about its failures.

    Attributes:
        messages: how many it is taken from.
        success_by_attempt: share of the re-sends of each number that succeeded.
        waited_ms: median wait before the re-sends of each number.
        over_dispersion: variance of the failures in a window beside that of independent ones: 1
            where messages fail by themselves, more where they fail together.
        left_over: the same beside what the models say of each re-send: far above 1 = they fail
            together for a reason that no model has.
        misfit: mean distance between the models' success by attempt and that of history.
    """

    messages: int
    success_by_attempt: tuple[float, ...]
    waited_ms: tuple[float, ...]
    over_dispersion: float
    left_over: float
    misfit: float

    @property
    def is_supported(self) -> bool:
        """Whether any model explains the history well enough for a forecast."""
        return self.left_over <= _MOST_OVER_DISPERSION and self.misfit <= _MOST_MISFIT


@dataclass(frozen=True)
class Ensemble:
    """Models with weights for the messages of one destination and cause group.

    Attributes:
        models: those with at least `LEAST_WEIGHT`, the likeliest first.
        weights: of these, in sum 1.
        reach: how far history tried.
        evidence: what stands behind the weights.
        any_repair: repair at any time, whatever its weight.
        usual_load: mean number of deliveries in the window of a re-send.
        messages: how many the history has.
    """

    models: Sequence[FailureModel]
    weights: Sequence[float]
    reach: Reach
    evidence: Evidence
    any_repair: Repair
    usual_load: float
    messages: int

    @property
    def doubt(self) -> float:
        """Standard deviation of a forecast for messages that are treated in another way."""
        return _DOUBT + self.evidence.misfit

    def weight_of(self, kind: FailureKind) -> float:
        """Return the weight of all models of a kind."""
        of_kind = (
            weight
            for model, weight in zip(self.models, self.weights, strict=True)
            if model.kind is kind
        )
        return sum(of_kind, 0.0)


def fit_ensemble(
    known: KnownTries, is_first: Mask, windows: tuple[WindowCounts, WindowCounts], messages: int
) -> Ensemble:
    """Return the models of the messages of a destination and cause group, weighted.

    Args:
        known: the messages; a sample does.
        is_first: which belong to the first half.
        windows: of the destination, of the first half of its messages and of the second.
        messages: how many there are, of which `known` may be a sample.
    """
    # Why all twice: of few messages one half may have none.
    parts = (is_first, ~is_first) if 0 < is_first.sum() < len(is_first) else (is_first | True,) * 2
    shares = success_by_attempt(known)
    # Why only then: what fails by itself needs neither, and both take long to fit.
    is_shared = _is_over_dispersed(known, np.broadcast_to(shares, known.at_ms.shape))
    halves = [
        _fit_all(known.take(part), windows_of_half if is_shared else None)
        for part, windows_of_half in zip(parts, windows, strict=True)
    ]
    others = known.take(parts[1]), known.take(parts[0])
    likely = {
        name: sum(
            float(fitted[name].log_likelihood(other).sum())
            for fitted, other in zip(halves, others, strict=True)
        )
        for name in halves[0]
    }
    names = sorted(likely, key=lambda name: -likely[name])
    whole = _fit_all(known, windows[0].joined(windows[1]) if is_shared else None)
    left_over = max(1.0, over_dispersion(known, _rates(whole[names[0]], known)))
    scale = left_over * max(1.0, len(known.at_ms) / _DECISIVE_MESSAGES)
    weights = np.array(
        [_PRIOR[name] * np.exp((likely[name] - likely[names[0]]) / scale) for name in names]
    )
    weights = np.where(weights / weights.sum() >= LEAST_WEIGHT, weights, 0.0)
    weights /= weights.sum()
    kept = sorted(np.flatnonzero(weights).tolist(), key=lambda at: -weights[at])
    models = [whole[names[at]] for at in kept]
    shown = [float(weights[at]) for at in kept]
    return Ensemble(
        models=models,
        weights=shown,
        reach=reach_of(known),
        evidence=_evidence(known, models, shown),
        any_repair=fit_any_repair(counted(known)),
        usual_load=float(known.load[known.is_known].mean()) if known.is_known.any() else 0.0,
        messages=messages,
    )


def _fit_all(known: KnownTries, windows: WindowCounts | None) -> dict[str, FailureModel]:
    """Return every model; without windows, those in which messages fail by themselves."""
    history = counted(known)
    models = {name: fit(history) for name, fit in _SIMPLE.items()}
    if windows is not None:
        one_by_one = each(known)
        models[_OUTAGE] = fit_outage(one_by_one, window_rates(windows))
        models[_LOAD] = fit_load(one_by_one)
    return models


def _rates(model: FailureModel, known: KnownTries) -> Numbers:
    """Return the probability of success of each re-send, given that all before it failed."""
    open_shares = model.open_shares(known)
    before = np.hstack([np.ones((len(open_shares), 1)), open_shares[:, :-1]])
    return 1 - open_shares / np.maximum(before, 1e-12)


def over_dispersion(known: KnownTries, rates: Numbers) -> float:
    """Return the variance of the successes in a window beside that of independent ones.

    Args:
        known: the messages.
        rates: probability of success of each re-send, by what is held to be the reason.
    """
    return _dispersion(known, rates)[0]


def _is_over_dispersed(known: KnownTries, rates: Numbers) -> bool:
    """Tell whether it is above 1 by more than chance makes likely."""
    found, windows = _dispersion(known, rates)
    return windows > 0 and found > 1 + _SURE * np.sqrt(2 / windows)


def _dispersion(known: KnownTries, rates: Numbers) -> tuple[float, int]:
    """Return the over-dispersion, and in how many windows it was found."""
    is_known = known.is_known
    window = known.window[is_known]
    rate = np.clip(rates[is_known], 1e-3, 1 - 1e-3)
    count = int(window.max(initial=-1)) + 1
    together = np.bincount(window, minlength=count)
    missed = np.bincount(window, known.has_succeeded[is_known] - rate, count)
    expected = np.bincount(window, rate * (1 - rate), count)
    is_shared = together >= 2
    if not is_shared.any():
        return 1.0, 0
    found = (missed[is_shared] ** 2).sum() / expected[is_shared].sum()
    return float(found), int(is_shared.sum())


def success_by_attempt(known: KnownTries) -> Numbers:
    """Return the share of the re-sends of each number that succeeded; 0 where there were none."""
    tried = known.is_known.sum(axis=0)
    shares: Numbers = known.has_succeeded.sum(axis=0) / np.maximum(tried, 1)
    return shares


def _evidence(
    known: KnownTries, models: Sequence[FailureModel], weights: Sequence[float]
) -> Evidence:
    tried = known.is_known.sum(axis=0)
    shares = success_by_attempt(known)
    rates = sum(
        weight * _rates(model, known) for model, weight in zip(models, weights, strict=True)
    )
    expected = np.where(known.is_known, rates, 0.0).sum(axis=0) / np.maximum(tried, 1)
    is_told = tried > 0
    waited = [
        float(np.median(known.waited_ms[known.is_known[:, column], column]))
        for column in np.flatnonzero(is_told)
    ]
    misfit = (np.abs(expected - shares) * tried).sum() / max(1, tried.sum())
    return Evidence(
        messages=len(known.at_ms),
        success_by_attempt=tuple(shares[is_told].tolist()),
        waited_ms=tuple(waited),
        over_dispersion=over_dispersion(known, np.broadcast_to(shares, known.at_ms.shape)),
        left_over=over_dispersion(known, np.asarray(rates)),
        misfit=float(misfit),
    )
