"""The job `recovery` on a journal whose truth is known, and on odd ones."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession

from amqsidecar.model.event import (
    AnyEvent,
    DestinationBlocked,
    Exhausted,
    Received,
    Resent,
    Returned,
)
from amqsidecar.pipeline import tables
from amqsidecar.pipeline.recovery.judge import COUNTS, KEYS, NONE, NOTHING, OUTCOMES, SUMS
from amqsidecar.pipeline.recovery.over_time import Periods
from amqsidecar.pipeline.recovery.tables import Estimator
from pipeline.journals import write_journal
from pipeline.recovery.histories import row
from pipeline.running import rows_of, run_job

TABLES = {
    "recovery_by_attempt": tables.RECOVERY_BY_ATTEMPT,
    "recovery_by_message": tables.RECOVERY_BY_MESSAGE,
    "recovery_by_consumer": tables.RECOVERY_BY_CONSUMER,
    "recovery_summary": tables.RECOVERY_SUMMARY,
    "recovery_over_time": tables.RECOVERY_OVER_TIME,
    "recovery_changes": tables.RECOVERY_CHANGES,
}
LEFT = "recovery_summary/part-00007.parquet"
"""A file of a killed run."""
DLQ = "queue://DLQ"
GROUPS, MESSAGES, ATTEMPTS = 120, 40, 3
DELAY_MS, MEAN_RETURN_MS, HORIZON_S = 60_000, 20_000, 300
ARRIVAL_MS, UNTIL_MS = 3_000_000, 2_400_000
"""Messages arrive for 50 minutes, and 40 are observed: many are out, or not even there, then."""


def shares(group: int) -> list[float]:
    """Return the true share that recovers by each re-send, of those that are re-sent so often."""
    chance = random.Random(group)
    return [chance.uniform(0.1, 0.9) for _ in range(ATTEMPTS)]


class Me(TypedDict):
    id: int
    redelivery_id: str


def life(chance: random.Random, group: int, number: int) -> list[AnyEvent]:
    """A message with known chances: re-sent a minute after each death, back soon or never."""
    origin = f"queue://g{group}"
    me: Me = {"id": 1, "redelivery_id": f"{group}-{number}"}
    at_ms = chance.randrange(ARRIVAL_MS)
    events: list[AnyEvent] = [Received(at_ms=at_ms, source=DLQ, origin=origin, **me)]
    for attempt, share in enumerate(shares(group), start=1):
        at_ms += DELAY_MS
        events.append(
            Resent(at_ms=at_ms, destination=origin, lateness_ms=0, redelivery_count=attempt, **me)
        )
        if chance.random() < share:
            return events
        at_ms += round(chance.expovariate(1 / MEAN_RETURN_MS))
        events.append(
            Returned(at_ms=at_ms, source=DLQ, origin=origin, redelivery_count=attempt, **me)
        )
    return [*events, Exhausted(at_ms=at_ms, destination=DLQ, rule="rule", **me)]


def owned_by(owner: str) -> dict[str, Any]:
    about = {"destination": "", "cause_group": "", "at_ms": 1, "author": "ann", "text": ""}
    return about | {"owner": owner}


def write_stream(root: Path, stream: str, events: list[AnyEvent]) -> None:
    write_journal(
        root, [row(stream, place, event) for place, event in enumerate(events)], stream=stream
    )


class Ran(NamedTuple):
    spark: SparkSession
    output: Path

    def table(self, name: str) -> DataFrame:
        return self.spark.read.parquet(str(self.output / name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return rows_of(self.output / name)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("recovery")
    chance = random.Random(7)
    lives = [life(chance, group, number) for group in range(GROUPS) for number in range(MESSAGES)]
    seen = [event for one in lives for event in one if event.at_ms <= UNTIL_MS]
    # Why two streams: a message that returns may be taken by another sidecar.
    streams: dict[str, list[AnyEvent]] = {"a": [], "b": []}
    for event in seen:
        streams[chance.choice("ab")].append(event)
    for stream, events in streams.items():
        events.append(
            DestinationBlocked(at_ms=UNTIL_MS, destination="x", reason="y", retry_at_ms=1)
        )
        write_stream(folder / "journal", stream, events)
    groups = [
        {"destination": f"queue://g{number}", "cause_group": "", "number": number, "note": note}
        for number in range(4)
        for note in ([owned_by(f"team {number}")] if number < 3 else [None])
    ]
    (folder / "groups.json").write_text(json.dumps(groups))
    left = folder / "out" / LEFT
    left.parent.mkdir(parents=True)
    left.write_bytes(b"torn")
    more = ("--horizon", f"{HORIZON_S}s", "--groups", str(folder / "groups.json"))
    assert run_job("recovery", folder / "journal", folder / "out", *more) == 0
    return Ran(spark, folder / "out")


def test_tables_are_as_described(ran: Ran) -> None:
    for name, schema in TABLES.items():
        found = ran.table(name).schema
        assert [(one.name, one.dataType, one.metadata) for one in found] == [
            (one.name, one.dataType, one.metadata) for one in schema
        ], name
    assert "queue://g1" in (ran.output / "report.html").read_text()


def test_the_bounds_of_each_resend_hold_the_truth(ran: Ran) -> None:
    rows = ran.rows("recovery_by_attempt")
    assert len(rows) > 0.95 * GROUPS * ATTEMPTS
    assert sum(one["open"] for one in rows) > 400
    held = [one["low"] <= _truth(one)[one["attempt"] - 1] <= one["high"] for one in rows]
    assert 0.93 <= sum(held) / len(held) <= 0.98


def test_the_bounds_over_lives_hold_the_truth(ran: Ran) -> None:
    """By at most n re-sends: 1 - (1 - p1) (1 - p2) ... (1 - pn)."""
    held = []
    for one in ran.rows("recovery_by_message"):
        missing = 1.0
        for share in _truth(one)[: one["attempts"]]:
            missing *= 1 - share
        held.append(one["low"] <= 1 - missing <= one["high"])
        assert one["share_recovered"] + one["share_ended"] <= 1 + 1e-9
    assert len(held) > 0.95 * GROUPS * (1 + ATTEMPTS)
    assert 0.93 <= sum(held) / len(held) <= 0.99


def test_half_have_recovered_when_the_resend_goes_by_which_half_recover(ran: Ran) -> None:
    """The first goes after a minute; where few recover by all three, half never do."""
    by_first, never = [], []
    for one in ran.rows("recovery_summary"):
        first, second, third = _truth(one)
        if first >= 0.7:
            by_first.append(one["recovery_p50_ms"] == DELAY_MS)
        if (1 - first) * (1 - second) * (1 - third) >= 0.7:
            never.append(one["recovery_p50_ms"] is None)
        assert (one["recovery_p90_ms"] or 2**60) >= (one["recovery_p50_ms"] or 0)
    assert len(by_first) > 20
    assert by_first.count(True) > 0.95 * len(by_first)
    assert all(never)


def _truth(found: dict[str, Any]) -> list[float]:
    return shares(int(found["origin"].removeprefix("queue://g")))


def test_every_message_is_in_the_summary_once(ran: Ran) -> None:
    rows = ran.rows("recovery_summary")
    parts = ("recovered", "exhausted", "discarded", "cancelled", "dead_lettered")
    for one in rows:
        assert one["messages"] == sum(one[name] for name in (*parts, "waiting", "too_young"))
        assert one["left_truncated"] == 0
    chance, seen = random.Random(7), 0
    for group in range(GROUPS):
        for number in range(MESSAGES):
            seen += life(chance, group, number)[0].at_ms <= UNTIL_MS
    assert sum(one["messages"] for one in rows) == seen


def test_groups_have_their_owners_and_the_report_sums_over_them(ran: Ran) -> None:
    owners = {one["origin"]: one["owner"] for one in ran.rows("recovery_summary")}
    assert [owners[f"queue://g{number}"] for number in range(4)] == [
        *("team 0", "team 1", "team 2"),
        None,
    ]
    assert "team 2" in (ran.output / "report.html").read_text().split("By the owner")[1]


def test_what_a_killed_run_left_is_replaced(ran: Ran) -> None:
    """Nothing could read the table with it."""
    assert not (ran.output / LEFT).exists()
    assert ran.rows("recovery_summary")


@pytest.mark.usefixtures("spark")
def test_a_history_without_messages_gives_empty_tables(tmp_path: Path) -> None:
    blocked = DestinationBlocked(at_ms=0, destination="x", reason="y", retry_at_ms=1)
    write_stream(tmp_path / "journal", "a", [blocked])
    assert run_job("recovery", tmp_path / "journal", tmp_path) == 0
    assert not any(rows_of(tmp_path / name) for name in TABLES)
    assert "no group" in (tmp_path / "report.html").read_text().lower()


def by_hand(table: str, rows: list[dict[str, int]]) -> list[dict[str, Any]]:
    """Return the rows of a table of one group that has these counts."""
    empty = {**dict.fromkeys(KEYS, NONE), **dict.fromkeys(SUMS, 0)}
    group = {"origin": 1, "cause_group": NOTHING}
    counts = pyarrow.Table.from_pylist([{**empty, **group, **one} for one in rows], COUNTS)
    made = Estimator({1: "q"}, 0.95, Periods(1, 0)).tables(counts)
    found: list[dict[str, Any]] = made[table].to_pylist()
    assert {(one["origin"], one["cause_group"]) for one in found} == {("q", None)}
    return found


def what(kind: str, outcome: str) -> int:
    return 2 * OUTCOMES.index((kind, outcome))


def test_without_a_message_observed_to_the_horizon_a_share_is_unknown() -> None:
    """1 of 5 returned at 10, 4 are open at 20: 0.8 is known at 20, not at the horizon."""
    resend = {"attempt": 1}
    returned, still_open = what("resend", "returned"), what("resend", "open")
    (one,) = by_hand(
        "recovery_by_attempt",
        [
            {**resend, "what": returned, "after_ms": 10, "messages": 1},
            {**resend, "what": still_open, "after_ms": 20, "messages": 4},
        ],
    )
    assert (one["messages"], one["returned"], one["open"]) == (5, 1, 4)
    assert (one["share_recovered"], one["low"]) == (None, 0)
    assert 0.8 < one["high"] < 1


def test_lives_by_hand() -> None:
    """10 messages die. 2 are discarded, 8 are re-sent: 4 recover, a share of 0.4.

    4 return, 1 is waiting, and 2 join that had been re-sent once before the history: of 5 that are
    re-sent again (stage 3) 1 recovers: 0.4 + 0.4 / 5 = 0.48; 4 are exhausted: 0.2 + 0.32 = 0.52.
    """
    lives = [
        ("discarded", 0, 0, 2),
        ("recovered", 0, 1, 4),
        ("waiting", 0, 2, 1),
        ("recovered", 3, 3, 1),
        ("exhausted", 0, 4, 3),
        ("exhausted", 3, 4, 1),
    ]
    found = by_hand(
        "recovery_by_message",
        [
            {"what": what("message", outcome), "entry_stage": entry, "exit_stage": exit_}
            | {"messages": messages}
            for outcome, entry, exit_, messages in lives
        ],
    )
    rows = sorted(found, key=lambda row: int(row["attempts"]))
    names = ("attempts", "at_risk", "recovered", "ended", "waiting")
    assert [tuple(one[name] for name in names) for one in rows] == [
        (0, 10, 0, 2, 0),
        (1, 8, 4, 0, 1),
        (2, 5, 1, 4, 0),
    ]
    assert [one["share_recovered"] for one in rows] == pytest.approx([0, 0.4, 0.48])
    assert [one["share_ended"] for one in rows] == pytest.approx([0.2, 0.2, 0.52])
