"""Repair in time: each message becomes recoverable at one moment and stays so, or never does."""

from dataclasses import dataclass
from math import erf

import numpy as np

from amqsidecar.pipeline.whatif.attempts import KnownTries, Mask, Reach, Tries
from amqsidecar.pipeline.whatif.curve import (
    EDGES_MS,
    NEVER,
    Numbers,
    cell_of,
    fit_curve,
    not_yet,
    share_by,
)
from amqsidecar.pipeline.whatif.failure_model import FailureKind
from amqsidecar.pipeline.whatif.failure_models.chance import ChanceRate
from amqsidecar.pipeline.whatif.failure_models.draws import coupled, likelihoods
from amqsidecar.pipeline.whatif.fitting import Counted, logistic, maximise

_erf = np.vectorize(erf, otypes=[np.float64])


@dataclass(frozen=True)
class Repair:
    """A model by the distribution of that moment.

    Attributes:
        curve: the share that is recoverable by the end of each cell; see `curve`.
    """

    curve: Numbers

    @property
    def kind(self) -> FailureKind:
        """See `FailureModel`."""
        return FailureKind.REPAIR

    def log_likelihood(self, known: KnownTries) -> Numbers:
        """See `FailureModel`."""
        return np.log(np.maximum(self.likelihood(known), 1e-6))

    def likelihood(self, known: KnownTries) -> Numbers:
        """Return the probability of each message's outcomes."""
        failed, recovered = known.failed_ms, known.recovered_ms
        before = np.where(failed < 0, 0.0, share_by(self.curve, failed))
        by_then = np.where(np.isinf(recovered), 1.0, share_by(self.curve, _finite(recovered)))
        likely: Numbers = np.maximum(by_then - before, 0.0)
        return likely

    def open_after(self, known: KnownTries, planned: Tries) -> Numbers:
        """See `FailureModel`."""
        failed, recovered = known.failed_ms[:, None], known.recovered_ms[:, None]
        at = np.where(planned.is_made, planned.at_ms, -1.0)
        is_open = not_yet(self.curve, at, failed, recovered)
        return np.minimum.accumulate(np.where(planned.is_made, is_open, 1.0), axis=1)

    def open_shares(self, planned: Tries) -> Numbers:
        """See `FailureModel`."""
        done = np.where(planned.is_made, share_by(self.curve, _finite(planned.at_ms)), 0.0)
        return 1 - np.maximum.accumulate(done, axis=1)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        """See `FailureModel`."""
        return planned.is_made & (planned.at_ms > reach.at_ms)


def _finite(at_ms: Numbers) -> Numbers:
    return np.where(np.isfinite(at_ms), at_ms, EDGES_MS[-1])


def fit_any_repair(history: Counted) -> Repair:
    """Return the model with whatever distribution is likeliest; see `curve.fit_curve`."""
    failed, recovered = history.known.failed_ms, history.known.recovered_ms
    cells = np.where(np.isinf(recovered), NEVER, cell_of(_finite(recovered)))
    return Repair(fit_curve(cell_of(failed), cells, history.counts))


def fit_weibull_repair(history: Counted) -> Repair:
    """Return the model with a Weibull distribution, of which the exponential one is a case."""

    def model(scale: float, power: float, never: float) -> Repair:
        return Repair((1 - logistic(never)) * _weibull(scale, np.exp(np.clip(power, -1.0, 1.5))))

    return maximise(model, (np.log(600_000.0), 0.0, -3.0), history)


def fit_lognormal_repair(history: Counted) -> Repair:
    """Return the model with a lognormal distribution: many soon, some much later."""

    def model(middle: float, spread: float, never: float) -> Repair:
        width = np.exp(np.clip(spread, -2.0, 1.0))
        normal = (np.log(EDGES_MS) - middle) / width
        return Repair((1 - logistic(never)) * (1 + _erf(normal / np.sqrt(2))) / 2)

    return maximise(model, (np.log(600_000.0), 0.0, -3.0), history)


def _weibull(scale: float, power: float) -> Numbers:
    return -np.expm1(-np.exp(np.minimum(power * (np.log(EDGES_MS) - scale), 5.0)))


@dataclass(frozen=True)
class Mixture:
    """Some messages fail by chance, some until they are repaired, some for ever.

    Attributes:
        chance: of the first kind.
        repair: of the second; its curve ends at 1.
        shares: of the first and the second kind.
    """

    chance: ChanceRate
    repair: Repair
    shares: tuple[float, float]

    @property
    def kind(self) -> FailureKind:
        """See `FailureModel`."""
        return FailureKind.MIXTURE

    def _parts(self, known: KnownTries) -> tuple[Numbers, Numbers, Numbers]:
        _, by_chance = likelihoods(self.chance.of(known), known)
        never = np.where(known.has_recovered, 0.0, 1.0)
        return (
            self.shares[0] * by_chance,
            self.shares[1] * self.repair.likelihood(known),
            (1 - sum(self.shares)) * never,
        )

    def log_likelihood(self, known: KnownTries) -> Numbers:
        """See `FailureModel`."""
        return np.log(np.maximum(sum(self._parts(known)), 1e-300))

    def open_after(self, known: KnownTries, planned: Tries) -> Numbers:
        """See `FailureModel`."""
        by_chance, by_repair, never = self._parts(known)
        total = by_chance + by_repair + never
        # Why: where the mixture rules out what happened, it was repair at that moment.
        is_possible = total > 0
        total = np.where(is_possible, total, 1.0)
        by_repair = np.where(is_possible, by_repair, 1.0)
        open_by_chance = np.cumprod(1 - coupled(self.chance, known, planned), axis=1)
        open_by_repair = self.repair.open_after(known, planned)
        return (
            (by_chance / total)[:, None] * open_by_chance
            + (by_repair / total)[:, None] * open_by_repair
            + (never / total)[:, None]
        )

    def open_shares(self, planned: Tries) -> Numbers:
        """See `FailureModel`."""
        rate = np.where(planned.is_made, self.chance.of(planned), 0.0)
        return (
            self.shares[0] * np.cumprod(1 - rate, axis=1)
            + self.shares[1] * self.repair.open_shares(planned)
            + (1 - sum(self.shares))
        )

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        """See `FailureModel`."""
        return self.repair.is_beyond(planned, reach)


def fit_mixture(history: Counted) -> Mixture:
    """Return the mixture with one chance, and exponential times of repair."""

    def model(first: float, scale: float, odds: float, never: float) -> Mixture:
        left = 1 - logistic(never)
        return Mixture(
            ChanceRate(logistic(first), 0.0),
            Repair(_weibull(scale, 1.0)),
            (left * logistic(odds), left * (1 - logistic(odds))),
        )

    return maximise(model, (0.0, np.log(900_000.0), 0.0, -3.0), history)
