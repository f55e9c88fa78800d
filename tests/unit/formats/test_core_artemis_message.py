"""Redeliveries over Core: what is rewritten, and what stays the same bytes."""

from uuid import UUID

import pytest

from amqsidecar.broker import IntakeQueue, Resend
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats.artemis_properties import Origin
from amqsidecar.formats.core.message import (
    NO_PROPERTIES,
    PIECE_BYTES,
    TEXT_MESSAGE,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    decode_headers,
    decode_message,
    edit_properties,
    read_core_properties,
)
from amqsidecar.formats.core_artemis_message import (
    CoreResend,
    keep,
    keep_large,
    make_resend,
    read_provenance,
    take_apart,
)
from amqsidecar.model.destination import Destination, queue, topic

USER_ID = UUID("9a038068-e758-11f1-ad2e-02fc00000001")
DLQ = IntakeQueue(queue("DLQ"))
DIED = {
    "_AMQ_ORIG_ADDRESS": CoreProperty(CorePropertyType.STRING, "orders"),
    "_AMQ_ORIG_QUEUE": CoreProperty(CorePropertyType.STRING, "orders"),
    "_AMQ_ORIG_ROUTING_TYPE": CoreProperty(CorePropertyType.BYTE, 1),
    "_AMQ_ORIG_MESSAGE_ID": CoreProperty(CorePropertyType.LONG, 17),
}
OWN = {
    "color": CoreProperty(CorePropertyType.STRING, "red"),
    "empty": CoreProperty(CorePropertyType.NULL, None),
    "letter": CoreProperty(CorePropertyType.CHAR, "x"),
    "weight": CoreProperty(CorePropertyType.FLOAT, 1.5),
    "data": CoreProperty(CorePropertyType.BYTES, b"\0\1"),
}


def text(value: str) -> CoreProperty:
    return CoreProperty(CorePropertyType.STRING, value)


def dead(properties: dict[str, CoreProperty], user_id: UUID | None = USER_ID) -> CoreMessage:
    return CoreMessage(
        body=b"body",
        message_id=99,
        address="DLQ",
        user_id=None if user_id is None else user_id.bytes,
        kind=TEXT_MESSAGE,
        durable=True,
        expiration_ms=0,
        timestamp_ms=1_700_000_000_000,
        priority=7,
        properties=edit_properties(NO_PROPERTIES, properties),
    )


def read_origin(origin: Origin) -> tuple[Destination | None, str | None]:
    return queue(origin.address), None


def resend(died: CoreMessage, **options: object) -> Resend:
    given: dict[str, object] = {
        "destination": queue("orders"),
        "message": keep(died),
        "is_final": False,
        "redelivery_id": "life",
        "redelivery_count": 2,
        "redelivery_delay_ms": 5000,
    }
    return Resend(**(given | options))  # type: ignore[arg-type]


def message_of(made: CoreResend) -> CoreMessage:
    if made.is_large:
        return decode_headers(made.headers)._replace(body=made.body)
    return decode_message(made.body + made.headers)


def values(made: CoreResend) -> dict[str, object]:
    found = read_core_properties(message_of(made).properties)
    return {name: one.value for name, one in found.items()}


def test_a_redelivery_keeps_everything_but_its_death() -> None:
    message = dead(OWN | DIED)
    made = make_resend(resend(message), "orders", 0)
    assert not made.is_large
    sent = message_of(made)
    assert sent[:1] + sent[3:9] == message[:1] + message[3:9]
    assert (sent.message_id, sent.address) == (0, "orders")
    own = edit_properties(NO_PROPERTIES, OWN)[5:]
    assert sent.properties[5 : 5 + len(own)] == own
    found = read_core_properties(sent.properties)
    assert not [name for name in found if name.startswith("_AMQ_ORIG_")]
    assert found["amqsidecarRedeliveryId"] == text("life")
    assert found["amqsidecarRedeliveryCount"] == CoreProperty(CorePropertyType.INT, 2)
    assert found["redeliveryDelay"] == CoreProperty(CorePropertyType.LONG, 5000)
    assert found["_AMQ_ROUTING_TYPE"] == CoreProperty(CorePropertyType.BYTE, 1)
    assert found["amqsidecarOriginalMessageId"] == text(f"ID:{USER_ID}")
    assert "_AMQ_SCHED_DELIVERY" not in found


def test_a_second_death_shows_the_life_and_its_count() -> None:
    sent = message_of(make_resend(resend(dead(OWN | DIED)), "orders", 0))
    again = sent._replace(properties=edit_properties(sent.properties, DIED))
    found = read_provenance(again, DLQ, read_origin=read_origin)
    assert (found.redelivery_id, found.redelivery_count) == ("life", 2)
    assert (found.origin, found.persistent, found.problem) == (queue("orders"), True, None)
    assert found.message_id == f"ID:{USER_ID}"
    copy = again._replace(user_id=UUID(int=1).bytes)
    assert read_provenance(copy, DLQ, read_origin=read_origin).redelivery_id is None
    third = message_of(make_resend(resend(again, redelivery_count=3), "orders", 0))
    names = [name for name in read_core_properties(third.properties) if "amqsidecar" in name]
    assert len(names) == len(set(names)) == 4


def test_nothing_of_the_listener_stays_on_what_it_intercepted() -> None:
    properties = {
        "amqsidecarOriginalDuplicateId": text("the producer's"),
        "_AMQ_DUPL_ID": text("amqsidecar-nack:7:orders:orders"),
        "receipt": text("amqsidecar-1"),
        "destination": text("amqsidecar.intercepted"),
    }
    found = values(make_resend(resend(dead(properties | DIED)), "orders", 0))
    assert found["amqsidecarOriginalDuplicateId"] == "the producer's"
    assert not {"_AMQ_DUPL_ID", "receipt", "destination"}.intersection(found)


def test_a_duplicate_id_of_the_producer_is_kept_under_another_name() -> None:
    before = {"amqsidecarOriginalDuplicateId": text("older"), "_AMQ_DUPL_ID": text("own")}
    found = values(make_resend(resend(dead(before | DIED)), "orders", 0))
    assert found["amqsidecarOriginalDuplicateId"] == "own"
    assert "_AMQ_DUPL_ID" not in found


def test_a_final_dead_letter_keeps_its_death_and_expires() -> None:
    final = resend(dead(DIED), is_final=True, expiration_ms=1000)
    sent = make_resend(final, "DLQ.exhausted", 5)
    assert message_of(sent).expiration_ms == 1005
    assert values(sent)["_AMQ_ORIG_ADDRESS"] == "orders"
    endless = make_resend(resend(dead(DIED), is_final=True), "x", 5)
    assert message_of(endless).expiration_ms == 0


def test_what_the_broker_keeps_waits_for_its_time_and_a_topic_is_multicast() -> None:
    waiting = resend(dead(DIED), destination=topic("news"), deliver_at_ms=77)
    found = read_core_properties(message_of(make_resend(waiting, "news", 0)).properties)
    assert found["_AMQ_SCHED_DELIVERY"] == CoreProperty(CorePropertyType.LONG, 77)
    assert found["_AMQ_ROUTING_TYPE"] == CoreProperty(CorePropertyType.BYTE, 0)


def test_a_large_message_is_large_again() -> None:
    message = dead(OWN | DIED)
    kept = keep_large(message, b"much" * 1000)
    found = take_apart(kept)
    assert found == (message._replace(body=b"much" * 1000), True)
    sent = make_resend(resend(message, message=kept), "orders", 0)
    assert sent.is_large
    assert message_of(sent).body == b"much" * 1000


@pytest.mark.parametrize("size", [1, 2])
def test_what_is_too_large_for_a_packet_is_sent_in_pieces_as_it_is(size: int) -> None:
    """Messages of other wires come in one packet, however large they are."""
    message = dead(OWN | DIED)._replace(body=bytes(size * PIECE_BYTES // 2))
    sent = make_resend(resend(message), "orders", 0)
    assert (sent.is_large, sent.body_bytes) == (
        (True, len(message.body)) if size == 2 else (False, -1)
    )
    assert message_of(sent).body == message.body


@pytest.mark.parametrize("cut", [0, 3, 4, 7, 30, 80])
def test_what_is_cut_off_is_reported(cut: int) -> None:
    for kept in (keep(dead(DIED)), keep_large(dead(DIED), b"body")):
        with pytest.raises(UndecodableMessage):
            make_resend(resend(dead(DIED), message=kept[:cut]), "orders", 0)


def test_a_message_that_did_not_die_or_is_the_brokers_own_has_a_problem() -> None:
    found = read_provenance(dead(OWN), DLQ, read_origin=read_origin)
    assert found.problem == "it does not show where it comes from"
    answer = DIED | {"_AMQ_OperationSucceeded": CoreProperty(CorePropertyType.BOOLEAN, True)}
    found = read_provenance(dead(answer), DLQ, read_origin=read_origin)
    assert (found.origin, found.problem is None) == (None, False)
    broken = dead(DIED)._replace(properties=b"\1\0\0\0\7")
    problem = read_provenance(broken, DLQ, read_origin=read_origin).problem
    assert problem is not None
    assert "parsed" in problem
