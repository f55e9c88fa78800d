"""Dead letters are understood, and re-sends change what they must and nothing else."""

import struct
import tracemalloc
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import openwire_dead_letter as message
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.formats.redelivery_mark import check_of
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.model.provenance import Provenance
from support.links.cycles import resend_of
from support.wires import openwire as wire
from support.wires.openwire import WireMessage

TRANSACTION = wire.local_transaction("ID:ours", 3)
NOW_MS = 1_000_000
POISON = "java.lang.Throwable: Delivery[1] exceeds redelivery policy limit:..., cause:null"
CHANGED_ALWAYS = {
    *("destination", "transaction", "producer", "sequence", "broker_sequence", "properties"),
    *("original_transaction", "target_consumer", "redelivery_counter", "broker_path", "arrival"),
    *("bridged", "droppable", "cluster", "times", "first_of_group"),
}


ONE = struct.pack(">q", 1)


def own_check(redelivery_id: str, count: int) -> bytes:
    """Return the entry of a check that fits a dead letter with the usual id and origin."""
    usual = WireMessage()
    identity = wire.producer_id(usual.producer) + struct.pack(">q", usual.sequence)
    text = check_of(redelivery_id, count, queue("orders"), identity)
    return wire.text_entry("amqsidecarRedeliveryCheck", text)


def dead_letter(*entries: bytes, **changes: object) -> WireMessage:
    return WireMessage(properties=wire.property_map(*entries), **changes)  # type: ignore[arg-type]


def provenance_of(dead: WireMessage, now_ms: int = NOW_MS) -> Provenance:
    return message.read_dead_letter(dead.encoded(), queue("DLQ"), now_ms)[0]


def resent(
    dead: WireMessage, *, final: bool = False, expiration_ms: int = 0, keeps: bool = True
) -> WireMessage:
    frame = OpenWireResendEncoder("ID:ours", lambda destination: keeps).resend(
        resend_of(
            dead.encoded(),
            destination=queue("target"),
            is_final=final,
            redelivery_count=2,
            redelivery_delay_ms=3000,
            expiration_ms=expiration_ms,
        ),
        TRANSACTION,
        NOW_MS,
        17,
    )
    assert struct.unpack_from(">iBi?", frame) == (len(frame) - 4, dead.code, 17, False)
    return wire.read_message(frame[4:])


OURS = (
    wire.text_entry("amqsidecarRedeliveryId", "r-1"),
    wire.int_entry("amqsidecarRedeliveryCount", 2),
    wire.long_entry("redeliveryDelay", 3000),
    wire.text_entry(
        "amqsidecarRedeliveryCheck",
        check_of("r-1", 2, queue("target"), wire.producer_id(("ID:ours", 1, 1)) + ONE),
    ),
)
ORIGINAL_ID = wire.text_entry("amqsidecarOriginalMessageId", "ID:host-1-2-0:1:1:1:7")

nullable_texts = st.none() | wire.texts
destinations = st.none() | st.tuples(
    st.integers(100, 103), st.text("abc.>,", min_size=1, max_size=9)
)
transactions = st.sampled_from(
    [b"\0", wire.local_transaction("ID:x", 5), wire.xa_transaction(b"gid", b"branch")]
)
paths = st.sampled_from([b"\0", wire.broker_ids(), wire.broker_ids("ID:b1", "ID:b2")])
messages = st.builds(
    WireMessage,
    code=st.integers(23, 29),
    producer=st.tuples(wire.texts, wire.long_numbers, wire.long_numbers),
    destination=destinations,
    transaction=transactions,
    original_destination=destinations,
    text_view=nullable_texts,
    sequence=wire.long_numbers,
    original_transaction=transactions,
    group=nullable_texts,
    group_sequence=st.integers(-(2**31), 2**31 - 1),
    correlation_id=nullable_texts,
    persistent=st.booleans(),
    expiration=wire.long_numbers,
    priority=st.integers(0, 255),
    reply_to=destinations,
    timestamp=wire.long_numbers,
    type=nullable_texts,
    content=st.none() | st.binary(max_size=50),
    properties=st.none() | wire.entries.map(lambda found: wire.property_map(*found.values())),
    target_consumer=st.sampled_from([b"\0", b"\x01\x7a\x01\0\x04ID:c" + b"\0" * 16]),
    compressed=st.booleans(),
    redelivery_counter=st.integers(0, 2**31 - 1),
    broker_path=paths,
    user=nullable_texts,
    cluster=paths,
    tail=st.binary(max_size=8),
)


@given(messages, st.booleans())
def test_a_resend_changes_only_what_it_must(dead: WireMessage, final: bool) -> None:
    """Every other field of any message is what it was, whatever the fields hold."""
    sent = resent(dead, final=final)
    changed = CHANGED_ALWAYS | {"expiration"}
    if final:
        changed = changed | {"persistent"}
        assert sent.persistent
    else:
        changed = changed | {"original_destination"}
        assert sent.original_destination is None
    for field in fields(WireMessage):
        if field.name not in changed:
            assert getattr(sent, field.name) == getattr(dead, field.name), field.name
    assert sent.destination == (wire.QUEUE, "target")
    assert sent.transaction == TRANSACTION
    assert (sent.producer, sent.sequence) == (("ID:ours", 1, 1), 1)
    assert sent.redelivery_counter == (0 if final else 2)
    defaults = WireMessage(broker_sequence=0, arrival=0, times=(0, 0))
    for name in CHANGED_ALWAYS & {"broker_path", "arrival", "times", "cluster", "target_consumer"}:
        assert getattr(sent, name) == getattr(defaults, name), name


@given(messages, st.data())
def test_a_truncated_message_is_a_problem_and_never_raises(
    dead: WireMessage, data: st.DataObject
) -> None:
    """Every cut is reported as a problem; sending it again is refused as undecodable."""
    whole = dead.with_(tail=b"").encoded()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    provenance, _ = message.read_dead_letter(cut, None, NOW_MS)
    assert provenance.problem is not None
    with pytest.raises(UndecodableMessage):
        message.take_apart(cut)


def test_a_broken_message_still_shows_its_id() -> None:
    """What follows the id may be unreadable: the dead letter can be accepted all the same."""
    whole = WireMessage().encoded()
    _, message_id = message.read_dead_letter(whole[:-30], None, NOW_MS)
    assert message_id == message.take_apart(whole).message_id


def test_redelivery_restores_the_message_that_died() -> None:
    """The broker's traces are gone, ours are there, the rest of the properties stays in place."""
    dead = dead_letter(
        wire.int_entry("n", 1),
        wire.long_entry("originalExpiration", 0),
        wire.text_entry("dlqDeliveryFailureCause", POISON),
        wire.text_entry("amqsidecarCause", "why"),
        wire.text_entry("scheduledJobId", "job"),
        wire.long_entry("AMQ_SCHEDULED_DELAY", 9),
        wire.long_entry("redeliveryDelay", 1),
        wire.int_entry("amqsidecarRedeliveryCount", 1),
        wire.text_entry("amqsidecarRedeliveryId", "r-1"),
        wire.text_entry("z", "last"),
    )
    kept = (wire.int_entry("n", 1), wire.text_entry("z", "last"))
    assert resent(dead).properties == wire.property_map(*kept, *OURS, ORIGINAL_ID)


def test_a_final_dead_letter_keeps_its_provenance() -> None:
    """Cause, original expiration and original destination stay; only our properties are new."""
    traces = (
        wire.long_entry("originalExpiration", 77),
        wire.text_entry("dlqDeliveryFailureCause", POISON),
        wire.text_entry("amqsidecarCause", "why"),
        wire.text_entry("originalDeliveryMode", "NON_PERSISTENT"),
    )
    sent = resent(dead_letter(*traces, wire.int_entry("amqsidecarRedeliveryCount", 1)), final=True)
    assert sent.properties == wire.property_map(*traces, *OURS, ORIGINAL_ID)
    assert (sent.original_destination, sent.persistent) == ((wire.QUEUE, "orders"), True)
    assert (sent.expiration, sent.timestamp, sent.redelivery_counter) == (0, 1000, 0)


def test_a_final_dead_letter_may_expire() -> None:
    """Its time to live counts from now."""
    sent = resent(dead_letter(), final=True, expiration_ms=500)
    assert (sent.expiration, sent.timestamp) == (NOW_MS + 500, 1000)


@pytest.mark.parametrize(
    ("original_expiration", "expected"),
    [
        pytest.param(1300, (NOW_MS + 300, NOW_MS), id="time-to-live-starts-anew"),
        pytest.param(0, (0, 1000), id="none"),
        pytest.param(1000, (0, 1000), id="none-left-of-it"),
        pytest.param(900, (0, 1000), id="before-it-was-sent"),
    ],
)
def test_time_to_live_of_a_redelivery(original_expiration: int, expected: tuple[int, int]) -> None:
    """It is what the producer gave, counted from the redelivery."""
    dead = dead_letter(wire.long_entry("originalExpiration", original_expiration), expiration=55)
    sent = resent(dead)
    assert (sent.expiration, sent.timestamp) == expected


def test_a_non_persistent_message_becomes_non_persistent_again() -> None:
    """The broker made it persistent only for the dead-letter queue."""
    dead = dead_letter(wire.text_entry("originalDeliveryMode", "NON_PERSISTENT"))
    assert not resent(dead).persistent
    assert not provenance_of(dead).persistent
    assert resent(dead_letter()).persistent
    # Why: where the strategy keeps persistent ones only, somebody has copied the property.
    assert resent(dead, keeps=False).persistent


def test_a_text_view_stays_and_makes_no_property() -> None:
    """The id of an AMQP-made message is visible already."""
    sent = resent(dead_letter(text_view="ID:uuid:1:1:1-1"))
    assert sent.text_view == "ID:uuid:1:1:1-1"
    assert sent.properties == wire.property_map(*OURS)


def test_the_first_original_id_is_kept() -> None:
    """A second death does not overwrite the id of the first."""
    first = wire.text_entry("amqsidecarOriginalMessageId", "ID:first")
    returned = dead_letter(first, wire.text_entry("amqsidecarRedeliveryId", "r-1"))
    assert resent(returned).properties == wire.property_map(*OURS, first)
    copy = dead_letter(first, wire.text_entry("amqsidecarRedeliveryId", "of another"))
    assert resent(copy).properties == wire.property_map(*OURS, ORIGINAL_ID)


def test_what_died_again_is_known_by_its_id_and_a_copy_is_not() -> None:
    sent = resent(dead_letter()).with_(original_destination=(wire.QUEUE, "target"))
    assert provenance_of(sent).redelivery_id == "r-1"
    assert provenance_of(sent.with_(text_view="ID:seen")).redelivery_id == "r-1"
    assert provenance_of(sent.with_(broker_sequence=5)).redelivery_id == "r-1"
    assert provenance_of(sent.with_(sequence=2)).redelivery_id is None
    other = sent.with_(producer=("ID:theirs", 1, 1))
    assert provenance_of(other).redelivery_id is None
    assert provenance_of(sent.with_(original_destination=(wire.QUEUE, "b"))).redelivery_id is None


def test_each_resend_has_an_id_of_its_own() -> None:
    """Also when the same dead letter is sent twice."""
    encoder = OpenWireResendEncoder("ID:ours")
    resend = resend_of(WireMessage().encoded())
    frames = [encoder.resend(resend, b"\0", 0, 1)[4:] for _ in range(3)]
    assert [wire.read_message(frame).sequence for frame in frames] == [1, 2, 3]


def test_provenance_of_a_poisoned_message() -> None:
    """All that the wire shows."""
    dead = dead_letter(
        wire.text_entry("dlqDeliveryFailureCause", POISON),
        wire.text_entry("amqsidecarRedeliveryId", "r-9"),
        wire.int_entry("amqsidecarRedeliveryCount", 4),
        own_check("r-9", 4),
    )
    assert provenance_of(dead) == Provenance(
        origin=queue("orders"),
        cause=POISON,
        message_id="ID:host-1-2-0:1:1:1:7",
        redelivery_id="r-9",
        redelivery_count=4,
    )


@pytest.mark.parametrize(
    ("original", "origin", "problem"),
    [
        ((wire.TOPIC, "prices"), topic("prices"), None),
        ((wire.TEMP_QUEUE, "ID:t"), Destination(DestinationKind.TEMP_QUEUE, "ID:t"), None),
        ((wire.TEMP_TOPIC, "ID:t"), Destination(DestinationKind.TEMP_TOPIC, "ID:t"), None),
        (None, None, "no original destination"),
        ((wire.QUEUE, "a,topic://b"), None, "several destinations"),
        ((wire.QUEUE, ""), None, "no name"),
    ],
)
def test_origin(
    original: wire.Destination | None, origin: Destination | None, problem: str | None
) -> None:
    """A place that a redelivery can go to, or the reason why there is none."""
    provenance = provenance_of(dead_letter(original_destination=original))
    assert provenance.origin == origin
    assert (provenance.problem is None) == (problem is None)
    assert (problem or "") in (provenance.problem or "")


@pytest.mark.parametrize(
    ("entries", "expired"),
    [
        ((f"java.lang.Throwable: Message Expired. Expiration:{NOW_MS}", None), True),
        # Copied from another message: this one was sent after that expiry.
        (("java.lang.Throwable: Message Expired. Expiration:5", None), False),
        (("java.lang.Throwable: Message Expired", None), False),
        ((POISON, NOW_MS - 1), False),
        ((None, NOW_MS - 1), True),
        ((None, NOW_MS), False),
        ((None, 0), False),
        ((None, None), False),
    ],
)
def test_expired(entries: tuple[str | None, int | None], expired: bool) -> None:
    """The cause says it; without one the original expiration does."""
    cause, original_expiration = entries
    found = []
    if cause is not None:
        found.append(wire.text_entry("dlqDeliveryFailureCause", cause))
    if original_expiration is not None:
        found.append(wire.long_entry("originalExpiration", original_expiration))
    assert provenance_of(dead_letter(*found)).expired is expired


@pytest.mark.parametrize(
    ("cause", "duplicate"),
    [
        ("java.lang.Throwable: duplicate from store for queue://a", True),
        ("java.lang.Throwable: duplicate paged in from cursor for queue://a", True),
        (POISON, False),
    ],
)
def test_store_duplicates(cause: str, duplicate: bool) -> None:
    """Both of the broker's texts for an id that it knows already."""
    dead = dead_letter(wire.text_entry("dlqDeliveryFailureCause", cause))
    assert provenance_of(dead).is_store_duplicate is duplicate


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        (wire.int_entry("amqsidecarRedeliveryCount", 3), 3),
        (wire.long_entry("amqsidecarRedeliveryCount", 3), 3),
        (wire.text_entry("amqsidecarRedeliveryCount", "12"), 12),
        (wire.text_entry("amqsidecarRedeliveryCount", "many"), 0),
        (wire.text_entry("amqsidecarRedeliveryCount", "²"), 0),
        (wire.text_entry("amqsidecarRedeliveryCount", "9" * 5000), 0),
        (wire.int_entry("amqsidecarRedeliveryCount", -1), 0),
        (wire.entry("amqsidecarRedeliveryCount", 0, b""), 0),
    ],
)
def test_redelivery_count(entry: bytes, count: int) -> None:
    """Numbers and texts of numbers count beside an id; nonsense is none, nor is a count alone."""
    named = wire.text_entry("amqsidecarRedeliveryId", "r-1")
    dead = dead_letter(named, entry, own_check("r-1", count))
    assert provenance_of(dead).redelivery_count == count
    assert provenance_of(dead_letter(entry)).redelivery_count == 0


@pytest.mark.parametrize(
    ("text_view", "expected"),
    [
        (None, "ID:host-1-2-0:1:1:1:7"),
        ("ID:abc", "ID:abc"),
        ("abc", "ID:abc"),
        ("", "ID:"),
    ],
)
def test_message_id_is_what_a_jms_client_prints(text_view: str | None, expected: str) -> None:
    """The text view, else connection, session, producer and sequence."""
    assert provenance_of(dead_letter(text_view=text_view)).message_id == expected


def test_a_token_shows_its_cycle() -> None:
    """A token is an ordinary persistent text message whose text and property are the number."""
    frame = OpenWireResendEncoder("ID:ours").token(queue("t"), 2**40, b"\0", NOW_MS, 5, answer=True)
    token = wire.read_message(frame[4:])
    assert message.read_cycle(frame[4:]) == 2**40
    assert (token.code, token.destination, token.persistent) == (28, (wire.QUEUE, "t"), True)
    assert token.content == b"\0\0\0\x0d" + b"1099511627776"
    assert message.read_cycle(WireMessage().encoded()) is None


@pytest.mark.parametrize("name", ["A.>", "*.B", ">", "A,B"])
def test_an_origin_of_many_queues_is_no_origin(name: str) -> None:
    """A send to such a name reaches all of them."""
    told = provenance_of(dead_letter(original_destination=(100, name)))
    assert told.origin is None
    assert "several destinations" in (told.problem or "")


def test_an_origin_that_can_not_be_written_again_is_no_origin() -> None:
    """Half a surrogate pair would become another letter, and the message go to another queue."""
    known = dead_letter(original_destination=(100, "A.xyz")).encoded()
    told = message.read_dead_letter(known.replace(b"A.xyz", b"A\xed\xa0\x80x"), None, NOW_MS)[0]
    assert told.origin is None
    assert "letter by letter" in (told.problem or "")


@pytest.mark.parametrize("expiration", [2**63 - 1, 2**63 - 2])
def test_an_expiration_at_the_end_of_time_stays_there(expiration: int) -> None:
    dead = dead_letter(wire.long_entry("originalExpiration", expiration), timestamp=NOW_MS - 5)
    assert resent(dead).expiration == 2**63 - 1


def test_a_message_that_will_expire_shows_when() -> None:
    assert provenance_of(dead_letter(expiration=NOW_MS + 55)).expires_at_ms == NOW_MS + 55
    assert provenance_of(dead_letter(expiration=0)).expires_at_ms == 0
    assert provenance_of(dead_letter(expiration=-1)).expires_at_ms == 0


def test_long_origins_are_not_remembered() -> None:
    """A stranger chooses them, up to 64 KiB each, and thousands of origins are remembered."""
    tracemalloc.start()
    try:
        for number in range(100):
            name = f"{number}.{60_000 * 'x'}"
            assert provenance_of(dead_letter(original_destination=(100, name))).origin == queue(
                name
            )
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()
