"""Forecasts of `whatif` beside the truth of hidden processes, without Spark.

`hidden_processes.py` makes the history and the truth; the models and forecasts are those of the
job. `bench_whatif.py` runs the job itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from amqsidecar.pipeline.whatif.attempts import WINDOW_MS, KnownTries, Tries, Usual, WindowCounts
from amqsidecar.pipeline.whatif.ensemble import Ensemble, fit_ensemble
from amqsidecar.pipeline.whatif.forecast import PolicyForecast, forecast, sum_up
from amqsidecar.pipeline.whatif.search import (
    Grid,
    Rule,
    choose,
    make_grid,
    mean_recoverable_ms,
    score,
    why_not,
)
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.classic_rules import ClassicRules
from bench.hidden_processes import (
    CANDIDATES,
    UNTIL_MS,
    Lives,
    Numbers,
    Policy,
    policy_of_history,
    run,
)

USUAL = Usual(late_ms=250.0, back_ms=2_000.0)


class Case(NamedTuple):
    """A forecast and its truth; shares of the messages.

    Attributes:
        likely: NaN = beyond reach.
        history: what recovered in history.
        models: the interval that the models would give, whether or not they are supported.
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
    history: float
    models: tuple[float, float]

    @property
    def is_reached(self) -> bool:
        return not math.isnan(self.likely)

    @property
    def covers(self) -> bool:
        return self.lower - 1e-9 <= self.truth <= self.upper + 1e-9

    @property
    def is_right(self) -> bool:
        """Whether the models by themselves would have held."""
        return self.models[0] - 1e-9 <= self.truth <= self.models[1] + 1e-9

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
    windows: WindowCounts
    known: KnownTries

    @classmethod
    def of(cls, lives: Lives) -> "History":
        windows = _windows(lives)
        window = windows.numbers_of(lives.sent_ms)
        is_made, is_back = np.isfinite(lives.sent_ms), np.isfinite(lives.back_ms)
        died = np.hstack([lives.died_ms[:, None], lives.back_ms[:, :-1]])
        with np.errstate(invalid="ignore"):
            waited = np.where(is_made, lives.sent_ms - died, np.inf)
        known = KnownTries(
            at_ms=lives.sent_ms - lives.died_ms[:, None],
            waited_ms=waited,
            window=window,
            has_failed=is_made & is_back,
            has_succeeded=is_made & ~is_back,
        )
        return cls(lives, windows, known)

    def ensemble(self) -> Ensemble:
        count = len(self.lives.died_ms)
        is_first = np.arange(count) % 2 == 0
        return fit_ensemble(self.known, self.lives.died_ms, is_first, self.windows, count)

    def planned(self, policy: Policy) -> Tries:
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
        )

    def forecast(self, ensemble: Ensemble, policy: Policy) -> PolicyForecast:
        planned = self.planned(policy)
        return forecast([[totals for totals, _ in sum_up(ensemble, self.known, planned)]])


def _windows(lives: Lives) -> WindowCounts:
    first = int(lives.died_ms.min() // WINDOW_MS)
    last = int(max(lives.died_ms.max(), lives.sent_ms[np.isfinite(lives.sent_ms)].max()))
    count = last // WINDOW_MS - first + 1
    sent = lives.sent_ms
    is_made, is_back = np.isfinite(sent), np.isfinite(lives.back_ms)
    recovers = lives.has_recovered[:, None] & is_made

    def counted(at_ms: Numbers) -> Numbers:
        at = (at_ms // WINDOW_MS).astype(np.int64) - first
        return np.bincount(at, minlength=count).astype(np.float64)

    return WindowCounts(
        first,
        counted(lives.died_ms),
        counted(sent[is_made & ~is_back]),
        counted(sent[is_back & recovers]),
        counted(sent[is_back & ~recovers]),
    )


def _fitting(values: Numbers, count: int, otherwise: float) -> Numbers:
    missing = max(0, count - values.shape[1])
    return np.pad(values[:, :count], ((0, 0), (0, missing)), constant_values=otherwise)


@lru_cache(maxsize=4)
def fitted(process: str, seed: int, count: int) -> tuple[History, Ensemble]:
    """Return the history of a world, and the models of it."""
    history = History.of(run(process, seed, count, policy_of_history(process, seed), 0))
    return history, history.ensemble()


def case_of(process: str, seed: int, count: int, policy: str) -> Case:
    """Forecast a candidate from the history, and run it in the same world."""
    number = 1 + list(CANDIDATES).index(policy)
    return _held_against_truth(process, seed, count, policy, CANDIDATES[policy], number)


def proposal_of(process: str, seed: int, count: int) -> Case | None:
    """Return the proposal of the search beside the truth; None = it is not written."""
    _, ensemble = fitted(process, seed, count)
    grid = _grid()
    if not ensemble.any_repair.curve[-1] > 0:
        return None
    scores = score(grid, [ensemble], USUAL)
    chosen = grid.settings[choose(scores, mean_recoverable_ms([ensemble]), Rule(0.01, 2.0))]
    policy = Policy(
        chosen.initial_redelivery_delay_ms,
        chosen.back_off_multiplier,
        chosen.maximum_redelivery_delay_ms,
        chosen.maximum_redeliveries,
    )
    case = _held_against_truth(process, seed, count, "proposal", policy, 9)
    likely = case.likely if case.is_reached else None
    reason = why_not(
        is_supported=case.is_supported, share=likely, lower=case.lower, history=case.history
    )
    return case if reason is None else None


@dataclass(frozen=True)
class _Trusted(Ensemble):
    """Models that count as supported, with a doubt of their own."""

    own_doubt: float

    @property
    def doubt(self) -> float:
        return self.own_doubt


def _trusted(ensemble: Ensemble) -> Ensemble:
    own = {one.name: getattr(ensemble, one.name) for one in fields(Ensemble)}
    own["evidence"] = replace(ensemble.evidence, left_over=(0.0,), misfit=0.0)
    return _Trusted(**own, own_doubt=ensemble.doubt)


@lru_cache(maxsize=1)
def _grid() -> Grid:
    return make_grid(ClassicRules(), load_plugins())


def _held_against_truth(
    process: str, seed: int, count: int, name: str, policy: Policy, number: int
) -> Case:
    history, ensemble = fitted(process, seed, count)
    messages = len(history.lives.died_ms)
    found = history.forecast(ensemble, policy)
    by_models = history.forecast(_trusted(ensemble), policy).recovered
    return Case(
        process=process,
        seed=seed,
        policy=name,
        truth=run(process, seed, count, policy, number).share,
        lower=found.recovered.lower / messages,
        likely=found.recovered.likely / messages,
        upper=found.recovered.upper / messages,
        beyond=found.beyond / messages,
        is_supported=ensemble.evidence.is_supported,
        history=history.lives.share,
        models=(by_models.lower / messages, by_models.upper / messages),
    )


def summary(cases: Sequence[Case], proposals: Sequence[Case] = ()) -> str:
    """Return a table by process, and of all.

    `recognised`: of the forecasts in which the models are wrong, those that are not supported.
    """
    lines = [
        "| process | forecasts | supported | of these covered | all covered | with an estimate "
        "| mean width | median error | largest | models wrong | recognised | proposals "
        "| worst against history |",
        "|---|" + "---:|" * 12,
    ]
    for name in (*dict.fromkeys(case.process for case in cases), "all"):
        these = [case for case in cases if name in (case.process, "all")]
        backed = [case for case in these if case.is_supported]
        reached = [case for case in these if case.is_reached]
        wrong = [case for case in these if not case.is_right]
        found = [case for case in proposals if name in (case.process, "all")]
        errors = [case.error for case in reached] or [math.nan]
        width = np.mean([case.width for case in reached] or [math.nan])
        known = sum(not case.is_supported for case in wrong)
        worst = min((100 * (case.truth - case.history) for case in found), default=math.nan)
        lines.append(
            f"| {name} | {len(these)} | {len(backed)} | {_share([one.covers for one in backed])} "
            f"| {_share([case.covers for case in these])} | {len(reached)} | {100 * width:.1f} "
            f"| {100 * np.median(errors):.1f} | {100 * np.max(errors):.1f} "
            f"| {len(wrong)} | {known} | {len(found)} | {worst:+.1f} |"
        )
    return "\n".join(lines)


def _share(holds: Sequence[bool]) -> str:
    return f"{np.mean(holds):.1%}" if holds else "-"
