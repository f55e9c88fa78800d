"""One AMQP connection through the listener: what each side gets, frame by frame."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_frames import FALSE, TRUE, described, frame_of
from amqsidecar.listener.amqp.deliveries import ConsumerLink
from amqsidecar.listener.amqp.notes import NoteSettings
from amqsidecar.listener.amqp.session import AmqpSession
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.session import (
    GiveUp,
    NackOutcome,
    OnFailure,
    Settled,
)
from support.wires.relayed import Relayed

HEADER = b"AMQP\0\1\0\0"
PRODUCT = amqp.make_map(0x70, [amqp.symbol("product"), amqp.string("apache-activemq-artemis")])[3:]
REJECTED = described(frames.REJECTED, [described(frames.ERROR, [amqp.symbol("app:bad")])])
ACCEPTED = described(frames.ACCEPTED, [])
BODY = b"\0\x53\x75\xa0\x04body"


def number(value: int) -> bytes:
    return amqp.unsigned(value)


def open_frame(container: str, properties: bytes = amqp.NULL) -> bytes:
    fields = [amqp.string(container), *[amqp.NULL] * 8, properties]
    return frame_of(0, frames.OPEN, fields)


def attach(name: str, handle: int, role: bytes, source: str) -> bytes:
    ends = [described(frames.SOURCE, [amqp.string(source)]), described(frames.TARGET, [])]
    fields = [amqp.string(name), number(handle), role, amqp.NULL, amqp.NULL, *ends]
    return frame_of(0, frames.ATTACH, fields)


def transfer(delivery: int, payload: bytes = BODY, *, more: bytes = FALSE) -> bytes:
    fields = [number(0), number(delivery), b"\xa0\1a", number(0), FALSE, more]
    return frame_of(0, frames.TRANSFER, fields, payload)


def disposition(role: bytes, first: int, last: int, state: bytes, settled: bytes = TRUE) -> bytes:
    return frame_of(0, frames.DISPOSITION, [role, number(first), number(last), settled, state])


def error(description: str) -> bytes:
    said = [amqp.symbol("app:bad"), amqp.string(description)]
    return described(frames.REJECTED, [described(frames.ERROR, said)])


def modified(annotation: str, value: int, failed: bytes = TRUE) -> bytes:
    annotations = amqp.make_map(0x70, [amqp.symbol(annotation), amqp.long(value)])[3:]
    return described(frames.MODIFIED, [failed, FALSE, annotations])


CLIENT = (
    HEADER
    + open_frame("app")
    + frame_of(0, frames.BEGIN, [amqp.NULL, number(0), number(9), number(9)])
    + attach("link", 0, TRUE, "orders")
)
BROKER = (
    HEADER
    + open_frame("broker", PRODUCT)
    + frame_of(0, frames.BEGIN, [b"\x60\0\0", number(0), number(9), number(9)])
    + attach("link", 0, FALSE, "orders")
)


CLASSIC = (
    HEADER
    + open_frame("broker")
    + frame_of(0, frames.BEGIN, [b"\x60\0\0", number(0), number(9), number(9)])
    + attach("link", 0, FALSE, "orders")
)
DURABLE = amqp.make_list(amqp.HEADER, [TRUE])
IDENTIFIED = (
    DURABLE
    + amqp.make_list(amqp.PROPERTIES, [amqp.string("m1")])
    + amqp.make_map(
        amqp.APPLICATION_PROPERTIES, [amqp.string("amqsidecarRedeliveryCount"), amqp.long(2)]
    )
    + BODY
)
NOW_MS = 1_000_000


@pytest.fixture
def budget(tmp_path: Path) -> BodyBudget:
    return BodyBudget(1 << 20, 1 << 24, tmp_path)


def begun(
    budget: BodyBudget,
    on_failure: OnFailure = OnFailure.CLOSED,
    *,
    broker: bytes = BROKER,
    are_obeyed: bool | None = None,
) -> Relayed:
    """Return a connection with one link; `are_obeyed`: verdicts, None = notes are not read."""
    notes = None if are_obeyed is None else NoteSettings("notes", are_obeyed, lambda: NOW_MS)
    wire = Relayed(AmqpSession(budget, on_failure, notes=notes))
    wire.client(CLIENT)
    wire.broker(broker)
    wire.to_broker = wire.to_client = b""
    return wire


def open_links(wire: Relayed, *names: str) -> None:
    """Answer the listener's session, and the links that it opens."""
    wire.broker(frame_of(1, frames.BEGIN, [b"\x60\xff\xff", number(0), number(99), number(99)]))
    for handle, name in enumerate(names):
        target = described(frames.TARGET, [])
        fields = [
            amqp.string(f"amqsidecar-{name}"),
            number(handle),
            TRUE,
            *[amqp.NULL] * 3,
            target,
        ]
        wire.broker(frame_of(1, frames.ATTACH, fields))
        flow = [number(0), number(99), number(0), number(9), number(handle), number(0), number(9)]
        wire.broker(frame_of(1, frames.FLOW, flow))


def answer(wire: Relayed, delivery: int, state: bytes) -> None:
    """Answer a message of the listener."""
    said = [TRUE, number(delivery), number(delivery), TRUE, state]
    wire.broker(frame_of(1, frames.DISPOSITION, said))


def declare(wire: Relayed) -> None:
    answer(wire, 0, described(frames.DECLARED, [frames.binary(b"tx")]))


FRAMES = st.one_of(
    st.builds(transfer, st.integers(0, 9), st.binary(max_size=40).map(lambda b: BODY + b)),
    st.builds(
        transfer, st.just(3), st.just(b"x" * (frames.HELD_BYTES_MAX + 7)), more=st.just(TRUE)
    ),
    st.just(frame_of(0, frames.FLOW, [number(0), number(9)])),
    st.just(b"\0\0\0\x08\x02\0\0\0"),
)
CUTS = st.lists(st.integers(1, 5000), max_size=30)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    found, at = [], 0
    for size in cuts:
        found.append(data[at : at + size])
        at += size
    return [*found, data[at:]]


@given(st.lists(FRAMES, max_size=6), st.lists(FRAMES, max_size=6), CUTS)
def test_without_a_reject_every_byte_passes(
    from_client: list[bytes], from_broker: list[bytes], cuts: list[int]
) -> None:
    wire = Relayed(AmqpSession(BodyBudget(1 << 20, 0, Path("/nowhere")), OnFailure.CLOSED))
    said = CLIENT + b"".join(from_client) + disposition(TRUE, 0, 9, ACCEPTED)
    for chunk in chunks(said, cuts):
        wire.client(chunk)
    answered = BROKER + b"".join(from_broker)
    for chunk in chunks(answered, cuts):
        wire.broker(chunk)
    assert (wire.to_broker, wire.to_client, wire.ended) == (said, answered, "")
    wire.session.close()


def test_a_rejection_becomes_one_transaction_of_copy_and_acceptance(budget: BodyBudget) -> None:
    wire = begun(budget)
    wire.broker(transfer(5))
    seen = wire.to_client
    wire.client(disposition(TRUE, 5, 5, REJECTED, FALSE) + frame_of(0, frames.DETACH, [number(0)]))
    assert wire.session.is_waiting, "the end of the link waits"
    open_links(wire, "copies", "transactions")
    wire.to_broker = b""
    declare(wire)
    assert BODY in wire.to_broker
    assert b"app:bad" in wire.to_broker
    assert frames.binary(b"tx") + ACCEPTED in wire.to_broker, "the original is accepted in it"
    wire.to_broker = b""
    state = described(frames.TRANSACTIONAL_STATE, [frames.binary(b"tx"), ACCEPTED])
    wire.broker(frame_of(1, frames.DISPOSITION, [TRUE, number(1), number(1), TRUE, state]))
    assert described(frames.DISCHARGE, [frames.binary(b"tx"), FALSE]) in wire.to_broker
    assert not wire.settled
    wire.to_broker = b""
    wire.broker(frame_of(1, frames.DISPOSITION, [TRUE, number(2), number(2), TRUE, ACCEPTED]))
    assert wire.settled == [Settled(GiveUp.REJECTED, NackOutcome.INTERCEPTED, 1)]
    assert wire.to_client == seen + disposition(FALSE, 5, 5, REJECTED)
    assert wire.to_broker == frame_of(0, frames.DETACH, [number(0)])
    assert budget.memory_bytes == 0


def test_a_copy_that_the_broker_refuses_ends_the_connection(budget: BodyBudget) -> None:
    wire = begun(budget)
    wire.broker(transfer(5))
    wire.client(disposition(TRUE, 5, 5, REJECTED))
    wire.broker(frame_of(1, frames.BEGIN, [b"\x60\xff\xff", number(0), number(99), number(99)]))
    error = described(frames.ERROR, [amqp.symbol("amqp:unauthorized-access"), amqp.string("no")])
    wire.broker(frame_of(1, frames.DETACH, [number(0), TRUE, error]))
    assert "amqp:unauthorized-access: no" in wire.ended
    assert [one.outcome for one in wire.settled] == [NackOutcome.REFUSED]
    wire.session.close()
    assert budget.memory_bytes == 0


@pytest.mark.parametrize("on_failure", OnFailure)
def test_a_message_without_room_is_not_saved_in_part(tmp_path: Path, on_failure: OnFailure) -> None:
    wire = begun(BodyBudget(8, 0, tmp_path), on_failure)
    wire.broker(transfer(5))
    wire.client(disposition(TRUE, 5, 5, REJECTED))
    is_closed = on_failure is OnFailure.CLOSED
    assert wire.to_broker == (b"" if is_closed else disposition(TRUE, 5, 5, REJECTED))
    assert bool(wire.ended) is is_closed
    outcome = NackOutcome.REFUSED if is_closed else NackOutcome.PASSED
    assert [one.outcome for one in wire.settled] == [outcome]


def test_on_classic_the_note_of_an_error_goes_in_front_of_the_rejection(budget: BodyBudget) -> None:
    wire = begun(budget, broker=CLASSIC, are_obeyed=False)
    wire.broker(transfer(5, IDENTIFIED))
    rejected = disposition(TRUE, 5, 5, error("no stock"))
    detach = frame_of(0, frames.DETACH, [number(0)])
    wire.client(rejected + detach)
    assert rejected not in wire.to_broker
    open_links(wire, "notes")
    identity = b'{"message_id":"m1","redelivery_count":2,"queue":"orders",'
    note = identity + b'"exception":"app:bad","text":"no stock"'
    assert note in wire.to_broker
    assert rejected not in wire.to_broker
    wire.to_broker = b""
    answer(wire, 0, ACCEPTED)
    assert wire.to_broker == rejected + detach
    assert wire.settled == [Settled(GiveUp.REJECTED, NackOutcome.NOTED, 1)]
    assert budget.memory_bytes == 0


@pytest.mark.parametrize(
    ("annotation", "value"), [("x-opt-delivery-time", NOW_MS + 700), ("x-opt-delivery-delay", 700)]
)
def test_on_classic_a_chosen_delay_becomes_a_verdict_on_a_dead_letter(
    budget: BodyBudget, annotation: str, value: int
) -> None:
    wire = begun(budget, broker=CLASSIC, are_obeyed=True)
    wire.broker(transfer(5, IDENTIFIED))
    wire.client(disposition(TRUE, 5, 5, modified(annotation, value)))
    open_links(wire, "notes")
    assert b'"verdict":{"action":"retry_after","delay_ms":700}' in wire.to_broker
    wire.to_broker = b""
    answer(wire, 0, ACCEPTED)
    assert wire.to_broker == disposition(TRUE, 5, 5, described(frames.REJECTED, []))
    assert wire.settled == [Settled(GiveUp.MODIFIED, NackOutcome.NOTED, 1)]


def test_on_artemis_copy_and_verdict_are_in_one_transaction(budget: BodyBudget) -> None:
    wire = begun(budget, are_obeyed=True)
    wire.broker(transfer(5, IDENTIFIED))
    state = modified("x-opt-delivery-delay", 700)
    wire.client(disposition(TRUE, 5, 5, state, FALSE))
    open_links(wire, "copies", "transactions", "notes")
    declare(wire)
    note, copy = b'"delay_ms":700', b"intercepted at the modified of an AMQP client"
    assert 0 < wire.to_broker.index(note) < wire.to_broker.index(copy)
    assert frames.binary(b"tx") + ACCEPTED in wire.to_broker
    sent = described(frames.TRANSACTIONAL_STATE, [frames.binary(b"tx"), ACCEPTED])
    for delivery in (1, 2):
        answer(wire, delivery, sent)
    wire.to_client = b""
    answer(wire, 3, ACCEPTED)
    assert wire.to_client == disposition(FALSE, 5, 5, state)
    assert wire.settled == [Settled(GiveUp.MODIFIED, NackOutcome.INTERCEPTED, 1)]
    assert budget.memory_bytes == 0


@pytest.mark.parametrize(
    ("broker", "payload", "are_obeyed", "state"),
    [
        (CLASSIC, IDENTIFIED, None, error("x")),
        (CLASSIC, IDENTIFIED, True, described(frames.REJECTED, [])),
        (CLASSIC, IDENTIFIED, False, modified("x-opt-delivery-delay", 700)),
        (CLASSIC, IDENTIFIED, True, modified("x-opt-delivery-time", NOW_MS - 1)),
        (CLASSIC, IDENTIFIED, True, modified("x-opt-delivery-delay", 700, FALSE)),
        (BROKER, IDENTIFIED, False, modified("x-opt-delivery-delay", 700)),
        (BROKER, BODY, True, modified("x-opt-delivery-delay", 700)),
        (CLASSIC, BODY, True, modified("x-opt-delivery-delay", 700)),
        (CLASSIC, IDENTIFIED[len(DURABLE) :], True, modified("x-opt-delivery-delay", 700)),
    ],
)
def test_what_no_note_can_help_is_passed_on_at_once(
    budget: BodyBudget, broker: bytes, payload: bytes, are_obeyed: bool | None, state: bytes
) -> None:
    """No reader of notes, no error, the time is over, no id; the last one is not durable."""
    wire = begun(budget, broker=broker, are_obeyed=are_obeyed)
    wire.broker(transfer(5, payload))
    said = disposition(TRUE, 5, 5, state)
    wire.client(said)
    assert (wire.to_broker, wire.ended) == (said, "")
    assert budget.memory_bytes == 0


@pytest.mark.parametrize("is_after_the_link_opened", [False, True])
def test_where_notes_are_refused_what_waits_for_one_is_passed_on(
    budget: BodyBudget, is_after_the_link_opened: bool
) -> None:
    wire = begun(budget, broker=CLASSIC, are_obeyed=True)
    wire.broker(transfer(5, IDENTIFIED) + transfer(6, IDENTIFIED) + transfer(7, IDENTIFIED))
    said = [disposition(TRUE, n, n, error("no stock")) for n in (5, 6, 7)]
    wire.client(said[0] + said[1])
    if is_after_the_link_opened:
        open_links(wire, "notes")
    wire.to_broker = b""
    wire.broker(frame_of(1, frames.BEGIN, [b"\x60\xff\xff", number(0), number(99), number(99)]))
    refusal = described(frames.ERROR, [amqp.symbol("amqp:unauthorized-access"), amqp.string("no")])
    wire.broker(frame_of(1, frames.DETACH, [number(0), TRUE, refusal]))
    assert wire.to_broker == said[0] + said[1]
    wire.client(said[2])
    assert wire.to_broker == b"".join(said), "and no more is written"
    assert [one.outcome for one in wire.settled] == [NackOutcome.PASSED] * 2
    assert (wire.ended, budget.memory_bytes) == ("", 0)


@pytest.mark.parametrize(
    ("address", "capability", "queue"),
    [
        ("orders", "queue", "orders"),
        ("queue://orders?consumer.exclusive=true", "queue", "queue://orders"),
        ("orders.>", "queue", ""),
        ("orders,invoices", "queue", ""),
        ("prices", "topic", ""),
    ],
)
def test_the_queue_of_a_note_on_classic_is_one_queue_or_not_known(
    address: str, capability: str, queue: str
) -> None:
    capabilities = amqp.symbol(capability)
    source = described(frames.SOURCE, [amqp.string(address), *[amqp.NULL] * 9, capabilities])
    assert ConsumerLink("link", source).queue_on_classic == queue
