"""Checks whether a journal is complete: by its files alone, and against its store."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from amqsidecar.errors import JournalError, StoreUnavailable
from amqsidecar.journal import (
    MESSAGES,
    Outbox,
    Segment,
    SegmentFile,
    current_files,
    gaps,
    segment_file,
    stream_folder,
    stream_of,
)
from amqsidecar.journals.columns import table_of
from amqsidecar.journals.folder import Folder
from amqsidecar.journals.parquet import holds, opened, path_of, portions
from amqsidecar.journals.schema import SCHEMA
from amqsidecar.journals.writer import streams_of


class StreamFacts(msgspec.Struct, kw_only=True):
    """The content of the files of one stream.

    Attributes:
        first: number of the first segment; earlier ones were removed, or are missing.
        rows: number of rows, by segment that could be read.
    """

    stream: str
    files: int
    first: int
    last: int
    rows: dict[int, int]


class JournalFacts(msgspec.Struct, kw_only=True):
    """The result of a verification.

    Attributes:
        faults: one line each; empty = nothing is missing and nothing differs.
        remarks: notable facts that are not faults.
        compared: number of events compared with the store's.
    """

    streams: list[StreamFacts]
    faults: list[str]
    remarks: list[str]
    compared: int = 0


def verify_files(folder: Folder) -> JournalFacts:
    """Read every file, and check them against each other."""
    facts = JournalFacts(streams=[], faults=[], remarks=[])
    for name in folder.top_names():
        if stream_of(name) is None:
            facts.faults.append(f"{name}: does not belong to a journal")
    for stream in streams_of(folder):
        _verify_stream(folder, stream, facts)
    if not facts.streams:
        facts.remarks.append(f"{folder.path}: there are no segments")
    return facts


def verify_against(folder: Folder, outbox: Outbox, keeps_all: bool) -> JournalFacts:
    """Verify the files, and compare them with all events that the store still has.

    Args:
        folder: where the journal is.
        keeps_all: whether no old files are ever removed from this journal.
    """
    # Why first: the files read below may lack segments written after this.
    written = outbox.written_segments()
    lag = outbox.outbox_lag()
    facts = verify_files(folder)
    found = {stream.stream: stream for stream in facts.streams}
    for segment in written:
        _compare(folder, segment, found.get(segment.stream), outbox, facts, keeps_all)
    if keeps_all:
        for name in dict.fromkeys(segment.stream for segment in written):
            stream = found.get(name)
            if stream is not None and stream.first > 1:
                facts.faults.append(
                    f"{stream_folder(name)}: segments 1 to {stream.first - 1} are missing"
                )
    if lag.events:
        facts.remarks.append(f"{lag.events} events of the store are not written yet")
    return facts


def _verify_stream(folder: Folder, stream: str, facts: JournalFacts) -> None:
    where = stream_folder(stream)
    names = folder.names(stream)
    for name in names:
        if name.startswith("."):
            facts.remarks.append(f"{where}/{name}: is being written, or a crash left it")
        elif segment_file(name) is None and not name.startswith(MESSAGES):
            facts.faults.append(f"{where}/{name}: does not belong to a journal")
    try:
        files = current_files(names)
    except ValueError as error:
        facts.faults.append(f"{where}: {error}")
        return
    if not files:
        return
    current = {file.name for file in files}
    facts.remarks.extend(
        f"{where}/{name}: is contained in a larger file and is ignored"
        for name in names
        if segment_file(name) is not None and name not in current
    )
    facts.faults.extend(f"{where}: segment {_range(*gap)} missing" for gap in gaps(files))
    rows: dict[int, int] = {}
    for file in files:
        try:
            rows |= _verify_file(folder, stream, file, facts)
        except JournalError as error:
            facts.faults.append(str(error))
    facts.streams.append(
        StreamFacts(
            stream=stream, files=len(files), first=files[0].first, last=files[-1].last, rows=rows
        )
    )


def _verify_file(
    folder: Folder, stream: str, file: SegmentFile, facts: JournalFacts
) -> dict[int, int]:
    """Return the rows of each segment in a file; all columns are read, so that checksums count."""
    path = path_of(stream, file)
    rows: dict[int, int] = {}
    is_foreign, is_in_order = False, True
    with opened(folder, stream, file) as parquet:
        for portion in portions(parquet):
            is_foreign |= pc.unique(portion["stream"]).to_pylist() != [stream]
            is_in_order &= _goes_on(portion, rows)
            for pair in pc.value_counts(portion["segment"]).to_pylist():
                rows[pair["values"]] = rows.get(pair["values"], 0) + pair["counts"]
    if is_foreign:
        facts.faults.append(f"{path}: has rows of another stream")
    if sorted(rows) != list(range(file.first, file.last + 1)):
        facts.faults.append(f"{path}: does not have the segments that its name gives")
    if not is_in_order:
        facts.faults.append(f"{path}: rows are missing, doubled or out of order")
    return rows


def _goes_on(portion: Any, rows: Mapping[int, int]) -> bool:
    """Return whether all segments go on in order, each with the row after those counted so far."""
    pairs = [
        (pair["values"], pair["counts"]) for pair in pc.value_counts(portion["segment"]).to_pylist()
    ]
    numbers = [number for number, _ in pairs]
    expected = {
        "segment": [number for number, count in pairs for _ in range(count)],
        "position": [
            position
            for number, count in pairs
            for position in range(rows.get(number, 0), rows.get(number, 0) + count)
        ],
    }
    return (
        numbers == sorted(numbers)
        and max(rows, default=0) <= numbers[0]
        and all(
            portion[name].combine_chunks().equals(pa.array(values, SCHEMA.field(name).type))
            for name, values in expected.items()
        )
    )


def _compare(
    folder: Folder,
    segment: Segment,
    stream: StreamFacts | None,
    outbox: Outbox,
    facts: JournalFacts,
    keeps_all: bool,
) -> None:
    where = f"{stream_folder(segment.stream)}: segment {segment.number}"
    if stream is None or segment.number > stream.last:
        facts.faults.append(f"{where} is missing, but the store recorded it as written")
        return
    if segment.number not in stream.rows:
        # A gap or a torn file, which the files themselves show; or removed for its age.
        if segment.number < stream.first and not keeps_all:
            facts.remarks.append(f"{where} was removed, the store still has it")
        return
    if stream.rows[segment.number] != segment.event_count:
        facts.faults.append(
            f"{where} has {stream.rows[segment.number]} events, the store has {segment.event_count}"
        )
        return
    try:
        rows = table_of(segment, outbox.segment_events(segment), sidecar="", cause_text=False)
    except StoreUnavailable:
        facts.remarks.append(f"{where}: the store has removed it meanwhile")
        return
    for difference in _differences(folder, segment, rows):
        facts.faults.append(difference)
    facts.compared += segment.event_count


def _differences(folder: Folder, segment: Segment, rows: Any) -> Iterator[str]:
    for file in _files_with(folder, segment):
        with opened(folder, segment.stream, file) as parquet:
            if not holds(parquet, segment.number, rows):
                yield (
                    f"{path_of(segment.stream, file)}: events of segment {segment.number} differ "
                    "from the store's"
                )


def _files_with(folder: Folder, segment: Segment) -> Sequence[SegmentFile]:
    files = current_files(folder.names(segment.stream))
    return [file for file in files if file.first <= segment.number <= file.last]


def _range(first: int, last: int) -> str:
    return f"{first} is" if first == last else f"{first} to {last} are"
