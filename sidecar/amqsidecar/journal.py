"""The journal contract: the history as segments of rows, for analysis outside of the sidecar.

A journal is a folder or an object-store prefix: `stream=<stream>/segment-<first>-<last>.parquet`. A
stream is the history of one store, numbered by segments from 1 without a gap; a file holds one
segment as it was written, or several after compaction. `(stream, segment, position)` names an event
for ever: compaction changes which file it is in and nothing else.

The store fixes a segment's rows before its file is written (`Outbox`), so every write of it has the
same rows: each event is in exactly one segment after any crash.

Compaction writes a file of ten, a hundred or more segments and then removes the files of its
sources. A process that dies in between leaves both; `current_files` says which files count.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import msgspec

from amqsidecar.model.event import AnyEvent

SCHEMA_VERSION: Final = 1
"""Of the columns; stands in each file's metadata under `SCHEMA_VERSION_KEY`."""

SCHEMA_VERSION_KEY: Final = "amqsidecar.schema_version"


class ColumnType(StrEnum):
    """Types of columns, the same in Arrow, Parquet and Spark."""

    STRING = "string"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    TIMESTAMP_MS = "timestamp_ms"
    """Milliseconds since the epoch, UTC."""
    STRING_MAP = "string_map"
    """String to string; keys never null."""


class Column(NamedTuple):
    """One column.

    Attributes:
        field: the event's field that it is made of; None = the writer fills it.
        optional: whether it can be null; columns of other kinds of events always are.
    """

    name: str
    kind: ColumnType
    field: str | None
    optional: bool
    meaning: str


COLUMNS: Final[Sequence[Column]] = (
    Column("stream", ColumnType.STRING, None, False, "the store whose history it is"),
    Column("segment", ColumnType.INT64, None, False, "number in the stream, 1-based, without a gap"),
    Column("position", ColumnType.INT32, None, False, "place of the event in its segment, 0-based"),
    Column("sidecar", ColumnType.STRING, None, False, "`journal.name` of its writer, else the "
                                                      "store's instance"),
    Column("type", ColumnType.STRING, None, False, "tag of the event, such as `received`"),
    Column("at", ColumnType.TIMESTAMP_MS, "at_ms", False, "when the sidecar decided or did it, by its own clock"),
    Column("row_id", ColumnType.INT64, "id", False, "number of the row in the store; 0 = concerns no single message"),
    Column("redelivery_id", ColumnType.STRING, "redelivery_id", False, "what a message keeps over all its deaths; empty = concerns no single message"),
    Column("source", ColumnType.STRING, "source", True, "the dead-letter queue it was taken from"),
    Column("origin", ColumnType.STRING, "origin", True, "where it died, such as queue://orders"),
    Column("destination", ColumnType.STRING, "destination", True, "where it goes, was sent, or would have gone"),
    Column("decided_destination", ColumnType.STRING, "decided_destination", True, "what the broker's rules name, where the sidecar renamed it"),
    Column("cause_group", ColumnType.STRING, "cause_group", True, "the cause without numbers, ids, addresses and dates (`model/cause.py`), with the values of the fields that `intake.group_by` names; null = the broker gives none"),
    Column("cause", ColumnType.STRING, "cause", True, "the broker's text; only with "
                                                      "`journal.cause_text`"),
    Column("expired", ColumnType.BOOL, "expired", True, "whether its time to live ran out"),
    Column("persistent", ColumnType.BOOL, "persistent", True, "whether the producer sent it as persistent"),
    Column("redelivery_count", ColumnType.INT64, "redelivery_count", True, "`received`, `returned`: redeliveries so far, 0-based; others: the count that the re-send carries"),
    Column("message_id", ColumnType.STRING, "message_id", True, "the id that consumers see"),
    Column("size_bytes", ColumnType.INT64, "size_bytes", True, "bytes of the encoded message"),
    Column("properties", ColumnType.STRING_MAP, "properties", True, "application properties that `journal.properties` names, as text"),
    Column("delay_ms", ColumnType.INT64, "delay_ms", True, "delay by the rules, in milliseconds"),
    Column("due_at", ColumnType.TIMESTAMP_MS, "due_at_ms", True, "when it is due"),
    Column("rule", ColumnType.STRING, "rule", True, "the rule that decided, with file and line"),
    Column("expiration_ms", ColumnType.INT64, "expiration_ms", True, "milliseconds it may stay in "
                                                                     "the final dead-letter "
                                                                     "queue; 0 = unlimited"),
    Column("reason", ColumnType.STRING, "reason", True, "why it was parked, held or blocked, or a cycle was in doubt; the text of a marker"),
    Column("actor", ColumnType.STRING, "actor", True, "the person or the event outside that acted"),
    Column("lateness_ms", ColumnType.INT64, "lateness_ms", True, "milliseconds between the due time and the cycle that sent it"),
    Column("retry_at", ColumnType.TIMESTAMP_MS, "retry_at_ms", True, "until when a blocked destination is left alone"),
    Column("cycle", ColumnType.INT64, "cycle", True, "number of the cycle"),
    Column("taken_count", ColumnType.INT64, "taken_count", True, "messages that the cycle took"),
    Column("sent_count", ColumnType.INT64, "sent_count", True, "messages that the cycle sent"),
    Column("verdict", ColumnType.STRING, "verdict", True, "how an interrupted cycle ended: `committed` or `rolled_back`"),
    Column("died_at", ColumnType.TIMESTAMP_MS, "died_at_ms", True, "`at` of the death that a note is of"),
    Column("consumer", ColumnType.STRING, "consumer", True, "name and version of the application that wrote a note; of a proved outcome, on the death before"),
    Column("outcome", ColumnType.STRING, "outcome", True, "the proved outcome of a re-send: `consumed`, or `queued` (it lies in its queue)"),
    Column("former_group", ColumnType.STRING, "former_group", True, "the group that it was in before `cause_group`: by a note, or as a part of it"),
)  # fmt: skip


ADDED: Final = frozenset({"died_at", "consumer", "outcome", "former_group"})
"""Columns that journals of earlier programs lack: null."""


class SegmentFile(NamedTuple):
    """A file of a stream, by the first and the last segment in it."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """Its name in the folder of its stream."""
        return f"segment-{self.first}-{self.last}.parquet"


MESSAGES: Final = "messages-"
"""Begins the names of files of exported messages, which are in the same folder as segments."""

_FILE_NAME: Final = re.compile(r"segment-([1-9][0-9]{0,17})-([1-9][0-9]{0,17})\.parquet")
_STREAM_FOLDER: Final = re.compile(r"stream=([A-Za-z0-9_-]+)")


def stream_folder(stream: str) -> str:
    """Return the name of a stream's folder in the journal."""
    return f"stream={stream}"


def stream_of(folder_name: str) -> str | None:
    """Return the stream that a folder of the journal is of; None = it is none of a stream."""
    match = _STREAM_FOLDER.fullmatch(folder_name)
    return None if match is None else match[1]


def segment_file(name: str) -> SegmentFile | None:
    """Parse the name of a file; None = it is no file of segments."""
    match = _FILE_NAME.fullmatch(name)
    if match is None or int(match[1]) > int(match[2]):
        return None
    return SegmentFile(int(match[1]), int(match[2]))


def current_files(names: Iterable[str]) -> list[SegmentFile]:
    """Return the files of one stream that count, by segment; each segment is in one of them.

    Of two files the one whose range holds the other's counts: it was made of it. Names that are
    none of segment files are left out.

    Raises:
        ValueError: two ranges overlap and none holds the other, which compaction never leaves.

    Example:
        >>> [file.name for file in current_files(["segment-2-2.parquet", "segment-1-10.parquet"])]
        ['segment-1-10.parquet']
    """
    found = {file for name in names if (file := segment_file(name)) is not None}
    current: list[SegmentFile] = []
    for file in sorted(found, key=lambda file: (file.first, -file.last)):
        if not current or file.first > current[-1].last:
            current.append(file)
        elif file.last > current[-1].last:
            raise ValueError(
                f"{current[-1].name} and {file.name} overlap, and none holds the other"
            )
    return current


def version_problem(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """Return why a Parquet file with these metadata is not read; None = it is of this version."""
    version = (metadata or {}).get(SCHEMA_VERSION_KEY.encode())
    if version is None:
        return f"is not of this program: its metadata lack {SCHEMA_VERSION_KEY}; move it away"
    if version != str(SCHEMA_VERSION).encode():
        return (
            f"has columns of version {version.decode(errors='replace')}, and this amqsidecar knows "
            f"version {SCHEMA_VERSION} only: read it with a newer one"
        )
    return None


def gaps(files: Sequence[SegmentFile]) -> list[tuple[int, int]]:
    """Return the first and last number of each run of segments missing between current files."""
    return [
        (before.last + 1, after.first - 1)
        for before, after in pairwise(files)
        if before.last + 1 < after.first
    ]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a segment, fixed before its file is written.

    Attributes:
        stream: letters, digits, `_` and `-`.
        number: 1-based, without a gap.
        event_count: how many events, at least one.
    """

    stream: str
    number: int
    event_count: int


class OutboxLag(msgspec.Struct, frozen=True, kw_only=True):
    """The events that are not in the journal yet.

    Attributes:
        events: how many events of finished cycles and actions have no written segment.
        oldest_at_ms: the time of the oldest of them; None = there is none.
    """

    events: int
    oldest_at_ms: int | None


class Outbox(Protocol):
    """The side of a store that the journal is written from; it keeps events until written.

    Several processes may drain one store: each writes a segment with the same content.

    A restored backup begins a new stream when its uid is renewed, after the segment that it had
    planned, or when a segment turns out to have other content (`plan_anew`). So numbers are never
    reused for other events. The events that a lost later state had written stay in the old stream:
    they happened, too. Only events that were in the backup without a segment may be in both
    streams.
    """

    def keep_for_journal(self, is_on: bool) -> None:
        """From now on the history forgets nothing that is not in a written segment, or no longer.

        Durable, and kept by all processes. Events of a planned segment are never forgotten before
        it is written: it may be in the journal already.
        """
        ...

    def plan_segment(self, max_events: int) -> Segment | None:
        """Return the first segment that is not written yet; plan one if there is none.

        Durable before it returns. Events of unfinished cycles are left for a later segment. A
        segment is whole blocks of events, at least one, so that one may hold more than
        `max_events`.

        Returns:
            None = there are no events to write.
        """
        ...

    def segment_events(self, segment: Segment) -> Iterator[Sequence[AnyEvent]]:
        """Yield the events of a planned or kept segment block by block, always in the same order.

        Raises:
            StoreUnavailable: some of them are not kept any more.
        """
        ...

    def segment_written(self, segment: Segment) -> None:
        """Its file is there for good. If the process dies before, it is written again, the same."""
        ...

    def plan_anew(self, segment: Segment) -> None:
        """Begin a new stream with the events of the planned segment.

        For a journal that has other events under its number: a lost later state of this store wrote
        them, before it was noticed that this one is of the past. Safe to call again.
        """
        ...

    def written_segments(self) -> Sequence[Segment]:
        """Return the written segments whose events are all still in the store."""
        ...

    def outbox_lag(self) -> OutboxLag:
        """Return the events that are not written yet; costs no scan of the history."""
        ...
