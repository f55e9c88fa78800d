"""Forecasts of a policy for messages of history, with an interval and the part beyond reach."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from amqsidecar.pipeline.whatif.attempts import KnownTries, Mask, Reach, Tries
from amqsidecar.pipeline.whatif.curve import Numbers
from amqsidecar.pipeline.whatif.ensemble import Ensemble
from amqsidecar.pipeline.whatif.models import FailureModel

CONFIDENCE: Final = 0.9
MOST_BEYOND: Final = 0.05
"""With a greater share of the messages beyond reach there is no point estimate."""

_DRAWS: Final = 4_000
_SEED: Final = 20_251
_PARTS: Final = 2**20
_SAME_SHARE, _SAME_MS = 0.05, 1_000.0


@dataclass(frozen=True)
class Played:
    """One model's forecast of a policy's re-sends of some messages; rows and columns as planned.

    Attributes:
        sent: probability that each re-send is made.
        recovered: probability that it is the one that succeeds.
        is_within: whether it is within the reach of history.
    """

    sent: Numbers
    recovered: Numbers
    is_within: Mask


def play(model: FailureModel, known: KnownTries, planned: Tries, reach: Reach) -> Played:
    """Return a model's forecast of planned re-sends.

    A re-send after the first one beyond reach is beyond, too.
    """
    is_open = model.open_after(known, planned)
    before = np.hstack([np.ones((len(is_open), 1)), is_open[:, :-1]])
    return Played(
        sent=np.where(planned.is_made, before, 0.0),
        recovered=np.where(planned.is_made, before - is_open, 0.0),
        is_within=~np.logical_or.accumulate(model.is_beyond(planned, reach), axis=1),
    )


def is_changed(known: KnownTries, planned: Tries) -> Mask:
    """Return which messages have other re-sends by a policy than in history.

    Times within 5 % or a second are equal. Re-sends planned after a success don't count.
    """
    width = max(known.at_ms.shape[1], planned.at_ms.shape[1])
    was, now = _widened(known.at_ms, width), _widened(planned.at_ms, width)
    with np.errstate(invalid="ignore"):
        is_near = np.abs(now - was) <= np.maximum(_SAME_SHARE * was, _SAME_MS)
    is_same = np.where(np.isinf(was), np.isinf(now), is_near)
    is_over = was > known.recovered_ms[:, None]
    return np.asarray(~(is_same | is_over).all(axis=1))


def _as_in_history(known: KnownTries, planned: Tries, is_same: Mask) -> Tries:
    """Return re-sends with the very times of history, where messages are treated as there.

    Why: a millisecond before the re-send that succeeded is another time for a model.
    """
    count = min(known.at_ms.shape[1], planned.at_ms.shape[1])
    both = known.is_made[:, :count] & planned.is_made[:, :count] & is_same[:, None]

    def own(name: str) -> Numbers:
        ours: Numbers = getattr(planned, name).copy()
        ours[:, :count] = np.where(both, getattr(known, name)[:, :count], ours[:, :count])
        return ours

    return Tries(
        at_ms=own("at_ms"),
        waited_ms=own("waited_ms"),
        window=own("window").astype(np.int64),
    )


def _widened(at_ms: Numbers, width: int) -> Numbers:
    return np.pad(at_ms, ((0, 0), (0, width - at_ms.shape[1])), constant_values=np.inf)


@dataclass(frozen=True)
class Totals:
    """Sums over the messages of a policy, destination and cause group, by one model.

    Attributes:
        doubt: additional standard deviation, as a share of the changed messages.
        messages: number of messages.
        changed: messages with other re-sends than in history.
        recovered: messages that recover.
        within: messages that recover by a re-send within reach; where no model explains the
            history, only messages treated as in history.
        beyond: other messages that may recover.
        resends: number of re-sends.
        resends_least: minimum re-sends, where reach or models end.
        resends_most: maximum re-sends, likewise.
        unsettled: messages treated as in history whose outcome is not known yet.
        settling: unsettled messages that likely recover.
    """

    weight: float
    doubt: float
    messages: float
    changed: float
    recovered: float
    within: float
    beyond: float
    resends: float
    resends_least: float
    resends_most: float
    unsettled: float
    settling: float


def in_parts(amounts: Numbers) -> Numbers:
    """Return amounts of messages in whole parts of 2**-20.

    So sums are exact, and don't depend on the order or the tasks that add.
    """
    return np.round(amounts * _PARTS) / _PARTS


def sum_up(
    ensemble: Ensemble, known: KnownTries, planned: Tries
) -> Iterator[tuple[Totals, Played]]:
    """Yield each model's forecast of a policy, in sum and in detail."""
    changed = is_changed(known, planned)
    planned = _as_in_history(known, planned, ~changed)
    is_unsettled = ~changed & (known.is_made & ~known.is_known).any(axis=1)
    for model, weight in zip(ensemble.models, ensemble.weights, strict=True):
        played = play(model, known, planned, ensemble.reach)
        by_message = in_parts(played.recovered.sum(axis=1))
        within = in_parts(np.where(played.is_within, played.recovered, 0.0).sum(axis=1))
        # Why changed: outcomes of history's own re-sends are known, even if they are few.
        is_tried_on = changed & (planned.is_made & ~played.is_within).any(axis=1)
        if not ensemble.evidence.is_supported:
            is_tried_on, within = changed, np.zeros(len(changed))
        within = np.where(is_tried_on, within, by_message)
        resends, made = in_parts(played.sent.sum(axis=1)), planned.is_made.sum(axis=1)
        yield (
            Totals(
                weight=weight,
                doubt=ensemble.doubt,
                messages=len(by_message),
                changed=float(changed.sum()),
                recovered=float(by_message.sum()),
                within=float(within.sum()),
                beyond=float(np.where(is_tried_on, 1 - within, 0.0).sum()),
                resends=float(resends.sum()),
                resends_least=float(np.where(is_tried_on, np.minimum(made, 1), resends).sum()),
                resends_most=float(np.where(is_tried_on, made, resends).sum()),
                unsettled=float(is_unsettled.sum()),
                settling=float(by_message[is_unsettled].sum()),
            ),
            played,
        )


@dataclass(frozen=True)
class Interval:
    """A number with bounds that hold with `CONFIDENCE`.

    Attributes:
        likely: NaN = beyond the reach of history: only the bounds are known.
    """

    lower: float
    likely: float
    upper: float


@dataclass(frozen=True)
class PolicyForecast:
    """The result of a policy.

    Attributes:
        messages: number of messages that it was played on.
        beyond: number of messages whose end is beyond the reach of history.
        recovered: number of messages that recover.
        resends: total number of re-sends.
    """

    messages: float
    beyond: float
    recovered: Interval
    resends: Interval


def forecast(groups: Sequence[Sequence[Totals]]) -> PolicyForecast:
    """Return the forecast over groups, each with the sums of its models.

    The true model is drawn for all groups at once, so doubt about the models does not even out over
    many groups; chance is drawn for each group.
    """
    chance = np.random.default_rng(_SEED)
    which, doubt = chance.random(_DRAWS), chance.standard_normal(_DRAWS)
    names = (
        *("recovered", "within", "beyond", "unsettled", "settling"),
        *("resends", "resends_least", "resends_most"),
    )
    sums = {name: np.zeros(_DRAWS) for name in names}
    means = dict.fromkeys(names, 0.0)
    messages = 0.0
    for totals in groups:
        weights = np.array([one.weight for one in totals])
        drawn = np.minimum(np.searchsorted(np.cumsum(weights), which), len(totals) - 1)
        luck = chance.standard_normal(_DRAWS)
        first = totals[0]
        messages += first.messages
        share = float(weights @ [one.recovered for one in totals]) / first.messages
        # Why: the sum of many parts may be a hair more than the whole.
        share = min(max(share, 0.0), 1.0)
        by_chance = np.sqrt(2 * first.changed * share * (1 - share))
        noise = doubt * first.doubt * first.changed + luck * by_chance
        for name in names:
            of_models = np.array([getattr(one, name) for one in totals])
            means[name] += float(weights @ of_models)
            each = of_models[drawn]
            if name.startswith("resends"):
                each = np.maximum(each * (1 + 2 * noise / first.messages), 0.0)
            elif name in ("recovered", "within"):
                each = np.clip(each + noise, 0.0, first.messages)
            sums[name] += each
    is_beyond = means["beyond"] > MOST_BEYOND * messages
    low, high = sums["recovered"], sums["recovered"]
    fewest, most_resends = sums["resends"], sums["resends"]
    if is_beyond:
        low, high = sums["within"], sums["within"] + sums["beyond"]
        fewest, most_resends = sums["resends_least"], sums["resends_most"]
    # Why both: whether those recover no model has to say, the history will.
    low = np.maximum(low - sums["settling"], 0.0)
    high = high + sums["unsettled"] - sums["settling"]
    return PolicyForecast(
        messages=messages,
        beyond=means["beyond"],
        recovered=_interval(low, means["recovered"], np.minimum(high, messages), is_beyond),
        resends=_interval(fewest, means["resends"], most_resends, is_beyond),
    )


def _interval(low: Numbers, likely: float, high: Numbers, is_beyond: bool) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    lower, upper = float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail))
    if is_beyond:
        return Interval(lower, float("nan"), upper)
    return Interval(min(lower, likely), likely, max(upper, likely))
