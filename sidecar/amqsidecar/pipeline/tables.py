"""The tables that jobs read and write: one schema each, in one place."""

from collections.abc import Mapping
from typing import Final

import pyarrow
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from amqsidecar.journal import COLUMNS, Column, ColumnType

_TYPES: Final[dict[ColumnType, DataType]] = {
    ColumnType.STRING: StringType(),
    ColumnType.INT32: IntegerType(),
    ColumnType.INT64: LongType(),
    ColumnType.BOOL: BooleanType(),
    ColumnType.TIMESTAMP_MS: TimestampType(),
    ColumnType.STRING_MAP: MapType(StringType(), StringType(), valueContainsNull=False),
}


def _field(column: Column) -> StructField:
    return StructField(
        column.name, _TYPES[column.kind], column.optional, {"comment": column.meaning}
    )


EVENTS: Final = StructType([_field(column) for column in COLUMNS])
"""The history: one row per event, keyed by `(stream, segment, position)`."""

EVENTS_BY_DAY: Final = StructType(
    [*EVENTS, StructField("day", DateType(), True, {"comment": "the UTC day of `at`"})]
)
"""The table that `ingest` writes, divided by `day`."""


_ARROW: Final[Mapping[type[DataType], pyarrow.DataType]] = {
    StringType: pyarrow.string(),
    IntegerType: pyarrow.int32(),
    LongType: pyarrow.int64(),
    DoubleType: pyarrow.float64(),
    BooleanType: pyarrow.bool_(),
    DateType: pyarrow.date32(),
    TimestampType: pyarrow.timestamp("us", tz="UTC"),
}


def arrow_type(kind: DataType) -> pyarrow.DataType:
    """Return the Arrow type of one of our columns, the same with every version of Spark."""
    match kind:
        case MapType():
            value = pyarrow.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
            return pyarrow.map_(arrow_type(kind.keyType), value)
        case _:
            return _ARROW[type(kind)]


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Return a schema as Arrow has it; Spark finds the comments of columns again in its files."""
    whole = {"org.apache.spark.sql.parquet.row.metadata": schema.json()}
    fields = [pyarrow.field(one.name, arrow_type(one.dataType), one.nullable) for one in schema]
    return pyarrow.schema(fields, whole)


def _table(*columns: tuple[str, DataType, str]) -> StructType:
    """Return the schema of a table that a job writes: names, types, meanings."""
    return StructType(
        [StructField(name, kind, True, {"comment": of}) for name, kind, of in columns]
    )


_TEXT, _COUNT, _SHARE, _TIME, _YES = (
    StringType(), LongType(), DoubleType(), TimestampType(), BooleanType(),
)  # fmt: skip

EVERYWHERE: Final = "*"
"""In place of a destination: all of them together."""

DEAD_LETTERS: Final = _table(
    ("source", _TEXT, "the dead-letter queue it lies in"),
    ("position", _COUNT, "place in the queue, 0-based"),
    ("origin", _TEXT, "where it died, such as queue://orders; null = unknown"),
    ("cause", _TEXT, "the broker's words; null = it gives none"),
    ("cause_group", _TEXT, "the cause without numbers, ids, addresses and dates"),
    ("redelivery_id", _TEXT, "its id over all deaths; null = no sidecar re-sent it"),
    ("redelivery_count", _COUNT, "re-sends by a sidecar so far, 0-based"),
    ("message_id", _TEXT, "the id that consumers see"),
    ("size_bytes", _COUNT, "bytes of the encoded message; null = only its past is known"),
    ("persistent", _YES, "whether the producer sent it as persistent"),
    ("expired", _YES, "whether its time to live ran out"),
)
"""Messages in a dead-letter queue now, by `format("amqsidecar")`; never bodies."""

_GROUP: Final = (
    ("origin", _TEXT, "where it died; null = unknown"),
    ("cause_group", _TEXT, "the cause without numbers and ids; null = none, or not in the history"),
)
_RESENDS: Final = (*_GROUP, ("attempt", _COUNT, "number of the re-send, 1-based"))

RECOVERY_OVER_TIME: Final = _table(
    *_GROUP,
    ("begins_at", _TIME, "begin of the UTC day, or of the week: Monday"),
    ("resends", _COUNT, "re-sends in it, of every number, that were observed for a horizon"),
    ("recovered", _COUNT, "of them, those that did not return within the horizon"),
    ("share_recovered", _SHARE, "`recovered` as a share of `resends`"),
    ("low", _SHARE, "lower confidence bound of it"),
    ("high", _SHARE, "upper confidence bound of it"),
)
"""How many re-sends recover, by day or week; those without any re-send are left out."""

_CHANGE: Final = (
    ("begins_at", _TIME, "when the new level likely began; to the hour"),
    ("earliest_at", _TIME, "lower bound of it, with 95 % confidence"),
    ("latest_at", _TIME, "upper bound of it"),
    ("ends_at", _TIME, "when the next level began; null = it goes on"),
)
RECOVERY_CHANGES: Final = _table(
    *_GROUP,
    *_CHANGE,
    ("share_before", _SHARE, "share of the re-sends that recovered, on the level before"),
    ("share_recovered", _SHARE, "... on the new one"),
    ("jump", _SHARE, "difference of the two"),
    ("jump_low", _SHARE, "lower bound of it, with 95 % confidence"),
    ("jump_high", _SHARE, "upper bound of it"),
)
"""When the share of re-sends that recover became another one."""

RECOVERY_BY_ATTEMPT: Final = _table(
    *_RESENDS,
    ("messages", _COUNT, "messages that were re-sent this many times"),
    ("returned", _COUNT, "returned within the horizon"),
    ("returned_later", _COUNT, "returned after the horizon; counts as recovered"),
    ("stayed", _COUNT, "had not returned when the horizon or more had passed"),
    ("proved", _COUNT, "of them, those whose consumption the broker proves"),
    ("open", _COUNT, "had not returned, and less than the horizon was observed"),
    ("share_recovered", _SHARE, "share that does not return within the horizon; null = not known"),
    ("low", _SHARE, "lower confidence bound of it"),
    ("high", _SHARE, "upper confidence bound of it"),
    ("left_truncated", _COUNT, "messages whose death before is not in the history"),
    ("negative_times", _COUNT, "messages that returned before they were re-sent: clocks differ"),
    ("implied_returns", _COUNT, "messages whose return only a later re-send or death proves"),
    ("repeated_resends", _COUNT, "messages that were re-sent again with the same count"),
)
"""How many of the messages that die of a cause recover by their n-th re-send."""

_PROVED: Final = ("proved", _COUNT, "of the recovered, those whose consumption the broker proves")
RECOVERY_BY_CONSUMER: Final = _table(
    *_GROUP,
    ("consumer", _TEXT, "name and version of the application that had failed, by its note"),
    ("resends", _COUNT, "re-sends after its deaths that were observed for a horizon"),
    ("recovered", _COUNT, "of them, those that did not return within the horizon"),
    _PROVED,
    ("share_recovered", _SHARE, "`recovered` as a share of `resends`"),
    ("low", _SHARE, "lower confidence bound of it"),
    ("high", _SHARE, "upper confidence bound of it"),
)
"""How many re-sends recover, by the consumer that had failed."""

RECOVERY_BY_MESSAGE: Final = _table(
    *_GROUP,
    ("attempts", _COUNT, "re-sends so far; 0 = the first death"),
    ("at_risk", _COUNT, "messages that came so far, and are observed so far"),
    ("recovered", _COUNT, "messages that recovered by this re-send"),
    ("ended", _COUNT, "messages given up after it, by the rules or a person"),
    ("waiting", _COUNT, "messages that were observed no further"),
    (
        "share_recovered",
        _SHARE,
        "share of all messages that recovers by at most this many re-sends",
    ),
    ("low", _SHARE, "lower confidence bound of it"),
    ("high", _SHARE, "upper confidence bound of it"),
    ("share_ended", _SHARE, "share of all messages that is given up after at most this many"),
)
"""How many messages recover by at most n re-sends."""

RECOVERY_SUMMARY: Final = _table(
    *_GROUP,
    ("owner", _TEXT, "who is responsible for the group, by `--groups`; null = nobody"),
    ("messages", _COUNT, "messages by their first death"),
    ("recovered", _COUNT, "stayed away for the horizon after a re-send"),
    _PROVED,
    ("exhausted", _COUNT, "the rules said: no more"),
    ("discarded", _COUNT, "the rules said: drop"),
    ("cancelled", _COUNT, "a person gave up"),
    (
        "dead_lettered",
        _COUNT,
        "sent to the final queue; why is not in the history, or a person did",
    ),
    ("redirected", _COUNT, "sent elsewhere by a person, a rule or a verdict; did not come back"),
    ("redirected_to", _TEXT, "where, with the number of messages, most first; null = none"),
    ("waiting", _COUNT, "nothing of this so far"),
    ("too_young", _COUNT, "first died less than the horizon before the end: not judged yet"),
    ("recovery_p50_ms", _COUNT, "from first death to the re-send by which half of all messages, "
     "also of those that never do, have recovered; null = they have not"),
    ("recovery_p90_ms", _COUNT, "... nine tenths of all"),
    ("left_truncated", _COUNT, "first deaths that are not in the history: in no time to recovery"),
    ("negative_times", _COUNT, "ended before they began, by different clocks; counts as at once"),
)  # fmt: skip
"""Outcomes of the messages, counted; without estimates."""

WHATIF_BY_DESTINATION: Final = _table(
    ("policy", _TEXT, "`history`: what really was; `proposal`: what the search found"),
    ("destination", _TEXT, f"where messages died; {EVERYWHERE} = all destinations"),
    ("messages", _COUNT, "messages of history that it is played on"),
    (
        "beyond_reach_messages",
        _COUNT,
        "of them, those whose end lies beyond what history tried; many = there are only bounds",
    ),
    ("is_supported", _YES, "whether failure models explain the history; no = do not rely on it"),
    ("recovered_lower", _COUNT, "of them, how many recover at least, with 90 % confidence"),
    ("recovered", _SHARE, "how many likely recover; null = beyond reach"),
    ("recovered_upper", _COUNT, "how many recover at most"),
    ("share_lower", _SHARE, "`recovered_lower` as a share of `messages`"),
    ("share", _SHARE, "`recovered` as a share of `messages`"),
    ("share_upper", _SHARE, "`recovered_upper` as a share of `messages`"),
    ("resends_lower", _COUNT, "re-sends, at least"),
    ("resends", _SHARE, "re-sends, likely"),
    ("resends_upper", _COUNT, "re-sends, at most"),
    ("recovery_p50_ms", _COUNT, "from first death to recovery: half of those that recover; to 5 %"),
    ("recovery_p90_ms", _COUNT, "... nine tenths of them"),
    ("recovery_p99_ms", _COUNT, "... 99 of 100"),
    ("cut_off_messages", _COUNT, "messages that it would re-send more often than was played"),
)  # fmt: skip
"""The result of each policy, in total and by destination."""


WHATIF_PROPOSALS: Final = _table(
    ("destination", _TEXT, "where messages died"),
    ("initial_redelivery_delay_ms", _COUNT, "Artemis: redelivery-delay"),
    ("back_off_multiplier", _SHARE, "Artemis: redelivery-delay-multiplier"),
    ("maximum_redelivery_delay_ms", _COUNT, "Artemis: max-redelivery-delay"),
    ("maximum_redeliveries", _COUNT, "Artemis: max-delivery-attempts is one more"),
    ("share", _SHARE, "of the messages that die, how many likely recover"),
    ("share_lower", _SHARE, "lower bound of it, with 90 % confidence"),
    ("share_upper", _SHARE, "upper bound of it"),
    ("history_share", _SHARE, "how many recovered in history"),
    ("resends_per_message", _SHARE, "re-sends per message that dies"),
    ("recovery_mean_ms", _SHARE, "time to recovery of those that recover, on average"),
    ("recovery_p90_ms", _SHARE, "... of nine tenths of them"),
    ("is_written", _YES, "whether the proposal holds it: it surely recovers more than history did"),
    ("doubt", _TEXT, "why it is not written, or which models it rests on"),
)
"""The best setting of each destination."""

_CAUSE: Final = (
    "cause_group", _TEXT, "the cause without numbers, ids, addresses, times; similar texts as one",
)  # fmt: skip
_TREND: Final = (
    ("share", _SHARE, "share of all deaths there"),
    ("is_new", _YES, "whether the first is not before `--new-since`; null = the history does not "
     "reach back that far"),
    ("latest_day", _COUNT, "deaths in the latest 24 hours of the history, whole hours of UTC"),
    ("per_day_before", _SHARE, "deaths per day in the days before; null = no whole day is known"),
    ("growth", _SHARE, "`latest_day` / `per_day_before`; null = there were none before"),
)  # fmt: skip

CAUSE_GROUPS: Final = _table(
    _CAUSE,
    ("origin", _TEXT, f"where it died; {EVERYWHERE} = all destinations; null = unknown"),
    ("texts", _COUNT, "texts that were taken as one; 0 = the broker gives no cause"),
    ("origins", _COUNT, "destinations where messages died of it"),
    ("deaths", _COUNT, "dead letters that were taken, first deaths and returns"),
    ("messages", _COUNT, "first deaths among them: messages that came with this cause"),
    ("first_at", _TIME, "the first of them in the history"),
    ("last_at", _TIME, "the last of them"),
    *_TREND,
)
"""The causes of deaths, in total and by destination."""

CAUSE_CHANGES: Final = _table(
    _CAUSE,
    *_CHANGE,
    ("per_day_before", _SHARE, "deaths per day, on the level before"),
    ("per_day", _SHARE, "... on the new one"),
    ("jump", _SHARE, "difference of the two"),
    ("jump_low", _SHARE, "lower bound of it, with 95 % confidence"),
    ("jump_high", _SHARE, "upper bound of it"),
)
"""When a cause began, grew, shrank or ended."""
