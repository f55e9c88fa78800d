"""Chosen properties are read out of what the store keeps, whatever wire it came over."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import Message, byte, int32, ulong

from amqsidecar.formats.amqp_artemis_message import ENCODING as AMQP
from amqsidecar.formats.openwire_codec import ENCODING as OPENWIRE
from amqsidecar.formats.stomp_frame import ENCODING as STOMP
from amqsidecar.formats.stomp_frame import kept
from amqsidecar.messages.kept_message import (
    LONGEST_GROUP,
    LONGEST_TEXT,
    chosen_cause,
    chosen_properties,
    group_of,
)
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

WIRES = (AMQP, OPENWIRE, STOMP)


def amqp(properties: dict[str, Any]) -> bytes:
    return bytes(Message(body="secret", properties=properties).encode())


def openwire(*entries: bytes) -> bytes:
    return WireMessage(properties=wire.property_map(*entries)).encoded()


def test_values_of_every_plain_type_become_text_over_amqp() -> None:
    message = amqp(
        {"s": "x", "n": int32(-5), "u": ulong(7), "b": True, "f": 1.5, "y": byte(1), "o": b"bytes"}
    )
    found = chosen_properties("snubfyo")(AMQP, message)
    assert found == {"s": "x", "n": "-5", "u": "7", "b": "true", "f": "1.5", "y": "1"}


def test_values_of_every_plain_type_become_text_over_openwire() -> None:
    message = openwire(
        wire.text_entry("s", "ä"),
        wire.int_entry("n", -5),
        wire.entry("b", 1, b"\x00"),
        wire.entry("f", 7, struct.pack(">d", 1.5)),
        wire.entry("o", 0, b""),
    )
    assert chosen_properties("snbfo")(OPENWIRE, message) == {
        "s": "ä",
        "n": "-5",
        "b": "false",
        "f": "1.5",
    }


def test_headers_are_properties_over_stomp_and_the_first_of_a_name_counts() -> None:
    message = kept([(b"s", b"first"), (b"s", b"second"), (b"other", b"x")], b"body")
    assert chosen_properties(["s"])(STOMP, message) == {"s": "first"}


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (AMQP, amqp({"other": "x"})),
        (AMQP, bytes(Message(body="secret").encode())),
        (OPENWIRE, openwire(wire.text_entry("other", "x"))),
        (STOMP, kept([(b"other", b"x")], b"")),
    ],
)
def test_what_was_not_chosen_is_not_read(encoding: str, message: bytes) -> None:
    assert chosen_properties(["mine"])(encoding, message) is None


def test_a_long_value_is_cut() -> None:
    found = chosen_properties(["s"])(AMQP, amqp({"s": "x" * 5_000}))
    assert found == {"s": "x" * LONGEST_TEXT}


@given(st.sampled_from(WIRES), st.binary(max_size=200))
def test_what_is_no_message_has_no_properties(encoding: str, message: bytes) -> None:
    """A message that can't be taken apart is parked elsewhere; reading it never raises."""
    found = chosen_properties(["s"])(encoding, message)
    assert found is None or set(found) == {"s"}


def with_properties(wire_name: str, properties: dict[str, str]) -> bytes:
    """Return a message with text properties, as this wire keeps it."""
    if wire_name == AMQP:
        return amqp(properties)
    if wire_name == OPENWIRE:
        return openwire(*(wire.text_entry(name, text) for name, text in properties.items()))
    return kept([(name.encode(), text.encode()) for name, text in properties.items()], b"body")


@pytest.mark.parametrize("encoding", WIRES)
@pytest.mark.parametrize("name", ["amqsidecarCause", "x-exception-message", "größe: grund"])
def test_cause_is_read_over_every_wire(encoding: str, name: str) -> None:
    message = with_properties(encoding, {"other": "x", name: "java.io.IOException: disk full"})

    assert chosen_cause([name])(encoding, message) == "java.io.IOException: disk full"


@pytest.mark.parametrize("encoding", WIRES)
def test_first_named_property_with_a_text_is_the_cause(encoding: str) -> None:
    message = with_properties(encoding, {"first": "", "third": "3", "second": "2"})

    assert chosen_cause(["first", "second", "third"])(encoding, message) == "2"


@pytest.mark.parametrize("encoding", WIRES)
def test_name_of_a_cause_elsewhere_in_a_message_is_no_cause(encoding: str) -> None:
    message = with_properties(encoding, {"other": "amqsidecarCause"})

    assert chosen_cause(["amqsidecarCause"])(encoding, message) is None


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (AMQP, bytes(Message(body="x", group_id="ä", group_sequence=3).encode())),
        (OPENWIRE, WireMessage(group="ä").encoded()),
        (STOMP, kept([(b"_AMQ_GROUP_ID", "ä".encode())], b"")),
        (STOMP, kept([(b"JMSXGroupID", "ä".encode())], b"")),
    ],
)
def test_the_message_group_is_read(encoding: str, message: bytes) -> None:
    assert group_of(encoding, message) == "ä"


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (AMQP, amqp({"JMSXGroupID": "a property"})),
        (AMQP, bytes(Message(body="x").encode())),
        (AMQP, bytes(Message(body="x", group_id="", group_sequence=3).encode())),
        (OPENWIRE, WireMessage().encoded()),
        (OPENWIRE, WireMessage(group="").encoded()),
        (STOMP, kept([(b"_AMQ_GROUP_ID", b"")], b"")),
        (STOMP, kept([], b"")),
    ],
)
def test_messages_without_a_group_have_none(encoding: str, message: bytes) -> None:
    assert group_of(encoding, message) is None


def test_a_long_group_is_cut() -> None:
    message = bytes(Message(body="x", group_id="g" * 5_000).encode())
    assert group_of(AMQP, message) == "g" * LONGEST_GROUP


@given(st.sampled_from(WIRES), st.binary(max_size=200))
def test_what_is_no_message_has_no_group(encoding: str, message: bytes) -> None:
    found = group_of(encoding, message)
    assert found is None or len(found) <= LONGEST_GROUP
