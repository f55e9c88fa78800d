"""What messages die of: counted by hand, whatever the texts, the order and the partitions."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, Row, SparkSession

from amqsidecar.model.cause_groups import CauseGroups, own_group
from amqsidecar.pipeline import tables
from amqsidecar.pipeline.causes import tables as causes_tables
from amqsidecar.pipeline.causes.report import _unseen_text
from amqsidecar.pipeline.causes.tables import (
    DAY_MS,
    EXPIRED,
    HOUR_MS,
    NO_REASON,
    ComparedTimes,
    cause_examples,
    cause_groups,
    count_cells,
    group_cells,
    in_cells,
    learn_groups,
    observation,
)
from amqsidecar.pipeline.tables import EVENTS
from pipeline.journals import START_MS, event, write_journal
from pipeline.running import run_job

TIMEOUT = "java.net.SocketTimeoutException: Read timed out"
LOCKED = "java.lang.IllegalStateException: order * is locked"
TABLES = {
    "cause_groups": tables.CAUSE_GROUPS,
    "cause_changes": tables.CAUSE_CHANGES,
}
Rows = Sequence[dict[str, Any]]

_numbers = itertools.count()


def died(day: float, text: str | None = TIMEOUT, origin: str | None = "A", **fields: Any) -> Any:
    """An event `received`, this many days after the start."""
    number = next(_numbers)
    return event(1, number, cause_group=text, origin=origin and f"queue://{origin}") | {
        "at": START_MS + round(day * DAY_MS),
        "redelivery_id": f"r-{number}",
        **fields,
    }


def at(day: float) -> datetime:
    # Why: Spark collects times without a zone, in that of this machine.
    return datetime.fromtimestamp(START_MS / 1000 + day * 86_400)  # noqa: DTZ006


def by(rows: Sequence[Row], *keys: str) -> dict[Any, Row]:
    return {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in rows}


def deaths(spark: SparkSession, rows: Rows) -> DataFrame:
    timed = [row | {"at": datetime.fromtimestamp(row["at"] / 1000, UTC)} for row in rows]
    data = [tuple(row.get(name) for name in EVENTS.names) for row in timed]
    return in_cells(spark.createDataFrame(data, EVENTS).coalesce(1)).where("is_death")


def grouped(spark: SparkSession, rows: Rows) -> DataFrame:
    cells = count_cells(deaths(spark, rows))
    return group_cells(cells, learn_groups(spark, cells, {}))


def groups_and_destinations(
    spark: SparkSession, rows: Rows, **options: Any
) -> tuple[dict[Any, Row], dict[Any, Row]]:
    """The rows of all destinations, and those of each, keyed."""
    times = [row["at"] for row in rows]
    asked = {"until_ms": None, "new_since_ms": None, "days_max": 7} | options
    seen = observation(min(times), max(times), **asked)
    found = cause_groups(grouped(spark, rows), seen).collect()
    there = [row for row in found if row.origin != tables.EVERYWHERE]
    return everywhere(found), by(there, "cause_group", "origin")


def everywhere(rows: Sequence[Row]) -> dict[Any, Row]:
    return by([row for row in rows if row.origin == tables.EVERYWHERE], "cause_group")


def run(spark: SparkSession, folder: Path, rows: Rows) -> dict[str, list[Row]]:
    """Run the job over a journal of these rows and return its tables."""
    write_journal(folder / "journal", rows)
    assert run_job("causes", folder / "journal", folder / "out") == 0
    made = {}
    for name, schema in TABLES.items():
        table = spark.read.parquet(str(folder / "out" / name))
        assert table.columns == schema.names
        assert [field.dataType for field in table.schema] == [one.dataType for one in schema]
        made[name] = table.collect()
    return made


def test_deaths_messages_shares_and_times(spark: SparkSession, tmp_path: Path) -> None:
    """TIMEOUT: 2 first deaths and 1 return at A, 1 at B = 4 of 5 deaths, 3 of 4 messages.

    What a killed run left, a table without _SUCCESS, is replaced.
    """
    rows = [
        died(0),
        died(0.5, type="returned"),
        died(0.25, origin="B"),
        died(3),
        died(1, LOCKED),
        died(2, LOCKED, type="scheduled"),
    ]
    left = {name: ["left"] for name in ("cause_group", "origin")}
    (tmp_path / "out/cause_groups").mkdir(parents=True)
    parquet.write_table(pyarrow.table(left), tmp_path / "out/cause_groups/part-left.parquet")
    made = run(spark, tmp_path, rows)

    groups = everywhere(made["cause_groups"])
    assert set(groups) == {TIMEOUT, LOCKED}
    timeout = groups[TIMEOUT]
    assert (timeout.deaths, timeout.messages, timeout.origins, timeout.texts) == (4, 3, 2, 1)
    assert timeout.share == pytest.approx(0.8)
    assert (timeout.first_at, timeout.last_at) == (at(0), at(3))
    there = by(made["cause_groups"], "cause_group", "origin")
    assert there[LOCKED, "queue://A"].share == pytest.approx(0.25)
    assert there[TIMEOUT, "queue://B"].share == 1
    assert (there[TIMEOUT, "queue://A"].deaths, there[TIMEOUT, "queue://A"].messages) == (3, 2)


def test_the_latest_day_is_compared_with_the_days_before(spark: SparkSession) -> None:
    """The history is 0.1 to 4.5: with whole hours its latest day is 3.5 to 4.5, each + 1 hour.

    3 whole days lie before, from 0.5 + 1 hour: TIMEOUT has 4 deaths in them, 2 are earlier. It has
    5 in the latest day, and LOCKED its first.
    """
    before = [died(day) for day in (0.1, 0.5, 0.9, 1.2, 2.2, 3.4)]
    latest = [died(day) for day in (3.6, 3.7, 3.8, 4.5)]
    rows = [*before, *latest, died(4.2, LOCKED, "B"), died(4.3, origin="B")]
    groups, there = groups_and_destinations(spark, rows)
    timeout, locked = groups[TIMEOUT], groups[LOCKED]
    assert (timeout.is_new, locked.is_new) == (False, True)
    assert (timeout.latest_day, locked.latest_day) == (5, 1)
    assert timeout.per_day_before == pytest.approx(4 / 3)
    assert timeout.growth == pytest.approx(15 / 4)
    assert (locked.per_day_before, locked.growth) == (0, None)
    assert there[TIMEOUT, "queue://B"].is_new
    assert not there[TIMEOUT, "queue://A"].is_new


def test_a_short_history_does_not_show_new_groups(spark: SparkSession) -> None:
    groups, _ = groups_and_destinations(spark, [died(0), died(0.9, LOCKED)])
    row = groups[TIMEOUT]
    assert (row.is_new, row.latest_day, row.per_day_before, row.growth) == (None, 1, None, None)


def test_a_quiet_day_is_compared_too(spark: SparkSession) -> None:
    """The latest event ends the history, be it a death or not."""
    groups, _ = groups_and_destinations(spark, [died(0), died(2.9, type="scheduled")])
    row = groups[TIMEOUT]
    assert (row.is_new, row.latest_day, row.per_day_before, row.growth) == (False, 0, 0, None)


@pytest.mark.parametrize(
    ("last_ms", "until_ms", "expected"),
    [
        (10 * DAY_MS, None, (9 * DAY_MS + HOUR_MS, 10 * DAY_MS + HOUR_MS, 7)),
        (10 * DAY_MS - 1, None, (9 * DAY_MS, 10 * DAY_MS, 7)),
        (5 * DAY_MS, 3 * DAY_MS, (2 * DAY_MS, 3 * DAY_MS, 2)),
        (5 * DAY_MS, 3 * DAY_MS + 1, (2 * DAY_MS + HOUR_MS, 3 * DAY_MS + HOUR_MS, 2)),
        (HOUR_MS, None, (2 * HOUR_MS - DAY_MS, 2 * HOUR_MS, 0)),
    ],
)
def test_what_is_observed(last_ms: int, until_ms: int | None, expected: tuple[int, ...]) -> None:
    seen = observation(0, last_ms, until_ms=until_ms, new_since_ms=None, days_max=7)
    assert (seen.latest_ms, seen.end_ms, seen.days_before) == expected


def test_what_is_new_goes_by_the_time_that_was_asked_for() -> None:
    for since_ms, expected in ((6, 6), (5, None)):
        seen = observation(5, 9 * DAY_MS, until_ms=None, new_since_ms=since_ms, days_max=7)
        assert seen.new_since_ms == expected


@pytest.mark.parametrize(
    ("new_since_ms", "begin"),
    [(None, "No group changed by"), (DAY_MS, "No group is new, and none")],
)
def test_no_group_is_called_old_where_the_history_begins_later(
    new_since_ms: int | None, begin: str
) -> None:
    seen = ComparedTimes(0, 9 * DAY_MS, 10 * DAY_MS, 7, new_since_ms)
    assert _unseen_text([], seen).startswith(begin)


def test_messages_without_a_cause_are_groups_of_their_own(spark: SparkSession) -> None:
    """Artemis gives no reasons; an application may say nearly the same words."""
    expired = "java.lang.Throwable: Message Expired. Expiration:*"
    rows = [
        *(died(0, None), died(0, None), died(0, None, expired=True)),
        *(died(0, "no reason given"), died(0, expired, expired=True)),
        died(0, None, None, expired=None),
    ]
    groups, there = groups_and_destinations(spark, rows)
    assert {name: (row.deaths, row.texts) for name, row in groups.items()} == {
        NO_REASON: (3, 0),
        EXPIRED: (1, 0),
        "no reason given": (1, 1),
        expired: (1, 1),
    }
    assert groups[NO_REASON].origins == 2
    assert there[NO_REASON, None].deaths == 1


def test_the_job_groups_a_history_as_the_console_does(spark: SparkSession) -> None:
    """A name, a word that varies, numbers of a journal of another version, and stacks."""
    pay = "com.acme.PayException: "
    names = ("adam", "berta", "carl", "doris", "emil", "frank")
    causes = [
        *(f"{pay}payment refused because account of {name.title()} closed" for name in names),
        *(f"{pay}user {name} may not pay" for name in names),
        *(f"java.io.IOException: code {number}" for number in (17, 18)),
        *(f"{pay}{name} at shop.Pay.pay [stack=5f0c2a91d3e7]" for name in names),
        *(f"{pay}{name} at shop.Pay.pay [stack=5f0c2a91d3e8]" for name in names),
    ]
    chance = random.Random(7)
    drawn = [(chance.choice(causes), chance.choice("AB")) for _ in range(400)]
    rows = [died(number / 1e4, *one[:1], origin=one[1]) for number, one in enumerate(drawn)]
    console = CauseGroups()
    for cause, origin in drawn:
        console.add(f"queue://{origin}", own_group(cause))
    expected = Counter(
        (origin, console.find(f"queue://{origin}", own_group(cause))) for cause, origin in drawn
    )
    cells = grouped(spark, rows).collect()
    found = Counter[tuple[str, str]]()
    for row in cells:
        found[row.origin.removeprefix("queue://"), row.cause_group] += row.deaths
    assert found == expected
    assert len(expected) == 2 * 5


def test_a_note_that_came_after_a_death_names_its_cause(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The last note of each death; none that decides nothing."""
    note: dict[str, Any] = {"type": "explained", "row_id": 7, "origin": None}
    rows = [
        died(0, None, row_id=7),
        died(0.1, LOCKED, **note),
        died(0.2, TIMEOUT, **note),
        died(0.4, None, row_id=8),
        died(0.5, None, **{**note, "row_id": 8}),
        died(0.6, LOCKED, row_id=9),
    ]
    made = run(spark, tmp_path, rows)
    found = {name: row.deaths for name, row in everywhere(made["cause_groups"]).items()}
    assert found == {TIMEOUT: 1, NO_REASON: 1, LOCKED: 1}


def test_a_group_that_a_person_merged_counts_in_the_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    about = {"type": "regrouped", "origin": None, "destination": "queue://A"}
    merge = died(2, TIMEOUT, **about, former_group=LOCKED)
    rows = [died(0), died(0, LOCKED), died(1, LOCKED, "B"), merge]
    found = everywhere(run(spark, tmp_path, rows)["cause_groups"])
    assert {name: row.deaths for name, row in found.items()} == {TIMEOUT: 2, LOCKED: 1}


def test_texts_beyond_the_most_frequent_are_groups_of_their_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(causes_tables, "TEXTS_MAX", 2)
    frequent, other, rare = (f"java.io.IOException: code {one}" for one in ("1", "2", "3"))
    rows = [died(0, one) for one in (frequent, frequent, other, other, rare)]
    texts = grouped(spark, rows).collect()
    assert {row.cause_text: row.cause_group for row in texts} == {
        frequent: "java.io.IOException: code *",
        other: "java.io.IOException: code *",
        rare: rare,
    }


def test_examples_are_the_latest_deaths(spark: SparkSession) -> None:
    """Of deaths in one hour the last; of those at one moment the first of the journal."""
    rows = [
        died(0, redelivery_id="old"),
        died(1, redelivery_id="earlier in its hour"),
        died(1.01, redelivery_id="one of two", cause="boom 17"),
        died(1.01, redelivery_id="two of two"),
        died(2, redelivery_id="last", origin="B"),
        died(2, LOCKED, redelivery_id="only"),
        died(2, TIMEOUT, redelivery_id="no death", type="scheduled"),
        died(1.5, None, None, redelivery_id="no cause"),
    ]
    found = cause_examples(deaths(spark, rows), grouped(spark, rows), 2).collect()
    assert {(row.cause_group, row.redelivery_id, row.cause) for row in found} == {
        (TIMEOUT, "last", None),
        (TIMEOUT, "one of two", "boom 17"),
        (LOCKED, "only", None),
        (NO_REASON, "no cause", None),
    }
    assert len(found) == 4


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</svg><script>alert(1)</script>",
    "\u202egnisrever",
    "😀💥" * 50,
    "a\0b\nc\r\nd",
    "x" * 1_000_000,
    "*",
    "",
    " ",
    "{{7*7}} ${jndi:ldap://x} '; DROP TABLE causes; --",
    "a|b|c\td,e",
]


def test_hostile_texts_are_counted_and_shown_as_text(spark: SparkSession, tmp_path: Path) -> None:
    rows = [died(day, text, cause=text, origin=text[:100]) for text in HOSTILE for day in (0, 3)]
    made = run(spark, tmp_path, rows)
    groups = everywhere(made["cause_groups"])
    assert sum(row.deaths for row in groups.values()) == 2 * len(HOSTILE)
    assert all(0 < len(name) <= 200 for name in groups)
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(*)&lt;/script&gt;" in page
    assert len(page) < 2_000_000


def test_a_history_without_deaths_has_empty_tables(spark: SparkSession, tmp_path: Path) -> None:
    made = run(spark, tmp_path, [died(0, type="scheduled")])
    assert not any(made.values())
    assert "nothing" in (tmp_path / "out/report.html").read_text("utf-8")


def test_the_result_does_not_depend_on_order_and_partitions(spark: SparkSession) -> None:
    chance = random.Random(5)
    names = ("Adam", "Berta", "Carl", "Dora")
    texts = [f"a.B: {' '.join('word' + chr(97 + n) for n in range(9))} {one}" for one in names]
    rows = [
        died(chance.randrange(3), chance.choice([*texts, None, LOCKED]), chance.choice("AB"))
        for _ in range(100)
    ]

    def results(partitions: int) -> list[str]:
        chance.shuffle(rows)
        cells = count_cells(deaths(spark, rows).repartition(partitions))
        return sorted(map(str, group_cells(cells, learn_groups(spark, cells, {})).collect()))

    assert results(1) == results(5)
