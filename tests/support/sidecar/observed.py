"""What a sidecar has seen of a queue, out of its store."""

from pathlib import Path

from amqsidecar.clock import SystemClock
from amqsidecar.model.outcome import Observation
from amqsidecar.stores.sqlite.store import SqliteStore
from support.sidecar.process import SidecarProcess


def observations(sidecar: SidecarProcess, queue: str) -> list[Observation]:
    """Return all observations of a queue, the oldest first."""
    url = next(one for one in sidecar.options if one.startswith("store.url="))
    path = Path(url.removeprefix("store.url=sqlite://"))
    store = SqliteStore(path, clock=SystemClock(), read_only=True)
    store.open()
    try:
        return store.observations(f"queue://{queue}", 0, 2**53)
    finally:
        store.close()


def is_counted(sidecar: SidecarProcess, queue: str) -> bool:
    """Return whether what is re-sent to a queue from now on can be proved consumed."""
    seen = observations(sidecar, queue)
    return bool(seen) and seen[-1].steady_since_ms is not None
