"""What a dead letter of Classic shows over AMQP, and which bytes a redelivery changes."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from proton import Message, byte, int32, symbol

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_classic_message import (
    damage,
    encode_resend,
    is_native,
    mended,
    read_provenance,
    take_apart,
)
from amqsidecar.formats.redelivery_mark import check_of
from amqsidecar.model.destination import queue
from amqsidecar.model.provenance import Provenance
from support.links.cycles import resend_of
from support.wires.amqp_properties import properties_of
from support.wires.amqp_strategies import messages

NOW_MS = 1_700_000_000_000
DEAD = queue("DLQ.orders")
OPENWIRE_ID = "ID:host.example-37021-1699999999000-1:1:1:1:7"
QPID_ID = "ID:c82aabbe-10a6-435d-bc74-037c6d0120ea:1:1:1-1"
JMS_DEST = {symbol("x-opt-jms-dest"): byte(0), symbol("x-opt-jms-reply-to"): byte(1)}
STREAM_WITH_BYTES = b"\x00\x53\x76\xc0\x05\x02\x41\xa0\x01\xff"
QPID_MARKS = {**JMS_DEST, symbol("x-opt-jms-msg-type"): byte(5)}


def mapped(properties: dict[str, Any] | None = None, **fields: Any) -> bytes:
    """Return a dead letter as the broker encodes a JMS message."""
    return encode(
        **{"address": str(DEAD), "id": OPENWIRE_ID, "annotations": JMS_DEST, **fields},
        properties={"dlqDeliveryFailureCause": "java.lang.Throwable: boom", **(properties or {})},
    )


def encode(**fields: Any) -> bytes:
    return bytes(Message(**{"durable": True, "body": "body", **fields}).encode())


def decode(encoded: bytes) -> Message:
    message = Message()
    message.decode(encoded)
    return message


def read(encoded: bytes) -> Provenance:
    found = take_apart(encoded)
    return read_provenance(
        found, DEAD, origin=queue("orders"), now_ms=NOW_MS, is_native_made=is_native(found, DEAD)
    )


resend = partial(resend_of, redelivery_count=3)


def sent(message: bytes, *, is_native_wire: bool = False, **changes: Any) -> Message:
    return decode(encode_resend(resend(message, **changes), NOW_MS, is_native_wire=is_native_wire))


@pytest.mark.parametrize(
    ("properties", "expired"),
    [
        (
            {"dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired. Expiration:1700"},
            True,
        ),
        ({"dlqDeliveryFailureCause": "java.lang.Throwable: boom"}, False),
        ({"dlqDeliveryFailureCause": None, "originalExpiration": NOW_MS - 1}, True),
        ({"dlqDeliveryFailureCause": None, "originalExpiration": NOW_MS + 1}, False),
        ({"dlqDeliveryFailureCause": None, "originalExpiration": 0}, False),
        # A cause of another message, copied by an application: it died before this one was sent.
        ({"dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired. Expiration:9"}, False),
    ],
)
def test_what_has_expired(properties: dict[str, Any], expired: bool) -> None:
    """The cause shows it, else the time to live that the broker kept."""
    message = mapped(properties, creation_time=0.5)
    assert read(message).expired is expired


def test_a_mapped_message_shows_its_past() -> None:
    """Cause, delivery mode, our own properties; the origin is that of its queue."""
    told = read(
        mapped(
            {
                "dlqDeliveryFailureCause": "java.lang.Throwable: duplicate from store for queue://a",
                "originalDeliveryMode": "NON_PERSISTENT",
                "amqsidecarRedeliveryId": "r-1",
                "amqsidecarRedeliveryCount": int32(4),
                "amqsidecarRedeliveryCheck": check_of("r-1", 4, queue("orders"), b"\x000"),
            }
        )
    )
    assert told.origin == queue("orders")
    assert told.is_store_duplicate
    assert not told.persistent
    assert (told.redelivery_id, told.redelivery_count) == ("r-1", 4)
    assert told.message_id == OPENWIRE_ID
    assert told.problem is None


def test_a_native_message_is_not_believed_about_its_death() -> None:
    """Its properties are the application's: the broker writes nothing on it."""
    forged = {
        "dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired. Expiration:9",
        "originalDeliveryMode": "NON_PERSISTENT",
    }
    told = read(encode(address="queue://orders", properties=forged, id=QPID_ID))
    assert (told.cause, told.expired, told.persistent) == (None, False, True)
    assert read(encode(expiry_time=(NOW_MS - 1) / 1000)).expired
    assert not read(encode(expiry_time=(NOW_MS + 1) / 1000)).expired
    assert read(encode(creation_time=(NOW_MS - 2000) / 1000, ttl=1)).expired


@pytest.mark.parametrize("keeps", [True, False])
def test_a_copied_delivery_mode_is_not_believed_where_only_persistent_ones_are_kept(
    keeps: bool,
) -> None:
    """The broker writes the property, and so does an application that copies all of them."""
    dead = mapped({"originalDeliveryMode": "NON_PERSISTENT"}, durable=True)
    encoded = encode_resend(
        resend(dead),
        NOW_MS,
        is_native_wire=False,
        keeps_non_persistent=lambda destination: keeps,
    )
    assert decode(encoded).durable is not keeps


def test_a_count_without_an_id_is_a_strangers() -> None:
    """As on every wire."""
    assert read(mapped({"amqsidecarRedeliveryCount": int32(4)})).redelivery_count == 0


def test_a_text_id_distinguishes_a_copy_from_the_message_that_was_sent() -> None:
    """The broker leaves it, but replaces a real one, so that only the time counts then."""
    first = sent(mapped(id=QPID_ID, creation_time=5))
    again = mapped(first.properties, id=QPID_ID, creation_time=5)
    assert read(again).redelivery_id == "r-1"
    assert read(mapped(first.properties, id="another", creation_time=5)).redelivery_id is None
    assert read(mapped(first.properties, id=QPID_ID, creation_time=6)).redelivery_id is None
    given_up = {**properties_of(first), "amqsidecarCause": "boom"}
    assert read(mapped(given_up, id="another")).redelivery_id == "r-1"


def test_without_an_origin_it_says_so() -> None:
    """Then it can only be parked."""
    found = take_apart(mapped())
    told = read_provenance(found, DEAD, origin=None, now_ms=NOW_MS, is_native_made=False)
    assert told.problem is not None


@pytest.mark.parametrize(
    ("message", "is_damaged"),
    [
        (mapped(), False),
        # A TextMessage whose text is null.
        (amqp.join({**amqp.split(mapped()), amqp.VALUE: b"\x00\x53\x77\x40"}), False),
        (amqp.join({**amqp.split(mapped()), amqp.VALUE: b""}), True),
        (amqp.join({**amqp.split(mapped(annotations=QPID_MARKS)), amqp.VALUE: b""}), False),
        (encode(address="queue://orders"), True),
        (encode(), True),
        (amqp.join({**amqp.split(encode()), amqp.VALUE: STREAM_WITH_BYTES}), False),
        (amqp.join({**amqp.split(encode()), amqp.VALUE: b"\x00\x53\x76\x45"}), True),
    ],
)
def test_what_a_mapping_connector_would_alter(message: bytes, is_damaged: bool) -> None:
    """Messages without a body, and native ones that it could map now."""
    assert (damage(take_apart(message), DEAD) is not None) is is_damaged


def test_texts_in_javas_form_are_read_and_mended() -> None:
    """A cause too, also of a final dead letter; half a character can't be sent."""
    astral, half = b"\xa1\x06\xed\xa0\xbd\xed\xb8\x80", b"\xa1\x03\xed\xa0\xbd"

    def with_cause(cause: bytes) -> bytes:
        pairs = [amqp.string("dlqDeliveryFailureCause"), cause]
        properties = amqp.make_map(amqp.APPLICATION_PROPERTIES, pairs)
        return amqp.join({**amqp.split(mapped()), amqp.APPLICATION_PROPERTIES: properties})

    told = mended(take_apart(with_cause(astral)))
    assert told is not None
    assert (
        read_provenance(told, DEAD, origin=None, now_ms=0, is_native_made=False).cause
        == "\U0001f600"
    )
    final = sent(with_cause(astral), is_final=True)
    assert properties_of(final)["dlqDeliveryFailureCause"] == "\U0001f600"
    assert damage(take_apart(with_cause(astral)), DEAD) is None
    assert damage(take_apart(with_cause(half)), DEAD) is not None
    kept = encode_resend(resend(with_cause(half), is_final=True), NOW_MS, is_native_wire=False)
    assert half in kept


def test_a_mapped_redelivery_has_no_trace_of_its_death() -> None:
    """A new real id, the first one as property, the count where the broker has it."""
    found = sent(
        mapped(
            {
                "originalExpiration": 0,
                "originalDeliveryMode": "NON_PERSISTENT",
                "scheduledJobId": "ID:1",
                "redeliveryDelay": 1,
                "own": "kept",
            },
            priority=7,
        )
    )
    assert properties_of(found) == {
        "own": "kept",
        "amqsidecarRedeliveryId": "r-1",
        "amqsidecarRedeliveryCount": 3,
        "redeliveryDelay": 5000,
        "amqsidecarRedeliveryCheck": check_of("r-1", 3, queue("orders"), b"\x000"),
        "amqsidecarOriginalMessageId": OPENWIRE_ID,
    }
    assert type(properties_of(found)["amqsidecarRedeliveryCount"]) is int32
    assert found.id is None
    assert found.address == "queue://orders"
    assert found.annotations in (None, {})
    assert (found.durable, found.priority, found.delivery_count) == (False, 7, 3)


def test_the_first_id_is_kept_over_many_redeliveries() -> None:
    """And a text id, which the broker did not make, stays where it was."""
    marks = {"amqsidecarOriginalMessageId": "first", "amqsidecarRedeliveryId": "r-1"}
    assert properties_of(sent(mapped(marks)))["amqsidecarOriginalMessageId"] == "first"
    copy = sent(mapped({**marks, "amqsidecarRedeliveryId": "of another"}))
    assert properties_of(copy)["amqsidecarOriginalMessageId"] == OPENWIRE_ID
    text = sent(mapped(id=QPID_ID))
    assert text.id == QPID_ID
    assert "amqsidecarOriginalMessageId" not in properties_of(text)


def test_the_marks_of_a_jms_client_of_amqp_stay() -> None:
    """It reads the type of the message from them, and gets no count that it would reject."""
    found = sent(mapped(annotations=QPID_MARKS, id=QPID_ID))
    assert found.annotations == QPID_MARKS
    assert found.delivery_count == 0


def test_the_time_to_live_restarts() -> None:
    """Of a mapped message where the broker shows it, of a native one as its producer wrote it."""
    created = (NOW_MS - 60_000) / 1000
    shown = sent(mapped({"originalExpiration": NOW_MS}, creation_time=created))
    assert (shown.ttl, shown.expiry_time) == (60, (NOW_MS + 60_000) / 1000)
    assert shown.creation_time == NOW_MS / 1000
    hidden = sent(mapped(creation_time=created, ttl=5, expiry_time=NOW_MS / 1000))
    assert (hidden.ttl, hidden.expiry_time, hidden.creation_time) == (0, 0, created)
    absolute = encode(creation_time=created, expiry_time=NOW_MS / 1000)
    for message in (absolute, encode(creation_time=created, ttl=60, expiry_time=1)):
        native = sent(message, is_native_wire=True)
        assert (native.ttl, native.expiry_time) == (60, (NOW_MS + 60_000) / 1000)


def test_a_native_redelivery_keeps_everything_else() -> None:
    """Id, target, the broker's own words: all are the application's."""
    own = {"dlqDeliveryFailureCause": "mine", "originalExpiration": 7}
    message = encode(
        address="orders", id=OPENWIRE_ID, annotations=QPID_MARKS, properties=own, delivery_count=2
    )
    found = sent(message, is_native_wire=True)
    assert (found.address, found.id, found.annotations) == ("orders", OPENWIRE_ID, QPID_MARKS)
    assert found.delivery_count == 0
    assert {name: properties_of(found)[name] for name in own} == own


@pytest.mark.parametrize("is_final", [True, False])
@pytest.mark.parametrize("is_native_wire", [True, False])
def test_nothing_is_scheduled_again(is_native_wire: bool, is_final: bool) -> None:
    """The broker would wait, or send copies, again because the message still asks for it."""
    delays = {symbol("x-opt-delivery-delay"): 60_000, symbol("x-opt-delivery-time"): 1}
    message = mapped({"AMQ_SCHEDULED_DELAY": 60_000}, annotations=delays)
    found = sent(message, is_native_wire=is_native_wire, is_final=is_final)
    assert found.annotations in (None, {})
    assert "AMQ_SCHEDULED_DELAY" not in properties_of(found)


def test_a_final_dead_letter_keeps_its_cause() -> None:
    """It is persistent, carries the last count, and expires as it was sent."""
    found = sent(
        mapped({"originalExpiration": 5}, durable=False), is_final=True, expiration_ms=60_000
    )
    assert properties_of(found)["dlqDeliveryFailureCause"] == "java.lang.Throwable: boom"
    assert properties_of(found)["amqsidecarRedeliveryCount"] == 3
    assert (found.durable, found.ttl, found.delivery_count) == (True, 60, 0)
    assert found.expiry_time == (NOW_MS + 60_000) / 1000
    assert sent(mapped(ttl=5, expiry_time=1), is_final=True).expiry_time == 0


@settings(deadline=None)
@given(messages())
def test_a_native_message_comes_through_byte_for_byte(message: bytes) -> None:
    """Only header, expiry and our properties differ; twice is the same as once."""
    once = encode_resend(resend(message), NOW_MS, is_native_wire=True)
    before, after = amqp.split(message), amqp.split(once)
    for code in (amqp.DELIVERY_ANNOTATIONS, amqp.MESSAGE_ANNOTATIONS, amqp.VALUE):
        assert after.get(code) == before.get(code)
    items = (amqp.elements(one[amqp.PROPERTIES]) for one in (before, after))
    for at, (old, new) in enumerate(zip(*items, strict=False)):
        assert old == new or at in (8, 9)
    own = amqp.pairs(before.get(amqp.APPLICATION_PROPERTIES, amqp.make_map(0x74, [])))
    assert amqp.pairs(after[amqp.APPLICATION_PROPERTIES])[: len(own)] == own
    assert encode_resend(resend(once), NOW_MS, is_native_wire=True) == once


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_what_can_not_be_taken_apart_is_reported(cut: int) -> None:
    """The message is parked whole."""
    with pytest.raises(UndecodableMessage):
        encode_resend(resend(mapped()[:-cut]), NOW_MS, is_native_wire=False)


def test_a_message_that_will_expire_shows_when() -> None:
    assert read(encode(expiry_time=(NOW_MS + 55) / 1000)).expires_at_ms == NOW_MS + 55
    assert read(encode()).expires_at_ms == 0
