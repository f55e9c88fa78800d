"""Searches better settings: a fixed grid, and one choice by a rule.

The grid is tried on the failure models of each destination, not message by message, so the cost
doesn't depend on the size of the history. The chosen policy is then replayed like any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import parse_destination
from amqsidecar.pipeline.whatif.attempts import Tries, Usual
from amqsidecar.pipeline.whatif.curve import EDGES_MS, Numbers
from amqsidecar.pipeline.whatif.ensemble import Ensemble
from amqsidecar.pipeline.whatif.models import FailureKind
from amqsidecar.pipeline.whatif.policy import Setting, plan_of, with_settings
from amqsidecar.plugin import Plugin
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.load import compile_policy

SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
INITIAL_DELAYS_MS: Final = (
    SECOND, 2 * SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND,
    MINUTE, 2 * MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR,
)  # fmt: skip
MULTIPLIERS: Final = (1.0, 1.5, 2.0, 3.0, 5.0)
LONGEST_DELAYS_MS: Final = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR)
REDELIVERIES: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20)

_ANYWHERE: Final = "queue://anywhere"


@dataclass(frozen=True)
class Grid:
    """The settings that are tried, and their delays by the policy functions.

    Attributes:
        settings: one per row, ascending.
        delays_ms: of each re-send, one column each; infinity = none.
    """

    settings: Sequence[Setting]
    delays_ms: Numbers


@dataclass(frozen=True)
class Rule:
    """The rule that chooses one setting.

    Attributes:
        share_tolerance: how much its share of recovered messages may be below the best share.
        slowdown: how many times as long recovery may take on average as if each message was re-sent
            at the moment when it becomes recoverable.
    """

    share_tolerance: float
    slowdown: float


@dataclass(frozen=True)
class Scores:
    """The estimated results of each setting of a grid, per message that dies.

    Attributes:
        share: share of messages that recover.
        deliveries: number of re-sends.
        mean_ms: average time to recovery of messages that recover.
        p90_ms: time by which nine tenths of these have recovered.
    """

    share: Numbers
    deliveries: Numbers
    mean_ms: Numbers
    p90_ms: Numbers


def make_grid(base: Rules, plugins: Mapping[str, Plugin]) -> Grid:
    """Return the grid for the broker of the rules; settings with equal delays are in it once."""
    found: dict[tuple[int, ...], Setting] = {}
    for initial, multiplier, longest in product(INITIAL_DELAYS_MS, MULTIPLIERS, LONGEST_DELAYS_MS):
        if longest < initial:
            continue
        most = Setting(initial, multiplier, longest, max(REDELIVERIES))
        rules = with_settings(base.__class__(), {_ANYWHERE: most})
        plan = plan_of(
            compile_policy(rules, plugins),
            DeadLetter(parse_destination(_ANYWHERE)),
            most_attempts=most.maximum_redeliveries,
        )
        for count in REDELIVERIES:
            found.setdefault(plan.delays_ms[:count], Setting(initial, multiplier, longest, count))
    delays = np.full((len(found), max(REDELIVERIES)), np.inf)
    settings = sorted(found.items(), key=lambda one: one[1])
    for row, (one, _) in enumerate(settings):
        delays[row, : len(one)] = one
    return Grid([setting for _, setting in settings], delays)


def score(grid: Grid, ensembles: Sequence[Ensemble], usual: Usual) -> Scores:
    """Return the results of the settings at a destination with these models and usual delays."""
    between = np.full(grid.delays_ms.shape[1], usual.late_ms + usual.back_ms)
    between[0] = usual.late_ms
    at_ms = np.cumsum(grid.delays_ms + between, axis=1)
    waited_ms = grid.delays_ms + usual.late_ms
    tries = Tries(at_ms, waited_ms, np.zeros(at_ms.shape, dtype=np.int64))
    done = np.zeros(at_ms.shape)
    total = sum(one.messages for one in ensembles)
    for ensemble in ensembles:
        for model, weight in zip(ensemble.models, ensemble.weights, strict=True):
            # Why by repair: a setting can't know when an outage happens.
            is_timed = model.kind is FailureKind.DOWN_OR_LOADED
            is_open = (ensemble.any_repair if is_timed else model).open_shares(tries)
            done += ensemble.messages / total * weight * (1 - is_open)
    before = np.hstack([np.zeros((len(done), 1)), done[:, :-1]])
    gains = done - before
    share = done[:, -1]
    times = np.where(tries.is_made, at_ms, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_ms = (gains * times).sum(axis=1) / share
    reached = done >= 0.9 * share[:, None]
    p90_ms = times[np.arange(len(times)), reached.argmax(axis=1)]
    return Scores(share, (tries.is_made * (1.0 - before)).sum(axis=1), mean_ms, p90_ms)


def choose(scores: Scores, recoverable_ms: float, rule: Rule) -> int:
    """Return the row of the setting with the fewest deliveries that recovers enough, soon enough.

    Enough is the best share less the tolerance. Soon enough is a mean time to recovery of at most
    `slowdown` times the mean time at which messages become recoverable; if no setting has that, the
    fastest one is chosen. Of settings with equal deliveries the faster one is.
    """
    is_enough = scores.share >= scores.share.max() - rule.share_tolerance
    is_soon = is_enough & (scores.mean_ms <= rule.slowdown * recoverable_ms)
    if not is_soon.any():
        is_soon = is_enough & (scores.mean_ms <= scores.mean_ms[is_enough].min())
    rows = np.flatnonzero(is_soon)
    return int(rows[np.lexsort([scores.mean_ms[rows], scores.deliveries[rows]])[0]])


def mean_recoverable_ms(ensembles: Sequence[Ensemble]) -> float:
    """Return the mean time at which messages become recoverable, if they ever do.

    It follows the models in which time decides; by chance alone, messages are recoverable at once.
    """
    masses = np.zeros(len(EDGES_MS))
    for ensemble in ensembles:
        timed = 1 - ensemble.weight_of(FailureKind.CHANCE)
        curve = ensemble.any_repair.curve
        masses += ensemble.messages * timed * np.diff(curve, prepend=0.0)
        masses[0] += ensemble.messages * (1 - timed) * curve[-1]
    middles = (EDGES_MS + np.concatenate([[0.0], EDGES_MS[:-1]])) / 2
    total = float(masses.sum())
    return float((masses * middles).sum()) / total if total else 0.0


def why_not(*, is_supported: bool, share: float | None, lower: float, history: float) -> str | None:
    """Return why a proposal is not written; None = it is: it surely recovers more than history did.

    Args:
        is_supported: whether failure models explain the history.
        share: of its messages, how many likely recover; None = beyond the reach of history.
        lower: lower bound of it.
        history: share that recovered in history.
    """
    if not is_supported:
        return "no model explains the history"
    if share is None:
        return "beyond what history tried"
    if lower <= history:
        return "perhaps no better than history"
    return None
