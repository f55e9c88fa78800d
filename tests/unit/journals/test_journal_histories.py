"""Any order of events, drains, compactions and crashes: each event is in the journal once."""

import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from amqsidecar.journals.compact import compact
from amqsidecar.journals.folder import Fill, LocalFolder
from amqsidecar.journals.verify import verify_against
from amqsidecar.journals.writer import JournalWriter
from amqsidecar.model.event import AnyEvent
from support.histories.journal_rows import KINDS, filled, rows_in
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

SEEDS = range(6)
STEPS = 25


class Killed(BaseException):
    """The process is gone."""


class MortalFolder(LocalFolder):
    """Ends the process before or after one of its changes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "test", lambda: None)
        self.left: float = float("inf")

    def write(self, stream: str, name: str, fill: Fill) -> int:
        self._reach()
        size = super().write(stream, name, fill)
        self._reach()
        return size

    def remove(self, stream: str, name: str) -> None:
        self._reach()
        super().remove(stream, name)

    def _reach(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


class History:
    """One history; a seed decides all of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = MortalFolder(folder / "journal")
        self.store = UnsyncedStore(folder / "schedule.db", clock=VirtualClock())
        self.store.open()
        self.events: list[AnyEvent] = []
        self.kills = 0

    def happen(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            block = [
                filled(self.chance.choice(KINDS), len(self.events) + n)
                for n in range(self.chance.randint(1, 3))
            ]
            with self.store.transaction() as transaction:
                transaction.record(block)
            self.events += block

    def drain(self, segments: int) -> None:
        """Write some segments, as one of two sidecars that may both be at the same one."""
        writer = JournalWriter(
            self.folder, sidecar=self.chance.choice("ab"), cause_text=self.chance.random() < 0.5
        )
        for _ in range(segments):
            segment = self.store.plan_segment(2)
            if segment is None:
                return
            writer.write(segment, self.store.segment_events(segment))
            if self.chance.random() < 0.2:
                raise Killed
            self.store.segment_written(segment)

    def compact(self) -> None:
        compact(self.folder, self.chance.choice([10, 100, 1_000]))

    def step(self) -> None:
        """Do something; sometimes the process ends in the middle."""
        does: list[Callable[[], None]] = [
            self.happen,
            lambda: self.drain(self.chance.randint(1, 8)),
            self.compact,
        ]
        if self.chance.random() < 0.5:
            self.folder.left = self.chance.randint(0, 12)
        try:
            self.chance.choices(does, [2, 3, 1])[0]()
        except Killed:
            self.kills += 1
        finally:
            self.folder.left = float("inf")

    def check(self) -> None:
        """Read the journal as anybody would, and hold it against what happened."""
        found = [(row["type"], row["at"], row["row_id"]) for row in rows_in(self.folder)]
        happened = [(event.__struct_config__.tag, event.at_ms, event.id) for event in self.events]
        assert found == happened[: len(found)]
        assert verify_against(self.folder, self.store, keeps_all=True).faults == []


@pytest.mark.parametrize("seed", SEEDS)
def test_each_event_is_in_the_journal_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Why: only a loss of power could tell.
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), seed)
        for number in range(STEPS):
            history.step()
            if number % 5 == 0:
                history.check()
        with suppress(Killed):
            history.drain(1)
        while history.store.outbox_lag().events:
            with suppress(Killed):
                history.drain(1_000)
        compact(history.folder, 10_000)
        history.check()
        rows = rows_in(history.folder)
        assert len(rows) == len(history.events)
        history.store.close()
        assert history.kills > 0
