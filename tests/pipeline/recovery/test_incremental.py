"""However a history is divided into runs, their counts are those of one run over all of it."""

from typing import NamedTuple

import numpy as np
import pyarrow
import pyarrow.compute
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.pipeline.recovery.judge import (
    CONSUMED,
    COUNTS,
    FIRST_END,
    GIVEN_UP,
    KEYS,
    MOMENT_STEP,
    NONE,
    NOTED,
    QUEUED,
    RENEWED,
    RESENT,
    STEPS,
    SUPPRESSED,
    ObservedStreams,
    add_up,
    count_lives,
)
from amqsidecar.pipeline.recovery.state import advance

HORIZON_MS = 10
LATEST_MS = 60
STREAMS = (3, 5)
KINDS = ("death", "send", "end", "renewal", "note", "proof")
END_STEP = 2 * 2**31 + 1

numbers = st.integers
times = numbers(0, LATEST_MS)


class Step(NamedTuple):
    id: int
    check: int
    step: int
    moment: int
    stream: int
    place: int
    cause: int


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """A step of one of few messages, near others in count and time."""
    kind = draw(
        st.sampled_from(("death", "death", "send", "send", "end", "renewal", "note", "proof"))
    )
    act, step, cause = 0, END_STEP, 0
    if kind == "death":
        step, cause = 2 * draw(numbers(1, 3)), draw(numbers(0, 2))
    elif kind == "send":
        act, step = draw(st.sampled_from((RESENT, RESENT, SUPPRESSED))), 2 * draw(numbers(1, 3)) + 1
    elif kind == "renewal":
        act = RENEWED
    elif kind == "note":
        act, step, cause = NOTED, 2 * draw(times) + 1, draw(numbers(1, 2))
    elif kind == "proof":
        act, step = draw(st.sampled_from((CONSUMED, QUEUED))), 2 * draw(numbers(1, 3)) + 1
    else:
        act = FIRST_END + draw(numbers(0, len(GIVEN_UP) - 1))
    moment = draw(times) * MOMENT_STEP + act
    ident, check = draw(st.sampled_from(((1, 1), (1, 2), (2, 1))))
    stream, place = draw(st.sampled_from(STREAMS)), draw(numbers(1, 2))
    return Step(ident, check, step, moment, stream, place, cause)


class Run(NamedTuple):
    """What a run finds that is new.

    Attributes:
        steps: in files that were not there before, of any time.
        seen_ms: the latest event beside steps, by stream.
        until_ms: None = without `--until`.
    """

    steps: list[Step]
    seen_ms: list[int]
    until_ms: int | None


runs = st.lists(
    st.builds(
        Run,
        st.lists(steps(), max_size=8),
        st.lists(times, min_size=len(STREAMS), max_size=len(STREAMS)),
        st.none() | numbers(1, LATEST_MS + 10),
    ),
    min_size=1,
    max_size=5,
)


def table(rows: list[Step]) -> pyarrow.Table:
    return pyarrow.Table.from_pylist([one._asdict() for one in rows], STEPS)


def of_ids(steps: pyarrow.Table, others: pyarrow.Table) -> pyarrow.Table:
    return steps.filter(pyarrow.compute.is_in(steps["id"], others["id"]))


def summed(*counts: pyarrow.Table) -> list[dict[str, int]]:
    found = add_up(pyarrow.concat_tables(counts))
    return sorted(found.to_pylist(), key=lambda one: [one[name] for name in KEYS])


@given(runs)
def test_runs_count_what_one_run_over_all_counts(divided: list[Run]) -> None:
    kept, finished, open_, carried = COUNTS.empty_table(), table([]), table([]), table([])
    read: list[Step] = []
    ends = np.zeros(len(STREAMS), dtype=np.int64)
    seen = np.zeros(len(STREAMS), dtype=np.int64)
    for run in divided:
        read += run.steps
        seen = np.maximum(seen, run.seen_ms)
        for one in run.steps:
            at = STREAMS.index(one.stream)
            seen[at] = max(seen[at], one.moment // MOMENT_STEP)
        # Why: an observation that ends before it did is refused.
        is_until = run.until_ms is not None and run.until_ms > ends.max()
        until_ms = run.until_ms if is_until else None
        ends = np.full(len(STREAMS), until_ms) if until_ms else np.maximum(seen, ends)
        observed = ObservedStreams(np.array(STREAMS), ends, HORIZON_MS, NONE)

        new = table(run.steps)
        unfinished = pyarrow.concat_tables([open_, new])
        made = advance(carried, of_ids(finished, new), unfinished, observed, until_ms)
        kept = add_up(pyarrow.concat_tables([kept, made.settled]))
        finished = pyarrow.concat_tables([finished, made.finished])
        open_, carried = made.open, made.carried

        counted = [one for one in read if not until_ms or one.moment // MOMENT_STEP < until_ms]
        whole = count_lives(table(counted), observed) if counted else COUNTS.empty_table()
        assert summed(kept, made.unsettled) == summed(whole)
        assert len(finished) + len(open_) == len(read)
