"""What is counted of each message's life: times are milliseconds, the horizon is 100."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession

from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    DestinationBlocked,
    Exhausted,
    Received,
    Retried,
)
from amqsidecar.pipeline.recovery.judge import (
    COUNTS,
    KEYS,
    MOMENT_STEP,
    NONE,
    OUTCOMES,
    STEPS,
    SUMS,
    ObservedStreams,
    add_up,
    count_lives,
    rounded_ms,
)
from amqsidecar.pipeline.recovery.lives import (
    count_outcomes,
    survey,
)
from amqsidecar.pipeline.recovery.over_time import Periods
from amqsidecar.pipeline.recovery.steps import COLUMNS, DIVIDED, divided
from amqsidecar.pipeline.recovery.tables import Estimator
from pipeline.journals import START_MS
from pipeline.recovery.histories import history

HORIZON_MS = 100
DLQ = "queue://DLQ"


ENDS_AT_DLQ = (Exhausted, DeadLettered, Cancelled)
TYPES = {str(one.__struct_config__.tag): one for one in AnyEvent.__args__}


def told(name: str, text: str) -> Iterator[AnyEvent]:
    """Yield the events of a message, such as `received 0, resent 10 1`: type, time and count.

    Its origin and its redelivery id are its name. `duplicate_suppressed 5 1 DLQ` was sent there.
    """
    for one in text.split(", "):
        word, at_ms, *more = one.split()
        kind = TYPES[word]
        is_elsewhere = kind in ENDS_AT_DLQ or more[1:] == ["DLQ"]
        fields: dict[str, Any] = {
            "at_ms": int(at_ms),
            "id": 1,
            "redelivery_id": name,
            "source": DLQ,
            "origin": f"queue://{name}",
            "rule": "rule",
            "reason": "odd",
            "destination": DLQ if is_elsewhere else f"queue://{name}",
            "cause": "first" if kind is Received else "again",
            "lateness_ms": 0,
            "delay_ms": 0,
            "due_at_ms": int(at_ms),
            **({"redelivery_count": int(more[0])} if more else {}),
            **({"actor": "ann"} if kind in (Cancelled, Retried) else {}),
        }
        yield kind(**{name: fields[name] for name in kind.__struct_fields__ if name in fields})


# Stream `a` is observed until 1000, so messages are judged until 900; `b` until 800.
ENDS_MS = {"a": 1000, "b": 800}
LIVES = {
    "a": {
        "second": "received 0, scheduled 0 1, resent 10 1, returned 30 1, scheduled 30 2, "
        "resent 50 2",
        "open": "received 900, resent 950 1",
        "young": "received 901",
        "exhausted": "received 0, resent 10 1, returned 20 1, exhausted 20, "
        "duplicate_suppressed 25 1 DLQ, dead_lettered 25 1",
        "late": "received 0, resent 0 1, returned 150 1, resent 160 2",
        "truncated": "resent 10 2, returned 15 2, resent 20 3",
        "returns-only": "returned 5 3, exhausted 5",
        "final-only": "returned 20 1, exhausted 20, duplicate_suppressed 25 1 DLQ",
        "end-only": "dead_lettered 5 3",
        "clocks": "received 0, resent 50 1",
        "lagging": "received 0, resent 750 1",
        "implied": "received 0, resent 10 1, resent 40 2",
        "cancelled": "received 0, scheduled 0 1, cancelled 30, dead_lettered 31 0",
        "parked": "received 0, parked 0",
        "discarded": "received 0, discarded 0",
        "held": "received 0, held 0, retried 5, resent 6 1",
        "repeated": "received 0, resent 5 1, resent 9 1, returned 20 1",
        "suppressed": "received 0, duplicate_suppressed 10 1",
        "between": "received 700, resent 850 1, returned 920 1",
        "sub::0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f": "received 0, resent 5 1",
        "sub::ffffffff-0-durable": "received 0, resent 5 1",
        "sub::00000000-0000-0000-0000-000000000000": "received 0, resent 7 1",
        "after-its-end": "received 0, exhausted 0, dead_lettered 1 0, resent 300 1",
    },
    "b": {
        "clocks": "returned 45 1, resent 60 2",
        "lagging": "returned 790 1, resent 795 2",
    },
}


def lives() -> dict[str, list[AnyEvent]]:
    return {
        stream: [
            DestinationBlocked(at_ms=ENDS_MS[stream], destination="x", reason="y", retry_at_ms=1),
            *(event for name, text in of_it.items() for event in told(name, text)),
        ]
        for stream, of_it in LIVES.items()
    }


def steps_of(events: DataFrame, until_ms: int | None = None) -> DataFrame:
    return events.select(*COLUMNS).mapInArrow(lambda one: divided(one, None, until_ms), DIVIDED)


def outcomes(
    events: DataFrame, horizon_ms: int, *, since_ms: int | None = None, until_ms: int | None = None
) -> list[dict[str, Any]]:
    """Return what is counted, with names in place of numbers; steps after the end are there."""
    read = steps_of(events)
    surveyed = survey(read, until_ms)
    counted = count_outcomes(
        read, surveyed.ends_ms, horizon_ms=horizon_ms, since_ms=since_ms, until_ms=until_ms
    )
    rows = []
    for row in add_up(counted.toArrow()).to_pylist():
        outcome, is_truncated = divmod(row["what"], 2)
        kind, named = OUTCOMES[outcome]
        names = {name: surveyed.texts.get(row[name]) for name in ("origin", "cause_group")}
        read_as = {"kind": kind, "outcome": named, "left_truncated": bool(is_truncated), **names}
        if kind in ("resend", "message"):
            rows.append({name: None if one == NONE else one for name, one in row.items()} | read_as)
    return rows


@pytest.fixture(scope="module")
def counted(spark: SparkSession) -> list[dict[str, Any]]:
    return outcomes(history(spark, lives()), HORIZON_MS)


def resends(counted: list[dict[str, Any]], name: str) -> list[tuple[Any, ...]]:
    columns = ("attempt", "outcome", "after_ms", "cause_group", "left_truncated")
    rows = [one for one in counted if one["kind"] == "resend"]
    found = [one for one in rows if one["origin"] == f"queue://{name}"]
    assert all(one["messages"] == 1 for one in found)
    return sorted(tuple(one[column] for column in columns) for one in found)


def message(counted: list[dict[str, Any]], name: str) -> tuple[Any, ...]:
    columns = ("outcome", "entry_stage", "exit_stage", "after_ms", "left_truncated")
    rows = [one for one in counted if one["kind"] == "message"]
    (found,) = (one for one in rows if one["origin"] == f"queue://{name}")
    assert found["messages"] == 1
    return tuple(found[column] for column in columns)


def total(counted: list[dict[str, Any]], name: str, column: str) -> int:
    return sum(one[column] for one in counted if one["origin"] == f"queue://{name}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Re-sent at 10, back at 30: 20. Re-sent at 50, away until 1000: longer than 100.
        ("second", [(1, "returned", 20, "first", False), (2, "stayed", 100, "again", False)]),
        # Re-sent at 950 and observed until 1000: 50 of 100.
        ("open", [(1, "open", 50, "first", False)]),
        # Re-sent at 850, back at 920, after the last judged moment.
        ("between", [(1, "returned", 70, "first", False)]),
        # Re-sent at 0, back at 150, after the horizon.
        ("late", [(1, "returned_later", 100, "first", False), (2, "stayed", 100, "again", False)]),
        # The life begins before the history: the first that is known is re-send 2.
        ("truncated", [(2, "returned", 5, None, True), (3, "stayed", 100, "again", False)]),
        # Re-sent at 50 by one clock, back at 45 by another: at once. The count shows which return.
        ("clocks", [(1, "returned", 0, "first", False), (2, "stayed", 100, "again", False)]),
        # Stream `b` ends at 800, 5 after its re-send; that of `a` at 750 is observed until 1000.
        ("lagging", [(1, "returned", 40, "first", False), (2, "open", 5, "again", False)]),
        # Re-sent at 10 as 1 and at 40 as 2: it has returned by then.
        ("implied", [(1, "returned", 30, "first", False), (2, "stayed", 100, None, True)]),
        # The same re-send twice counts from its first time.
        ("repeated", [(1, "returned", 15, "first", False)]),
        # A duplicate that the broker refused counts as sent,
        ("suppressed", [(1, "stayed", 100, "first", False)]),
        # but not on its way to the final dead-letter queue.
        ("exhausted", [(1, "returned", 10, "first", False)]),
        ("final-only", []),
    ],
)
def test_each_resend_has_its_return(
    counted: list[dict[str, Any]], name: str, expected: list[object]
) -> None:
    assert resends(counted, name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # First death at 0, re-send 2 (stage 3) at 50: by the re-send that it did not return from.
        ("second", ("recovered", 0, 3, 50, False)),
        # A message that is still out is no success: it died at 900, the last judged moment.
        ("open", ("waiting", 0, 0, 0, False)),
        ("young", ("too_young", None, None, None, False)),
        # Judged until 900, when it was out: stage 1, 200 after 700.
        ("between", ("waiting", 0, 1, 200, False)),
        # The rules or a person end a message.
        ("exhausted", ("exhausted", 0, 2, 20, False)),
        ("cancelled", ("cancelled", 0, 0, 30, False)),
        ("discarded", ("discarded", 0, 0, 0, False)),
        ("final-only", ("exhausted", 2, 2, None, True)),
        # What waits for a person has not ended.
        ("parked", ("waiting", 0, 0, 900, False)),
        ("held", ("recovered", 0, 1, 6, False)),
        ("after-its-end", ("recovered", 0, 1, 300, False)),
        # By a horizon of 100.
        ("late", ("recovered", 0, 1, 0, False)),
        # From stage 3, and without the time from its first death, which is not known.
        ("truncated", ("recovered", 3, 5, None, True)),
        ("returns-only", ("exhausted", 6, 6, None, True)),
        ("clocks", ("recovered", 0, 3, 60, False)),
    ],
)
def test_each_message_has_its_end(
    counted: list[dict[str, Any]], name: str, expected: tuple[object, ...]
) -> None:
    assert message(counted, name) == expected


def test_a_stream_that_ends_early_censors_what_it_sent(counted: list[dict[str, Any]]) -> None:
    assert message(counted, "lagging")[0] == "waiting"


def test_a_message_without_an_origin_has_no_stage(counted: list[dict[str, Any]]) -> None:
    (nowhere,) = (one for one in counted if one["origin"] is None)
    assert (nowhere["outcome"], nowhere["exit_stage"]) == ("dead_lettered", None)
    assert nowhere["left_truncated"]


def test_what_histories_contradict_is_counted(counted: list[dict[str, Any]]) -> None:
    assert total(counted, "clocks", "negative_times") == 1
    assert total(counted, "implied", "implied_returns") == 1
    assert total(counted, "repeated", "repeated_resends") == 1
    assert total(counted, "exhausted", "repeated_resends") == 0


def test_non_durable_subscriptions_of_an_address_are_one_group(
    counted: list[dict[str, Any]],
) -> None:
    """Artemis names each of them by a new UUID; a subscription with a name stays its own."""
    found = {one["origin"] for one in counted if "sub::" in (one["origin"] or "")}
    assert found == {"queue://sub::(non-durable)", "queue://sub::ffffffff-0-durable"}
    times = [
        (one["after_ms"], one["messages"])
        for one in counted
        if one["origin"] == "queue://sub::(non-durable)" and one["kind"] == "message"
    ]
    assert sorted(times) == [(5, 1), (7, 1)]


def test_what_is_known_of_streams(spark: SparkSession) -> None:
    events = history(spark, {"a": list(told("x", "received 5, resent 7 1"))})
    odd = events.limit(1).selectExpr(
        *("'melted' AS type" if name == "type" else name for name in events.columns)
    )
    until_ms = START_MS + 6
    surveyed = survey(steps_of(events.unionAll(odd), until_ms), until_ms)
    (stream,) = surveyed.streams.values()
    assert (stream.events, stream.unknown_types) == (2, 1)
    assert [*surveyed.ends_ms.values()] == [START_MS + 6]


def test_since_goes_by_the_beginning_and_until_by_each_event(spark: SparkSession) -> None:
    """`early` began at 5; the return of `it` at 30 is after the end at 30, its re-send before."""
    early = told("early", "received 5, resent 20 1")
    it = told("it", "received 10, resent 20 1, returned 30 1")
    events = history(spark, {"a": [*early, *it]})
    until_ms = START_MS + 30
    counts = outcomes(events, HORIZON_MS, since_ms=START_MS + 10, until_ms=until_ms)
    rows = [row for row in counts if row["kind"] == "resend"]
    columns = ("origin", "outcome", "after_ms")
    assert [tuple(row[name] for name in columns) for row in rows] == [("queue://it", "open", 10)]


def test_times_have_three_digits() -> None:
    times = [0, 1, 9, 999, 1000, 1001, 1009, 1010, 99_999, 100_000, 123_456_789]
    assert rounded_ms(np.array(times)).tolist() == [
        *(0, 1, 9, 999, 1000, 1000, 1000, 1010, 99_900, 100_000, 123_000_000)
    ]


def test_only_messages_and_counts_are_shuffled(spark: SparkSession) -> None:
    """One destination with nearly all events is no burden: no exchange and no sort by groups."""
    read = steps_of(history(spark, {"a": list(told("x", "received 5"))}))
    counted = count_outcomes(read, {}, horizon_ms=1, since_ms=None, until_ms=None)
    named = Estimator({}, 0.95, Periods(1, 0)).estimate(counted)
    plan = str(named._jdf.queryExecution().executedPlan())
    exchanges = [line for line in plan.splitlines() if "Exchange hashpartitioning" in line]
    assert [("(bucket#" in line, "cause_group" in line) for line in exchanges] == [
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize("most", [3, 2**62], ids=["keys of a few bits", "of more than 63"])
def test_counts_of_the_same_key_are_added_up(most: int) -> None:
    chance = np.random.default_rng(1)
    values = chance.integers(-most, most, (400, len(KEYS)))
    rows = np.concatenate([values, values[:100]])
    sums = chance.integers(0, 2, (len(rows), len(SUMS))) * [1, 1, 1, 1, 0]
    expected: Counter[tuple[int, ...]] = Counter()
    for name, places in zip(SUMS, sums.T, strict=True):
        for key, value in zip(rows.tolist(), places.tolist(), strict=True):
            expected[(SUMS.index(name), *key)] += value
    found = add_up(pyarrow.table([*rows.T, *sums.T], schema=COUNTS)).to_pylist()
    there = {key[1:] for key, added in expected.items() if added}
    assert [tuple(one.values())[: len(KEYS)] for one in found] == sorted(there)
    for number, name in enumerate(SUMS):
        for one in found:
            assert one[name] == expected[(number, *(one[key] for key in KEYS))]


def test_counts_do_not_depend_on_the_order_of_steps() -> None:
    """Two sidecars report the same death at the same moment, with other places and causes."""
    died = {"id": 1, "check": 1, "step": 2, "moment": 5 * MOMENT_STEP}
    first = {**died, "stream": 1, "place": 7, "cause": 9}
    second = {**died, "stream": 2, "place": 6, "cause": 8}
    streams, ends_ms = np.array([1, 2]), np.array([1000, 50])
    observed = ObservedStreams(streams, ends_ms, HORIZON_MS, NONE)
    there, back = (
        count_lives(pyarrow.Table.from_pylist(rows, STEPS), observed)
        for rows in ([first, second], [second, first])
    )
    assert there == back
