"""The job of causes, run over a journal of a test."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from amqsidecar.journal import SegmentFile, stream_folder
from amqsidecar.model.marker import Marker
from amqsidecar.pipeline.causes.causes import CausesOptions, run_causes
from pipeline.journals import write_rows


def run_causes_of(
    spark: SparkSession,
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    markers: tuple[Marker, ...] = (),
) -> None:
    """Write a journal of these rows and run the job over it; its tables are in `out`."""
    write_rows(folder / "journal" / stream_folder("main") / SegmentFile(1, 1).name, rows)
    run_causes(
        spark,
        CausesOptions(
            events=str(folder / "journal"),
            output_folder=str(folder / "out"),
            until_ms=None,
            new_since_ms=None,
            days_before=7,
            examples=3,
            markers=markers,
        ),
    )
