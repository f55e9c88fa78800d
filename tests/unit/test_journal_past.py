"""A store that was restored from a backup goes on with its journal, and writes over nothing."""

import shutil
from pathlib import Path

from amqsidecar.journals.folder import LocalFolder
from amqsidecar.journals.writer import JournalWriter
from amqsidecar.runtime.journaling import Journaling
from amqsidecar.telemetry.metrics import Metrics
from support.journal_rows import rows_in
from support.schedule_rows import taken_row, took
from support.unsynced_store import UnsyncedStore
from support.virtual_clock import VirtualClock


def test_what_a_lost_state_wrote_stays_beside_what_the_restored_one_writes(tmp_path: Path) -> None:
    """It is drained before its token could tell that it is of the past."""
    path, backup = tmp_path / "schedule.db", tmp_path / "backup.db"
    clock, folder = VirtualClock(), LocalFolder(tmp_path / "journal", "test", lambda: None)
    journaling = Journaling(
        make_store=lambda: UnsyncedStore(path, clock=clock),
        writer=JournalWriter(folder, sidecar="test", cause_text=False),
        clock=clock,
        gauges=Metrics(),
        segment_events=1,
        segment_ms=1,
        keep_ms=0,
    )

    def happen(number: int) -> None:
        store = UnsyncedStore(path, clock=clock)
        store.open()
        with store.transaction() as tx:
            tx.record([took(taken_row(number))])
        store.close()

    happen(1)
    journaling.look()
    journaling.close()
    shutil.copy(path, backup)
    happen(2)
    journaling.look()
    journaling.close()
    shutil.copy(backup, path)
    happen(3)
    journaling.look()
    happen(4)
    journaling.look()
    journaling.close()

    rows = [(row["stream"], row["segment"], row["row_id"]) for row in rows_in(folder)]
    old = next(stream for stream, _, row_id in rows if row_id == 1)
    (new,) = {stream for stream, _, _ in rows} - {old}
    assert sorted(rows) == sorted([(old, 1, 1), (old, 2, 2), (new, 1, 3), (new, 2, 4)])
