"""Repair in time: each message becomes recoverable at one moment and stays so, or never does."""

from dataclasses import dataclass

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
from amqsidecar.pipeline.whatif.fitting import Counted, logistic, maximise


@dataclass(frozen=True)
class Repair:
    """A model by the distribution of that moment.

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
        by_then = np.where(np.isinf(recovered), 1.0, share_by(self.curve, _finite(recovered)))
        likely: Numbers = np.maximum(by_then - before, 0.0)
        return likely

    def open_after(self, known: KnownTries, planned: Tries) -> Numbers:
        failed, recovered = known.failed_ms[:, None], known.recovered_ms[:, None]
        at = np.where(planned.is_made, planned.at_ms, -1.0)
        is_open = not_yet(self.curve, at, failed, recovered)
        return np.minimum.accumulate(np.where(planned.is_made, is_open, 1.0), axis=1)

    def open_shares(self, planned: Tries) -> Numbers:
        done = np.where(planned.is_made, share_by(self.curve, _finite(planned.at_ms)), 0.0)
        return 1 - np.maximum.accumulate(done, axis=1)

    def is_beyond(self, planned: Tries, reach: Reach) -> Mask:
        return planned.is_made & ((planned.at_ms > reach.at_ms) | reach.is_too_early(planned))


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

    return model(*maximise(model, (np.log(600_000.0), 0.0, -3.0), history))


def _weibull(scale: float, power: float) -> Numbers:
    return -np.expm1(-np.exp(np.minimum(power * (np.log(EDGES_MS) - scale), 5.0)))
