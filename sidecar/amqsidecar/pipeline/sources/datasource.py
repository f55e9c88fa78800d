"""`format("amqsidecar")`: journals, and dead-letter queues of a live broker, as DataFrames."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Never

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.pipeline.sources.journal import (
    JournalReader,
    JournalSourceOptions,
    JournalStreamReader,
)
from amqsidecar.pipeline.tables import DEAD_LETTERS, EVENTS

if TYPE_CHECKING:
    from amqsidecar.pipeline.sources.dead_letters import DeadLetterOptions

FORMAT: Final = "amqsidecar"

_JOURNAL_OPTIONS: Final = ("path", "failOnDataLoss", "maxSegmentsPerTrigger")
_DEAD_LETTER_OPTIONS: Final = ("url", "queue", "password_file", "config", "max_messages")


def register(spark: SparkSession) -> None:
    """Register `format("amqsidecar")` in this session."""
    spark.dataSource.register(SidecarSource)


class SidecarSource(DataSource):
    """The data source behind `spark.read.format("amqsidecar")` and `spark.readStream`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns, which are fixed.

        Raises:
            ConfigError: an option is unknown, or has no such value. Spark asks for columns first.
        """
        if self._is_of_a_broker:
            _dead_letter_options(self.options)
            return DEAD_LETTERS
        _journal_options(self.options)
        return EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        self._check_schema(schema)
        if not self._is_of_a_broker:
            return JournalReader(_journal_options(self.options))
        # Why here: it imports all broker protocols, which journals don't need.
        from amqsidecar.pipeline.sources.dead_letters import DeadLetterReader  # noqa: PLC0415

        return DeadLetterReader(_dead_letter_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the reader of a stream; a dead-letter queue has none and is refused."""
        self._check_schema(schema)
        if self._is_of_a_broker:
            return _NoStream()
        return JournalStreamReader(_journal_options(self.options))

    @property
    def _is_of_a_broker(self) -> bool:
        return any(name in self.options for name in ("url", "queue", "config"))

    def _check_schema(self, schema: StructType) -> None:
        if schema.simpleString() != self.schema().simpleString():
            what = "has fixed columns: omit .schema(...), and select what you need"
            raise ConfigError([Problem(f'format("{FORMAT}")', what)])


class _NoStream(DataSourceStreamReader):
    """A dead-letter queue can't be streamed: messages come and go, and brokers have no offsets.

    Why no error before it is made: Spark would put one of its own behind it.
    """

    def initialOffset(self) -> Never:  # noqa: N802 - Spark's name
        """Refuse.

        Raises:
            ConfigError: always.
        """
        what = (
            "a dead-letter queue can't be streamed: it has no offset to continue from; stream the "
            "journal of its sidecar"
        )
        raise ConfigError([Problem(f'format("{FORMAT}")', what)])

    def read(self, partition: Any) -> Never:
        """Refuse, as nothing was planned."""
        self.initialOffset()


def _journal_options(options: Mapping[str, str]) -> JournalSourceOptions:
    """Return the options as values.

    Raises:
        ConfigError: one is unknown, or has no such value.
    """
    problems = _unknown(options, _JOURNAL_OPTIONS)
    paths = _list(options.get("path", ""))
    if not paths:
        problems.append(Problem("option path", "is not set: name the folders of journals"))
    fails = options.get("failOnDataLoss", "true").lower()
    if fails not in ("true", "false"):
        problems.append(Problem("option failOnDataLoss", f"expected true or false, found {fails}"))
    limit = _number(options, "maxSegmentsPerTrigger", problems)
    if problems:
        raise ConfigError(problems)
    return JournalSourceOptions(paths=paths, fails_on_data_loss=fails == "true", max_segments=limit)


def _dead_letter_options(options: Mapping[str, str]) -> "DeadLetterOptions":
    """Return the options as values.

    Raises:
        ConfigError: one is unknown, or has no such value; no password is in the message.
    """
    from amqsidecar.pipeline.sources.dead_letters import DeadLetterOptions  # noqa: PLC0415

    problems = _unknown(options, _DEAD_LETTER_OPTIONS)
    queues = _list(options.get("queue", ""))
    if not queues:
        problems.append(Problem("option queue", "is not set: name the dead-letter queues"))
    max_messages = _number(options, "max_messages", problems)
    if problems:
        raise ConfigError(problems)
    return DeadLetterOptions(
        queues=queues,
        sets=tuple(
            f"broker.{name}={options[name]}" for name in ("url", "password_file") if name in options
        ),
        config_file=options.get("config"),
        max_messages=max_messages,
    )


def _unknown(options: Mapping[str, str], known: Sequence[str]) -> list[Problem]:
    names = {name.lower() for name in known}
    what = f"there is no such option; known: {', '.join(known)}"
    return [Problem(f"option {name}", what) for name in options if name.lower() not in names]


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for part in text.split(",") if (item := part.strip()))


def _number(options: Mapping[str, str], name: str, problems: list[Problem]) -> int | None:
    text = options.get(name, "")
    if text and not (text.isascii() and text.isdigit() and int(text) > 0):
        problems.append(Problem(f"option {name}", f"expected a whole number from 1, found {text}"))
        return None
    return int(text) if text else None
