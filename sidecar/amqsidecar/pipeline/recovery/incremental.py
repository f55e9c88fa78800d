"""A history that is judged in several runs: what each adds, and what the next has to know.

A message is kept in three parts: the counts and the steps that were settled once, and the steps
since then. The kept counts are those of the settled steps alone, whatever is known besides. So a
message whose life goes on after it was settled, counts again with all of its steps, less what is
kept; how a history is divided into runs makes no difference.
"""

from typing import NamedTuple

import numpy as np
import pyarrow
from numpy.typing import NDArray

from amqsidecar.pipeline.recovery.judge import (
    COUNTS,
    MOMENT_STEP,
    SUMS,
    ObservedStreams,
    add_up,
    count_lives,
    judge_lives,
)


class Continued(NamedTuple):
    """What a run makes of the steps that are not settled.

    Attributes:
        settled: `COUNTS` to add to those that are kept.
        unsettled: `COUNTS` to add to the kept ones for now.
        finished: `STEPS` that are settled now.
        open: `STEPS` that are not, or that come after the end of the observation.
        carried: settled `STEPS` of messages that are open.
    """

    settled: pyarrow.Table
    unsettled: pyarrow.Table
    finished: pyarrow.Table
    open: pyarrow.Table
    carried: pyarrow.Table


def advance(
    carried: pyarrow.Table,
    looked_up: pyarrow.Table,
    unfinished: pyarrow.Table,
    observed: ObservedStreams,
    until_ms: int | None,
) -> Continued:
    """Judge messages again of which something is new or open.

    Args:
        carried: see `Continued`, of the run before.
        looked_up: all `STEPS` that are settled, of the messages that are new in this run.
        unfinished: `STEPS` that are open or new; all of each message that has one.
        observed: what is observed now; no stream's end is earlier than when steps were settled.
        until_ms: steps at or after this don't count yet; None = all do.
    """
    none = COUNTS.empty_table()
    finished = pyarrow.concat_tables([carried, _of(looked_up, carried, are_in=False)])
    is_later = np.zeros(len(unfinished), dtype=np.bool_)
    if until_ms is not None:
        is_later = unfinished.column("moment").to_numpy() // MOMENT_STEP >= until_ms
    later, steps = unfinished.filter(is_later), unfinished.filter(~is_later)
    known = pyarrow.concat_tables([finished, steps])
    if not len(known):
        return Continued(none, none, known, later, known)
    judged = judge_lives(known, observed)
    was_kept, is_settled = np.split(judged.is_settled_step, [len(finished)])

    def changed(is_of: NDArray[np.bool_], is_kept: NDArray[np.bool_]) -> pyarrow.Table:
        kept = finished.filter(is_kept)
        less = _negative(count_lives(kept, observed)) if len(kept) else none
        return add_up(pyarrow.concat_tables([judged.counts.filter(is_of), less]))

    settled, open_ = steps.filter(is_settled), steps.filter(~is_settled)
    open_ = pyarrow.concat_tables([open_, later])
    return Continued(
        settled=changed(judged.is_settled_count, was_kept),
        unsettled=changed(~judged.is_settled_count, ~was_kept),
        finished=settled,
        open=open_,
        carried=_of(pyarrow.concat_tables([finished, settled]), open_),
    )


def _of(steps: pyarrow.Table, others: pyarrow.Table, *, are_in: bool = True) -> pyarrow.Table:
    """Return the steps of messages that others are of, or are not of."""
    is_in = np.isin(steps.column("id").to_numpy(), others.column("id").to_numpy())
    return steps.filter(is_in == are_in)


def _negative(counts: pyarrow.Table) -> pyarrow.Table:
    for name in SUMS:
        at = counts.schema.get_field_index(name)
        counts = counts.set_column(at, name, [-counts.column(name).to_numpy()])
    return counts
