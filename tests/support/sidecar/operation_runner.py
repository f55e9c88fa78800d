"""A process that steps an operation on a SQLite store until it is killed.

Usage: python -m support.sidecar.operation_runner FILE NUMBER. See `test_operation_kill.py`.
"""

import sys

from amqsidecar.clock import SystemClock
from amqsidecar.model import row_changes
from amqsidecar.stores.sqlite.store import SqliteStore


def step(path: str, number: int) -> None:
    """Step for ever, one line of output for each durable step."""
    store = SqliteStore(path, clock=SystemClock())
    store.open()
    while True:
        operation = store.step_operation(
            number, row_changes.discard(5, "ann"), None, 7, lambda after: after, is_followed=True
        )
        print(operation.after_id, flush=True)


if __name__ == "__main__":
    step(sys.argv[1], int(sys.argv[2]))
