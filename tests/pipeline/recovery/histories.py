"""Histories for tests of `recovery`, made of the sidecar's own events."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from amqsidecar.journal import COLUMNS, ColumnType
from amqsidecar.model.event import AnyEvent
from amqsidecar.pipeline.tables import EVENTS
from pipeline.journals import START_MS


def history(spark: SparkSession, streams: Mapping[str, Sequence[AnyEvent]]) -> DataFrame:
    """Return the events as the table `EVENTS`; their times count from `START_MS`."""
    rows = [
        tuple(one for one in row(stream, position, event).values())
        for stream, events in streams.items()
        for position, event in enumerate(events)
    ]
    schema = EVENTS.simpleString().replace("timestamp", "bigint")
    frame = spark.createDataFrame(rows, schema)
    times = [one.name for one in COLUMNS if one.kind is ColumnType.TIMESTAMP_MS]
    return frame.selectExpr(
        *(f"timestamp_millis({name}) AS {name}" if name in times else name for name in EVENTS.names)
    )


def row(stream: str, position: int, event: AnyEvent) -> dict[str, Any]:
    """Return an event as a row of the journal; its cause is its cause group."""
    filled = {
        "stream": stream,
        "segment": 1,
        "position": position,
        "sidecar": stream,
        "type": event.__struct_config__.tag,
        "at": START_MS + event.at_ms,
        "cause_group": getattr(event, "cause", getattr(event, "cause_group", None)),
    }
    return {
        one.name: filled[one.name] if one.name in filled else getattr(event, one.field or "", None)
        for one in COLUMNS
    }
