"""A process is killed in the middle of an operation's steps: each was done whole, or not at all."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from amqsidecar.clock import SystemClock
from amqsidecar.model.event import Discarded
from amqsidecar.model.operation import Action, Operation, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import take_rows, taken_row, took

KILLS = 12
ROWS = 4_000
TESTS = Path(__file__).parents[2]


def filled(path: Path) -> Operation:
    """Return an operation on a new store, about all of its rows."""
    store = SqliteStore(path, clock=SystemClock())
    store.open()
    rows = [taken_row(number, destination=f"queue://{number % 5}") for number in range(1, ROWS + 1)]
    take_rows(store, 1, rows, [took(row) for row in rows])
    operation = store.add_operation(
        Operation(
            id=0,
            action=Action.DISCARD,
            selection=Selection(),
            actor="ann",
            reason="",
            created_at_ms=5,
            until_id=0,
        )
    )
    store.close()
    return operation


def step_and_kill(path: Path, number: int, chance: random.Random) -> int:
    """Step for a moment in another process; returns up to where it says that it came."""
    command = [sys.executable, "-m", "support.sidecar.operation_runner", str(path), str(number)]
    runner = subprocess.Popen(
        command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(TESTS)}
    )
    assert runner.stdout is not None
    first = runner.stdout.readline()
    assert first, "it ended by itself"
    with contextlib.suppress(subprocess.TimeoutExpired):
        runner.wait(chance.uniform(0.0, 0.03))
    runner.send_signal(signal.SIGKILL)
    rest, _ = runner.communicate()
    assert runner.returncode == -signal.SIGKILL
    said = [line for line in (first + rest).splitlines(keepends=True) if line.endswith(b"\n")]
    return int(said[-1])


def check(path: Path, operation: Operation, said: int) -> int:
    """Check that rows, events, members, tallies and progress agree; returns how far it came."""
    store = SqliteStore(path, clock=SystemClock())
    store.open()
    now = store.operation(operation.id)
    assert now is not None
    assert said <= now.after_id <= now.until_id == ROWS
    assert now.matched == now.changed == now.after_id
    left = [row.id for row in store.list_rows(RowFilter(), ROWS)]
    assert left == list(range(now.after_id + 1, ROWS + 1))
    assert sum(tally.count for tally in store.tallies()) == len(left)
    gone = {f"test-{number:012d}" for number in range(1, now.after_id + 1)}
    members = store.members(operation.id, None, ROWS)
    assert {member.redelivery_id for member in members} == gone
    events = store.events_after("0/0", 10**6).events
    assert {one.redelivery_id for one in events if isinstance(one, Discarded)} == gone
    assert sum(isinstance(one, Discarded) for one in events) == len(gone)
    assert store._database.run("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()
    return now.after_id


def test_a_killed_step_is_done_or_not_done(tmp_path: Path) -> None:
    path, chance = tmp_path / "schedule.db", random.Random(20261122)
    operation = filled(path)
    came = [check(path, operation, step_and_kill(path, operation.id, chance)) for _ in range(KILLS)]
    assert came == sorted(came)
    assert came[0] < came[-1]
