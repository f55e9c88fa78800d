"""Every job, on generated journals whose truth is known: an even one, and a skewed one."""

from math import sqrt

import pytest
from pyspark.sql import SparkSession

from amqsidecar.pipeline.sources.events import read_events
from bench.journal_generator import ATTEMPTS
from bench.journal_truth import check_causes, check_recovery
from pipeline.generated import Generated


@pytest.fixture(params=["even", pytest.param("skewed", marks=pytest.mark.proof)])
def journal(request: pytest.FixtureRequest) -> Generated:
    made: Generated = request.getfixturevalue(request.param)
    return made


def test_the_journal_holds_what_its_truth_says(spark: SparkSession, even: Generated) -> None:
    """Shares of all lives lie within four standard errors of what chance was to give."""
    events = read_events(spark, str(even.events))
    types = {row["type"]: row["count"] for row in events.groupBy("type").count().collect()}
    tries = [one for one in even.truth.attempts if one.attempt <= ATTEMPTS]
    lives = even.plan.lives

    assert events.count() == sum(types.values()) == even.truth.events
    assert even.truth.events == pytest.approx(20_000, rel=0.1)
    assert types["received"] == even.truth.lives == lives
    assert types["scheduled"] == types["resent"] == sum(one.tries for one in tries)
    assert types["exhausted"] == types["dead_lettered"]
    assert types["dead_lettered"] == lives - sum(one.recovered for one in tries)
    assert types["received"] + types["returned"] == sum(even.truth.deaths_by_cause.values())
    assert events.select("stream", "segment", "position").distinct().count() == events.count()

    for attempt in range(1, ATTEMPTS + 1):
        these = [one for one in tries if one.attempt == attempt]
        expected = sum(one.tries * one.probability for one in these)
        variance = sum(one.tries * one.probability * (1 - one.probability) for one in these)
        assert abs(sum(one.recovered for one in these) - expected) < 4 * sqrt(variance)


def test_one_destination_has_nearly_all_of_the_skewed_journal(skewed: Generated) -> None:
    first = [one for one in skewed.truth.attempts if one.attempt == 1]
    most = max(
        sum(one.tries for one in first if one.destination == name)
        for name in {one.destination for one in first}
    )
    assert 0.98 < most / skewed.plan.lives < 1


def test_recovery_finds_what_became_of_each_attempt(journal: Generated) -> None:
    check_recovery(journal.output("recovery"), journal.truth)


def test_causes_counts_the_deaths_of_each_group(journal: Generated) -> None:
    check_causes(journal.output("causes"), journal.truth)
