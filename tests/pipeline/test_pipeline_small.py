"""Every job, on a generated journal of 20,000 events whose truth is known."""

from math import sqrt
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqsidecar.cli.main import run_command_line
from amqsidecar.pipeline.causes_tables import NO_REASON
from amqsidecar.pipeline.events import read_events
from bench.journal_generator import (
    ATTEMPTS,
    LAST_DESTINATION,
    Plan,
    Truth,
    plan_for,
    policy_xml,
    write_journal,
)

EVENTS = 20_000


class Journal(NamedTuple):
    folder: Path
    plan: Plan
    truth: Truth


@pytest.fixture(scope="module")
def journal(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Journal:
    folder = tmp_path_factory.mktemp("small") / "events"
    plan = plan_for(EVENTS, days=2)
    return Journal(folder, plan, write_journal(spark, str(folder), plan))


def run(job: str, journal: Journal, *options: str) -> Path:
    """Run a job as its command does and return its output folder."""
    out = journal.folder.parent / job
    folders = ("--events", str(journal.folder), "--output-folder", str(out))
    assert run_command_line(["pipeline", job, *folders, *options]) == 0
    assert (out / "report.html").stat().st_size > 1_000
    return out


def table(spark: SparkSession, out: Path, name: str) -> DataFrame:
    return spark.read.parquet(str(out / name))


def test_the_journal_holds_what_its_truth_says(spark: SparkSession, journal: Journal) -> None:
    """Shares of all lives lie within four standard errors of what chance was to give."""
    events = read_events(spark, str(journal.folder))
    types = {row["type"]: row["count"] for row in events.groupBy("type").count().collect()}
    tries = [one for one in journal.truth.attempts if one.attempt <= ATTEMPTS]
    lives = journal.plan.lives

    assert events.count() == sum(types.values()) == journal.truth.events
    assert abs(journal.truth.events - EVENTS) < EVENTS / 10
    assert types["received"] == journal.truth.lives == lives
    assert types["scheduled"] == types["resent"] == sum(one.tries for one in tries)
    assert types["exhausted"] == types["dead_lettered"]
    assert types["dead_lettered"] == lives - sum(one.recovered for one in tries)
    assert types["received"] + types["returned"] == sum(journal.truth.deaths_by_cause.values())
    assert events.select("stream", "segment", "position").distinct().count() == events.count()

    for attempt in range(1, ATTEMPTS + 1):
        these = [one for one in tries if one.attempt == attempt]
        expected = sum(one.tries * one.probability for one in these)
        variance = sum(one.tries * one.probability * (1 - one.probability) for one in these)
        assert abs(sum(one.recovered for one in these) - expected) < 4 * sqrt(variance)


def test_recovery_finds_what_became_of_each_attempt(spark: SparkSession, journal: Journal) -> None:
    """All is over long before the history ends, so that shares are those that were counted."""
    found = {
        (row["origin"], row["cause_group"], row["attempt"]): row
        for row in table(spark, run("recovery", journal), "recovery_by_attempt").collect()
        if row["origin"] != LAST_DESTINATION
    }
    expected = {
        (one.destination, one.cause_group, one.attempt): one
        for one in journal.truth.attempts
        if one.destination != LAST_DESTINATION and one.tries
    }
    assert found.keys() == expected.keys()
    for key, one in expected.items():
        row = found[key]
        assert (row["messages"], row["stayed"]) == (one.tries, one.recovered), key
        assert row["share_recovered"] == pytest.approx(one.recovered / one.tries), key
        assert row["low"] <= row["share_recovered"] <= row["high"], key


def test_causes_counts_the_deaths_of_each_group(spark: SparkSession, journal: Journal) -> None:
    rows = table(spark, run("causes", journal), "cause_groups").collect()
    assert {row["cause_group"]: row["deaths"] for row in rows} == {
        cause or NO_REASON: deaths for cause, deaths in journal.truth.deaths_by_cause.items()
    }


def test_whatif_by_the_rules_of_history_finds_the_recoveries_of_history(
    spark: SparkSession, journal: Journal
) -> None:
    xml = journal.folder.parent / "activemq.xml"
    xml.write_text(policy_xml(), encoding="utf-8")
    out = run("whatif", journal, "--policy", f"today={xml}")
    rows = {row["policy"]: row for row in table(spark, out, "whatif_by_policy").collect()}
    # Why less the last: theirs are not over when the history ends.
    attempts = [one for one in journal.truth.attempts if one.destination != LAST_DESTINATION]
    recovered = sum(one.recovered for one in attempts)
    today = rows["today"]
    assert today["recovered_lower"] <= recovered <= today["recovered_upper"]
    assert today["recovered"] == pytest.approx(recovered, abs=journal.plan.streams)
    assert today["resends"] == pytest.approx(sum(one.tries for one in attempts), rel=0.01)


def test_redrive_plans_all_that_lies_in_the_final_queue(
    spark: SparkSession, journal: Journal
) -> None:
    plan = table(spark, run("redrive", journal), "redrive_plan")
    recovered = sum(one.recovered for one in journal.truth.attempts)
    counted = plan.agg(
        f.count("*"), f.count_distinct("redelivery_id"), f.min("number"), f.max("number")
    ).head()
    dead = journal.plan.lives - recovered
    assert tuple(counted or ()) == (dead, dead, 0, dead - 1)
