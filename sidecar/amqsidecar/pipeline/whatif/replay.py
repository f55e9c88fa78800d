"""Replays policies on the messages of history.

The time of a re-send is the sum of the policy's delays, the sidecar's lateness and the times to the
next death. The last two are those of the same re-send in history, or else usual values of the
destination. The failure models of the destination and cause group forecast its outcome, given the
message's history (`forecast.py`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from amqsidecar.pipeline.whatif.attempts import GroupKey, KnownTries, Tries, Usual, WindowCounts
from amqsidecar.pipeline.whatif.curve import Numbers, cell_of
from amqsidecar.pipeline.whatif.ensemble import Ensemble
from amqsidecar.pipeline.whatif.forecast import Totals, in_parts, sum_up
from amqsidecar.pipeline.whatif.policy import HISTORY, DelayPlan

PLAYED: Final = (
    "policy string, destination string, cause_group string, model int, measure string, at bigint, "
    "amount double"
)
"""Sums over the messages.

`cause_group` is null for all groups that share models; `model` is the place in the ensemble, or
`ALL_MODELS` by their weights; `measure` is one of the two below, or a field of `forecast.Totals`.
"""
_NAMES: Final = tuple(one.split()[0] for one in PLAYED.split(", "))

RECOVERED_AT: Final = "recovered at"
"""Likely recoveries; `at` is the cell of the time it took."""
CUT_OFF: Final = "cut off"
"""Messages with which a policy would go on after the last re-send that is played."""
ALL_MODELS: Final = -1

_NUMBERS_AT_ONCE: Final = 500_000
"""Messages times re-sends in one matrix, of which a dozen are needed: bounds the memory."""
_KEYS: Final = ["destination", "cause_group", "course"]
_AVERAGED: Final = ("weight", "doubt")
"""Fields of `Totals` that are equal in each part and come from the ensemble."""


@dataclass(frozen=True)
class Known:
    """The history of some messages of one kind; times count from each message's first death.

    Attributes:
        arrived_ms: times of first deaths, since the epoch.
        observed_ms: ends of the observation.
        late_ms: lateness of each re-send; the last column has the usual value.
        back_ms: from each re-send to the next death; the last column has the usual value.
        tries: the re-sends and their outcomes.
    """

    arrived_ms: Numbers
    observed_ms: Numbers
    late_ms: Numbers
    back_ms: Numbers
    tries: KnownTries


def known_of(batch: pa.RecordBatch, usual: Usual, windows: WindowCounts) -> Known:
    """Return the history of messages."""
    arrived_ms = numbers_of(batch.column("arrived_ms"), np.nan)
    sent_ms = _matrix(batch.column("sent_ms"), np.inf)
    # Why one at least: models look at attempts, also where there were none.
    sent_ms = sent_ms[:, : max(1, sent_ms.shape[1] - 1)]
    back_ms = _matrix(batch.column("back_ms"), np.nan)
    recovered_ms = numbers_of(batch.column("recovered_ms"), np.inf)
    is_made = np.isfinite(sent_ms)
    has_failed = is_made & np.isfinite(back_ms[:, : sent_ms.shape[1]])
    last = is_made.sum(axis=1, keepdims=True) - 1
    is_last = np.arange(sent_ms.shape[1]) == last
    died_ms = np.where(has_failed, sent_ms + back_ms[:, : sent_ms.shape[1]], sent_ms)
    before = np.hstack([np.zeros((len(sent_ms), 1)), died_ms])[:, : sent_ms.shape[1]]
    at_ms = np.where(is_last & np.isfinite(recovered_ms)[:, None], recovered_ms[:, None], sent_ms)
    with np.errstate(invalid="ignore"):
        waited_ms = np.where(is_made, np.maximum(sent_ms - before, 0.0), np.inf)
    window = windows.numbers_of(arrived_ms[:, None] + sent_ms)
    return Known(
        arrived_ms=arrived_ms,
        observed_ms=numbers_of(batch.column("observed_ms"), np.nan),
        late_ms=_matrix(batch.column("late_ms"), usual.late_ms),
        back_ms=np.where(np.isnan(back_ms), usual.back_ms, back_ms),
        tries=KnownTries(
            at_ms=at_ms,
            waited_ms=waited_ms,
            window=window,
            has_failed=has_failed,
            has_succeeded=is_last & np.isfinite(recovered_ms)[:, None],
        ),
    )


def planned_tries(plan: DelayPlan, known: Known, windows: WindowCounts) -> Tries:
    """Return the re-sends of a plan for messages that keep dying, as far as they are observed."""
    at_ms = resend_times(plan, known)
    late_ms = _columns(known.late_ms, len(plan.delays_ms))
    waited_ms = np.asarray(plan.delays_ms, dtype=float) + late_ms
    is_made = at_ms <= known.observed_ms[:, None]
    window = windows.numbers_of(known.arrived_ms[:, None] + at_ms)
    return Tries(
        at_ms=np.where(is_made, at_ms, np.inf),
        waited_ms=np.where(is_made, waited_ms, np.inf),
        window=window,
    )


def resend_times(plan: DelayPlan, known: Known) -> Numbers:
    """Return the times of a plan's re-sends of messages that keep dying, since the first death."""
    count = len(plan.delays_ms)
    late = _columns(known.late_ms, count)
    back = np.hstack([np.zeros((len(late), 1)), _columns(known.back_ms, count)])[:, :count]
    times: Numbers = np.cumsum(np.asarray(plan.delays_ms, dtype=float) + late + back, axis=1)
    return times


def _columns(usual_at_end: Numbers, count: int) -> Numbers:
    """Return `count` columns; the last column holds the usual values, and fills missing columns."""
    own, usual = usual_at_end[:, :-1][:, :count], usual_at_end[:, -1:]
    return np.hstack([own, np.repeat(usual, count - own.shape[1], axis=1)])


class _Sums:
    """Adds up amounts of many messages; see `forecast.in_parts`."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str | None, int, str, int], float] = defaultdict(float)

    def add(self, policy: str, group: GroupKey, model: int, measure: str, amount: float) -> None:
        """Add an amount."""
        self._sums[policy, *group, model, measure, 0] += amount

    def add_at(
        self,
        policy: str,
        group: GroupKey,
        measure: str,
        at: npt.NDArray[np.int64],
        amounts: Numbers,
    ) -> None:
        """Add amounts of a measure, each at its place."""
        is_any = amounts > 0
        places, indexes = np.unique(at[is_any], return_inverse=True)
        sums = np.bincount(indexes, in_parts(amounts[is_any]), len(places))
        for place, amount in zip(places.tolist(), sums.tolist(), strict=True):
            self._sums[policy, *group, ALL_MODELS, measure, place] += amount

    def batch(self) -> pa.RecordBatch:
        """Return the sums as `PLAYED`."""
        rows = [(*key, amount) for key, amount in self._sums.items()]
        columns = list(zip(*rows, strict=True)) or [()] * len(_NAMES)
        types = [pa.string()] * 3 + [pa.int32(), pa.string(), pa.int64(), pa.float64()]
        arrays = [pa.array(one, kind) for one, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=_NAMES)


@dataclass(frozen=True)
class Replay:
    """Replays policies on batches of messages; Spark ships it to the tasks with its data.

    Attributes:
        plans: by course, each policy's plan; `HISTORY` is replayed beside them.
        ensembles: the models.
        windows: by destination.
        usual: by destination.
    """

    plans: Mapping[int, Mapping[str, DelayPlan]]
    ensembles: Mapping[GroupKey, Ensemble]
    windows: Mapping[str, WindowCounts]
    usual: Mapping[str, Usual]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sums over all batches of a partition, as `PLAYED`."""
        sums = _Sums()
        for batch in batches:
            groups = batch.select(_KEYS).to_pandas().groupby(_KEYS, sort=False).indices
            for (destination, cause_group, course), rows in groups.items():
                plans = self.plans[course]
                longest = max((len(plan.delays_ms) for plan in plans.values()), default=0)
                step = max(1, _NUMBERS_AT_ONCE // (longest + 1))
                own = (destination, cause_group)
                group = own if own in self.ensembles else (destination, None)
                for begin in range(0, len(rows), step):
                    some = batch.take(pa.array(rows[begin : begin + step]))
                    self._play_all(sums, group, some, plans)
        yield sums.batch()

    def _play_all(
        self, sums: _Sums, group: GroupKey, some: pa.RecordBatch, plans: Mapping[str, DelayPlan]
    ) -> None:
        windows = self.windows[group[0]]
        known = known_of(some, self.usual[group[0]], windows)
        self._play(sums, HISTORY, group, known, known.tries)
        for policy, plan in plans.items():
            self._play(sums, policy, group, known, planned_tries(plan, known, windows))
            if plan.goes_on:
                last = resend_times(plan, known).max(axis=1, initial=-1.0)
                ends = np.minimum(known.tries.recovered_ms, known.observed_ms)
                sums.add(policy, group, ALL_MODELS, CUT_OFF, float((last < ends).sum()))

    def _play(
        self, sums: _Sums, policy: str, group: GroupKey, known: Known, planned: Tries
    ) -> None:
        recovered = np.zeros(planned.at_ms.shape)
        for place, (totals, played) in enumerate(
            sum_up(self.ensembles[group], known.tries, planned)
        ):
            for measure, amount in asdict(totals).items():
                if measure not in _AVERAGED:
                    sums.add(policy, group, place, measure, amount)
            recovered += totals.weight * played.recovered
        at_ms = np.where(planned.is_made, planned.at_ms, 0.0)
        sums.add_at(policy, group, RECOVERED_AT, cell_of(at_ms), recovered)


def totals_of(amounts: Mapping[str, float], ensemble: Ensemble, place: int) -> Totals:
    """Return the sums of one model; averages are not among them."""
    empty = Totals(ensemble.weights[place], ensemble.doubt, *[0.0] * 10)
    return replace(
        empty, **{name: value for name, value in amounts.items() if name not in _AVERAGED}
    )


def numbers_of(column: Any, missing: float) -> Numbers:
    """Return a column as floats."""
    values: Numbers = column.cast(pa.float64()).fill_null(missing).to_numpy(zero_copy_only=False)
    return values


def _matrix(column: Any, missing: float) -> Numbers:
    """Return lists as rows of one length, and one column more than the longest has."""
    lengths = np.asarray(column.value_lengths())
    matrix = np.full((len(lengths), int(lengths.max(initial=0)) + 1), missing)
    is_there = np.arange(matrix.shape[1]) < lengths[:, None]
    matrix[is_there] = numbers_of(column.flatten(), missing)
    return matrix


def replay(messages: DataFrame, play: Replay) -> DataFrame:
    """Return `PLAYED`."""
    return (
        messages.mapInArrow(play, PLAYED).groupBy(*_NAMES[:-1]).agg(f.sum("amount").alias("amount"))
    )
