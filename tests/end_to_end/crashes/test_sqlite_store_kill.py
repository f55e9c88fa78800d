"""A process that writes cycles is killed at random moments; the file is whole every time."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from amqsidecar.clock import SystemClock
from amqsidecar.model.event import Cancelled, Received, Resent
from amqsidecar.model.schedule import RowFilter
from amqsidecar.stores.packing import unpack_events, unpack_runs
from amqsidecar.stores.sqlite.store import SqliteStore
from support.tier import at_length

KILLS = at_length(24, otherwise=8)
TESTS = Path(__file__).parents[2]


def run_and_kill(path: Path, seed: int, chance: random.Random) -> int:
    """Run a writer for a moment; returns the last finished cycle that it says is durable."""
    command = [sys.executable, "-m", "support.stores.writer", str(path), str(seed)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert writer.stdout is not None
    try:
        lines = [writer.stdout.readline()]
        assert lines[0], f"the writer with seed {seed} ended by itself"
        until = time.monotonic() + chance.uniform(0.0, 0.08)
        while (left := until - time.monotonic()) > 0:
            if select.select([writer.stdout], [], [], left)[0]:
                lines.append(os.read(writer.stdout.fileno(), 1 << 20))
    finally:
        writer.send_signal(signal.SIGKILL)
        rest, _ = writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    said = (b"".join(lines) + rest).splitlines(keepends=True)
    complete = [line for line in said if line.endswith(b"\n")]
    return int(json.loads(complete[-1])["cycle"])


def check(path: Path, durable_cycle: int) -> int:
    """Check everything that is true of a whole store; returns how many rows it has."""
    store = SqliteStore(path, clock=SystemClock())
    state = store.open()
    rows = store.list_rows(RowFilter(), 1_000_000)
    run = store._database.run
    assert run("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert state.cycle >= durable_cycle
    taken: set[int] = set()
    hidden_block = None
    if state.unfinished is not None:
        assert state.unfinished.cycle == state.cycle + 1
        record = run("SELECT taken_runs, event_block FROM unfinished_cycle").fetchone()
        taken = {n for first, last in unpack_runs(record[0]) for n in range(first, last + 1)}
        hidden_block = record[1]
        assert len(taken) == state.unfinished.taken_count
        assert sum(row.in_flight for row in rows) == state.unfinished.sent_count
    row_ids = {row_id for (row_id,) in run("SELECT id FROM redelivery")}
    exhausted = {row.id for row in rows if row.is_in_final_queue}
    unsent = row_ids - exhausted
    assert {row_id for (row_id,) in run("SELECT id FROM message")} == unsent
    assert {row.id for row in rows} == row_ids - taken
    assert taken <= row_ids
    kept = {row.id: store.message(row.id) for row in rows}
    assert {row_id for row_id, message in kept.items() if message is None} == exhausted
    assert all(len(kept[row.id] or b"") == row.size_bytes for row in rows if row.id in unsent)
    expected = Counter((row.destination, row.state) for row in rows)
    assert {(one.destination, one.state): one.count for one in store.tallies()} == dict(expected)
    assert sum(one.count for one in store.exhausted_tallies()) == len(exhausted)
    check_events(store, hidden_block, unsent - taken, exhausted)
    assert store.allocate_ids(1) > max(row_ids, default=0)
    store.close()
    return len(rows)


def check_events(
    store: SqliteStore, hidden_block: int | None, unsent: set[int], exhausted: set[int]
) -> None:
    """Check that the history accounts for every row, and that its index and count are right.

    What was sent to its final dead-letter queue stays as an exhausted row, all of it and no other;
    the writer sends there what it cancelled.
    """
    run = store._database.run
    received: Counter[int] = Counter()
    resent: Counter[int] = Counter()
    cancelled: set[int] = set()
    keys: set[tuple[str, int]] = set()
    count = 0
    for block, packing, body in run("SELECT seq, packing, body FROM event_block").fetchall():
        events = unpack_events(packing, body)
        count += len(events)
        keys |= {(event.redelivery_id, block) for event in events}
        if block != hidden_block:
            received.update(event.id for event in events if isinstance(event, Received))
            resent.update(event.id for event in events if isinstance(event, Resent))
            cancelled |= {event.id for event in events if isinstance(event, Cancelled)}
    assert set(run("SELECT redelivery_id, block FROM event_key")) == keys
    assert run("SELECT event_count FROM meta").fetchone() == (count,)
    assert max(received.values(), default=1) == max(resent.values(), default=1) == 1
    assert received.keys() - resent.keys() == unsent
    assert resent.keys() & cancelled == exhausted
    assert resent.keys() <= received.keys()


def test_a_killed_writer_leaves_a_whole_store(tmp_path: Path) -> None:
    path = tmp_path / "schedule.db"
    chance = random.Random(20240607)
    cycles = [run_and_check(path, seed, chance) for seed in range(KILLS)]
    assert cycles == sorted(cycles)
    assert cycles[-1] > KILLS


def run_and_check(path: Path, seed: int, chance: random.Random) -> int:
    durable_cycle = run_and_kill(path, seed, chance)
    check(path, durable_cycle)
    return durable_cycle
