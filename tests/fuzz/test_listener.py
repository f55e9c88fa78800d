"""Any bytes through the listener: passed on whole, or the connection ends; never a traceback."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.listener.amqp.notes import NoteSettings
from amqsidecar.listener.amqp.session import AmqpSession
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.session import BodyToBroker, Ended, OnFailure, ToBroker, ToClient
from amqsidecar.listener.stomp.session import StompSession
from support.wires.fuzz import damaged, fuzz

AMQP_BROKER = bytes.fromhex(
    "414d5150000100000000003502000000005310c02809a10162404040404040"
    "4040c11e02a30770726f64756374a1176170616368652d6163746976656d712d617274656d6973"
)


def frame(channel: int, code: int, fields: bytes) -> bytes:
    body = bytes((0, 0x53, code)) + fields
    return (8 + len(body)).to_bytes(4) + b"\2\0" + channel.to_bytes(2) + body


def of_client() -> bytes:
    """Return frames that receive a message, reject it with an error, and put it off."""
    uint, text = amqp.unsigned, amqp.string
    ends = [frames.described(frames.SOURCE, [text("q")]), frames.described(frames.TARGET, [])]
    wanted = [text("l"), uint(0), frames.TRUE, amqp.NULL, amqp.NULL, *ends]
    error = frames.described(frames.ERROR, [amqp.symbol("app:bad"), text("no stock")])
    delay = amqp.make_map(0x70, [amqp.symbol("x-opt-delivery-delay"), uint(9)])[3:]
    states = (
        frames.described(frames.REJECTED, [error]),
        frames.described(frames.MODIFIED, [frames.TRUE, frames.FALSE, delay]),
    )
    return b"".join(
        (
            frames.frame_of(0, frames.BEGIN, [amqp.NULL, uint(0), uint(9), uint(9)]),
            frames.frame_of(0, frames.ATTACH, wanted),
            *(
                frames.frame_of(
                    0, frames.DISPOSITION, [frames.TRUE, uint(n), uint(n), frames.TRUE, state]
                )
                for n, state in enumerate(states)
            ),
        )
    )


def of_broker() -> bytes:
    """Return what answers them: two messages with ids."""
    uint, text = amqp.unsigned, amqp.string
    ends = [frames.described(frames.SOURCE, [text("q")]), frames.described(frames.TARGET, [])]
    wanted = [text("l"), uint(0), frames.FALSE, amqp.NULL, amqp.NULL, *ends]
    message = (
        amqp.make_list(amqp.HEADER, [frames.TRUE])
        + amqp.make_list(amqp.PROPERTIES, [text("m1")])
        + b"\0\x53\x77\xa1\1x"
    )
    return b"".join(
        (
            frames.frame_of(0, frames.BEGIN, [b"\x60\0\0", uint(0), uint(9), uint(9)]),
            frames.frame_of(0, frames.ATTACH, wanted),
            *(
                frames.frame_of(
                    0, frames.TRANSFER, [uint(0), uint(n), b"\xa0\1a", uint(0)], message
                )
                for n in range(2)
            ),
        )
    )


FRAMES = st.builds(
    frame,
    st.sampled_from((0, 1, 0xFFFF)),
    st.integers(0x10, 0x18),
    st.one_of(
        st.just(b"\x45"),
        st.just(bytes.fromhex("c00905415201520141005325 45".replace(" ", ""))),
        st.binary(max_size=40).map(lambda tail: b"\xc0" + bytes((len(tail) + 1, 9)) + tail),
    ),
)
HEADS = st.sampled_from(
    (
        AMQP_BROKER,
        b"AMQP\0\1\0\0",
        b"AMQP\3\1\0\0",
        of_client(),
        of_broker(),
        b"CONNECT\naccept-version:1.2\n\n\0",
        b"CONNECTED\nversion:1.2\nserver:ActiveMQ-Artemis/2.44.0\n\n\0",
        b"SUBSCRIBE\nid:s\nack:client\n\n\0MESSAGE\nsubscription:s\nmessage-id:1\n\nx\0",
        b"NACK\nid:1\nmessage-id:1\n\n\0COMMIT\ntransaction:t\n\n\0",
    )
)
SAID = st.lists(
    st.tuples(st.booleans(), damaged(st.one_of(HEADS, FRAMES, st.binary(max_size=40)))), max_size=12
)


@pytest.mark.parametrize("on_failure", OnFailure)
@pytest.mark.parametrize("wire", ["amqp", "amqp with notes", "stomp"])
@fuzz
@given(said=SAID)
def test_any_bytes_end_as_effects(
    wire: str, on_failure: OnFailure, said: list[tuple[bool, bytes]]
) -> None:
    budget = BodyBudget(1 << 20, 0, Path("/nowhere"))
    notes = NoteSettings("notes", are_obeyed=True, now_ms=lambda: 0) if "notes" in wire else None
    session = (
        StompSession(budget, "k", on_failure)
        if wire == "stomp"
        else AmqpSession(budget, on_failure, notes=notes)
    )
    sent = {True: b"", False: b""}
    out = {True: b"", False: b""}
    is_over = is_own = False
    for is_client, data in said:
        if is_over or (is_client and session.is_waiting):
            continue
        sent[is_client] += data
        effects = session.from_client(data) if is_client else session.from_broker(data)
        for effect in effects:
            match effect:
                case ToBroker(raw):
                    out[True] += raw
                case ToClient(raw):
                    out[False] += raw
                case BodyToBroker(body):
                    out[True] += b"".join(body.pieces())
                case Ended():
                    is_over = True
        is_own = is_own or session.is_rescuing
    if not is_over and not is_own:
        for effect in (*session.client_ended(), *session.broker_ended()):
            if isinstance(effect, (ToBroker, ToClient)):
                out[isinstance(effect, ToBroker)] += effect.data
        assert out == sent, "all bytes, and no others"
    session.close()
    assert budget.memory_bytes == 0
