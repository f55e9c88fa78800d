"""A dead letter's past is read from its bytes; a redelivery has only the right bytes changed."""

import tracemalloc
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from proton import Message, byte, int32, symbol, ulong

from amqsidecar.broker import IntakeQueue
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_artemis_message import encode_resend, read_provenance
from amqsidecar.formats.artemis_properties import Origin, identity_of
from amqsidecar.formats.redelivery_mark import check_of
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.provenance import Provenance
from support.links.cycles import resend_of
from support.wires.amqp_properties import properties_of
from support.wires.amqp_strategies import messages

NOW_MS = 1_700_000_000_000
DEAD = IntakeQueue(queue("DLQ"))
AMQP_ORIGIN = {
    symbol("x-opt-ORIG-ADDRESS"): "orders",
    symbol("x-opt-ORIG-QUEUE"): "orders",
    symbol("x-opt-ORIG-ROUTING-TYPE"): byte(1),
    symbol("x-opt-ORIG-MESSAGE-ID"): 77,
}
CORE_ORIGIN = {
    "_AMQ_ORIG_ADDRESS": "prices",
    "_AMQ_ORIG_QUEUE": "client.sub",
    "_AMQ_ORIG_ROUTING_TYPE": byte(0),
    "_AMQ_ORIG_MESSAGE_ID": 78,
}


def plain_origin(origin: Origin) -> tuple[Destination | None, str | None]:
    name = f"{origin.address}::{origin.queue}"
    return (topic(name) if origin.routing_type == 0 else queue(origin.address)), None


def encode(**fields: Any) -> bytes:
    message = Message(**{"content_type": symbol("text/plain"), "body": "body", **fields})
    return bytes(message.encode())


def decode(encoded: bytes) -> Message:
    message = Message()
    message.decode(encoded)
    return message


def read(encoded: bytes, *, expires: bool = False) -> Provenance:
    return read_provenance(
        encoded, IntakeQueue(queue("DLQ"), expires=expires), read_origin=plain_origin
    )


resend = partial(resend_of, redelivery_id="id")


# Provenance


def test_origin_of_an_amqp_producer_is_in_the_annotations() -> None:
    """Annotations name address, queue and routing type."""
    seen: list[Origin] = []

    def note(origin: Origin) -> tuple[Destination, None]:
        seen.append(origin)
        return queue("orders"), None

    encoded = encode(annotations=AMQP_ORIGIN, durable=True, id="ID:1")
    provenance = read_provenance(encoded, DEAD, read_origin=note)

    assert seen == [Origin("orders", "orders", 1)]
    assert provenance == Provenance(
        origin=queue("orders"), message_id="ID:1", number="77-0", persistent=True
    )


def test_two_origins_that_differ_are_reported_and_neither_is_chosen() -> None:
    """A producer can write either of them where the broker writes the other."""
    provenance = read(encode(annotations=AMQP_ORIGIN, properties=CORE_ORIGIN))
    assert provenance.origin is None
    assert provenance.problem == (
        "it names two different origins: orders::orders in its annotations, "
        "prices::client.sub in its properties"
    )
    same = {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders"}
    assert read(encode(annotations=AMQP_ORIGIN, properties=same)).origin == queue("orders")


@pytest.mark.parametrize("prefix", ["_AMQ_ORIG_", "_HQ_ORIG_"])
def test_origin_of_other_producers_is_in_the_properties(prefix: str) -> None:
    """Core, STOMP, OpenWire and HornetQ producers leave it in application properties."""
    properties = {name.replace("_AMQ_ORIG_", prefix): one for name, one in CORE_ORIGIN.items()}
    provenance = read(encode(properties=properties))
    assert provenance.origin == topic("prices::client.sub")
    assert not provenance.persistent


def test_a_qualified_origin_address_is_cut_and_a_null_queue_is_none() -> None:
    """What was sent by fully qualified name has it as its address."""
    seen: list[Origin] = []

    def note(origin: Origin) -> tuple[None, str]:
        seen.append(origin)
        return None, "no"

    annotations = {
        symbol("x-opt-ORIG-ADDRESS"): "t.news::subA",
        symbol("x-opt-ORIG-QUEUE"): None,
    }
    provenance = read_provenance(encode(annotations=annotations), DEAD, read_origin=note)
    assert seen == [Origin("t.news", None, None)]
    assert provenance.problem == "no"


def test_a_message_without_origin_has_a_problem() -> None:
    """It is parked, not guessed."""
    assert read(encode()).problem == "it does not show where it comes from"
    assert read(encode(annotations={symbol("x-opt-ORIG-ADDRESS"): 5})).problem


@pytest.mark.parametrize(
    ("properties", "annotations", "expires"),
    [
        ({}, AMQP_ORIGIN, True),
        ({}, {**AMQP_ORIGIN, symbol("x-opt-ACTUAL-EXPIRY"): NOW_MS}, False),
        ({**CORE_ORIGIN, "_AMQ_ACTUAL_EXPIRY": NOW_MS}, {}, False),
        ({**CORE_ORIGIN, "_HQ_ACTUAL_EXPIRY": NOW_MS}, {}, False),
    ],
)
def test_expired_is_read_from_the_queue_or_the_message(
    properties: dict[str, Any], annotations: dict[symbol, Any], expires: bool
) -> None:
    """An expiry queue, or the time of expiry on the message."""
    encoded = encode(properties=properties, annotations=annotations)
    assert read(encoded, expires=expires).expired
    assert not read(encode(annotations=AMQP_ORIGIN)).expired


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (int32(3), 3),
        (3, 3),
        (byte(3), 3),
        ("3", 3),
        (None, 0),
        ("three", 0),
        (-1, 0),
        (2**40, 0),
        (True, 0),
        (1.5, 0),
        ([1], 0),
    ],
)
def test_redelivery_count_is_any_integer_or_a_text_of_one(value: object, count: int) -> None:
    """Nonsense counts as none."""
    properties = {
        "amqsidecarRedeliveryId": "r-1",
        "amqsidecarRedeliveryCount": value,
        "amqsidecarRedeliveryCheck": check_of("r-1", count, queue("orders"), identity_of(None, 0)),
    }
    provenance = read(encode(annotations=AMQP_ORIGIN, properties=properties))
    assert (provenance.redelivery_id, provenance.redelivery_count) == ("r-1", count)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ID:a-1", "ID:a-1"),
        ("plain", "plain"),
        (ulong(7), "ID:AMQP_ULONG:7"),
        (UUID(int=7), "ID:AMQP_UUID:00000000-0000-0000-0000-000000000007"),
        (b"\x0a\xff", "ID:AMQP_BINARY:0AFF"),
        (None, None),
    ],
)
def test_message_id_of_any_type_becomes_text(value: object, text: str | None) -> None:
    """Types other than strings are written as Qpid JMS shows them."""
    encoded = encode(annotations=AMQP_ORIGIN, id=value)
    assert read(encoded).message_id == text


def test_a_cause_is_only_what_a_consumer_has_said() -> None:
    """Artemis keeps none; an application property may hold one."""
    assert read(encode(annotations=AMQP_ORIGIN)).cause is None
    told = encode(annotations=AMQP_ORIGIN, properties={"amqsidecarCause": "boom"})
    assert read(told).cause == "boom"


@pytest.mark.parametrize("name", ["__HDR_dlqDeliveryFailureCause", "amqsidecarCause"])
def test_the_cause_is_read_and_stays_off_the_redelivery(name: str) -> None:
    """Artemis writes the first when an OpenWire client gives a message up."""
    dead = encode(annotations=AMQP_ORIGIN, properties={name: "boom", "n": 1})
    assert read(dead).cause == "boom"
    sent = Message()
    sent.decode(encode_resend(resend(dead), NOW_MS))
    assert name not in properties_of(sent)
    assert properties_of(sent)["n"] == 1
    final = Message()
    final.decode(encode_resend(resend(dead, is_final=True), NOW_MS))
    assert properties_of(final)[name] == "boom"


# Redelivery


@given(messages())
@settings(deadline=None)
def test_the_rewrite_leaves_the_body_and_what_is_not_ours(message: bytes) -> None:
    """Body, footers, delivery annotations, ids, group and foreign properties are the same bytes."""
    before = amqp.split(message)
    after = amqp.split(encode_resend(resend(message), NOW_MS))
    assert after.get(amqp.VALUE) == before.get(amqp.VALUE)
    assert after.get(amqp.DELIVERY_ANNOTATIONS) == before.get(amqp.DELIVERY_ANNOTATIONS)
    if amqp.PROPERTIES in before:
        ours, theirs = (amqp.elements(one[amqp.PROPERTIES]) for one in (after, before))
        untouched = [at for at in range(len(theirs)) if at not in (2, 8)]
        assert [ours[at] for at in untouched] == [theirs[at] for at in untouched]
    if amqp.APPLICATION_PROPERTIES in before:
        theirs = amqp.elements(before[amqp.APPLICATION_PROPERTIES])
        ours = amqp.elements(after[amqp.APPLICATION_PROPERTIES])
        assert ours[: len(theirs)] == theirs


def test_a_redelivery_has_no_trace_of_its_death() -> None:
    """What the broker wrote is gone, what the producer wrote is there."""
    message = encode(
        id="ID:1",
        address="DLQ",
        durable=True,
        priority=7,
        ttl=9,
        delivery_count=3,
        first_acquirer=True,
        expiry_time=NOW_MS / 1000,
        creation_time=NOW_MS / 1000,
        group_id="g",
        annotations={
            **AMQP_ORIGIN,
            symbol("x-opt-ACTUAL-EXPIRY"): NOW_MS,
            symbol("x-opt-delivery-delay"): 1500,
            symbol("x-opt-delivery-time"): NOW_MS,
            symbol("x-opt-routing-type"): byte(0),
            symbol("x-opt-jms-dest"): byte(1),
            symbol("x-opt-jms-msg-type"): byte(5),
            symbol("x-mine"): "kept",
        },
        properties={
            **CORE_ORIGIN,
            "_AMQ_ACTUAL_EXPIRY": NOW_MS,
            "_AMQ_ROUTE_TO_x": b"1",
            "JMSXDeliveryCount": None,
            "_AMQ_DUPL_ID": "theirs",
            "n": 5,
        },
    )
    sent = decode(encode_resend(resend(message), NOW_MS))

    assert sent.annotations == {
        symbol("x-opt-jms-dest"): byte(0),
        symbol("x-opt-jms-msg-type"): byte(5),
        symbol("x-mine"): "kept",
    }
    assert properties_of(sent) == {
        "amqsidecarOriginalDuplicateId": "theirs",
        "n": 5,
        "amqsidecarRedeliveryId": "id",
        "amqsidecarRedeliveryCount": int32(1),
        "redeliveryDelay": 5000,
        "amqsidecarRedeliveryCheck": check_of(
            "id", 1, queue("orders"), identity_of("ID:1", NOW_MS)
        ),
        "amqsidecarOriginalMessageId": "ID:1",
    }
    assert (sent.durable, sent.priority, sent.ttl, sent.delivery_count) == (True, 7, 0, 0)
    assert (sent.address, sent.expiry_time, sent.group_id, sent.id) == ("orders", 0, "g", "ID:1")
    assert sent.creation_time == NOW_MS / 1000


def test_the_second_redelivery_replaces_what_the_first_wrote() -> None:
    """Our properties occur once, and the producer's duplicate id is the one kept."""
    message = encode(id="ID:1", properties={"_AMQ_DUPL_ID": "theirs"})
    first = encode_resend(resend(message), NOW_MS)
    second = encode_resend(resend(first, redelivery_count=2, redelivery_delay_ms=2**40), NOW_MS)
    names = amqp.elements(amqp.split(second)[amqp.APPLICATION_PROPERTIES])[::2]
    assert len(names) == len(set(names))
    assert properties_of(decode(second)) == {
        "amqsidecarOriginalDuplicateId": "theirs",
        "amqsidecarRedeliveryId": "id",
        "amqsidecarRedeliveryCount": int32(2),
        "redeliveryDelay": 2**40,
        "amqsidecarRedeliveryCheck": check_of("id", 2, queue("orders"), identity_of("ID:1", 0)),
        "amqsidecarOriginalMessageId": "ID:1",
    }


def test_a_copys_own_duplicate_id_replaces_that_of_the_message_it_was_copied_from() -> None:
    properties = {"amqsidecarOriginalDuplicateId": "older", "_AMQ_DUPL_ID": "its own"}
    sent = properties_of(decode(encode_resend(resend(encode(properties=properties)), NOW_MS)))
    assert sent["amqsidecarOriginalDuplicateId"] == "its own"
    assert "_AMQ_DUPL_ID" not in sent


def test_nothing_of_the_listener_stays_on_what_it_intercepted() -> None:
    properties = {
        "amqsidecarOriginalDuplicateId": "the producer's",
        "_AMQ_DUPL_ID": "amqsidecar-nack:7:orders:orders",
        "receipt": "amqsidecar-1",
        "destination": "amqsidecar.intercepted",
    }
    sent = properties_of(decode(encode_resend(resend(encode(properties=properties)), NOW_MS)))
    assert sent["amqsidecarOriginalDuplicateId"] == "the producer's"
    assert not {"_AMQ_DUPL_ID", "receipt", "destination"}.intersection(sent)


def test_a_copy_names_its_own_id_and_not_that_of_the_message_it_was_copied_from() -> None:
    """On a return the first id stays."""
    of_another = {"amqsidecarRedeliveryId": "another", "amqsidecarOriginalMessageId": "ID:first"}
    for redelivery_id, original_id in (("another", "ID:first"), ("id", "ID:2")):
        message = encode(id="ID:2", properties=of_another)
        sent = decode(encode_resend(resend(message, redelivery_id=redelivery_id), NOW_MS))
        assert properties_of(sent)["amqsidecarOriginalMessageId"] == original_id


def test_a_chosen_message_is_the_one_that_its_id_names() -> None:
    """A final dead letter of an older version has no check, and may be sent again all the same."""
    message = encode(properties={"amqsidecarRedeliveryId": "r-1"})
    chosen = IntakeQueue(queue("DLQ.exhausted"), selector="amqsidecarRedeliveryId IN ('r-1')")
    assert read_provenance(message, chosen, read_origin=plain_origin).redelivery_id == "r-1"
    assert read(message).redelivery_id is None


def test_a_subscription_gets_its_topic_as_destination() -> None:
    """`to` is the address, and the annotation of JMS says topic."""
    message = encode(address="DLQ", annotations={symbol("x-opt-jms-dest"): byte(0)})
    sent = decode(encode_resend(resend(message, destination=topic("t.news::subA")), NOW_MS))
    assert sent.address == "t.news"
    assert sent.annotations == {symbol("x-opt-jms-dest"): byte(1)}


def test_a_final_dead_letter_keeps_its_origin_and_gets_a_time_to_live() -> None:
    """Only what would delay it, misroute it or swallow it is changed."""
    message = encode(
        id="ID:1",
        annotations={**AMQP_ORIGIN, symbol("x-opt-delivery-delay"): 1500},
        properties={**CORE_ORIGIN, "_AMQ_DUPL_ID": "theirs"},
    )
    sent = decode(
        encode_resend(
            resend(
                message, destination=queue("DLQ.exhausted"), is_final=True, expiration_ms=60_000
            ),
            NOW_MS,
        )
    )
    assert sent.annotations == AMQP_ORIGIN
    assert CORE_ORIGIN.items() <= properties_of(sent).items()
    assert properties_of(sent)["amqsidecarOriginalDuplicateId"] == "theirs"
    assert "_AMQ_DUPL_ID" not in properties_of(sent)
    assert (sent.ttl, sent.expiry_time) == (60, NOW_MS / 1000 + 60)


@pytest.mark.parametrize(
    ("expiration_ms", "ttl_s"), [(0, 0), (2**32 - 1, (2**32 - 1) / 1000), (2**32, 0)]
)
def test_a_time_to_live_too_long_for_the_header_is_an_absolute_one(
    expiration_ms: int, ttl_s: float
) -> None:
    """The header has 32 bits for it."""
    bare = b"\x00\x53\x77\x40"
    final = resend(bare, is_final=True, expiration_ms=expiration_ms)
    sent = decode(encode_resend(final, NOW_MS))
    assert sent.ttl == ttl_s
    assert sent.expiry_time == (NOW_MS + expiration_ms) / 1000 * bool(expiration_ms)


def test_the_smallest_message_gets_our_properties_only() -> None:
    """Sections that are not there are not invented."""
    sections = amqp.split(encode_resend(resend(b"\x00\x53\x77\x40"), NOW_MS))
    assert list(sections) == [amqp.APPLICATION_PROPERTIES, amqp.VALUE]


def test_frame_headers_of_stomp_are_cut_only_where_stomp_made_the_message() -> None:
    """Artemis keeps headers of a STOMP SEND as properties; applications may use the same names."""
    leftovers = {
        "destination": "prices",
        "destination-type": "ANYCAST",
        "receipt": "1",
        "content-length": "3",
    }
    stomp_made = encode(properties={**CORE_ORIGIN, **leftovers, "n": "1"})
    sent = decode(encode_resend(resend(stomp_made), NOW_MS))
    assert not leftovers.keys() & properties_of(sent).keys()
    assert properties_of(sent)["n"] == "1"

    for other in (
        encode(id="ID:1", properties={**CORE_ORIGIN, **leftovers}),
        encode(properties={**CORE_ORIGIN, **leftovers, "destination": "elsewhere"}),
        encode(annotations=AMQP_ORIGIN, properties=leftovers),
    ):
        sent = decode(encode_resend(resend(other), NOW_MS))
        assert leftovers.keys() <= properties_of(sent).keys()


def test_an_undecodable_message_can_not_be_sent() -> None:
    """The caller parks it whole."""
    with pytest.raises(UndecodableMessage):
        encode_resend(resend(b"garbage"), NOW_MS)


@pytest.mark.parametrize("code", [amqp.MESSAGE_ANNOTATIONS, amqp.APPLICATION_PROPERTIES])
def test_a_list_in_place_of_a_map_is_not_taken_apart(code: int) -> None:
    """Artemis looks into neither of them when it takes such a message."""
    encoded = amqp.make_list(code, [amqp.NULL]) + b"\x00\x53\x77\x40"
    assert "parsed" in (read(encoded).problem or "")
    with pytest.raises(UndecodableMessage):
        encode_resend(resend(encoded), NOW_MS)


def test_long_names_do_not_fill_the_memory() -> None:
    """A stranger chooses the names of properties, annotations and origins."""
    tracemalloc.start()
    try:
        for number in range(60):
            name = f"{number}" + "x" * 1_000_000
            encoded = (
                amqp.make_list(amqp.HEADER, [amqp.string(name)])
                + amqp.make_map(amqp.MESSAGE_ANNOTATIONS, [amqp.symbol(name), amqp.NULL])
                + amqp.make_map(
                    amqp.APPLICATION_PROPERTIES,
                    [
                        *(amqp.string(name), amqp.NULL),
                        *(amqp.string("_AMQ_ORIG_ADDRESS"), amqp.string(name)),
                    ],
                )
                + b"\x00\x53\x77\x40"
            )
            assert "longer than any" in (read(encoded).problem or "")
            encode_resend(resend(encoded), NOW_MS)
        del encoded
        assert tracemalloc.get_traced_memory()[0] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_final_message_that_will_expire_shows_when() -> None:
    final = IntakeQueue(queue("DLQ.exhausted"), is_final=True)
    for expiry_time, expected in (((NOW_MS + 55) / 1000, NOW_MS + 55), (0, 0)):
        encoded = encode(expiry_time=expiry_time)
        provenance = read_provenance(encoded, final, read_origin=plain_origin)
        assert provenance.expires_at_ms == expected
