"""Written, compacted, verified, forgotten, exported: real files out of a real store."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from amqsidecar.cli.main import run_command_line
from amqsidecar.errors import JournalError
from amqsidecar.journal import ADDED, SCHEMA_VERSION_KEY, Segment, SegmentFile
from amqsidecar.journals.compact import Compacted, compact
from amqsidecar.journals.export import ExportFormat, export
from amqsidecar.journals.folder import Folder, LocalFolder
from amqsidecar.journals.parquet import opened
from amqsidecar.journals.schema import SCHEMA
from amqsidecar.journals.verify import JournalFacts, verify_against, verify_files
from amqsidecar.journals.writer import JournalWriter, files_of
from amqsidecar.model.event import AnyEvent, Received
from support.histories.journal_rows import AT_MS, KINDS, filled, rows_in
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

DAY_MS = 86_400_000


class Journaled:
    """A store with its journal; each segment is one block of events."""

    def __init__(self, folder: Path) -> None:
        self.folder: Folder = LocalFolder(folder / "journal", "test", lambda: None)
        self.store = UnsyncedStore(folder / "schedule.db", clock=VirtualClock())
        self.store.open()
        self.writer = JournalWriter(self.folder, sidecar="test", cause_text=False)
        self.events: list[AnyEvent] = []

    @property
    def stream(self) -> str:
        (stream,) = {segment.stream for segment in self.store.written_segments()}
        return stream

    def add(self, *numbers: int) -> None:
        """Write blocks of three events, and a segment of each."""
        for number in numbers:
            self.write([filled(KINDS[(number + n) % len(KINDS)], number) for n in range(3)])

    def write(self, block: list[AnyEvent]) -> None:
        """Write a block of events, and a segment of it."""
        with self.store.transaction() as transaction:
            transaction.record(block)
        self.events += block
        segment = self.store.plan_segment(1)
        assert segment is not None
        assert self.writer.write(segment, self.store.segment_events(segment)) > 0
        self.store.segment_written(segment)

    def path(self, first: int, last: int) -> Path:
        return Path(self.folder.path) / f"stream={self.stream}" / SegmentFile(first, last).name

    def verify(self) -> JournalFacts:
        return verify_against(self.folder, self.store, keeps_all=True)

    def names(self) -> list[str]:
        return [file.name for file in files_of(self.folder, self.stream)]


@pytest.fixture
def journaled(tmp_path: Path) -> Journaled:
    return Journaled(tmp_path)


def ranges(journaled: Journaled) -> list[tuple[int, int]]:
    return [(file[0], file[1]) for file in files_of(journaled.folder, journaled.stream)]


# --- writing ----------------------------------------------------------------------------------


def test_a_segment_is_written_once_whoever_tries_again(journaled: Journaled) -> None:
    journaled.add(1)
    (segment,) = journaled.store.written_segments()
    before = journaled.path(1, 1).read_bytes()
    other = JournalWriter(journaled.folder, sidecar="another", cause_text=True)
    assert other.write(segment, journaled.store.segment_events(segment)) == 0
    assert journaled.path(1, 1).read_bytes() == before


def test_a_segment_that_was_compacted_meanwhile_is_not_written_again(journaled: Journaled) -> None:
    journaled.add(*range(10))
    compact(journaled.folder, 1_000)
    segment = journaled.store.written_segments()[3]
    assert journaled.writer.write(segment, journaled.store.segment_events(segment)) == 0
    assert ranges(journaled) == [(1, 10)]


def test_other_events_under_the_same_number_are_never_written_over(journaled: Journaled) -> None:
    journaled.add(1)
    (segment,) = journaled.store.written_segments()
    before = journaled.path(1, 1).read_bytes()
    others = [[filled(kind, 9) for kind in KINDS[:3]]]
    with pytest.raises(JournalError, match=r"segment-1-1\.parquet: has other events of segment 1"):
        journaled.writer.write(segment, others)
    assert journaled.path(1, 1).read_bytes() == before


def test_a_segment_with_other_events_than_planned_is_not_written(journaled: Journaled) -> None:
    segment = Segment(stream="s", number=1, event_count=2)
    with pytest.raises(JournalError, match="was planned with 2 events, the store has 1"):
        journaled.writer.write(segment, [[filled(KINDS[0])]])
    assert journaled.folder.names("s") == []


def test_a_file_describes_its_content_for_spark_and_people(journaled: Journaled) -> None:
    journaled.add(1)
    metadata = pq.read_metadata(journaled.path(1, 1))
    assert metadata.metadata[SCHEMA_VERSION_KEY.encode()] == b"1"
    for column in ("segment", "at"):
        statistics = metadata.row_group(0).column(SCHEMA.get_field_index(column)).statistics
        assert statistics.has_min_max
    assert metadata.row_group(0).column(0).compression == "ZSTD"


# --- compaction -------------------------------------------------------------------------------


def test_tens_of_segments_are_merged_and_nothing_else_changes(journaled: Journaled) -> None:
    journaled.add(*range(112))
    before = rows_in(journaled.folder)
    done = compact(journaled.folder, 10**6)
    assert ranges(journaled) == [(1, 100), (101, 110), (111, 111), (112, 112)]
    assert done == Compacted(merged=120, into=12, removed=120)
    assert rows_in(journaled.folder) == before
    assert journaled.folder.names(journaled.stream) == sorted(journaled.names())
    assert journaled.verify().faults == []
    assert compact(journaled.folder, 10**6) == Compacted()


def test_files_of_earlier_programs_lack_columns_and_count_all_the_same(
    journaled: Journaled,
) -> None:
    journaled.add(*range(10))
    before = rows_in(journaled.folder)
    for number in range(1, 6):
        path = journaled.path(number, number)
        earlier = pq.read_table(path, partitioning=None).drop_columns(sorted(ADDED))
        pq.write_table(earlier, path, write_page_checksum=True)
    assert journaled.verify().faults == []
    compact(journaled.folder, 10**6)
    assert ranges(journaled) == [(1, 10)]
    nothing = dict.fromkeys(ADDED)
    assert rows_in(journaled.folder) == [
        row | nothing if row["segment"] <= 5 else row for row in before
    ]


def test_a_merged_file_has_a_bounded_number_of_events(journaled: Journaled) -> None:
    journaled.add(*range(100))
    compact(journaled.folder, 299)
    assert ranges(journaled) == [(first, first + 9) for first in range(1, 101, 10)]
    compact(journaled.folder, 300)
    assert ranges(journaled) == [(1, 100)]


def test_what_a_larger_file_holds_is_removed_by_the_next_compaction(journaled: Journaled) -> None:
    journaled.add(*range(10))
    left = journaled.path(4, 4)
    content = left.read_bytes()
    compact(journaled.folder, 1_000)
    left.write_bytes(content)
    facts = journaled.verify()
    assert facts.faults == []
    assert facts.compared == 30
    assert [one for one in facts.remarks if "segment-4-4" in one]
    assert compact(journaled.folder, 1_000) == Compacted(removed=1)
    assert not left.exists()


def test_a_damaged_file_is_not_merged_away(journaled: Journaled) -> None:
    journaled.add(*range(10))
    path = journaled.path(5, 5)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(JournalError, match=r"segment-5-5\.parquet: is torn"):
        compact(journaled.folder, 1_000)
    assert len(journaled.names()) == 10


# --- verification -----------------------------------------------------------------------------


def test_a_whole_journal_has_no_faults(journaled: Journaled) -> None:
    journaled.add(*range(12))
    facts = journaled.verify()
    assert (facts.faults, facts.remarks, facts.compared) == ([], [], 36)
    (stream,) = facts.streams
    assert (stream.files, stream.first, stream.last) == (12, 1, 12)
    assert rows_in(journaled.folder)[-1]["at"] == journaled.events[-1].at_ms


def test_what_is_not_written_yet_is_reported(journaled: Journaled) -> None:
    journaled.add(1)
    with journaled.store.transaction() as transaction:
        transaction.record([filled(KINDS[0])])
    facts = journaled.verify()
    assert facts.faults == []
    assert facts.remarks == ["1 events of the store are not written yet"]


Harm = Callable[[Journaled], None]


def _removed(segment: int) -> Harm:
    return lambda journaled: journaled.path(segment, segment).unlink()


def _rewritten(change: Callable[[pa.Table], pa.Table]) -> Harm:
    def harm(journaled: Journaled) -> None:
        path = journaled.path(2, 2)
        pq.write_table(change(pq.read_table(path, partitioning=None)), path)

    return harm


def _torn(journaled: Journaled) -> None:
    path = journaled.path(2, 2)
    path.write_bytes(path.read_bytes()[:-9])


def _bit_flipped(journaled: Journaled) -> None:
    path = journaled.path(2, 2)
    content = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path).row_group(0).column(SCHEMA.get_field_index("redelivery_id"))
    content[metadata.data_page_offset + metadata.total_compressed_size - 3] ^= 1
    path.write_bytes(content)


def _other_rows(table: pa.Table) -> pa.Table:
    index = table.column_names.index("redelivery_id")
    return table.set_column(index, SCHEMA.field(index), pa.array(["x"] * 3, pa.string()))


def _copied(journaled: Journaled) -> None:
    journaled.path(4, 4).write_bytes(journaled.path(2, 2).read_bytes())


def _overlapping(journaled: Journaled) -> None:
    content = journaled.path(2, 2).read_bytes()
    journaled.path(1, 2).write_bytes(content)
    journaled.path(2, 3).write_bytes(content)


def _stray(journaled: Journaled) -> None:
    journaled.path(2, 2).with_name("notes.txt").write_text("x")


def _stray_above(journaled: Journaled) -> None:
    (Path(journaled.folder.path) / "notes.txt").write_text("x")


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (_removed(2), "segment 2 is missing"),
        (_removed(3), "segment 3 is missing, but the store recorded it as written"),
        (_removed(1), "segments 1 to 1 are missing"),
        (_torn, "segment-2-2.parquet: is torn or no Parquet file"),
        (_bit_flipped, "segment-2-2.parquet: is torn or no Parquet file"),
        (
            _rewritten(lambda _: pa.table({"a": [1]})),
            "segment-2-2.parquet: is not of this program: its metadata lack "
            "amqsidecar.schema_version",
        ),
        (
            _rewritten(lambda one: one.replace_schema_metadata({SCHEMA_VERSION_KEY: "2"})),
            "segment-2-2.parquet: has columns of version 2, and this amqsidecar knows",
        ),
        (
            _rewritten(_other_rows),
            "segment-2-2.parquet: events of segment 2 differ from the store's",
        ),
        (_rewritten(lambda one: one.slice(0, 2)), "segment 2 has 2 events, the store has 3"),
        (
            _rewritten(lambda one: pa.concat_tables([one, one])),
            "segment-2-2.parquet: rows are missing, doubled or out of order",
        ),
        (_copied, "segment-4-4.parquet: does not have the segments that its name gives"),
        (_overlapping, "segment-1-2.parquet and segment-2-3.parquet overlap"),
        (_stray, "notes.txt: does not belong to a journal"),
        (_stray_above, "notes.txt: does not belong to a journal"),
    ],
)
def test_what_is_wrong_is_reported_with_its_file(
    journaled: Journaled, harm: Harm, fault: str
) -> None:
    journaled.add(1, 2, 3)
    harm(journaled)
    assert [one for one in journaled.verify().faults if fault in one]


def test_without_a_store_the_files_are_held_against_each_other(journaled: Journaled) -> None:
    journaled.add(1, 2, 3)
    assert verify_files(journaled.folder).faults == []
    _removed(2)(journaled)
    (fault,) = verify_files(journaled.folder).faults
    assert fault == f"stream={journaled.stream}: segment 2 is missing"


# --- retention --------------------------------------------------------------------------------


def test_files_are_forgotten_when_all_their_events_are_too_old(journaled: Journaled) -> None:
    journaled.add(1, 2, 3)
    newest = max(event.at_ms for event in journaled.events[3:6])
    assert journaled.writer.forget(AT_MS) == 0
    assert journaled.writer.forget(newest) == 1
    assert ranges(journaled) == [(2, 2), (3, 3)]
    assert verify_against(journaled.folder, journaled.store, keeps_all=False).faults == []
    assert journaled.writer.forget(newest + 1) == 1
    assert journaled.writer.forget(newest + DAY_MS) == 1


# --- export -----------------------------------------------------------------------------------


def exported(journaled: Journaled, form: ExportFormat, *span: int | None) -> bytes:
    sink = io.BytesIO()
    export(journaled.folder, form, sink, *(span or (None, None)))
    return sink.getvalue()


def test_json_lines_have_what_each_event_says(journaled: Journaled) -> None:
    journaled.add(*range(16))
    lines = [json.loads(line) for line in exported(journaled, ExportFormat.JSON).splitlines()]
    assert len(lines) == 48
    received = next(line for line in lines if line["type"] == "received")
    assert received["properties"]["tenant"].startswith("t")
    assert received["at"].startswith("2023-11-14T22:")
    assert received["at"].endswith("Z")
    assert "due_at" not in received


def test_csv_has_a_column_for_each(journaled: Journaled) -> None:
    journaled.add(*range(16))
    text = exported(journaled, ExportFormat.CSV).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == SCHEMA.names
    assert [row["redelivery_id"] for row in rows] == [one.redelivery_id for one in journaled.events]
    received = next(row for row in rows if row["type"] == "received")
    assert json.loads(received["properties"])["empty"] == ""


def test_no_csv_cell_is_a_formula_or_acts_on_a_terminal(journaled: Journaled) -> None:
    received = replace(
        filled(Received), redelivery_id=" =HYPERLINK(0)", message_id="a\x1b[2J\x9b2J\u202e"
    )
    journaled.write([received])
    (row,) = csv.DictReader(io.StringIO(exported(journaled, ExportFormat.CSV).decode()))
    assert row["redelivery_id"] == "' =HYPERLINK(0)"
    assert row["message_id"] == r"a\x1b[2J\x9b2J\u202e"


def test_a_span_of_time_is_cut_out(journaled: Journaled) -> None:
    journaled.add(1, 2, 3)
    times = sorted(event.at_ms for event in journaled.events)
    since, until = times[2], times[7]
    table = pq.read_table(pa.BufferReader(exported(journaled, ExportFormat.PARQUET, since, until)))
    expected = [event.redelivery_id for event in journaled.events if since <= event.at_ms < until]
    assert table["redelivery_id"].to_pylist() == expected
    assert 0 < len(expected) < 9


def test_a_damaged_file_ends_an_export(journaled: Journaled) -> None:
    journaled.add(1, 2)
    _torn(journaled)
    with pytest.raises(JournalError, match=r"segment-2-2\.parquet: is torn"):
        exported(journaled, ExportFormat.JSON)


def test_an_opened_file_is_closed_again(journaled: Journaled) -> None:
    journaled.add(1)
    opens = list[BinaryIO]()
    real = journaled.folder.open

    def counted(stream: str, name: str) -> BinaryIO:
        opens.append(real(stream, name))
        return opens[-1]

    journaled.folder.open = counted  # type: ignore[method-assign]
    with opened(journaled.folder, journaled.stream, SegmentFile(1, 1)):
        pass
    assert [file.closed for file in opens] == [True]


def test_a_folder_without_segments_is_not_called_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written yet, or the path has a slip."""
    assert run_command_line(["journal", "verify", "--path", str(tmp_path / "slip")]) == 0
    told = capsys.readouterr()
    assert told.out == "nothing to verify there\n"
    assert "there are no segments" in told.err
