"""Journals of any size with known truth, made by Spark itself: no Python runs per row.

A message's life is rounds of three events: it arrives, the rules decide, it is sent. In each round
but the last it is re-sent, and recovers with a probability that is known for its destination, cause
and attempt; who has had all attempts goes to the final dead-letter queue. Chance is a hash of the
life's number, so the same plan makes the same events on any machine and any number of workers.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from amqsidecar.pipeline.tables import EVENTS

ATTEMPTS = 4
"""Redeliveries that the rules allow."""
EVENTS_OF_A_ROUND = 3
ORDINARY_DESTINATIONS = 20
LAST_DESTINATION = "queue://last"
"""Of one message in each stream that comes a day after all others, so that their ends are known."""
FINAL_QUEUE = "queue://DLQ.final"
CAUSE_GROUPS = (
    "java.sql.SQLTransientConnectionException: HikariPool-* - Connection is not available",
    "java.net.ConnectException: Connection refused",
    "org.springframework.dao.DeadlockLoserDataAccessException: deadlock detected",
    "javax.validation.ConstraintViolationException: amount must be positive",
    "com.fasterxml.jackson.core.JsonParseException: Unexpected end-of-input",
    "java.lang.NullPointerException",
    "org.hibernate.StaleObjectStateException: Row was updated by another transaction",
    "java.util.concurrent.TimeoutException: no answer within * ms",
    "feign.RetryableException: * Service Unavailable executing *",
    "java.lang.IllegalStateException: customer * is locked",
    "io.grpc.StatusRuntimeException: UNAVAILABLE: upstream connect error",
    None,
)
DAY_MS = 86_400_000
BEGIN_MS = 1_793_491_200_000
"""2026-11-01, UTC."""


class Plan(NamedTuple):
    """What to make.

    Attributes:
        lives: how many messages.
        days: in which they die for the first time.
        is_skewed: whether one destination has 99 % of them.
    """

    lives: int
    days: int = 14
    seed: int = 1
    is_skewed: bool = False
    streams: int = 4
    segment_events: int = 50_000


class Attempt(NamedTuple):
    """What became of one attempt, counted before there were events.

    Attributes:
        attempt: 1-based.
        probability: of recovery, as the plan has it.
    """

    destination: str
    cause_group: str | None
    attempt: int
    tries: int
    recovered: int
    probability: float


class Truth(NamedTuple):
    """What the jobs have to find."""

    lives: int
    events: int
    attempts: tuple[Attempt, ...]
    deaths_by_cause: dict[str | None, int]


def plan_for(events: int, **more: Any) -> Plan:
    """Return a plan with about this many events."""
    return Plan(lives=round(events / _events_of_a_life()), **more)


def write_journal(spark: SparkSession, path: str, plan: Plan) -> Truth:
    """Write a table like that of `ingest`, one folder per day of UTC, and return what it holds."""
    lives = make_lives(spark, plan)
    events = make_events(lives, plan)
    day = f.to_date("at").alias("day")
    events.select("*", day).write.partitionBy("day").mode("overwrite").parquet(path)
    return count_truth(lives)


def recovery_probability(destination: Any, cause: Any, attempt: Any) -> Any:
    """Return how likely an attempt recovers; takes numbers or columns, the attempt 1-based."""
    by_cause = (cause + 1) / (len(CAUSE_GROUPS) + 1)
    return by_cause * (1 - (attempt - 1) / 6) * (1 - (destination % 5) / 10)


def make_lives(spark: SparkSession, plan: Plan) -> DataFrame:
    """Return one row per message; `recovered_at` is the attempt that helped, null = none."""
    partitions = max(2, plan.lives // 250_000)
    life = f.col("life")

    def chance(name: str) -> Column:
        hashed = f.xxhash64(life, f.lit(plan.seed), f.lit(name))
        return f.shiftrightunsigned(hashed, 11) * f.lit(2.0**-53)

    def below(name: str, limit: int) -> Column:
        return f.floor(chance(name) * limit).cast("int")

    others = 1 + below("destination", ORDINARY_DESTINATIONS - 1)
    first_share = 0.99 if plan.is_skewed else 0.2
    ordinary = f.when(chance("is first") < first_share, f.lit(0)).otherwise(others)
    is_last = life >= plan.lives - plan.streams
    successes = [
        f.when(
            chance(f"attempt {attempt}")
            < recovery_probability(f.col("destination"), f.col("cause"), attempt),
            f.lit(attempt),
        )
        for attempt in range(1, ATTEMPTS + 1)
    ]
    began_ms = f.lit(BEGIN_MS) + f.floor(life * f.lit(plan.days * DAY_MS / plan.lives))
    return (
        spark.range(0, plan.lives, 1, partitions)
        .select(f.col("id").alias("life"))
        .select(
            "life",
            f.when(is_last, ORDINARY_DESTINATIONS).otherwise(ordinary).alias("destination"),
            below("cause", len(CAUSE_GROUPS)).alias("cause"),
            (began_ms + f.when(is_last, DAY_MS).otherwise(0)).alias("began_ms"),
            (100 + below("work", 20_000)).cast("long").alias("work_ms"),
            below("lateness", 900).cast("long").alias("lateness_ms"),
            (200 + below("size", 4_000)).cast("long").alias("size_bytes"),
        )
        .select("*", f.coalesce(*successes).alias("recovered_at"))
    )


def make_events(lives: DataFrame, plan: Plan) -> DataFrame:
    """Return the events of lives, with the columns of `EVENTS`."""
    steps = _events_of(lives) - 1
    made = lives.select("*", f.explode(f.sequence(f.lit(0), steps)).alias("step"))
    columns = _event_columns(plan)
    return made.select(
        *(
            columns.get(one.name, f.lit(None)).cast(one.dataType).alias(one.name, metadata={})
            for one in EVENTS
        )
    )


def count_truth(lives: DataFrame) -> Truth:
    """Count what became of the lives, without looking at any event."""
    rows = lives.groupBy("destination", "cause", "recovered_at").count().collect()
    deaths: dict[str | None, int] = {}
    events = 0
    for row in rows:
        rounds = row["recovered_at"] or ATTEMPTS + 1
        events += row["count"] * rounds * EVENTS_OF_A_ROUND
        cause = CAUSE_GROUPS[row["cause"]]
        deaths[cause] = deaths.get(cause, 0) + row["count"] * rounds
    return Truth(sum(row["count"] for row in rows), events, tuple(_attempts(rows)), deaths)


def policy_xml() -> str:
    """Return the rules that the journal was made by, as the broker's own configuration."""
    entries = "".join(
        f'<redeliveryPolicy queue="{destination_name(number).removeprefix("queue://")}" '
        f'maximumRedeliveries="{ATTEMPTS}" initialRedeliveryDelay="{_base_ms(number)}" '
        'useExponentialBackOff="true" backOffMultiplier="2"/>'
        for number in range(ORDINARY_DESTINATIONS + 1)
    )
    return (
        '<beans xmlns="http://www.springframework.org/schema/beans">'
        '<broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true"><plugins>'
        '<redeliveryPlugin fallbackToDeadLetter="true" sendToDlqIfMaxRetriesExceeded="true">'
        "<redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries>"
        f"{entries}</redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPolicyMap>"
        "</redeliveryPlugin></plugins></broker></beans>"
    )


def destination_name(number: int) -> str:
    """Return the name of a destination, 0-based."""
    return LAST_DESTINATION if number == ORDINARY_DESTINATIONS else f"queue://orders.{number:02d}"


def _attempts(rows: list[Any]) -> Iterator[Attempt]:
    ends: dict[tuple[int, int], dict[int | None, int]] = {}
    for row in rows:
        group = ends.setdefault((row["destination"], row["cause"]), {})
        group[row["recovered_at"]] = row["count"]
    for (destination, cause), group in sorted(ends.items()):
        tries = sum(group.values())
        for attempt in range(1, ATTEMPTS + 1):
            recovered = group.get(attempt, 0)
            yield Attempt(
                destination_name(destination),
                CAUSE_GROUPS[cause],
                attempt,
                tries,
                recovered,
                recovery_probability(destination, cause, attempt),
            )
            tries -= recovered


def _events_of_a_life() -> float:
    """Return how many events a life has on average, over evenly spread destinations and causes."""
    total = 0.0
    for destination in range(5):
        for cause in range(len(CAUSE_GROUPS)):
            still_ill = 1.0
            for attempt in range(1, ATTEMPTS + 1):
                total += still_ill
                still_ill *= 1 - recovery_probability(destination, cause, attempt)
            total += still_ill
    return EVENTS_OF_A_ROUND * total / (5 * len(CAUSE_GROUPS))


def _base_ms(destination: Any) -> Any:
    """Return the delay before the first attempt; takes a number or a column."""
    return 1_000 * (1 + destination % 5)


def _events_of(lives: DataFrame) -> Column:
    return f.coalesce(lives["recovered_at"], f.lit(ATTEMPTS + 1)) * EVENTS_OF_A_ROUND


def _event_columns(plan: Plan) -> dict[str, Column]:
    life, step, destination = f.col("life"), f.col("step"), f.col("destination")
    turn = f.floor(step / EVENTS_OF_A_ROUND)
    place = step % EVENTS_OF_A_ROUND
    is_first, is_last = turn == 0, turn == ATTEMPTS
    is_arrival, is_decision, is_sending = place == 0, place == 1, place == 2
    is_scheduled, is_resent = is_decision & ~is_last, is_sending & ~is_last

    doubled = f.pow(f.lit(2), turn).cast("long")
    base_ms = _base_ms(destination).cast("long")
    passed_ms = base_ms * (doubled - 1) + turn * (f.col("lateness_ms") + f.col("work_ms"))
    arrived_ms = f.col("began_ms") + passed_ms
    delay_ms = base_ms * doubled
    due_ms = arrived_ms + delay_ms

    stream = f.format_string("store-%d", life % plan.streams)
    number = f.floor(life / plan.streams) * (EVENTS_OF_A_ROUND * (ATTEMPTS + 1)) + step
    name = f.when(destination == ORDINARY_DESTINATIONS, LAST_DESTINATION).otherwise(
        f.format_string("queue://orders.%02d", destination)
    )
    causes = f.array(*(f.lit(one).cast(StringType()) for one in CAUSE_GROUPS))
    return {
        "stream": stream,
        "sidecar": stream,
        "segment": f.floor(number / plan.segment_events) + 1,
        "position": number % plan.segment_events,
        "type": f.when(is_arrival, f.when(is_first, "received").otherwise("returned"))
        .when(is_decision, f.when(is_last, "exhausted").otherwise("scheduled"))
        .otherwise(f.when(is_last, "dead_lettered").otherwise("resent")),
        "at": f.timestamp_millis(
            f.when(is_resent, due_ms + f.col("lateness_ms")).otherwise(arrived_ms)
        ),
        "row_id": life * (ATTEMPTS + 1) + turn + 1,
        "redelivery_id": f.format_string("9f2c41d07be85a36-%012d", life),
        "source": f.when(is_arrival, "queue://ActiveMQ.DLQ"),
        "origin": f.when(is_arrival, name),
        "destination": f.when(~is_arrival, f.when(is_last, FINAL_QUEUE).otherwise(name)),
        "cause_group": f.when(is_arrival, causes[f.col("cause")]),
        "expired": f.when(is_arrival, f.lit(False)),
        "persistent": f.when(is_arrival, f.lit(True)),
        "redelivery_count": f.when(is_arrival | (is_sending & is_last), turn).when(
            is_scheduled | is_resent, turn + 1
        ),
        "message_id": f.when(is_arrival, f.format_string("ID:shop-1-%d-%d", life, turn)),
        "size_bytes": f.when(is_arrival, f.col("size_bytes")),
        "delay_ms": f.when(is_scheduled, delay_ms),
        "due_at": f.when(is_scheduled, f.timestamp_millis(due_ms)),
        "rule": f.when(is_decision, f.lit("redeliveryPolicy queue://orders.> (activemq.xml:12)")),
        "expiration_ms": f.when(is_decision & is_last, f.lit(0)),
        "lateness_ms": f.when(is_resent, f.col("lateness_ms")),
    }
