"""Any bytes as an AMQP message: whole again, or undecodable; a rewriting touches what it names."""

from functools import partial

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from proton import Data

from amqsidecar.broker import IntakeQueue
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_artemis_message as artemis
from amqsidecar.formats import amqp_classic_message as classic
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_classic_text import mended_section
from amqsidecar.model.destination import queue
from support.links.cycles import resend_of
from support.wires.amqp_strategies import messages, values
from support.wires.fuzz import damaged, fuzz

OURS = {"amqsidecarRedeliveryId": "r-1", "amqsidecarRedeliveryCount": 3, "redeliveryDelay": 2**62}
RESERVED = (
    *(*OURS, "amqsidecarRedeliveryCheck"),
    *("amqsidecarOriginalMessageId", "amqsidecarCause", "_AMQ_DUPL_ID", "_AMQ_ORIG_ADDRESS"),
    *("_AMQ_ORIG_QUEUE", "_AMQ_ORIG_ROUTING_TYPE", "_HQ_ORIG_ADDRESS", "_AMQ_ACTUAL_EXPIRY"),
    *("_AMQ_ROUTE_TOx", "JMSXDeliveryCount", "destination", "receipt", "content-length"),
    *("dlqDeliveryFailureCause", "originalExpiration", "originalDeliveryMode", "scheduledJobId"),
    *("AMQ_SCHEDULED_DELAY", "__HDR_dlqDeliveryFailureCause", "amqsidecarOriginalDuplicateId"),
)


def encoded(value: object) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


names = st.sampled_from(RESERVED).map(amqp.string) | values.map(encoded)
pairs = st.lists(st.tuples(names, values.map(encoded) | st.binary(min_size=1, max_size=9)))
hostile = st.builds(
    lambda message, found: with_properties(message, [part for pair in found for part in pair]),
    messages(),
    pairs,
)


def with_properties(message: bytes, items: list[bytes]) -> bytes:
    sections = amqp.split(message)
    sections[amqp.APPLICATION_PROPERTIES] = amqp.make_map(amqp.APPLICATION_PROPERTIES, items)
    return amqp.join(sections)


def named(items: list[bytes]) -> list[tuple[object, bytes]]:
    return [(amqp.scalar(key), value) for key, value in zip(items[::2], items[1::2], strict=True)]


@fuzz
@given(damaged(messages()) | st.binary(max_size=60))
@example(bytes.fromhex("005375d0ffffffff"))
@example(bytes.fromhex("00537445"))
@example(bytes.fromhex("00537700007373") + bytes(8))
def test_what_is_split_is_the_same_bytes_joined(data: bytes) -> None:
    try:
        sections = amqp.split(data)
    except UndecodableMessage:
        return
    assert amqp.join(sections) == data
    for section in sections.values():
        try:
            found = amqp.elements(section)
            texts = mended_section(section)
        except UndecodableMessage:
            continue
        assert section.endswith(b"".join(found))
        assert amqp.split(texts).keys() <= {*amqp._ORDER}


@fuzz
@given(damaged(hostile) | hostile, st.booleans(), st.booleans())
def test_any_message_shows_its_past_or_a_problem(data: bytes, expires: bool, native: bool) -> None:
    told = artemis.read_provenance(
        data,
        IntakeQueue(queue("DLQ"), expires=expires),
        read_origin=lambda origin: (queue(origin.address), None),
    )
    assert 0 <= told.redelivery_count < 2**31
    assert (told.origin is None) == (told.problem is not None)
    try:
        found = classic.take_apart(data)
        told = classic.read_provenance(
            found, queue("DLQ"), origin=None, now_ms=2**41, is_native_made=native
        )
        classic.damage(found, queue("DLQ"))
        classic.named_destination(found)
    except UndecodableMessage:
        return
    assert 0 <= told.redelivery_count < 2**31


@fuzz
@given(damaged(hostile) | hostile, st.booleans(), st.sampled_from((0, 1, 2**62)))
def test_a_resend_on_artemis_changes_what_it_names(
    data: bytes, is_final: bool, expiration_ms: int
) -> None:
    resend = make(data, is_final=is_final, expiration_ms=expiration_ms)
    try:
        sent = amqp.split(artemis.encode_resend(resend, 2**41))
    except UndecodableMessage:
        return
    check(amqp.split(data), sent)
    before = amqp.pairs(amqp.split(data).get(amqp.APPLICATION_PROPERTIES, b"\0\x53\x74\x45"))
    after = amqp.pairs(sent[amqp.APPLICATION_PROPERTIES])
    others = [pair for pair in named(before) if pair[0] not in RESERVED]
    assert others == [pair for pair in named(after) if pair[0] not in RESERVED]
    told = artemis.read_provenance(
        amqp.join(sent), IntakeQueue(queue("orders")), read_origin=lambda origin: (None, "")
    )
    if told.message_id is not None or told.redelivery_id is not None:
        assert (told.redelivery_id, told.redelivery_count) == ("r-1", 3)
    assert {name: amqp.scalar(value) for name, value in named(after) if name in OURS} == OURS
    names = [name for name, _ in named(after)]
    assert sum(name in OURS for name in names) == len(OURS)
    assert "_AMQ_DUPL_ID" not in names


@fuzz
@given(damaged(hostile) | hostile, st.booleans(), st.sampled_from((0, 1, 2**62)), st.booleans())
def test_a_resend_on_classic_changes_what_it_names(
    data: bytes, is_final: bool, expiration_ms: int, native: bool
) -> None:
    resend = make(data, is_final=is_final, expiration_ms=expiration_ms)
    try:
        sent = amqp.split(classic.encode_resend(resend, 2**41, is_native_wire=native))
    except UndecodableMessage:
        return
    assume(native)
    check(amqp.split(data), sent)
    before = amqp.pairs(amqp.split(data).get(amqp.APPLICATION_PROPERTIES, b"\0\x53\x74\x45"))
    after = amqp.pairs(sent[amqp.APPLICATION_PROPERTIES])
    others = [pair for pair in named(before) if pair[0] not in RESERVED]
    assert others == [pair for pair in named(after) if pair[0] not in RESERVED]
    assert {name: amqp.scalar(value) for name, value in named(after) if name in OURS} == OURS


make = partial(resend_of, redelivery_count=3, redelivery_delay_ms=2**62)


def check(before: dict[int, bytes], sent: dict[int, bytes]) -> None:
    """Body, footers and delivery annotations are the same bytes."""
    for code in (amqp.VALUE, amqp.DELIVERY_ANNOTATIONS):
        assert before.get(code) == sent.get(code)
    if amqp.PROPERTIES in before:
        old, new = amqp.elements(before[amqp.PROPERTIES]), amqp.elements(sent[amqp.PROPERTIES])
        same = [at for at in range(len(old)) if at not in (2, 8, 9)]
        assert [old[at] for at in same] == [new[at] for at in same]


@pytest.mark.parametrize("wrong", [b"\x45", b"\xc1\x01\x00", b"\xa0\x01x", b"\x40", b"\x56\x01"])
def test_our_names_with_values_of_another_type_are_a_strangers(wrong: bytes) -> None:
    """They are neither believed nor a reason not to redeliver."""
    items = [part for name in OURS for part in (amqp.string(name), wrong)]
    items += [amqp.string("_AMQ_ORIG_ADDRESS"), amqp.string("orders")]
    told = artemis.read_provenance(
        amqp.make_map(amqp.APPLICATION_PROPERTIES, items) + bytes.fromhex("00537740"),
        IntakeQueue(queue("DLQ")),
        read_origin=lambda origin: (queue(origin.address), None),
    )
    assert (told.origin, told.redelivery_id, told.redelivery_count) == (queue("orders"), None, 0)
