"""Whatever a peer answers while we log in or ask: an error of ours, and never a proof."""

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.brokers.amqp import token as amqp_token
from amqsidecar.brokers.amqp.sasl import HEADER, SaslExchange
from amqsidecar.brokers.amqp.scram import ScramClient
from amqsidecar.brokers.amqp_artemis import management as amqp_artemis_management
from amqsidecar.brokers.connection.credentials import fixed_password
from amqsidecar.brokers.stomp_classic.look import read_destination_info
from amqsidecar.brokers.token import decode
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
    RemoteProtocolError,
    UndecodableMessage,
)
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.stomp_classic_message import read_cycle
from amqsidecar.formats.stomp_frame import Frame, write_head
from support.brokers.loopback import at_loopback
from support.wires.amqp_strategies import messages
from support.wires.fuzz import damaged, fuzz, pieces

DIGITS = "9" * 5000


def frame(code: int, fields: list[bytes]) -> bytes:
    body = amqp.make_list(code, fields)
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\0\0" + body


CONVERSATION = (
    HEADER
    + frame(0x40, [b"\xe0\x0f\x01\xb3\0\0\0\x05PLAIN"])
    + frame(0x42, [b"\xa0\x05r=a,s"])
    + frame(0x44, [b"\x50\x00", b"\x40"])
)
texts = st.sampled_from((b"r=", b"s=YQ==", b"i=4096", b"i=9", b"v=YQ==", b"e=x", b"m=1", b"s=?"))


@fuzz
@given(damaged(st.just(CONVERSATION)) | st.binary(max_size=40).map(HEADER.__add__), st.data())
@example(CONVERSATION, None)
def test_any_answers_to_a_log_in(stream: bytes, data: st.DataObject | None) -> None:
    chunks = [stream] if data is None else data.draw(pieces(stream))
    exchange = SaslExchange(
        at_loopback(
            5672,
            user="u",
            credentials=fixed_password("secret"),
            mechanisms=("SCRAM-SHA-256",),
        )
    )
    with suppress(BrokerRefused, LinkLost):
        for chunk in chunks:
            assert b"secret" not in exchange.feed(chunk)
    assert not exchange.is_done


@fuzz
@given(
    st.lists(texts | st.binary(max_size=8)).map(b",".join),
    st.lists(texts | st.binary(max_size=8)).map(b",".join),
    st.booleans(),
)
@example(b"", b"v=", True)
@example(f"s=YQ==,i={DIGITS}".encode(), b"", True)
def test_nobody_proves_a_password_that_he_does_not_know(
    first: bytes, final: bytes, is_ours: bool
) -> None:
    client = ScramClient("SCRAM-SHA-256", "u", "secret", "nonce")
    with suppress(BrokerRefused, RemoteProtocolError):
        client.final(b"r=nonceX," * is_ours + first)
    proven = False
    with suppress(BrokerRefused, RemoteProtocolError):
        client.verify(final)
        proven = True
    assert not proven


def _token(number: int) -> bytes:
    return amqp_token.encode_token("amqsidecar.token.a", number, 0, "digest")


@fuzz
@given(damaged(messages() | st.integers(0, 2**63 - 1).map(_token)))
def test_any_message_as_a_token_of_amqp(data: bytes) -> None:
    token = amqp_token._decoded(data)
    assert token is None or 0 <= token.cycle < 2**63
    amqp_token._delivery_count(data)


json = st.recursive(
    st.sampled_from(("1", '"x"', "null", "true", "1e999", "-7", "NaN", "Infinity", DIGITS)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda found: f"[{','.join(found)}]")
        | st.dictionaries(
            st.sampled_from(
                ("cycle", "accepted", "lineage", "DestinationInfo", "destination", "@class")
            ),
            inner,
            max_size=4,
        ).map(lambda found: "{" + ",".join(f'"{key}":{one}' for key, one in found.items()) + "}")
    ),
)


@fuzz
@given(json.map(str.encode) | st.binary(max_size=20))
@example(b"[" * 100_000)
@example(b'{"lineage": "x", "cycle": 1, "accepted": {"q": [Infinity]}}')
@example(f'{{"lineage": "x", "cycle": {"9" * 4000}, "accepted": {{}}}}'.encode())
def test_any_json_as_a_token_or_an_advisory(body: bytes) -> None:
    token = decode(body)
    assert token is None or 0 <= token.cycle < 2**63
    read_destination_info(body)


@fuzz
@given(st.binary(max_size=30) | st.sampled_from((DIGITS.encode(), b"9" * 19, b"-1")))
def test_any_number_as_a_token_of_stomp(value: bytes) -> None:
    cycle = read_cycle(Frame("MESSAGE", write_head([(b"amqsidecarCycle", value)]), b""))
    assert cycle is None or 0 <= cycle < 2**64


def reply(body: bytes) -> bytes:
    properties = [amqp.NULL] * 5 + [amqp.string("q7")]
    return amqp.make_list(amqp.PROPERTIES, properties) + b"\x00\x53\x74\x45\x00\x53\x77" + body


@fuzz
@given(damaged(json.map(lambda text: reply(amqp.string(text)))) | damaged(messages()))
@example(reply(amqp.string("[" * 100_000)))
@example(reply(amqp.string("{}")))
@example(reply(amqp.string("7")))
def test_any_answer_of_the_management(message: bytes) -> None:
    with suppress(UndecodableMessage, ValueError, RecursionError):
        number, answer = amqp_artemis_management._decode(message)
        assert isinstance(number, int)
        assert isinstance(answer.is_ok, bool)
