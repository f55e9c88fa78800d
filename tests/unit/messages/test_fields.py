"""Fields of kept messages have one value, whatever their wire; hostile bodies have none."""

import struct

import pytest
from proton import Message

from amqsidecar.formats.amqp_artemis_message import ENCODING as AMQP
from amqsidecar.formats.core import message as core
from amqsidecar.formats.core.message import CoreProperty, CorePropertyType, new_message
from amqsidecar.formats.core.primitives import NULLABLE_SIMPLE_STRING
from amqsidecar.formats.core_artemis_message import ENCODING as CORE
from amqsidecar.formats.core_artemis_message import keep
from amqsidecar.formats.openwire_codec import ENCODING as OPENWIRE
from amqsidecar.formats.stomp_frame import ENCODING as STOMP
from amqsidecar.formats.stomp_frame import kept
from amqsidecar.messages.fields import BODY_BYTES_MAX, OpenMessage, parse_field
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

JSON = '{"error": {"code": "E42", "n": 1.50, "a/b": true}, "items": [{"id": 7}], "none": null}'
XML = '<o:order xmlns:o="urn:o" kind="new"><o:line n="1">äpfel</o:line><o:line>2</o:line></o:order>'


def amqp(body: str) -> bytes:
    return bytes(Message(body=body, subject="order", properties={"code": "x"}).encode())


def openwire(body: str) -> bytes:
    data = body.encode()
    return WireMessage(
        type="order",
        content=struct.pack(">i", len(data)) + data,
        properties=wire.property_map(wire.text_entry("code", "x")),
    ).encoded()


def stomp(body: str) -> bytes:
    return kept([(b"type", b"order"), (b"code", b"x")], body.encode())


def of_core(body: str) -> bytes:
    properties = {
        "JMSType": CoreProperty(CorePropertyType.STRING, "order"),
        "code": CoreProperty(CorePropertyType.STRING, "x"),
    }
    data = NULLABLE_SIMPLE_STRING.write(body)
    made = new_message("DLQ", properties, timestamp_ms=5, kind=core.TEXT_MESSAGE, body=data)
    return keep(made._replace(message_id=9, user_id=bytes(range(16))))


WIRES = {AMQP: amqp, OPENWIRE: openwire, STOMP: stomp, CORE: of_core}


@pytest.mark.parametrize("encoding", WIRES)
@pytest.mark.parametrize(
    ("field", "body", "value"),
    [
        ("property:code", "", "x"),
        ("property:other", "", None),
        ("jms_type", "", "order"),
        ("redeliveries", "", None),
        ("json:/error/code", JSON, "E42"),
        ("json:/error/n", JSON, "1.50"),
        ("json:/error/a~1b", JSON, "true"),
        ("json:/items/0/id", JSON, "7"),
        ("json:/none", JSON, "null"),
        ("json:/error", JSON, None),
        ("json:/items/1/id", JSON, None),
        ("json:/error/code/x", JSON, None),
        ("json:/error", XML, None),
        ("xml:/order/@kind", XML, "new"),
        ("xml:/order/line", XML, "äpfel"),
        ("xml:/order/line/@n", XML, "1"),
        ("xml:/other/line", XML, None),
        ("xml:/order/none", XML, None),
        ("xml:/order", JSON, None),
    ],
)
def test_a_field_has_the_same_value_on_every_wire(
    encoding: str, field: str, body: str, value: str | None
) -> None:
    message = OpenMessage(encoding, WIRES[encoding](body))
    assert message.value(parse_field(field)) == value


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("json:/a/0", '{"a":' + "[" * 20_000 + "1" + "]" * 20_000 + "}"),
        ("json:/a/a", '{"a":' * 9_000 + "1" + "}" * 9_000),
        ("json:/a", '{"a": 1, "b": ' + "9" * BODY_BYTES_MAX + "}"),
        ("json:/a", '{"a": 1'),
        ("xml:/a/a", "<a>" * 9_000 + "</a>" * 9_000),
        ("xml:/a", '<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>'),
        ("xml:/a", '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a>x</a>'),
        ("xml:/a", "<a>&e;</a>"),
        ("xml:/a", "<a>" + "x" * BODY_BYTES_MAX + "</a>"),
    ],
    ids=range(9),
)
def test_a_body_that_is_deep_long_or_broken_or_has_entities_has_no_value(
    field: str, body: str
) -> None:
    message = OpenMessage(STOMP, kept([], body.encode()))
    assert message.value(parse_field(field)) is None
    assert len(message.list_fields()) <= 1


def test_the_fields_of_a_message_are_listed_with_their_values() -> None:
    assert OpenMessage(AMQP, amqp(JSON)).list_fields() == {
        "jms_type": "order",
        "property:code": "x",
        "json:/error/code": "E42",
        "json:/error/n": "1.50",
        "json:/error/a~1b": "true",
        "json:/none": "null",
    }
    listed = OpenMessage(STOMP, stomp(XML)).list_fields()
    assert listed["xml:/order/@kind"] == "new"
    assert listed["xml:/order/line"] == "äpfel"
    assert all(OpenMessage(STOMP, stomp(XML)).value(parse_field(name)) for name in listed)


def test_what_broker_and_sidecar_write_is_not_listed() -> None:
    theirs = ("__AMQ_CID", "__HDR_ARRIVAL", "_AMQ_ORIG_QUEUE", "dlqDeliveryFailureCause")
    headers = [(name.encode(), b"x") for name in (*theirs, "redeliveryDelay", "amqsidecarCause")]
    message = OpenMessage(STOMP, kept([*headers, (b"code", b"x")], b""))
    assert message.list_fields() == {"property:code": "x"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "code", "property:", "json", "json:", "json:a", "json:/", "json:/a//b", "xml:/@"),
        *("x:/a", "xml:/a/@b/c", "json:" + "/a" * 17, "jms_type:x"),
    ],
)
def test_what_names_no_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|ends a path"):
        parse_field(text)


@pytest.mark.parametrize("encoding", WIRES)
@pytest.mark.parametrize(
    ("part", "body", "is_there"),
    [
        ("e42", JSON, True),
        ("äpfel", XML, True),
        ("äpfel", XML.upper(), True),
        ("no such", XML, False),
        ("late", "x" * BODY_BYTES_MAX + "late", False),
    ],
)
def test_a_text_is_found_in_a_body_as_far_as_it_is_opened(
    encoding: str, part: str, body: str, is_there: bool
) -> None:
    assert OpenMessage(encoding, WIRES[encoding](body)).mentions(part) == is_there
    assert OpenMessage(encoding, WIRES[encoding]("")).mentions("x")


@pytest.mark.parametrize("encoding", WIRES)
def test_a_text_is_found_in_no_message_that_is_damaged(encoding: str) -> None:
    assert not OpenMessage(encoding, b"\xff\x00\xff").mentions("order")
