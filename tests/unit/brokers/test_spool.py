"""Large payloads wait in unnamed files, a bounded number of bytes, and leave nothing behind."""

import os
import tempfile
from pathlib import Path

import pytest

from amqsidecar.brokers.connection import spool as module
from amqsidecar.brokers.connection.spool import LARGE_BYTES, Spool
from amqsidecar.errors import LinkLost
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.payload import Payload, in_memory
from amqsidecar.formats.stomp_frame import FrameReader
from amqsidecar.model.destination import queue
from support.wires.openwire import QUEUE, WireMessage

PIECE_BYTES = 2**18
BODY = bytes(range(256)) * (LARGE_BYTES // 128)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def spooled(spool: Spool, data: bytes) -> Payload:
    writer = spool.begin(len(data))
    for at in range(0, len(data), PIECE_BYTES):
        assert writer.write(data[at : at + PIECE_BYTES]) == len(data[at : at + PIECE_BYTES])
    return writer.getvalue()


def test_small_contents_stay_in_memory_and_large_ones_go_to_files() -> None:
    spool = Spool()
    assert spooled(spool, b"small") == b"small"
    first, second = spooled(spool, BODY), spooled(spool, BODY[::-1])
    assert not isinstance(first, bytes)
    assert not isinstance(second, bytes)
    assert (len(first), bytes(first), bytes(second)) == (len(BODY), BODY, BODY[::-1])
    part = first.part(7, 20)
    assert bytes(part) == BODY[7:20]
    assert bytes(part.ending_with(b"xy")) == BODY[7:18] + b"xy"
    assert bytes(first) == BODY[:18] + b"xy" + BODY[20:]
    assert len(first.part(0, 2**40)) == len(BODY)


def test_a_file_is_gone_with_the_last_content_in_it() -> None:
    spool = Spool()
    before = open_files()
    payloads = [spooled(spool, BODY) for _ in range(20)]
    assert open_files() < before + 10
    assert spool.size_bytes == 20 * len(BODY)
    payloads.clear()
    assert open_files() == before
    assert spool.size_bytes == 0


def test_what_is_beyond_the_bound_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPOOLED_BYTES_MAX", 3 * len(BODY) // 2)
    spool = Spool()
    first = spooled(spool, BODY)
    assert spooled(spool, BODY) == BODY
    assert bytes(first) == BODY


def test_what_a_full_disk_does_not_take_stays_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert spooled(Spool(), BODY) == BODY


def test_a_file_that_was_cut_loses_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = spooled(Spool(), BODY)
    monkeypatch.setattr(os, "pread", lambda _file, _size, _at: b"")
    with pytest.raises(LinkLost, match="has 0 bytes of"):
        bytes(payload)


@pytest.mark.parametrize("code", [codec.TEXT_MESSAGE, codec.BLOB_MESSAGE])
def test_a_dispatch_in_a_file_is_read_as_one_in_memory(code: int) -> None:
    message = WireMessage(code=code, destination=(QUEUE, "DLQ"), content=BODY).encoded()
    consumer = codec.consumer_id("ID:1", 1, 7)
    fields = (consumer, codec.destination_field(queue("DLQ")), b"\x01", message)
    frame = codec.command(codec.MESSAGE_DISPATCH, 1, b"".join((*fields, bytes(4))), answer=False)
    found = []
    for begin in (in_memory, Spool().begin):
        splitter = codec.FrameSplitter(2 * len(frame), begin)
        pieces = [frame[at : at + PIECE_BYTES] for at in range(0, len(frame), PIECE_BYTES)]
        [one] = [one for piece in pieces for one in splitter.feed(piece)]
        found.append(codec.read_dispatch(one))
    here, there = found
    assert here.message is not None
    assert there.message is not None
    assert isinstance(here.message, bytes)
    assert not isinstance(there.message, bytes)
    assert there[:2] == here[:2]
    assert bytes(there.message) == here.message
    assert there.footprint.memory_bytes < 1_000
    assert sum(there.footprint) == here.footprint.memory_bytes


@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize("piece_bytes", [PIECE_BYTES, 1_000_003, 2 * len(BODY)])
def test_a_message_over_stomp_comes_whole_out_of_a_file(has_length: bool, piece_bytes: int) -> None:
    body = BODY if has_length else BODY.replace(b"\0", b"x")
    length = b"content-length:%d\n" % len(body) if has_length else b""
    frame = b"MESSAGE\nmessage-id:7\n%b\n%b\0\n" % (length, body)
    reader = FrameReader(begin=Spool().begin)
    stream = frame * 3
    frames = [
        one
        for at in range(0, len(stream), piece_bytes)
        for one in reader.feed(stream[at : at + piece_bytes])
    ]
    assert reader.problem is None
    assert [one.first(b"message-id") for one in frames] == [b"7"] * 3
    assert all(one.body == body for one in frames)
    if piece_bytes < len(body):
        assert not any(isinstance(one.payload, bytes) for one in frames)


def test_a_large_message_over_stomp_without_its_nul_is_named() -> None:
    reader = FrameReader(begin=Spool().begin)
    head = b"MESSAGE\nmessage-id:7\ncontent-length:%d\n\n" % len(BODY)
    assert not reader.feed(head)
    assert not reader.feed(BODY[:1000])
    found = reader.unfinished()
    assert found is not None
    assert found.body == BODY[:1000]
    assert not reader.feed(BODY[1000:])
    assert not reader.feed(b"x")
    assert reader.problem == "a frame is longer than its content-length"
    assert reader.broken is not None
    assert reader.broken.first(b"message-id") == b"7"
    assert reader.unfinished() is None
