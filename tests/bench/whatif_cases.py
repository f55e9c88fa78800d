"""Forecasts of `whatif` beside the truth of hidden processes, without Spark.

`hidden_processes.py` makes the history and the truth; the models and forecasts are those of the
job. `bench_whatif.py` runs the job itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from amqsidecar.pipeline.whatif.attempts import WINDOW_MS, KnownTries, Tries, Usual, WindowCounts
from amqsidecar.pipeline.whatif.ensemble import Ensemble, fit_ensemble
from amqsidecar.pipeline.whatif.forecast import PolicyForecast, forecast, sum_up
from amqsidecar.pipeline.whatif.policy_load import Stream, policy_load
from bench.hidden_processes import CANDIDATES, LOGGED, UNTIL_MS, Lives, Numbers, Policy, run

USUAL = Usual(late_ms=250.0, back_ms=2_000.0)


class Case(NamedTuple):
    """A forecast and its truth; shares of the messages.

    Attributes:
        likely: NaN = beyond reach.
    """

    process: str
    seed: int
    policy: str
    truth: float
    lower: float
    likely: float
    upper: float
    beyond: float
    is_supported: bool

    @property
    def is_reached(self) -> bool:
        return not math.isnan(self.likely)

    @property
    def covers(self) -> bool:
        return self.lower - 1e-9 <= self.truth <= self.upper + 1e-9

    @property
    def width(self) -> float:
        return self.upper - self.lower

    @property
    def error(self) -> float:
        return abs(self.likely - self.truth)


@dataclass(frozen=True)
class History:
    """What a policy did in a world, as the forecasts take it."""

    lives: Lives
    halves: tuple[WindowCounts, WindowCounts]
    known: KnownTries

    @classmethod
    def of(cls, lives: Lives) -> "History":
        is_first = np.arange(len(lives.died_ms)) % 2 == 0
        halves = _windows(lives, is_first), _windows(lives, ~is_first)
        windows = halves[0].joined(halves[1])
        window = windows.numbers_of(lives.sent_ms)
        is_made, is_back = np.isfinite(lives.sent_ms), np.isfinite(lives.back_ms)
        died = np.hstack([lives.died_ms[:, None], lives.back_ms[:, :-1]])
        with np.errstate(invalid="ignore"):
            waited = np.where(is_made, lives.sent_ms - died, np.inf)
        known = KnownTries(
            at_ms=lives.sent_ms - lives.died_ms[:, None],
            waited_ms=waited,
            window=window,
            load=windows.load[window],
            has_failed=is_made & is_back,
            has_succeeded=is_made & ~is_back,
        )
        return cls(lives, halves, known)

    @property
    def windows(self) -> WindowCounts:
        return self.halves[0].joined(self.halves[1])

    def ensemble(self) -> Ensemble:
        count = len(self.lives.died_ms)
        return fit_ensemble(self.known, np.arange(count) % 2 == 0, self.halves, count)

    def planned(self, policy: Policy, load: Numbers) -> Tries:
        """Return a policy's re-sends, each as late and as soon back as its like in history."""
        lives, delays = self.lives, np.array(policy.delays())
        back = np.where(np.isfinite(lives.back_ms), lives.back_ms, 0.0) - np.where(
            np.isfinite(lives.back_ms), lives.sent_ms, -USUAL.back_ms
        )
        late = _fitting(lives.late_ms, len(delays), USUAL.late_ms)
        back = np.hstack([np.zeros((len(late), 1)), _fitting(back, len(delays) - 1, USUAL.back_ms)])
        at_ms = np.cumsum(delays + late + back, axis=1)
        is_made = at_ms + lives.died_ms[:, None] < UNTIL_MS
        window = self.windows.numbers_of(lives.died_ms[:, None] + at_ms)
        return Tries(
            np.where(is_made, at_ms, np.inf),
            np.where(is_made, delays + late, np.inf),
            window,
            load[window],
        )

    def forecast(self, ensemble: Ensemble, policy: Policy) -> PolicyForecast:
        windows = self.windows
        delays_ms = [round(one) for one in policy.delays()]
        load = policy_load([Stream(ensemble, 1, delays_ms)], windows, USUAL)
        planned = self.planned(policy, windows.load if load is None else load)
        return forecast([[totals for totals, _ in sum_up(ensemble, self.known, planned)]])


def _windows(lives: Lives, is_meant: np.ndarray) -> WindowCounts:
    first = int(lives.died_ms.min() // WINDOW_MS)
    last = int(max(lives.died_ms.max(), lives.sent_ms[np.isfinite(lives.sent_ms)].max()))
    count = last // WINDOW_MS - first + 1
    sent = lives.sent_ms[is_meant]
    is_made, is_back = np.isfinite(sent), np.isfinite(lives.back_ms[is_meant])
    recovers = lives.has_recovered[is_meant][:, None] & is_made

    def counted(at_ms: Numbers) -> Numbers:
        at = (at_ms // WINDOW_MS).astype(np.int64) - first
        return np.bincount(at, minlength=count).astype(np.float64)

    return WindowCounts(
        first,
        counted(lives.died_ms[is_meant]),
        counted(sent[is_made & ~is_back]),
        counted(sent[is_back & recovers]),
        counted(sent[is_back & ~recovers]),
    )


def _fitting(values: Numbers, count: int, otherwise: float) -> Numbers:
    missing = max(0, count - values.shape[1])
    return np.pad(values[:, :count], ((0, 0), (0, missing)), constant_values=otherwise)


@lru_cache(maxsize=4)
def fitted(process: str, seed: int, count: int) -> tuple[History, Ensemble]:
    """Return a history by the policy `LOGGED`, and the models of it."""
    history = History.of(run(process, seed, count, LOGGED, 0))
    return history, history.ensemble()


def case_of(process: str, seed: int, count: int, policy: str) -> Case:
    """PolicyForecast a candidate from the history, and run it in the same world."""
    history, ensemble = fitted(process, seed, count)
    found = history.forecast(ensemble, CANDIDATES[policy])
    truth = run(process, seed, count, CANDIDATES[policy], 1 + list(CANDIDATES).index(policy))
    return Case(
        process=process,
        seed=seed,
        policy=policy,
        truth=truth.share,
        lower=found.recovered.lower / count,
        likely=found.recovered.likely / count,
        upper=found.recovered.upper / count,
        beyond=found.beyond / count,
        is_supported=ensemble.evidence.is_supported,
    )


def summary(cases: Sequence[Case]) -> str:
    """Return a table by process, and of all."""
    lines = [
        "| process | cases | covered | with an estimate | mean width | median error | largest |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in (*dict.fromkeys(case.process for case in cases), "all"):
        these = [case for case in cases if name in (case.process, "all")]
        reached = [case for case in these if case.is_reached]
        errors = [case.error for case in reached] or [math.nan]
        width = np.mean([case.width for case in reached] or [math.nan])
        lines.append(
            f"| {name} | {len(these)} | {np.mean([case.covers for case in these]):.1%} "
            f"| {len(reached)} | {100 * width:.1f} "
            f"| {100 * np.median(errors):.1f} | {100 * np.max(errors):.1f} |"
        )
    return "\n".join(lines)
