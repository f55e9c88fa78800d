"""`format("amqsidecar")`: journals, and dead-letter queues of a live broker, as DataFrames."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.datasource_journal import (
    JournalOptions,
    JournalReader,
    JournalStreamReader,
)
from amqsidecar.pipeline.tables import EVENTS

FORMAT: Final = "amqsidecar"

_JOURNAL_OPTIONS: Final = ("path", "failOnDataLoss", "maxSegmentsPerTrigger")


def register(spark: SparkSession) -> None:
    """Let this session read `format("amqsidecar")`."""
    spark.dataSource.register(SidecarSource)


class SidecarSource(DataSource):
    """What `spark.read.format("amqsidecar")` and `spark.readStream` make."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns, which are fixed."""
        return EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads once."""
        _check_schema(schema)
        return JournalReader(_journal_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return what reads on and on."""
        _check_schema(schema)
        return JournalStreamReader(_journal_options(self.options))


def _check_schema(schema: StructType) -> None:
    if schema.simpleString() != EVENTS.simpleString():
        what = "has columns of its own: leave .schema(...) away, and select what you need"
        raise ConfigError([Problem(f'format("{FORMAT}")', what)])


def _journal_options(options: Mapping[str, str]) -> JournalOptions:
    """Return the options as values.

    Raises:
        ConfigError: one is unknown, or has no such value.
    """
    known = {name.lower() for name in _JOURNAL_OPTIONS}
    problems = [
        Problem(f"option {name}", f"there is no such option; known: {', '.join(_JOURNAL_OPTIONS)}")
        for name in options
        if name.lower() not in known
    ]
    paths = tuple(path for text in options.get("path", "").split(",") if (path := text.strip()))
    if not paths:
        problems.append(Problem("option path", "is not set: name the folders of journals"))
    fails = options.get("failOnDataLoss", "true").lower()
    if fails not in ("true", "false"):
        problems.append(Problem("option failOnDataLoss", f"expected true or false, found {fails}"))
    limit = options.get("maxSegmentsPerTrigger", "")
    if limit and not (limit.isascii() and limit.isdigit() and int(limit) > 0):
        what = f"expected a whole number from 1, found {limit}"
        problems.append(Problem("option maxSegmentsPerTrigger", what))
    if problems:
        raise ConfigError(problems)
    return JournalOptions(
        paths=paths,
        fails_on_data_loss=fails == "true",
        max_segments=int(limit) if limit else None,
    )
