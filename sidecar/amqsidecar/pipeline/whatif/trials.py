"""Bounded trials that would show what history does not."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

import numpy as np

from amqsidecar.pipeline.whatif.attempts import GroupKey, Tries, Usual
from amqsidecar.pipeline.whatif.ensemble import Ensemble
from amqsidecar.pipeline.whatif.failure_model import FailureKind, FailureModel

LATER: Final = "later recovery"
"""Do messages recover that history gave up on?"""

MOST_TRIALS: Final = 20
_LEAST_WEIGHT = 0.1
"""Two kinds of model with less than this each are no question."""
_LEAST_DIFFERENCE = 0.1
_LEAST_LOST = 0.1
_FURTHER = 8
"""How many times as far as history a trial of later recovery goes."""
_DELAYS_MS: Final = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000)
_RESENDS: Final = (1, 2, 3, 5)
_SURE: Final = 1.645
"""90 % of a normal distribution lie within this number of standard deviations."""
_TO_5_POINTS: Final = math.ceil((_SURE * 0.5 / 0.05) ** 2)


@dataclass(frozen=True)
class Trial:
    """A trial on some messages of a destination and cause group.

    Attributes:
        destination: where.
        cause_group: which messages; None = those of all groups without models of their own.
        question: two kinds of models, or `LATER`.
        messages: how many are enough.
        delay_ms: before each re-send.
        resends: of each message.
        duration_ms: until the last re-send is known.
        answer_low: share that recovers if the answer is the first kind, or no.
        answer_high: share that recovers if it is the second kind, or yes.
    """

    destination: str
    cause_group: str | None
    question: str
    messages: int
    delay_ms: int
    resends: int
    duration_ms: int
    answer_low: float
    answer_high: float


def trials_of(
    ensembles: Mapping[GroupKey, Ensemble],
    usual: Mapping[str, Usual],
    *,
    least_messages: int,
    horizon_ms: int,
) -> list[Trial]:
    """Return the trials worth most: those that concern the most messages first."""
    found: list[tuple[float, Trial]] = []
    for group, ensemble in sorted(ensembles.items(), key=str):
        if ensemble.messages < least_messages:
            continue
        for worth, trial in _trials_of(group, ensemble, usual[group[0]], horizon_ms):
            found.append((worth, trial))
    found.sort(key=lambda one: -one[0])
    return [trial for _, trial in found[:MOST_TRIALS]]


def _trials_of(
    group: GroupKey, ensemble: Ensemble, usual: Usual, horizon_ms: int
) -> Iterator[tuple[float, Trial]]:
    lost = 1 - float(ensemble.any_repair.curve[-1])
    delay_ms = round(_FURTHER * ensemble.reach.at_ms)
    if lost >= _LEAST_LOST and delay_ms > 0:
        enough = min(_TO_5_POINTS, ensemble.messages)
        yield (
            lost * ensemble.messages,
            Trial(
                *group, LATER, enough, delay_ms, 1, delay_ms + horizon_ms, 1 - lost, 1.0
            ),
        )  # fmt: skip
    best = {model.kind: model for model in reversed(ensemble.models)}
    kinds = [kind for kind in best if ensemble.weight_of(kind) >= _LEAST_WEIGHT]
    untimed = [kind for kind in kinds if kind is not FailureKind.DOWN_OR_LOADED]
    for one, other in combinations(sorted(untimed), 2):
        trial = _between(group, best[one], best[other], usual, ensemble.messages, horizon_ms)
        if trial.answer_high - trial.answer_low >= _LEAST_DIFFERENCE:
            thin = min(ensemble.weight_of(one), ensemble.weight_of(other))
            yield thin * (trial.answer_high - trial.answer_low) * ensemble.messages, trial


def _between(
    group: GroupKey,
    one: FailureModel,
    other: FailureModel,
    usual: Usual,
    most: int,
    horizon_ms: int,
) -> Trial:
    """Return the trial in which two models differ most; first the one that expects less."""

    def share(model: FailureModel, delay_ms: int, resends: int) -> float:
        return 1 - float(model.open_shares(_tries(delay_ms, resends, usual))[0, -1])

    def difference(setting: tuple[int, int]) -> float:
        return share(other, *setting) - share(one, *setting)

    settings: Sequence[tuple[int, int]] = list(product(_DELAYS_MS, _RESENDS))
    setting = max(settings, key=lambda tried: abs(difference(tried)))
    if difference(setting) < 0:
        one, other = other, one
    low, high = share(one, *setting), share(other, *setting)
    enough = math.ceil((_SURE / max(high - low, 0.01)) ** 2)
    delay_ms, resends = setting
    last_ms = resends * (delay_ms + usual.late_ms + usual.back_ms)
    return Trial(
        *group,
        question=f"{one.kind} or {other.kind}",
        messages=min(max(enough, 20), most),
        delay_ms=delay_ms,
        resends=resends,
        duration_ms=round(last_ms) + horizon_ms,
        answer_low=low,
        answer_high=high,
    )


def _tries(delay_ms: int, resends: int, usual: Usual) -> Tries:
    waited = np.full((1, resends), delay_ms + usual.late_ms)
    at_ms = np.cumsum(waited, axis=1) + np.arange(resends) * usual.back_ms
    nowhere = np.zeros((1, resends))
    return Tries(at_ms, waited, nowhere.astype(np.int64), nowhere)
