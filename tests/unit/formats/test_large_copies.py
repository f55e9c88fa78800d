"""A large message is in memory no more often than it must be, on its way in and on its way out."""

import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from amqsidecar.brokers.connection.byte_stream import LARGE_BYTES, joined
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats import stomp_frame
from amqsidecar.formats.openwire_dead_letter import read_dead_letter
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.formats.stomp_artemis_message import resend_frame
from amqsidecar.model.destination import queue
from amqsidecar.stores.packing import pack_message, unpack_message
from support.links.cycles import resend_of
from support.wires.openwire import WireMessage

SIZE = 16 * 2**20
READ_BYTES = 2**18
# Why more than none: what grows in place has room to grow.
SPARE = 0.15


def copies(work: Callable[[], object]) -> float:
    """Return how often as many bytes as a message has were in use at most, beside those before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / SIZE
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def message() -> bytes:
    return WireMessage(content=bytes(SIZE)).encoded()


def test_a_frame_of_openwire_is_put_together_in_place() -> None:
    frame = codec.command(codec.MESSAGE_DISPATCH, 1, bytes(SIZE), answer=False)
    pieces = [frame[at : at + READ_BYTES] for at in range(0, len(frame), READ_BYTES)]
    splitter = codec.FrameSplitter(2 * SIZE)

    def feed() -> None:
        [found] = [one for piece in pieces for one in splitter.feed(piece)]
        assert len(found) == len(frame) - 4

    assert copies(feed) <= 1 + SPARE


def test_a_dead_letter_over_openwire_is_understood_without_a_copy(message: bytes) -> None:
    assert copies(lambda: read_dead_letter(message, queue("DLQ"), 0)) <= SPARE


def test_a_resend_over_openwire_is_one_copy(message: bytes) -> None:
    encoder = OpenWireResendEncoder("ID:ours")
    assert copies(lambda: encoder.resend(resend_of(message), b"\0", 0, 1)) <= 1 + SPARE


def test_a_message_over_stomp_is_kept_and_sent_as_one_copy_each() -> None:
    body = bytes(SIZE)
    kept = stomp_frame.kept([(b"a", b"b")], body)
    assert copies(lambda: stomp_frame.kept([(b"a", b"b")], body)) <= 1 + SPARE
    sent = resend_of(kept)
    assert copies(lambda: stomp_frame.encode("SEND", *resend_frame(sent, 0))) <= 1 + SPARE


def test_what_the_store_deflates_takes_no_more_than_the_result() -> None:
    generator = random.Random(0)
    half = generator.randbytes(SIZE // 2)
    packed = []
    text = b"".join(half[at : at + 512] + bytes(512) for at in range(0, len(half), 512))
    assert copies(lambda: packed.append(pack_message(text))) <= len(pack_message(text)) / SIZE + 0.2
    assert unpack_message(packed[0], len(text)) == text
    assert packed[0] == zlib.compress(text, 1)


@pytest.mark.parametrize(
    "sizes", [[], [1, 2], [LARGE_BYTES], [1, LARGE_BYTES, 2, 3], [LARGE_BYTES, 1, LARGE_BYTES]]
)
def test_large_pieces_are_written_as_they_are(sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    found = list(joined(pieces))
    assert b"".join(found) == b"".join(pieces)
    large = [piece for piece in pieces if len(piece) == LARGE_BYTES]
    assert [piece for piece in found if len(piece) >= LARGE_BYTES] == large
    assert all(any(one is piece for one in found) for piece in large)
    assert len(found) <= 2 * len(large) + 1
