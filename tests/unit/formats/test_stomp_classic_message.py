"""The provenance of a dead letter over STOMP, and what is sent back."""

import pytest

from amqsidecar.broker import Resend
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.redelivery_mark import check_of
from amqsidecar.formats.stomp_classic_message import (
    NOT_ACKNOWLEDGEABLE,
    NOT_CARRIED,
    StompResendEncoder,
    lost_by_taking,
    provenance,
    read_cycle,
    shown,
)
from amqsidecar.formats.stomp_frame import Frame, FrameReader, Header, write_head
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.model.left_behind import Loss

JMS_ID = b"ID:host-1234-1795272563985-1:1:1:1:7"
STOMP_ID = b"ID:host-1234-1795272563985-3:2:-1:1:7"
NOW_MS = 1_700_000_000_000
MADE = b"1600000000000"
CHECK = check_of("r", 3, queue("orders"), MADE).encode()


def message(*headers: Header, body: bytes = b"body", message_id: bytes = JMS_ID) -> Frame:
    usual = [
        (b"message-id", message_id),
        (b"destination", b"/queue/DLQ"),
        (b"ack", b"7"),
        (b"subscription", b"s-1"),
        (b"persistent", b"true"),
        (b"priority", b"4"),
        (b"timestamp", b"1600000000000"),
        (b"expires", b"0"),
    ]
    return Frame("MESSAGE", write_head([*headers, *usual]), body)


def lost(frame: Frame, *, modified: bool = False) -> str | None:
    return lost_by_taking(shown(frame), utf8_is_modified=modified)


def resend(frame: Frame, *, keeps: bool = True, **changes: object) -> Frame:
    options: dict[str, object] = {
        "destination": queue("orders"),
        "message": shown(frame).kept,
        "is_final": False,
        "redelivery_id": "r-1",
        "redelivery_count": 2,
        "redelivery_delay_ms": 1500,
    }
    encoder = StompResendEncoder(lambda destination: keeps)
    wire = encoder.resend(Resend(**{**options, **changes}), b"t", NOW_MS)  # type: ignore[arg-type]
    [sent] = FrameReader().feed(wire.replace(b"SEND", b"MESSAGE", 1))
    return sent


@pytest.mark.parametrize(
    "text",
    ["1", "-7", "1.5", "1.0E10", "2.5E-7", "true", "false", "null", "NaN", "-Infinity", "{a=b}"],
)
def test_a_property_that_may_be_no_string_is_reported_of_a_jms_message(text: str) -> None:
    """All that a STOMP application sends are strings."""
    header = (b"n", text.encode())
    assert lost(message(header)) is Loss.PROPERTY_TYPES
    assert lost(message(header, message_id=STOMP_ID)) is None


@pytest.mark.parametrize("text", ["", "True", "1,5", "1 ", "+1", "0x1", ".5", "nan", "orders-1"])
def test_a_property_that_can_only_be_a_string_gets_lost_nowhere(text: str) -> None:
    """No number, boolean or null of Java prints like it."""
    assert lost(message((b"n", text.encode()))) is None


def test_what_the_broker_and_a_sidecar_write_is_no_property_of_the_application() -> None:
    """Its types don't matter, since a redelivery has it no more."""
    ours = [
        (b"originalExpiration", b"0"),
        (b"redeliveryDelay", b"1000"),
        (b"amqsidecarRedeliveryCount", b"2"),
        (b"amqsidecarOriginalMessageId", b"12"),
        (b"AMQ_SCHEDULED_DELAY", b"100"),
    ]
    assert lost(message(*ours)) is None


def test_what_can_not_be_carried_is_reported() -> None:
    """Ids that can't be acknowledged, lines that the broker refuses, types that are not shown."""
    assert lost(message(message_id=b"ID:uuid:1:1:1-1")) == NOT_ACKNOWLEDGEABLE
    assert lost(message((b"long", b"x" * 10_300))) == NOT_CARRIED
    assert lost(message((b"long", b":" * 6_000))) == NOT_CARRIED
    assert lost(message((b"long", b"x" * 10_000))) is None
    assert lost(message((b"amq-msg-type", b"text"), message_id=STOMP_ID)) is Loss.BODY_TYPE
    assert lost(message((b"ActiveMQ.MQTT.QoS", b"1"), message_id=STOMP_ID)) is Loss.PROPERTY_TYPES


def test_an_empty_body_of_a_jms_message_may_be_anything() -> None:
    """But not that of a STOMP application, and not an empty Bytes."""
    assert lost(message(body=b"")) is Loss.BODY_TYPE
    assert lost(message((b"content-length", b"0"), body=b"")) is None
    assert lost(message(body=b"", message_id=STOMP_ID)) is None


def test_a_text_in_the_wrong_utf8_is_reported() -> None:
    """Only where the broker writes the modified one: it would take the bytes for that."""
    frame = message(body="\U0001f600".encode())
    assert lost(frame, modified=True) is Loss.BODY_TYPE
    assert lost(frame, modified=False) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"/queue/orders:a", queue("orders:a")),
        (b"/topic/prices", topic("prices")),
        (b"/remote-temp-queue/ID:x", Destination(DestinationKind.TEMP_QUEUE, "ID:x")),
    ],
)
def test_an_origin_is_read(value: bytes, expected: Destination) -> None:
    """Colons come escaped."""
    assert shown(message((b"original-destination", value))).origin == expected


@pytest.mark.parametrize(
    "value",
    [b"orders", b"/queue/", b"/queue/\xff", b"/queue/a,queue://b", b"/queue/a.>", b"/queue/a "],
)
def test_an_origin_that_no_message_can_be_sent_to_is_a_problem(value: bytes) -> None:
    """As is none at all."""
    for frame in (message((b"original-destination", value)), message()):
        told = shown(frame)
        assert isinstance(told.origin, str)
        found = provenance(told, queue("DLQ"), told.origin, NOW_MS)
        assert (found.origin, found.problem) == (None, told.origin)


def test_a_copied_delivery_mode_is_not_believed_where_only_persistent_ones_are_kept() -> None:
    """The broker writes the property, and so does an application that copies all of them."""
    dead = message((b"originalDeliveryMode", b"NON_PERSISTENT"))
    modes = [resend(dead, keeps=keeps).first(b"persistent") for keeps in (True, False)]
    assert modes == [b"false", b"true"]


def test_the_past_of_a_dead_letter_is_read() -> None:
    """The first of repeated headers counts; a count without an id is a stranger's."""
    told = shown(
        message(
            (b"dlqDeliveryFailureCause", b"java.lang.Throwable: Message Expired. Expiration:1"),
            (b"amqsidecarRedeliveryId", b"r"),
            (b"amqsidecarRedeliveryCount", b"3"),
            (b"amqsidecarRedeliveryCount", b"4"),
            (b"amqsidecarRedeliveryCheck", CHECK),
            (b"originalDeliveryMode", b"NON_PERSISTENT"),
            message_id=STOMP_ID,
        )
    )
    found = provenance(told, queue("DLQ"), queue("orders"), NOW_MS)
    assert (found.redelivery_id, found.redelivery_count, found.persistent) == ("r", 3, False)
    # Why: a cause that is older than the message was copied from another one.
    assert not found.expired
    stranger = shown(message((b"amqsidecarRedeliveryCount", b"3")))
    assert provenance(stranger, queue("DLQ"), queue("orders"), NOW_MS).redelivery_count == 0


def test_what_another_client_made_of_a_redelivery_is_a_copy() -> None:
    """By its kind, or by the time at which it was made."""
    marks = [(b"amqsidecarRedeliveryId", b"r"), (b"amqsidecarRedeliveryCount", b"3")]
    marks.append((b"amqsidecarRedeliveryCheck", CHECK))
    later = (b"timestamp", b"1600000000001")

    def life(frame: Frame) -> str | None:
        return provenance(shown(frame), queue("DLQ"), queue("orders"), NOW_MS).redelivery_id

    assert life(message(*marks, message_id=STOMP_ID)) == "r"
    assert life(message(*marks, message_id=JMS_ID)) is None
    assert life(message(*marks, later, message_id=STOMP_ID)) is None


def test_a_copy_names_its_own_id_and_not_that_of_the_message_it_was_copied_from() -> None:
    marks = [(b"amqsidecarRedeliveryId", b"r"), (b"amqsidecarOriginalMessageId", b"ID:first")]
    for redelivery_id, original_id in (("r", b"ID:first"), ("r-1", JMS_ID)):
        sent = resend(message(*marks), redelivery_id=redelivery_id)
        names = [value for name, value in sent.headers() if name == b"amqsidecarOriginalMessageId"]
        assert names == [original_id]


def test_a_redelivery_is_the_message_without_what_the_broker_added() -> None:
    """In order, with what says how often it was tried."""
    frame = message(
        (b"b", b"2"),
        (b"dlqDeliveryFailureCause", b"cause"),
        (b"a", b"1"),
        (b"scheduledJobId", b"j"),
        (b"AMQ_SCHEDULED_DELAY", b"9"),
        (b"original-destination", b"/queue/orders"),
        (b"content-length", b"4"),
        (b"redelivered", b"true"),
        body=b"a\0b\n",
    )
    sent = resend(frame)
    assert sent.body == b"a\0b\n"
    assert sent.headers() == [
        (b"destination", b"/queue/orders"),
        (b"transaction", b"t"),
        (b"persistent", b"true"),
        (b"timestamp", b"1600000000000"),
        (b"priority", b"4"),
        (b"content-length", b"4"),
        (b"b", b"2"),
        (b"a", b"1"),
        (b"amqsidecarRedeliveryId", b"r-1"),
        (b"amqsidecarRedeliveryCount", b"2"),
        (b"redeliveryDelay", b"1500"),
        (b"amqsidecarRedeliveryCheck", check_of("r-1", 2, queue("orders"), MADE).encode()),
        (b"amqsidecarOriginalMessageId", JMS_ID),
        (b"JMSXDeliveryCount", b"3"),
    ]


def test_a_final_dead_letter_keeps_its_cause_as_far_as_it_fits() -> None:
    """A line that is too long would end the connection."""
    frame = message((b"dlqDeliveryFailureCause", ("é:" * 6000).encode()))
    cause = resend(frame, is_final=True).first(b"dlqDeliveryFailureCause")
    assert cause is not None
    assert "é:".encode() * 1000 in cause
    assert len(cause.decode()) < 6000
    with pytest.raises(UndecodableMessage, match="'p'"):
        resend(message((b"p", b"x" * 20_000)))


def test_a_token_is_known_by_its_property() -> None:
    """Whatever else is in the queue is none."""
    wire = StompResendEncoder.token(queue("t"), 41, b"x", [])
    [sent] = FrameReader().feed(wire.replace(b"SEND", b"MESSAGE", 1))
    assert (read_cycle(sent), sent.body) == (41, b"41")
    assert read_cycle(message((b"amqsidecarCycle", b"x"))) is None
    assert read_cycle(message()) is None


@pytest.mark.parametrize(
    ("expires", "expected"), [(b"1700000000055", 1_700_000_000_055), (b"0", 0), (b"soon", 0)]
)
def test_a_message_that_will_expire_shows_when(expires: bytes, expected: int) -> None:
    told = shown(message((b"expires", expires)))
    found = provenance(told, queue("DLQ.exhausted"), queue("orders"), NOW_MS)
    assert found.expires_at_ms == expected
