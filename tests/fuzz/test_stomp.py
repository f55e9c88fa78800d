"""Any bytes over STOMP: the same frames however they are cut, and whole again out of the store."""

import json
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.brokers.stomp_artemis.selection import read_list
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import stomp_artemis_message as artemis
from amqsidecar.formats import stomp_classic_message as classic
from amqsidecar.formats.stomp_frame import (
    Frame,
    FrameReader,
    Header,
    encode,
    first,
    kept,
    parse_kept,
    write_head,
)
from amqsidecar.model.destination import queue
from amqsidecar.model.left_behind import Loss
from support.links.cycles import resend_of
from support.wires.fuzz import damaged, fuzz, pieces

RESERVED = (
    *(b"amqsidecarRedeliveryId", b"amqsidecarRedeliveryCount", b"redeliveryDelay", b"ack"),
    b"amqsidecarRedeliveryCheck",
    *(b"amqsidecarOriginalMessageId", b"amqsidecarOriginalDestination", b"amqsidecarCause"),
    *(b"original-destination", b"dlqDeliveryFailureCause", b"originalExpiration", b"expires"),
    *(b"originalDeliveryMode", b"scheduledJobId", b"AMQ_SCHEDULED_DELAY", b"JMSXDeliveryCount"),
    *(b"_AMQ_ORIG_ADDRESS", b"_AMQ_ORIG_QUEUE", b"_AMQ_ORIG_ROUTING_TYPE", b"_HQ_ORIG_ADDRESS"),
    *(b"_AMQ_DUPL_ID", b"_AMQ_ACTUAL_EXPIRY", b"content-length", b"message-id", b"destination"),
    *(b"destination-type", b"receipt", b"transaction", b"timestamp", b"priority", b"persistent"),
    *(b"subscription", b"redelivered", b"correlation-id", b"reply-to", b"type", b"__AMQ_CID"),
    *(b"_AMQ_LARGE_SIZE", b"amq-msg-type", b"NATIVE_MESSAGE_ID", b"AMQ_SCHEDULED_TIME"),
    *(b"_AMQ_SCHED_DELIVERY", b"_AMQ_ROUTE_TOx", b"__HDR_x", b"JMSXUserID", b"amqsidecarCycle"),
    b"amqsidecarOriginalDuplicateId",
)
VALUES = (b"/queue/a", b"9" * 5000, b"-1", b"1", b"9223372036854775807", b"true", b"\xff", b"1,7")
headers = st.lists(
    st.tuples(
        st.sampled_from(RESERVED) | st.binary(min_size=1, max_size=6),
        st.sampled_from(VALUES) | st.binary(max_size=12),
    ),
    max_size=10,
)
bodies = st.binary(max_size=30)


resend = partial(resend_of, redelivery_count=3, redelivery_delay_ms=2**62, expiration_ms=2**62)


def read(chunks: list[bytes]) -> tuple[list[Frame], bool]:
    reader = FrameReader()
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    return frames, reader.problem is not None


wire = st.lists(
    st.builds(
        lambda command, found, body: encode(command, found, body) + b"\n",
        st.sampled_from(("MESSAGE", "RECEIPT", "ERROR", "CONNECTED")),
        headers,
        bodies,
    )
).map(b"".join)


@fuzz
@given(damaged(wire), st.data())
@example(b"MESSAGE\ncontent-length:3\n\nab\0cd", None)
@example(b"\n\r\n\n", None)
def test_frames_are_the_same_however_they_are_cut(
    stream: bytes, data: st.DataObject | None
) -> None:
    chunks = [stream[at : at + 1] for at in range(len(stream))]
    if data is not None:
        chunks = data.draw(pieces(stream))
    assert read(chunks) == read([stream])


@pytest.mark.parametrize("length", [b"9" * 5000, b"-1", b"2147483648", b"9999999999", b"1e3"])
def test_a_length_that_can_not_be_is_refused_by_itself(length: bytes) -> None:
    """Before anything is kept for it."""
    frames, is_refused = read([b"MESSAGE\ncontent-length:%b\n\n" % length])
    assert (frames, is_refused) == ([], True)


@fuzz
@given(headers, bodies)
def test_what_is_kept_comes_back(found: list[Header], body: bytes) -> None:
    again, kept_body = parse_kept(kept(found, body))
    assert (again, bytes(kept_body)) == (found, body)


@fuzz
@given(st.binary(max_size=40))
def test_what_is_no_kept_message_is_undecodable(data: bytes) -> None:
    with suppress(UndecodableMessage):
        found, body = parse_kept(data)
        assert parse_kept(kept(found, bytes(body))) == (found, body)


@fuzz
@given(headers, bodies, st.booleans())
@example([(b"message-id", b"9" * 5000)], b"", False)
@example([(b"message-id", b"1,7"), (b"message-id", b"x"), (b"content-length", b"x")], b"a", True)
def test_any_message_of_artemis(found: list[Header], body: bytes, is_final: bool) -> None:
    try:
        arrived = artemis.read_frame(Frame("MESSAGE", write_head(found), body))
    except UndecodableMessage:
        return
    artemis.has_odd_names(arrived.headers)
    told = artemis.read_provenance(
        arrived.headers,
        arrived.number,
        queue("DLQ"),
        created_ms=0,
        expires=False,
        read_origin=lambda origin: (queue(origin.address), None),
    )
    assert (told.origin is None) == (told.problem is not None)
    assert 0 <= told.redelivery_count < 2**31
    sent, sent_body = artemis.resend_frame(resend(arrived.message, is_final=is_final), 2**41)
    assert sent_body == body
    again = dict(reversed(sent))
    assert (again[b"amqsidecarRedeliveryId"], again[b"amqsidecarRedeliveryCount"]) == (b"r-1", b"3")
    assert again[b"destination"] == b"orders"
    assert b"_AMQ_DUPL_ID" not in again
    check_others(found, sent)


@fuzz
@given(headers, bodies, st.booleans())
def test_any_message_of_classic(found: list[Header], body: bytes, is_final: bool) -> None:
    message = classic.shown(Frame("MESSAGE", write_head(found), body))
    told = classic.provenance(message, queue("DLQ"), message.origin, 2**41)
    assert (told.origin is None) == (told.problem is not None)
    assert 0 <= told.redelivery_count < 2**31
    classic.lost_by_taking(message, utf8_is_modified=True)
    one = resend(message.kept, is_final=is_final)
    wire = classic.StompResendEncoder().resend(one, b"tx", 2**41)
    (frame,) = FrameReader().feed(wire.replace(b"SEND", b"MESSAGE", 1))
    if b"\0" not in body or first(found, b"content-length") is not None:
        assert frame.body == body
    assert first(frame.headers(), b"amqsidecarRedeliveryId") == b"r-1"
    assert first(frame.headers(), b"destination") == b"/queue/orders"
    check_others(found, frame.headers())


def check_others(found: list[Header], sent: list[Header]) -> None:
    """All headers of the application, and only these, are there in order."""
    assert [one for one in found if one[0] not in RESERVED and one in sent] == [
        one for one in found if one[0] not in RESERVED
    ]


KEYS = ("messageID", "type", "userID", "_AMQ_ORIG_MESSAGE_ID", "x-opt-jms-msg-type", "x")
listed: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(KEYS),
    st.none() | st.booleans() | st.integers() | st.text() | st.just([]) | st.just({}),
)


@fuzz
@given(st.lists(listed, max_size=3), st.booleans())
@example([{"messageID": "x"}], False)
@example([{"messageID": 7, "_AMQ_ORIG_MESSAGE_ID": 1, "x-opt-jms-msg-type": []}], False)
def test_any_list_of_messages(entries: list[dict[str, object]], allows: bool) -> None:
    """A property can have the name of any of the list's own keys, and then takes its place."""
    for listed in read_list(json.dumps(entries), tuple(Loss) if allows else ()):
        assert isinstance(listed.number, int)


def test_the_highest_count_is_an_int_of_java() -> None:
    """A stranger can write 2147483647; Classic ends the connection at one more."""
    one = resend(kept([], b""), is_final=False)
    one = msgspec.structs.replace(one, redelivery_count=2**31 - 1)
    sent = classic.StompResendEncoder().resend(one, b"tx", 2**41)
    assert b"\nJMSXDeliveryCount:2147483647\n" in sent
