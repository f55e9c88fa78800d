"""One connection through the listener: what each side gets, frame by frame."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.formats.stomp_frame import Frame, FrameReader, encode
from amqsidecar.formats.stomp_stream import PieceKind, StreamCutter
from amqsidecar.listener.bodies import LARGE_BYTES, BodyBudget
from amqsidecar.listener.session import (
    Ended,
    GiveUp,
    NackOutcome,
    OnFailure,
    Settled,
    ToBroker,
    ToClient,
)
from amqsidecar.listener.stomp.session import StompSession
from support.wires.relayed import Relayed

BROKEN = b"SEND\ncontent-length:1\n\nxx\0"
NONE: Mapping[str, str] = MappingProxyType({})
CONNECT = b"CONNECT\naccept-version:1.1,1.2\nlogin:orders\npasscode:x\n\n\0"
ARTEMIS = b"ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine"


class Wire(Relayed):
    """A consumer over STOMP that has subscribed."""

    def __init__(
        self,
        budget: BodyBudget,
        *,
        version: bytes = b"1.2",
        server: bytes = ARTEMIS,
        on_failure: OnFailure = OnFailure.CLOSED,
        key: str = "key",
        prefixes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(StompSession(budget, key, on_failure, prefixes))
        self.client(CONNECT)
        self.broker(encode("CONNECTED", [(b"version", version), (b"server", server)]) + b"\n")
        self.subscribe("s", "client-individual")
        self.to_broker = self.to_client = b""

    def subscribe(self, name: str, ack: str, destination: str = "orders") -> None:
        headers = {"id": name, "destination": destination, "ack": ack}
        self.client(frame("SUBSCRIBE", headers))

    def deliver(
        self, number: int, body: bytes = b"body", name: str = "s", headers: Mapping[str, str] = NONE
    ) -> None:
        shown = {
            "subscription": name,
            "message-id": f"31,{number}",
            "destination": "orders",
            "persistent": "true",
            "destination-type": "ANYCAST",
            **headers,
            "ack": f"31,{number}",
            "content-length": str(len(body)),
        }
        self.broker(frame("MESSAGE", shown, body) + b"\n")

    def taken(self) -> list[Frame]:
        """Return the frames that the broker got since the last call."""
        reader = FrameReader()
        frames = reader.feed(
            self.to_broker.replace(b"SEND\n", b"MESSAGE\nwas:SEND\n")
            .replace(b"NACK\n", b"ERROR\nwas:NACK\n")
            .replace(b"\0ACK\n", b"\0ERROR\nwas:ACK\n")
            .replace(b"COMMIT\n", b"ERROR\nwas:COMMIT\n")
        )
        self.to_broker = b""
        return frames

    def sends(self) -> list[dict[str, str]]:
        """Return the headers of the SENDs that the broker got since the last call."""
        return [texts(one) for one in self.taken() if one.first(b"was") == b"SEND"]

    def receive(self, *receipts: str) -> None:
        for one in receipts:
            self.broker(frame("RECEIPT", {"receipt-id": one}))


def frame(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    return encode(
        command, [(name.encode(), value.encode()) for name, value in headers.items()], body
    )


def texts(of: Frame) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in reversed(of.headers())}


def nack(number: int, **more: str) -> bytes:
    return frame("NACK", {"id": f"31,{number}", **more})


def ack(number: int) -> bytes:
    return frame("ACK", {"id": f"31,{number}"})


@pytest.fixture
def budget(tmp_path: Path) -> Iterator[BodyBudget]:
    made = BodyBudget(1 << 20, 1 << 24, tmp_path)
    yield made
    assert not list(tmp_path.iterdir()), "its files have no names"


@pytest.fixture
def wire(budget: BodyBudget) -> Wire:
    return Wire(budget)


def test_a_nack_becomes_a_send_and_after_its_receipt_an_ack(wire: Wire, budget: BodyBudget) -> None:
    wire.deliver(7, b"a\0b", headers={"app": "1"})
    seen = wire.to_client
    wire.client(nack(7, reason="no stock", receipt="mine"))
    (sent,) = wire.taken()
    headers = texts(sent)
    assert sent.body == b"a\0b"
    assert headers["destination"] == "amqsidecar.intercepted"
    assert (headers["_AMQ_ORIG_ADDRESS"], headers["_AMQ_ORIG_QUEUE"]) == ("orders", "orders")
    assert headers["amqsidecarCause"] == "intercepted at the NACK of orders: no stock"
    assert (headers["persistent"], headers["app"]) == ("true", "1")
    assert "_AMQ_ORIG_MESSAGE_ID" not in headers
    wire.receive(headers["receipt"])
    assert wire.to_broker == b"ACK\nid:31,7\nreceipt:mine\n\n\0"
    assert wire.to_client == seen, "the client sees nothing of it"
    assert wire.settled == [Settled(GiveUp.NACK, NackOutcome.INTERCEPTED, 1)]
    assert budget.memory_bytes == 0


@pytest.mark.parametrize("size", [1, 30, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_end_of_line_behind_a_hidden_frame_is_hidden_too(
    wire: Wire, end: bytes, size: int
) -> None:
    """Two ends of lines in front of a frame hide it from stomp.py; a heart-beat is passed on."""
    wire.deliver(7, b"body")
    wire.client(nack(7))
    receipt = texts(wire.taken()[0])["receipt"].encode()
    seen = wire.to_client
    said = b"RECEIPT\nreceipt-id:%b\n\n\0%b" % (receipt, end)
    for at in range(0, len(said), size):
        wire.broker(said[at : at + size])
    assert wire.to_client == seen
    wire.broker(b"\n")
    assert wire.to_client == seen + b"\n"


def test_until_the_receipt_only_nacks_and_heart_beats_go_on(wire: Wire) -> None:
    for number in (1, 2, 3):
        wire.deliver(number)
    wire.client(nack(1) + b"\n" + nack(2) + ack(3) + b"DISCONNECT\n\n\0")
    first, second = (one["receipt"] for one in wire.sends())
    assert wire.session.is_waiting
    wire.receive(second)
    assert wire.to_broker == b"", "in order"
    wire.receive(first)
    expected = [b"ACK\nid:31,%d\n\n\0" % number for number in (1, 2)]
    assert wire.to_broker == b"".join((*expected, ack(3), b"DISCONNECT\n\n\0"))
    assert not wire.session.is_waiting


def test_a_nack_of_one_subscription_that_is_cumulative_gives_all_before_it_up(wire: Wire) -> None:
    """As STOMP 1.2 says, and as Artemis does it."""
    wire.subscribe("all", "client")
    wire.taken()
    for number in (1, 2, 3):
        wire.deliver(number, b"m%d" % number, name="all")
    wire.client(nack(2))
    sent = wire.taken()
    assert [one.body for one in sent] == [b"m1", b"m2"]
    wire.receive(*(texts(one)["receipt"] for one in sent))
    assert wire.to_broker == b"ACK\nid:31,2\n\n\0"


def test_in_a_transaction_it_waits_for_the_commit(wire: Wire) -> None:
    wire.deliver(1)
    wire.client(b"BEGIN\ntransaction:t\n\n\0" + nack(1, transaction="t", receipt="n"))
    assert wire.to_client.endswith(b"RECEIPT\nreceipt-id:n\n\n\0")
    wire.to_broker = wire.to_client = b""
    wire.client(b"COMMIT\ntransaction:t\nreceipt:c\n\n\0" + ack(9))
    (commit,) = wire.taken()
    ours = texts(commit)["receipt"]
    assert (texts(commit)["transaction"], ours != "c") == ("t", True)
    wire.receive(ours)
    (sent,) = wire.sends()
    wire.receive(sent["receipt"])
    assert wire.to_broker == b"ACK\nid:31,1\nreceipt:c\n\n\0" + ack(9)
    assert wire.to_client == b""


def test_an_abort_undoes_it(wire: Wire) -> None:
    wire.deliver(1)
    wire.client(b"BEGIN\ntransaction:t\n\n\0" + nack(1, transaction="t"))
    wire.client(b"ABORT\ntransaction:t\n\n\0")
    wire.to_broker = b""
    wire.client(ack(1))
    assert wire.to_broker == ack(1)


def test_a_cumulative_ack_saves_what_an_open_transaction_gave_up(wire: Wire) -> None:
    """Artemis acknowledges it with this one, whatever the transaction becomes."""
    wire.subscribe("all", "client")
    for number in (1, 2):
        wire.deliver(number, b"m%d" % number, name="all")
    wire.client(b"BEGIN\ntransaction:t\n\n\0" + nack(1, transaction="t"))
    wire.to_broker = b""
    wire.client(ack(2))
    (sent,) = wire.taken()
    assert sent.body == b"m1"
    wire.receive(texts(sent)["receipt"])
    assert wire.to_broker == ack(2)


def test_a_refused_copy_ends_the_connection_and_acknowledges_nothing(wire: Wire) -> None:
    wire.deliver(1)
    wire.client(nack(1))
    wire.to_broker = b""
    wire.broker(frame("ERROR", {"message": "AMQ229032: no permission"}))
    assert "no permission" in wire.ended
    assert (wire.to_broker, wire.settled[0].outcome) == (b"", NackOutcome.REFUSED)
    assert wire.to_client.endswith(b"\0"), "the client sees the error"


@pytest.mark.parametrize("on_failure", OnFailure)
def test_what_found_no_room_is_never_taken_for_saved(tmp_path: Path, on_failure: OnFailure) -> None:
    wire = Wire(BodyBudget(1000, 0, tmp_path), on_failure=on_failure)
    wire.deliver(1, b"x" * 2000)
    wire.to_broker = b""
    wire.client(nack(1))
    if on_failure is OnFailure.OPEN:
        assert (wire.to_broker, wire.ended) == (nack(1), "")
        assert wire.settled[0].outcome is NackOutcome.PASSED
    else:
        assert wire.to_broker == b""
        assert "no room" in wire.ended
        assert wire.settled[0].outcome is NackOutcome.REFUSED


def test_a_large_body_is_in_a_file_until_it_is_acknowledged(wire: Wire, budget: BodyBudget) -> None:
    body = bytes(range(256)) * 1024
    wire.deliver(1, body)
    assert (budget.spooled_bytes, budget.files) == (len(body), 1)
    assert budget.memory_bytes < LARGE_BYTES
    wire.client(nack(1))
    (sent,) = wire.taken()
    assert sent.body == body
    wire.receive(texts(sent)["receipt"])
    assert (budget.spooled_bytes, budget.files, budget.memory_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("version", "server"), [(b"1.0", ARTEMIS), (b"1.2", b"ActiveMQ/6.3.1"), (b"1.2", b"else")]
)
def test_where_a_nack_destroys_nothing_it_goes_through(
    budget: BodyBudget, version: bytes, server: bytes
) -> None:
    wire = Wire(budget, version=version, server=server)
    wire.deliver(1)
    wire.client(nack(1))
    assert wire.to_broker == nack(1)
    assert budget.memory_bytes == 0


def test_a_second_copy_has_the_same_duplicate_id_and_one_of_another_queue_has_not(
    budget: BodyBudget,
) -> None:
    """After a crash the broker drops the copy of the same message in the same queue alone."""

    def duplicate_id(key: str, destination: str) -> str:
        wire = Wire(budget, key=key)
        wire.subscribe("w", "client-individual", destination)
        wire.deliver(1, name="w")
        wire.to_broker = b""
        wire.client(nack(1))
        (sent,) = wire.sends()
        wire.session.close()
        return sent["_AMQ_DUPL_ID"]

    assert duplicate_id("before", "orders") == duplicate_id("after", "orders")
    assert duplicate_id("one", "orders") != duplicate_id("two", "or*")


def test_a_producers_own_duplicate_id_is_kept_aside(wire: Wire) -> None:
    wire.deliver(1, headers={"_AMQ_DUPL_ID": "theirs"})
    wire.client(nack(1))
    (sent,) = wire.sends()
    assert sent["amqsidecarOriginalDuplicateId"] == "theirs"
    assert sent["_AMQ_DUPL_ID"].startswith("amqsidecar-nack:")


def test_the_prefix_of_an_acceptor_is_no_part_of_the_origin(budget: BodyBudget) -> None:
    wire = Wire(budget, prefixes=("jms.queue.",))
    wire.deliver(1, headers={"destination": "jms.queue.orders"})
    wire.client(nack(1))
    (sent,) = wire.sends()
    assert (sent["_AMQ_ORIG_ADDRESS"], sent["_AMQ_ORIG_QUEUE"]) == ("orders", "orders")
    wire.session.close()


def test_a_subscription_of_a_topic_that_ends_with_its_connection_is_no_origin(wire: Wire) -> None:
    """A redelivery to the topic would reach every other subscriber."""
    wire.deliver(1, headers={"destination-type": "MULTICAST"})
    wire.client(nack(1))
    (sent,) = wire.sends()
    assert sent["_AMQ_ORIG_QUEUE"].startswith("amqsidecar.not-durable")
    assert sent["_AMQ_ORIG_ROUTING_TYPE"] == "0"


def test_what_is_no_stomp_goes_through(budget: BodyBudget) -> None:
    session = StompSession(budget, "key", OnFailure.CLOSED)
    assert session.from_client(b"AMQP\0\1\0\0") == [ToBroker(b"AMQP\0\1\0\0")]
    assert session.from_broker(b"AMQP\0\1\0\0") == [ToClient(b"AMQP\0\1\0\0")]
    web = StompSession(budget, "key", OnFailure.CLOSED)
    assert isinstance(web.from_client(b"GET /stomp HTTP/1.1\r\n")[0], Ended)


NAMES = st.sampled_from(["SEND", "ACK", "SUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "UNSUBSCRIBE"])
HEADERS = st.dictionaries(
    st.sampled_from(["id", "destination", "ack", "transaction", "receipt", "x"]),
    st.text("ab:\\\n\r,1", max_size=5),
    max_size=4,
)
FRAMES = st.lists(st.tuples(NAMES, HEADERS, st.binary(max_size=30)), max_size=8)


@given(FRAMES, st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_the_cutter_finds_the_same_frames_however_the_stream_is_cut(
    frames: list[tuple[str, dict[str, str], bytes]], cuts: list[int]
) -> None:
    data = b"\n".join(
        frame(name, {**headers, "content-length": str(len(body))}, body)
        for name, headers, body in frames
    )
    cutter = StreamCutter()
    pieces = [piece for cut in chunks(data, cuts) for piece in cutter.feed(cut)]
    assert b"".join(piece.raw for piece in pieces) == data
    ends = [piece for piece in pieces if piece.kind in (PieceKind.WHOLE, PieceKind.END)]
    assert len(ends) == len(frames)
    assert cutter.is_between_frames


def chunks(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield pieces of these sizes in turn."""
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


@given(FRAMES, st.lists(st.integers(1, 400), min_size=1, max_size=5))
def test_no_byte_gets_lost_where_a_stream_stops_being_stomp(
    frames: list[tuple[str, dict[str, str], bytes]], cuts: list[int]
) -> None:
    data = b"".join(
        frame(name, {**headers, "content-length": str(len(body))}, body)
        for name, headers, body in frames
    )
    cutter, passed, fed = StreamCutter(), b"", b""
    for cut in chunks(data + BROKEN, cuts):
        fed += cut
        passed += b"".join(piece.raw for piece in cutter.feed(cut))
        if cutter.problem:
            break
    assert cutter.problem
    assert passed.startswith(data)
    assert passed + cutter.rest() == fed


def test_a_message_goes_through_that_arrives_with_a_broken_frame(wire: Wire) -> None:
    message = frame("MESSAGE", {"subscription": "s", "message-id": "31,1"}, b"body")
    arrived = message + BROKEN
    assert wire.session.from_broker(arrived) == [ToClient(arrived)]


@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_nack_before_a_broken_frame_is_saved_or_never_sent(
    budget: BodyBudget, on_failure: OnFailure
) -> None:
    """Both in one read; on Artemis the NACK would destroy the message."""
    wire = Wire(budget, on_failure=on_failure)
    wire.deliver(1)
    wire.client(nack(1) + frame("SEND", {"destination": "next"}) + BROKEN)
    (sent,) = wire.taken()
    assert sent.body == b"body"
    wire.receive(texts(sent)["receipt"])
    if on_failure is OnFailure.OPEN:
        assert wire.to_broker == ack(1) + frame("SEND", {"destination": "next"}) + BROKEN
    else:
        assert "longer than its content-length" in wire.ended
