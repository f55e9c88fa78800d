"""The course of each message: the policies' decisions on it, death by death.

Rules beyond the broker's may look at the cause and the properties of each message, so messages are
grouped by the policies' decisions. Even many messages have few courses.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.whatif.attempts import Usual
from amqsidecar.pipeline.whatif.policy import (
    Candidate,
    DelayPlan,
    FirstDeath,
    dead_letter_of,
    plan_of,
)
from amqsidecar.plugin import Decider, Plugin
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.load import compile_policy

COURSES_MAX: Final = 20_000
"""Courses of one history."""

_KNOWN_MAX: Final = 50_000
_NO_USUAL: Final = Usual(0.0, 0.0)
_ASKED: Final = ("destination", "persistent", "expired", "cause", "properties")


@dataclass(frozen=True)
class Planner:
    """Asks policies about messages; Spark ships it to its tasks.

    Attributes:
        rules: of each policy.
        plugins: plugins that compile them.
        usual: by destination.
        most_attempts: maximum number of re-sends of a plan.
    """

    rules: Mapping[str, Rules]
    plugins: Mapping[str, Plugin]
    usual: Mapping[str, Usual]
    most_attempts: int

    def deciders(self) -> dict[str, Decider]:
        """Return the compiled policies."""
        return {name: compile_policy(one, self.plugins) for name, one in self.rules.items()}

    def plans(self, deciders: Mapping[str, Decider], death: FirstDeath) -> dict[str, DelayPlan]:
        """Return each policy's plan for messages with this first death."""
        usual = self.usual.get(death[0], _NO_USUAL)
        dead = dead_letter_of(death)
        back_ms = round(usual.late_ms + usual.back_ms)
        return {
            name: plan_of(one, dead, most_attempts=self.most_attempts, back_ms=back_ms)
            for name, one in deciders.items()
        }

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the course of each message as last column."""
        deciders = self.deciders()
        known: dict[FirstDeath, int] = {}
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in _ASKED]
            courses = []
            for row in zip(*columns, strict=True):
                death = _death(*row)
                course = known.get(death)
                if course is None:
                    if len(known) >= _KNOWN_MAX:
                        known.clear()
                    course = known[death] = _number(death[:3], self.plans(deciders, death))
                courses.append(course)
            arrays = [*batch.columns, pa.array(courses, pa.int64())]
            yield pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, "course"])


def _death(
    destination: str, persistent: bool, expired: bool, cause: str | None, properties: Any
) -> FirstDeath:
    return destination, persistent, expired, cause, tuple(sorted((dict(properties or ())).items()))


def _number(kind: tuple[str, bool, bool], plans: Mapping[str, DelayPlan]) -> int:
    told = repr((kind, sorted(plans.items())))
    return int.from_bytes(blake2b(told.encode(), digest_size=8).digest(), "big", signed=True)


def with_courses(messages: DataFrame, planner: Planner, *, asks: bool) -> DataFrame:
    """Return messages with a column `course`, equal where the policies decide alike."""
    if not asks:
        return messages.withColumn("course", f.xxhash64(*_ASKED[:3]))
    schema = StructType([*messages.schema, StructField("course", LongType())])
    return messages.mapInArrow(planner, schema)


def read_courses(messages: DataFrame, planner: Planner) -> dict[int, dict[str, DelayPlan]]:
    """Return each policy's plan, by the course of messages.

    Raises:
        ConfigError: there are too many, because rules decide on nearly each message otherwise.
    """
    deaths = messages.groupBy("course").agg(f.first(f.struct(*_ASKED)).alias("death"))
    firsts = {row["course"]: row["death"] for row in deaths.limit(COURSES_MAX + 1).collect()}
    if len(firsts) > COURSES_MAX:
        what = f"their rules make more than {COURSES_MAX:,} courses of the messages of history"
        raise ConfigError([Problem("--policy", what)])
    deciders = planner.deciders()
    return {number: planner.plans(deciders, _death(*death)) for number, death in firsts.items()}


def unknown_to_history(messages: DataFrame, candidates: Sequence[Candidate]) -> list[str]:
    """Return facts that rules ask for and no message of the history has, like `property:code`."""
    asks = {one for candidate in candidates for one in candidate.asks} - {"age"}
    if not asks:
        return []
    cells = {
        one: f.max(f.col(one).isNotNull())
        if one == "cause"
        else f.max(
            f.coalesce(f.map_contains_key("properties", one.partition(":")[2]), f.lit(False))
        )
        for one in sorted(asks)
    }
    found = messages.agg(*(cell.alias(str(at)) for at, cell in enumerate(cells.values()))).first()
    return [one for at, one in enumerate(cells) if found is None or not found[str(at)]]
