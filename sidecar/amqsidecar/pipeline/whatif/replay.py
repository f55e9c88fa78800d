"""Replays policies on the messages of history, and estimates the outcome of each re-send.

The time of a re-send is the sum of the policy's delays, the sidecar's lateness and the times to the
next death. The last two are those of the same re-send in history, or else usual values of the
destination. The outcome is certain where a later re-send failed in history, or an earlier one
succeeded. Otherwise there are three answers: the worst (the message becomes recoverable as late as
history allows), the best (as early), and the likely one (`curve.py`).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from amqsidecar.pipeline.whatif.curve import Numbers, cell_of, not_yet
from amqsidecar.pipeline.whatif.policy import HISTORY, DelayPlan

PLAYED: Final = StructType(
    [
        StructField("policy", StringType(), False),
        StructField("destination", StringType(), False),
        # One of the five below.
        StructField("measure", StringType(), False),
        StructField("at", LongType(), False),
        StructField("worst", DoubleType(), False),
        StructField("likely", DoubleType(), False),
        StructField("best", DoubleType(), False),
    ]
)
"""How much of a measure, if history's messages become recoverable as late, likely, early."""

MESSAGES_PLAYED: Final = "messages"
"""Messages; `at` is 0, as where nothing else is said."""
RESENDS: Final = "resends"
"""Re-sends; `at` is the begin of the bucket, since the epoch."""
KEPT: Final = "kept"
"""Recoveries of messages that recovered in history; `at` is the cell of the time it took."""
GAINED: Final = "gained"
"""Recoveries of others; as above."""
CUT_OFF: Final = "cut_off"
"""Messages with which a policy would go on after the last re-send that is played."""

MessageKind = tuple[str, bool, bool]
"""Destination, persistent, expired: what plans differ by."""
_PARTS: Final = 2**20
_NUMBERS_AT_ONCE: Final = 500_000
"""Messages times re-sends in one matrix, of which a dozen are needed: bounds the memory."""
_KEYS: Final = ["destination", "cause_group", "persistent", "expired"]
_Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Usual:
    """Medians of a destination, used where a message's own history has no value."""

    late_ms: float
    back_ms: float


@dataclass(frozen=True)
class Known:
    """The history of some messages of one kind; times are since each one's first death.

    Attributes:
        arrived_ms: first deaths, since the epoch.
        observed_ms: ends of the observation.
        sent_ms: re-sends, one row per message; infinity = none.
        late_ms: lateness of each re-send.
        back_ms: from each re-send to the next death.
        failed_ms: last re-sends that failed; -1 = none.
        recovered_ms: re-sends that succeeded; infinity = none.
        curve: see `whatif_curve`.
    """

    arrived_ms: Numbers
    observed_ms: Numbers
    sent_ms: Numbers
    late_ms: Numbers
    back_ms: Numbers
    failed_ms: Numbers
    recovered_ms: Numbers
    curve: Numbers


@dataclass(frozen=True)
class ResendOutcomes:
    """Estimated outcomes: one row per message, one column per re-send; worst, likely, best.

    Attributes:
        sent: probability that each re-send is made.
        recovered: probability that it is the one that succeeds.
        is_cut_off: by message, whether the policy has more re-sends than were replayed.
    """

    at_ms: Numbers
    sent: tuple[Numbers, Numbers, Numbers]
    recovered: tuple[Numbers, Numbers, Numbers]
    is_cut_off: npt.NDArray[np.bool_]


def resend_times(plan: DelayPlan, known: Known) -> Numbers:
    """Return the times of a plan's re-sends of messages that keep dying, since the first death."""
    count = len(plan.delays_ms)
    late = _columns(known.late_ms, count)
    back = np.hstack([np.zeros((len(late), 1)), _columns(known.back_ms, count)])[:, :count]
    times: Numbers = np.cumsum(np.asarray(plan.delays_ms, dtype=float) + late + back, axis=1)
    return times


def _columns(usual_at_end: Numbers, count: int) -> Numbers:
    """Return `count` columns; the last one, the usual one, fills in for those that are missing."""
    own, usual = usual_at_end[:, :-1][:, :count], usual_at_end[:, -1:]
    return np.hstack([own, np.repeat(usual, count - own.shape[1], axis=1)])


def outcome_of(at_ms: Numbers, known: Known, *, goes_on: bool) -> ResendOutcomes:
    """Return the outcomes of re-sends at these times; none is made after the observation."""
    failed, recovered = known.failed_ms[:, None], known.recovered_ms[:, None]
    is_made = at_ms <= known.observed_ms[:, None]
    before = np.hstack([np.full((len(at_ms), 1), -1.0), at_ms])
    not_yet_after = not_yet(known.curve, at_ms, failed, recovered)
    not_yet_before = np.hstack([np.ones((len(at_ms), 1)), not_yet_after])[:, :-1]
    is_sent_at_worst = is_made & (before[:, :-1] < recovered)
    is_sent_at_best = is_made & (before[:, :-1] <= failed)
    return ResendOutcomes(
        at_ms=at_ms,
        sent=(
            _numbers(is_sent_at_worst),
            np.where(is_made, not_yet_before, 0.0),
            _numbers(is_sent_at_best),
        ),
        recovered=(
            _numbers(is_sent_at_worst & (at_ms >= recovered)),
            np.where(is_made, not_yet_before - not_yet_after, 0.0),
            _numbers(is_sent_at_best & (at_ms > failed)),
        ),
        is_cut_off=goes_on & (before[:, -1] < np.minimum(known.recovered_ms, known.observed_ms)),
    )


def _numbers(are: npt.NDArray[np.bool_]) -> Numbers:
    return are.astype(np.float64)


class _Sums:
    """Adds up outcomes of many messages by policy, destination, measure and `at`.

    In whole parts of 2**-20, so that sums are exact, and the same in whatever order and wherever
    they are made.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str, int], Numbers] = defaultdict(lambda: np.zeros(3))

    def add(self, key: tuple[str, str, str], at: _Rows, answers: Sequence[Numbers]) -> None:
        is_any = sum(answers) > 0
        places, indexes = np.unique(at[is_any], return_inverse=True)
        exact = [np.round(one[is_any] * _PARTS) / _PARTS for one in answers]
        sums = [np.bincount(indexes, one, len(places)) for one in exact]
        for place, *three in zip(places.tolist(), *sums, strict=True):
            self._sums[*key, place] += three

    def batch(self) -> pa.RecordBatch:
        rows = [(*key, *three.tolist()) for key, three in self._sums.items()]
        columns = list(zip(*rows, strict=True)) or [()] * len(PLAYED)
        types = [pa.string()] * 3 + [pa.int64()] + [pa.float64()] * 3
        arrays = [pa.array(one, kind) for one, kind in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=PLAYED.names)


@dataclass(frozen=True)
class Replay:
    """Replays policies on batches of messages; Spark ships it to the tasks with its data.

    Attributes:
        plans: by kind of message, each policy's plan; `HISTORY` is replayed beside them.
        curves: by destination and cause group; (destination, None) = of its other groups.
        usual: by destination.
        bucket_ms: width of a bucket of load.
    """

    plans: Mapping[MessageKind, Mapping[str, DelayPlan]]
    curves: Mapping[tuple[str, str | None], Numbers]
    usual: Mapping[str, Usual]
    bucket_ms: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sums over all batches of a partition, as `PLAYED`."""
        sums = _Sums()
        for batch in batches:
            groups = batch.select(_KEYS).to_pandas().groupby(_KEYS, sort=False).indices
            for (destination, cause_group, persistent, expired), rows in groups.items():
                plans = self.plans[destination, persistent, expired]
                longest = max((len(plan.delays_ms) for plan in plans.values()), default=0)
                step = max(1, _NUMBERS_AT_ONCE // (longest + 1))
                for begin in range(0, len(rows), step):
                    some = batch.take(pa.array(rows[begin : begin + step]))
                    known = self._known(some, destination, cause_group)
                    self._play(sums, HISTORY, destination, known, None)
                    for policy, plan in plans.items():
                        self._play(sums, policy, destination, known, plan)
        yield sums.batch()

    def _known(self, batch: pa.RecordBatch, destination: str, cause_group: str) -> Known:
        usual = self.usual[destination]
        curve = self.curves.get((destination, cause_group))
        return Known(
            arrived_ms=numbers_of(batch.column("arrived_ms"), np.nan),
            observed_ms=numbers_of(batch.column("observed_ms"), np.nan),
            sent_ms=_matrix(batch.column("sent_ms"), np.inf),
            late_ms=_matrix(batch.column("late_ms"), usual.late_ms),
            back_ms=_matrix(batch.column("back_ms"), usual.back_ms),
            failed_ms=numbers_of(batch.column("failed_ms"), -1.0),
            recovered_ms=numbers_of(batch.column("recovered_ms"), np.inf),
            curve=self.curves[destination, None] if curve is None else curve,
        )

    def _play(
        self, sums: _Sums, policy: str, destination: str, known: Known, plan: DelayPlan | None
    ) -> None:
        if plan is None:
            result = outcome_of(known.sent_ms, known, goes_on=False)
        else:
            result = outcome_of(resend_times(plan, known), known, goes_on=plan.goes_on)
        at_ms = np.where(np.isfinite(result.at_ms), result.at_ms, 0.0)
        buckets = (known.arrived_ms[:, None] + at_ms).astype(np.int64) // self.bucket_ms
        sums.add((policy, destination, RESENDS), buckets * self.bucket_ms, result.sent)
        is_kept = np.isfinite(known.recovered_ms)[:, None]
        cells = cell_of(result.at_ms)
        for measure, mask in ((KEPT, is_kept), (GAINED, ~is_kept)):
            answers = [np.where(mask, one, 0.0) for one in result.recovered]
            sums.add((policy, destination, measure), cells, answers)
        zeros = np.zeros(len(is_kept), dtype=np.int64)
        for measure, one in (
            (CUT_OFF, _numbers(result.is_cut_off)),
            (MESSAGES_PLAYED, np.ones(len(is_kept))),
        ):
            sums.add((policy, destination, measure), zeros, [one] * 3)


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
    """Return `PLAYED`, one row per policy, destination, measure and `at`.

    Args:
        messages: `MESSAGES`, without those that are left out.
        play: the policies, and what they need.
    """
    return (
        messages.mapInArrow(play, PLAYED)
        .groupBy("policy", "destination", "measure", "at")
        .agg(*(f.sum(name).alias(name) for name in ("worst", "likely", "best")))
        .select(*PLAYED.names)
    )
