"""Dead letters of Artemis over STOMP: what frames show, what tokens name, what is selected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.broker import Resend
from amqsidecar.brokers.stomp_artemis.selection import (
    MADE_BY_OTHERS,
    MADE_BY_STOMP,
    NO_ORIGIN,
    read_list,
    readable,
    without,
)
from amqsidecar.brokers.token import Token, decode, encode
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.artemis_properties import Origin
from amqsidecar.formats.redelivery_mark import check_of
from amqsidecar.formats.stomp_artemis_message import (
    has_odd_names,
    read_frame,
    read_provenance,
    resend_frame,
)
from amqsidecar.formats.stomp_frame import Frame, Header, write_head
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.left_behind import Loss

# As 2.44 writes it, with the properties of a producer that forges what it can.
HEADERS: list[Header] = [
    (b"subscription", b"in-1"),
    (b"message-id", b"160,65"),
    (b"destination", b"DLQ"),
    (b"correlation-id", b"c1"),
    (b"expires", b"0"),
    (b"redelivered", b"true"),
    (b"priority", b"7"),
    (b"persistent", b"true"),
    (b"timestamp", b"1795272319936"),
    (b"ack", b"9,9"),
    (b"message-id", b"9,9"),
    (b"receipt", b"r1"),
    (b"_AMQ_ORIG_QUEUE", b"orders"),
    (b"_AMQ_ORIG_ROUTING_TYPE", b"1"),
    (b"_AMQ_ORIG_ADDRESS", b"orders::orders"),
    (b"_AMQ_ORIG_MESSAGE_ID", b"54"),
    (b"_AMQ_LARGE_SIZE", b"600005"),
    (b"destination-type", b"ANYCAST"),
    (b"transaction", b"cycle-1"),
    (b"__AMQ_CID", b"id"),
    (b"AMQ_SCHEDULED_DELAY", b"9"),
    (b"foo", b"bar"),
    (b"ack", b"160,65"),
    (b"content-length", b"5"),
]


def frame(headers: list[Header], body: bytes = b"hello") -> Frame:
    return Frame("MESSAGE", write_head(headers), body)


def read_origin(origin: Origin) -> tuple[Destination | None, str | None]:
    return queue(f"{origin.address}/{origin.queue}/{origin.routing_type}"), None


def resend(message: bytes, **options: object) -> Resend:
    values: dict[str, object] = {
        "destination": queue("orders"),
        "message": message,
        "is_final": False,
        "redelivery_id": "r",
        "redelivery_count": 2,
        "redelivery_delay_ms": 30,
        **options,
    }
    return Resend(**values)  # type: ignore[arg-type]


def test_the_real_headers_count_and_not_those_of_the_producer() -> None:
    """Number, acknowledgement and subscription are the broker's."""
    arrived = read_frame(frame(HEADERS))
    assert (arrived.ack, arrived.number, arrived.subscription) == (b"160,65", 65, "in-1")
    assert arrived.redelivered
    assert not arrived.is_bytes
    assert (b"ack", b"9,9") in arrived.headers
    assert (b"message-id", b"9,9") in arrived.headers
    provenance = read_provenance(
        arrived.headers, 65, queue("DLQ"), created_ms=0, expires=False, read_origin=read_origin
    )
    assert provenance.origin == queue("orders/orders/1")
    assert (provenance.message_id, provenance.persistent) == ("artemis:65", True)
    with pytest.raises(UndecodableMessage):
        read_frame(frame([(b"message-id", b"x")]))


def test_the_place_of_the_length_distinguishes_bytes_from_text() -> None:
    """Before the message's number it is bytes, after it text."""
    first = [HEADERS[0], (b"content-length", b"5"), *HEADERS[1:-1]]
    assert read_frame(frame(first)).is_bytes
    headers, body = resend_frame(resend(read_frame(frame(first)).message), 0)
    assert (b"content-length", b"5") in headers
    assert bytes(body) == b"hello"
    headers, _ = resend_frame(resend(read_frame(frame(HEADERS)).message), 0)
    assert b"content-length" not in dict(headers)


def test_empty_bytes_stay_bytes() -> None:
    """Their length comes as a property, behind the message's number; an empty text has none."""
    behind = [*HEADERS[:-1], (b"content-length", b"0"), HEADERS[-1]]
    for headers, is_bytes in ((behind, True), (HEADERS, False)):
        plain = [one for one in headers if is_bytes or one[0] != b"content-length"]
        arrived = read_frame(frame(plain, b""))
        assert arrived.is_bytes == is_bytes
        sent, body = resend_frame(resend(arrived.message), 0)
        assert ((b"content-length", b"0") in sent, bytes(body)) == (is_bytes, b"")


def test_a_redelivery_is_the_message_without_its_death() -> None:
    """What would act or lie is cut, what the producer set stays."""
    headers, body = resend_frame(resend(read_frame(frame(HEADERS)).message), 0)
    assert bytes(body) == b"hello"
    assert headers == [
        (b"destination", b"orders"),
        (b"destination-type", b"ANYCAST"),
        (b"correlation-id", b"c1"),
        (b"priority", b"7"),
        (b"persistent", b"true"),
        (b"ack", b"9,9"),
        (b"message-id", b"9,9"),
        (b"foo", b"bar"),
        (b"amqsidecarRedeliveryId", b"r"),
        (b"amqsidecarRedeliveryCount", b"2"),
        (b"redeliveryDelay", b"30"),
        (b"amqsidecarRedeliveryCheck", check_of("r", 2, queue("orders"), b"").encode()),
    ]


def test_what_another_client_made_of_a_redelivery_is_a_copy() -> None:
    """STOMP has no identity: a STOMP client's copy to the same queue can't be recognized."""
    headers, body = resend_frame(resend(read_frame(frame(HEADERS)).message), 0)

    def life(*added: Header) -> tuple[str | None, int]:
        died = [(b"_AMQ_ORIG_ADDRESS", b"orders"), (b"_AMQ_ORIG_MESSAGE_ID", b"7"), *added]
        again = [*HEADERS[:3], *died, *headers[2:]]
        told = read_provenance(
            read_frame(frame(again, bytes(body))).headers,
            65,
            queue("DLQ"),
            created_ms=0,
            expires=False,
            read_origin=lambda origin: (queue(origin.address), None),
        )
        return told.redelivery_id, told.redelivery_count

    assert life() == ("r", 2)
    for mark in (b"__AMQ_CID", b"JMS_AMQP_MA_x-opt-ORIG-ADDRESS", b"__HDR_ARRIVAL"):
        assert life((mark, b"x")) == (None, 0)


def test_a_final_dead_letter_keeps_its_past_and_expires() -> None:
    """And a qualified name of a topic is sent as multicast."""
    message = read_frame(frame(HEADERS)).message
    headers, _ = resend_frame(resend(message, is_final=True, expiration_ms=5), 1000)
    assert dict(headers)[b"_AMQ_ORIG_ADDRESS"] == b"orders::orders"
    assert dict(headers)[b"expires"] == b"1005"
    headers, _ = resend_frame(resend(message, destination=topic("prices::sub")), 0)
    assert headers[:2] == [(b"destination", b"prices::sub"), (b"destination-type", b"MULTICAST")]


def test_a_producers_duplicate_id_is_kept_under_a_name_that_swallows_nothing() -> None:
    theirs = [*HEADERS[:-2], (b"_AMQ_DUPL_ID", b"p"), *HEADERS[-2:]]
    headers, body = resend_frame(resend(read_frame(frame(theirs)).message), 0)
    assert dict(headers)[b"amqsidecarOriginalDuplicateId"] == b"p"
    again = [*HEADERS[:3], *headers[2:], *HEADERS[-2:]]
    headers, _ = resend_frame(resend(read_frame(frame(again, bytes(body))).message), 0)
    assert [one for one in headers if one[1] == b"p"] == [(b"amqsidecarOriginalDuplicateId", b"p")]
    copied = [(b"_AMQ_DUPL_ID", b"q"), *headers[2:]]
    headers, _ = resend_frame(resend(read_frame(frame([*HEADERS[:3], *copied])).message), 0)
    kept = {name: value for name, value in headers if value in (b"p", b"q")}
    assert kept == {b"amqsidecarOriginalDuplicateId": b"q"}


def test_names_that_a_send_takes_for_its_own_are_odd() -> None:
    """A second `type` is a property that can't be sent back."""
    assert has_odd_names([(b"type", b"a"), (b"x", b""), (b"type", b"b")])
    assert not has_odd_names([(b"type", b"a"), (b"ack", b"1"), (b"ack", b"2")])


@given(
    st.builds(
        Token,
        st.text(),
        st.integers(0, 2**62),
        st.dictionaries(st.text(), st.frozensets(st.integers(0, 2**63), min_size=1)),
    )
)
def test_a_token_says_what_was_written(token: Token) -> None:
    """Whatever the names of queues are."""
    assert decode(encode(token)) == token


def test_a_token_of_amqp_is_a_number() -> None:
    """It names nothing, for AMQP accepts in its transactions."""
    token = decode(b"5")
    assert token is not None
    assert (token.cycle, token.accepted) == (5, {})


@pytest.mark.parametrize(
    "body",
    [b"", b"5.0", b"9" * 20, b"-1", b"{}", b'{"cycle":-1}', b"\xff", b"[1]"],
)
def test_anything_else_is_no_token(body: bytes) -> None:
    """Strangers may send there."""
    assert decode(body) is None


def entry(**fields: object) -> dict[str, object]:
    return {"messageID": 9, "type": 3, "_AMQ_ORIG_MESSAGE_ID": 4, "__AMQ_CID": "c", **fields}


@pytest.mark.parametrize(
    ("fields", "allowed", "loss"),
    [
        ({"text": "x", "_AMQ_ORIG_QUEUE": ""}, (), ""),
        ({"type": 4}, (), ""),
        ({"type": 4, "__HDR_COMMAND_ID": 5}, (), ""),
        ({"number": 1}, (), "property_types"),
        ({"flag": True}, (), "property_types"),
        ({"perhaps_null": ""}, (), "property_types"),
        ({"_AMQ_GROUP_SEQUENCE": 1}, (), "property_types"),
        ({"_AMQ_GROUP_SEQUENCE": 0}, (), ""),
        ({"number": 1}, (Loss.PROPERTY_TYPES,), ""),
        ({"type": 5}, (Loss.BODY_TYPE,), "body_type"),
        ({"type": 0}, (), "body_type"),
        ({"type": 0}, (Loss.BODY_TYPE,), ""),
        ({"content-length": "5"}, (), "body_type"),
        ({"_AMQ_LARGE_COMPRESSED": True}, (), "body_type"),
        ({"type": None, "x-opt-jms-msg-type": 5}, (Loss.PROPERTY_TYPES,), "body_type"),
        ({"type": None, "x-opt-jms-msg-type": 5}, (Loss.PROPERTY_TYPES, Loss.BODY_TYPE), ""),
        ({"_AMQ_ORIG_MESSAGE_ID": "forged"}, (), NO_ORIGIN),
    ],
)
def test_only_what_is_known_to_be_whole_is_fetched(
    fields: dict[str, object], allowed: tuple[Loss, ...], loss: str
) -> None:
    """As the management lists it; doubt counts as loss."""
    [listed] = read_list(json.dumps([entry(**fields)]), allowed)
    assert (listed.number, listed.loss) == (9, loss)


def test_selectors_name_messages_and_stay_short() -> None:
    """What STOMP made is always wanted; Artemis takes a header of some KB only."""
    listed = read_list(json.dumps([entry(), entry(messageID=8)]), ())
    assert readable([7], listed) == (
        f"({MADE_BY_STOMP} AND _AMQ_ORIG_MESSAGE_ID <> 7)"
        f" OR ({MADE_BY_OTHERS} AND (_AMQ_ORIG_MESSAGE_ID = 4))"
    )
    assert readable([], []) == MADE_BY_STOMP
    assert without("x", [4]) == "x AND _AMQ_ORIG_MESSAGE_ID <> 4"
    assert len(without("x", range(100_000, 200_000))) < 10_000
