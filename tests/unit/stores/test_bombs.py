"""Few packed bytes that unpack to many are an error, and never fill the memory."""

import re
import sys
import zlib
from pathlib import Path

import msgspec
import pytest

from amqsidecar.errors import StoreUnavailable
from amqsidecar.model.event import Received
from amqsidecar.stores import packing
from amqsidecar.stores.packing import DEFLATED, pack_events, unpack_events, unpack_message
from support.machine.processes import run_program
from support.stores.rows import taken_row, took
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

ID = taken_row(1).redelivery_id
# As a viewer's GET of the message does; by itself, because the peak is that of a whole process.
READ = """\
import sys
from pathlib import Path
from amqsidecar.clock import SystemClock
from amqsidecar.errors import StoreUnavailable
from amqsidecar.stores.sqlite.store import SqliteStore
store = SqliteStore(Path(sys.argv[1]), clock=SystemClock(), read_only=True)
store.open()
try:
    print(len(store.history(sys.argv[2])))
except StoreUnavailable as error:
    print(error)
print(open("/proc/self/status").read())
"""
PEAK_MAX_MIB = 380
"""Less than the memory that the chart gives."""


def bomb(path: Path, text: bytes, megabytes: int) -> int:
    """Put a block in place of one of an event, which repeats a text; return its bytes."""
    store = UnsyncedStore(path, clock=VirtualClock())
    store.open()
    with store.transaction() as tx:
        tx.record([took(taken_row(1))])
    deflater = zlib.compressobj(9)
    body = deflater.compress(b"[" + text)
    for _ in range(megabytes):
        body += deflater.compress((b"," + text) * (2**20 // (len(text) + 1)))
    body += deflater.compress(b"]") + deflater.flush()
    store._database.run("UPDATE event_block SET packing = 1")
    store._database._connected().execute("UPDATE event_block SET body = ?", (body,))
    store.close()
    return len(body)


def read(path: Path) -> tuple[str, float]:
    """Return what the history of the message is, and the peak of its reader in MiB."""
    done = run_program([sys.executable, "-c", READ, str(path), ID], code=0)
    found = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
    assert found is not None
    return done.stdout.splitlines()[0], int(found[1]) / 1024


SMALL = msgspec.json.encode(Received(at_ms=1, redelivery_id=ID, source="q"))
LARGE = msgspec.json.encode(Received(at_ms=1, redelivery_id=ID, source="q", cause="x" * 100_000))


@pytest.mark.parametrize("text", [SMALL, LARGE], ids=["events", "texts"])
def test_a_block_of_events_that_unpacks_to_hundreds_of_megabytes_is_refused(
    text: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "schedule.db"
    assert bomb(path, text, 400) < 4_000_000
    told, peak = read(path)
    assert re.search(r"store is damaged: \d+ bytes unpack to more than 134217728; .* backup", told)
    assert peak < PEAK_MAX_MIB


@pytest.mark.parametrize("text", [SMALL, LARGE], ids=["events", "texts"])
def test_the_largest_block_that_is_read_takes_less_than_the_memory_of_the_chart(
    text: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "schedule.db"
    bomb(path, text, 126)
    told, peak = read(path)
    assert int(told) > 0
    assert peak < PEAK_MAX_MIB


def test_a_message_unpacks_to_its_size_and_no_further() -> None:
    packed = zlib.compress(b"x" * 100_000)
    assert unpack_message(packed, 100_000) == b"x" * 100_000
    with pytest.raises(StoreUnavailable, match="unpack to more than 99999"):
        unpack_message(packed, 99_999)
    with pytest.raises(StoreUnavailable, match="cut off"):
        unpack_message(packed[:-1], 100_000)


@pytest.mark.parametrize("body", [zlib.compress(b"[{"), b"no deflated bytes", b""])
def test_a_block_that_cannot_be_read_is_an_error_of_the_store(body: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="the store is damaged: "):
        unpack_events(DEFLATED, body)


def test_events_are_written_so_that_they_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "EVENTS_BYTES_MAX", 20_000)
    for count in (100, 1_000):
        events = [Received(at_ms=number, redelivery_id="r", source="q") for number in range(count)]
        assert unpack_events(*pack_events(events)) == events
