"""The service writes its journal when it is due, and goes on when it can't."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event as Flag

import pytest

from amqsidecar.config.load import load_config
from amqsidecar.errors import ConfigError, JournalError, StoreUnavailable
from amqsidecar.journal import Segment
from amqsidecar.journals.folder import LocalFolder
from amqsidecar.journals.verify import verify_against
from amqsidecar.journals.writer import JournalWriter
from amqsidecar.model import row_changes
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.operation import Action, Operation, Selection
from amqsidecar.model.schedule import Recall, RowFilter, RowState, RowView
from amqsidecar.runtime.journaling import FORGET_EVERY_S, Journaling
from amqsidecar.runtime.worker import KeptSchedule
from amqsidecar.telemetry.metrics import Metrics
from amqsidecar.wiring.app import run_service
from support.histories.journal_rows import rows_in
from support.stores.newer import newer_operation
from support.stores.opened import opened
from support.stores.rows import take_rows, taken_row, took
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock
from support.waiting import eventually

SEGMENT_EVENTS = 10
SEGMENT_MS = 60_000
KEEP_MS = 3_600_000


class Files:
    """Remembers what was written; fails as often as the test says."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.events: list[AnyEvent] = []
        self.failures = 0
        self.forgot: list[int] = []
        self.messages: list[tuple[int, bytes]] = []

    def write_messages(
        self, folder: str, operation: int, messages: Sequence[tuple[RowView, bytes]]
    ) -> int:
        assert folder
        assert operation == 1
        if self.failures:
            self.failures -= 1
            raise JournalError("journal/x can't be written: No space left on device")
        self.messages += [(row.id, message) for row, message in messages]
        return 100

    def write(self, segment: Segment, blocks: Iterable[Sequence[AnyEvent]]) -> int:
        if self.failures:
            self.failures -= 1
            raise JournalError("journal/x can't be written: No space left on device")
        self.segments.append(segment)
        self.events += [event for block in blocks for event in block]
        return 100

    def forget(self, before_ms: int) -> int:
        self.forgot.append(before_ms)
        return 0


class Stage:
    """A store, its journal, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.path = folder / "schedule.db"
        self.store = self.open_schedule()
        self.files = Files()
        self.metrics = Metrics()
        self.journaling = Journaling(
            schedule=KeptSchedule(self.open_schedule),
            writer=self.files,
            clock=self.clock,
            metrics=self.metrics,
            segment_events=SEGMENT_EVENTS,
            segment_ms=SEGMENT_MS,
            keep_ms=KEEP_MS,
        )

    def open_schedule(self) -> UnsyncedStore:
        return opened(UnsyncedStore(self.path, clock=self.clock))

    def happened(self, events: int) -> None:
        now_ms = self.clock.now_ms()
        with self.store.transaction() as transaction:
            transaction.record(
                [took(taken_row(number, received_at_ms=now_ms)) for number in range(events)]
            )

    def value(self, name: str) -> float:
        return self.metrics.value(f"amqsidecar_journal_{name}")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.journaling.close()
    stage.store.close()


def test_a_store_that_could_not_be_opened_is_opened_later(stage: Stage) -> None:
    stage.happened(SEGMENT_EVENTS)
    path, stage.path = stage.path, stage.path.parent / "hidden" / "x.db"
    with pytest.raises(StoreUnavailable):
        stage.journaling.look()
    stage.path = path
    stage.journaling.look()
    assert len(stage.files.segments) == 1


def test_exported_messages_are_discarded_once_they_are_written(stage: Stage) -> None:
    """Also what was taken out of its queue for it; an undo puts both back."""
    operation = stage.store.add_operation(
        Operation(
            id=0,
            action=Action.DISCARD,
            selection=Selection(),
            actor="retention",
            reason="",
            created_at_ms=0,
            until_id=0,
            exports=True,
        )
    )
    taken = {"recall": Recall.DROP, "recall_operation": operation.id, "final_queue": "queue://DLQ"}
    with stage.store.transaction() as tx:
        rows = [
            taken_row(1, state=RowState.PARKED, message=b"parked"),
            taken_row(2, state=RowState.EXHAUSTED, message=b"lay", **taken),
        ]
        tx.record_cycle(1, rows, [], list[AnyEvent]())
        tx.finish_cycle(1)
    exports = row_changes.discard(1_000, "retention", operation.id, exports=True)
    assert stage.store.change(RowFilter(ids=(1,)), exports) == 1
    stage.files.failures = 1
    with pytest.raises(JournalError):
        stage.journaling.look()
    assert len(stage.store.list_rows(RowFilter(), 9)) == 2
    stage.journaling.look()
    assert stage.files.messages == [(1, b"parked"), (2, b"lay")]
    assert stage.store.list_rows(RowFilter(), 9) == []
    assert stage.store.count_discarded(operation.id) == 2


def test_messages_that_a_newer_version_exports_are_left_to_it(stage: Stage) -> None:
    wanted = newer_operation(action=Action.DISCARD, exports=True, needs_third=True)
    operation = stage.store.add_operation(wanted)
    take_rows(stage.store, 1, [taken_row(1, state=RowState.PARKED)])
    exports = row_changes.discard(1_000, "retention", operation.id, exports=True)
    assert stage.store.change(RowFilter(ids=(1,)), exports) == 1
    stage.journaling.look()
    assert stage.files.messages == []
    assert len(stage.store.list_rows(RowFilter(), 9)) == 1


def test_a_segment_is_written_when_there_are_enough_events(stage: Stage) -> None:
    stage.happened(SEGMENT_EVENTS - 1)
    stage.journaling.look()
    assert stage.files.segments == []
    assert stage.value("waiting_events") == SEGMENT_EVENTS - 1
    stage.happened(1)
    stage.journaling.look()
    assert [segment.event_count for segment in stage.files.segments] == [SEGMENT_EVENTS]
    assert stage.value("waiting_events") == 0
    assert stage.value("segments_total") == 1
    assert stage.value("written_bytes_total") == 100


def test_a_segment_is_written_when_its_oldest_event_is_old_enough(stage: Stage) -> None:
    stage.happened(1)
    stage.clock.advance(SEGMENT_MS - 1)
    stage.journaling.look()
    assert stage.files.segments == []
    assert stage.value("lag_seconds") == (SEGMENT_MS - 1) / 1000
    stage.clock.advance(1)
    stage.journaling.look()
    assert len(stage.files.segments) == 1
    assert stage.value("lag_seconds") == 0


def test_a_clock_that_was_set_back_does_not_stop_the_journal(stage: Stage) -> None:
    stage.clock.jump(10**9)
    stage.happened(1)
    stage.clock.jump(-(10**9))
    stage.journaling.look()
    assert len(stage.files.segments) == 1


def test_all_that_waits_is_written_segment_by_segment(stage: Stage) -> None:
    for _ in range(5):
        stage.happened(SEGMENT_EVENTS)
    stage.journaling.look()
    assert [segment.number for segment in stage.files.segments] == [1, 2, 3, 4, 5]
    assert len(stage.files.events) == 5 * SEGMENT_EVENTS


def test_what_could_not_be_written_is_written_later_under_the_same_number(stage: Stage) -> None:
    stage.happened(SEGMENT_EVENTS)
    stage.files.failures = 2
    for _ in range(2):
        with pytest.raises(JournalError, match="No space left"):
            stage.journaling.look()
    stage.happened(SEGMENT_EVENTS)
    stage.journaling.look()
    assert [segment.number for segment in stage.files.segments] == [1, 2]
    assert [segment.event_count for segment in stage.files.segments] == [10, 10]


def test_a_store_of_the_past_begins_a_new_stream(stage: Stage, tmp_path: Path) -> None:
    """A backup is restored, and other things happen than did after it; nothing is written over.

    It is drained before its token could tell that it is of the past.
    """
    folder = LocalFolder(tmp_path / "journal", "test", lambda: None)
    stage.files.write = JournalWriter(folder, sidecar="s", cause_text=False).write  # type: ignore[method-assign]
    backup = stage.path.with_name("backup.db")

    def happen() -> int:
        """Return when."""
        stage.clock.advance(1000)
        stage.happened(SEGMENT_EVENTS)
        stage.journaling.look()
        stage.journaling.look()
        return stage.clock.now_ms()

    def replace(path: Path, by: Path) -> None:
        stage.journaling.close()
        stage.store.close()
        shutil.copy(by, path)
        stage.store.open()

    kept = happen()
    replace(backup, by=stage.path)
    lost = happen()
    replace(stage.path, by=backup)
    new = [happen(), happen()]

    seen = {(row["at"], row["segment"], row["stream"]) for row in rows_in(folder)}
    at, streams = {(at, segment) for at, segment, _ in seen}, {at: one for at, _, one in seen}
    assert at == {(kept, 1), (lost, 2), (new[0], 1), (new[1], 2)}
    assert streams[kept] == streams[lost] != streams[new[0]] == streams[new[1]]
    facts = verify_against(folder, stage.store, keeps_all=True)
    assert (facts.faults, facts.compared) == ([], 3 * SEGMENT_EVENTS)


def test_the_thread_counts_a_failure_and_tries_again(
    stage: Stage,
) -> None:
    stage.journaling.worker.retry_s = (0.01,)
    stage.happened(SEGMENT_EVENTS)
    stage.files.failures = 3
    with stage.journaling.worker:
        eventually(lambda: stage.files.segments, what="the segment is written")
    assert stage.value("failures_total") == 3
    assert [segment.number for segment in stage.files.segments] == [1]


def test_a_write_that_hangs_does_not_keep_the_service_from_ending(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.journaling.worker.stop_s = 0.1
    hangs, ends = Flag(), Flag()

    def hang(*_: object) -> int:
        hangs.set()
        ends.wait(30)
        return 0

    monkeypatch.setattr(stage.files, "write", hang)
    stage.happened(SEGMENT_EVENTS)
    with stage.journaling.worker:
        assert hangs.wait(30)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "journal"]
    ends.set()
    thread.join(30)
    assert not thread.is_alive()


def test_old_files_are_looked_for_once_an_hour(stage: Stage) -> None:
    stage.journaling.look()
    stage.clock.advance(1000)
    stage.journaling.look()
    stage.clock.advance(int(FORGET_EVERY_S * 1000))
    stage.journaling.look()
    assert stage.files.forgot == [
        1_000_000 - KEEP_MS,
        stage.clock.now_ms() - KEEP_MS,
    ]


def test_without_the_extra_the_service_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in [name for name in sys.modules if name.startswith("amqsidecar.journals")]:
        monkeypatch.delitem(sys.modules, name)
    store = f"store.url=sqlite:///{tmp_path / 'schedule.db'}"
    sets = (store, "broker.url=amqp://127.0.0.1:1", f"journal.path={tmp_path}", "http.listen=")
    with pytest.raises(ConfigError, match=r"journal\.path: .*amqsidecar\[journal\]"):
        run_service(load_config(None, sets, {}))


def test_without_a_journal_nothing_of_it_is_imported() -> None:
    code = (
        "import sys, amqsidecar.wiring.app, amqsidecar.cli.journal_command as _;"
        "assert not {'pyarrow', 'fsspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_old_files_are_removed_where_nothing_can_be_written(stage: Stage) -> None:
    """On a full volume their removal is what makes room."""
    stage.happened(SEGMENT_EVENTS)
    stage.clock.advance(KEEP_MS)
    stage.files.failures = 1
    with pytest.raises(JournalError):
        stage.journaling.look()
    assert len(stage.files.forgot) == 1
