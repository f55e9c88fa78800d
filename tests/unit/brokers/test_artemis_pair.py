"""A pair of links opens both wires, or the first one alone, and leaves nothing open."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis_pair.link import ArtemisPairLink, PairTake
from amqsidecar.brokers.artemis_pair.second_wire import SecondWire, SecondWireMemory
from amqsidecar.errors import BrokerRefused, LinkLost, QueueRefused
from amqsidecar.model.destination import queue
from support.brokers.memory import ENCODING, MemoryBroker, MemoryLink, StoredMessage
from support.brokers.memory_pair import OTHER_ENCODING
from support.virtual_clock import VirtualClock


class Answers:
    """A port that answers our greeting at once, as a broker with AMQP does."""

    def is_answered(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        pass


class NoLink(MemoryLink):
    """A wire that does not open."""

    error: Exception = LinkLost("no answer")

    def _open(self, **_: Any) -> Any:
        raise self.error


def pair(
    broker: MemoryBroker,
    first: MemoryLink,
    second: MemoryLink,
    clock: VirtualClock | None = None,
) -> ArtemisPairLink:
    clock = clock or VirtualClock()
    wire = SecondWire(Answers, "broker:1", clock, SecondWireMemory())
    return ArtemisPairLink(first, second, second_wire=wire, clock=clock)


@pytest.mark.parametrize("error", [LinkLost("no answer"), BrokerRefused("no AMQP here")])
def test_the_first_wire_works_alone_where_the_second_does_not_open(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    broker = MemoryBroker()
    first, second = MemoryLink(broker), NoLink(broker)
    second.error = error
    with caplog.at_level(logging.WARNING):
        session = pair(broker, first, second).take("token")
    assert session is first
    assert session.description.encodings == (ENCODING,)
    assert str(error) in caplog.text


def test_where_the_first_wire_does_not_open_nothing_stays_open() -> None:
    broker = MemoryBroker()
    with pytest.raises(LinkLost, match="no answer"):
        pair(broker, NoLink(broker), MemoryLink(broker)).take("token")
    assert broker.sessions == []


def test_where_the_two_can_not_be_joined_nothing_stays_open() -> None:
    broker = MemoryBroker()
    first, second = MemoryLink(broker), MemoryLink(broker, OTHER_ENCODING)
    second.step = lambda _name: second.close()
    with pytest.raises(LinkLost):
        pair(broker, first, second).take("token")
    assert broker.sessions == []


def test_a_queue_that_one_wire_can_not_read_is_refused_by_name() -> None:
    broker = MemoryBroker(unreadable={"closed"})
    first, second = MemoryLink(broker), MemoryLink(broker, OTHER_ENCODING)
    session = pair(broker, first, second).take("token")
    assert isinstance(session, PairTake)
    with pytest.raises(QueueRefused) as refused:
        session.attach([IntakeQueue(queue("closed")), IntakeQueue(queue("open"))], 10)
    assert refused.value.queue == "closed"
    session.attach([IntakeQueue(queue("open"))], 10)
    assert session.queues_read() == (queue("open"),)
    session.close()
    assert broker.sessions == []


def test_a_wake_before_the_wait_ends_it() -> None:
    broker = MemoryBroker()
    first, second = MemoryLink(broker), MemoryLink(broker, OTHER_ENCODING)
    clock = VirtualClock()
    session = pair(broker, first, second, clock).take("token")
    second.on_wait = lambda timeout_s: clock.advance(round(timeout_s * 1000))
    session.wake()
    before_ms = clock.now_ms()
    session.wait(10.0)
    assert clock.now_ms() == before_ms
    session.wait(10.0)
    assert clock.now_ms() == before_ms + 10_000


@pytest.mark.parametrize(
    ("held_back", "begins_turn"),
    [(0, True), (1, False), (None, False)],
    ids=["others are kept from it", "it is too large", "it arrives in pieces"],
)
def test_a_turn_begins_only_for_what_the_other_wire_keeps(
    held_back: int | None, begins_turn: bool
) -> None:
    """A turn closes the consumers, and what one of them holds back would be handed out again."""
    broker, clock, dead_letters = MemoryBroker(), VirtualClock(), queue("DLQ")
    first, second = MemoryLink(broker), MemoryLink(broker, OTHER_ENCODING)
    session = pair(broker, first, second, clock).take("token")
    assert isinstance(session, PairTake)
    session.attach([IntakeQueue(dead_letters)], 10)
    broker.queue("DLQ").append(StoredMessage(b"other", encoding=OTHER_ENCODING))
    session.token.create(0)
    assert session.token.take(0) == 0
    session.commit_cycle(session.receive(1), [], 1)
    broker.queue("DLQ").append(StoredMessage(b"stays", encoding="third"))
    second.held_back_count = held_back
    clock.advance(2_000)
    session.wait(0)
    reads = [session._turns.reads(IntakeQueue(dead_letters), wire) for wire in (0, 1)]
    assert reads == ([True, False] if begins_turn else [True, True])


def test_without_a_bound_group_the_idle_wire_attaches_again_and_the_other_stays() -> None:
    """What the other wire has prefetched is not handed out again."""
    broker, clock, dead_letters = MemoryBroker(), VirtualClock(), IntakeQueue(queue("DLQ"))
    first, second = MemoryLink(broker), MemoryLink(broker, OTHER_ENCODING)
    first.is_bound_to_one = False
    session = pair(broker, first, second, clock).take("token")
    session.attach([dead_letters], 10)
    clock.advance(500)
    broker.queue("DLQ").append(StoredMessage(b"one"))
    assert len(session.receive(1)) == 1
    broker.queue("DLQ").append(StoredMessage(b"stays", encoding="third"))
    attached: dict[str, list[int]] = {"first": [], "second": []}
    first.on_attach = lambda queues: attached["first"].append(len(queues))
    second.on_attach = lambda queues: attached["second"].append(len(queues))
    clock.advance(1000)
    session.wait(0)
    assert attached == {"first": [1, 1], "second": [0, 1]}
    clock.advance(500)
    session.wait(0)
    assert attached == {"first": [1, 1], "second": [0, 1]}


def test_in_a_turn_no_wire_reads_before_the_consumers_of_before_are_closed() -> None:
    """What is bound to one of them is not offered to a consumer that is there already."""
    broker, clock, dead_letters = MemoryBroker(), VirtualClock(), IntakeQueue(queue("DLQ"))
    first, second = MemoryLink(broker), MemoryLink(broker, OTHER_ENCODING)
    session = pair(broker, first, second, clock).take("token")
    session.attach([dead_letters], 10)
    clock.advance(500)
    broker.queue("DLQ").append(StoredMessage(b"one"))
    assert len(session.receive(1)) == 1
    broker.queue("DLQ").append(StoredMessage(b"stays", encoding="third"))
    attached: list[int] = []
    second.on_attach = lambda queues: attached.append(len(queues))
    first.is_leaving_one = True
    clock.advance(1000)
    session.wait(0)
    assert attached == [0, 0]
    first.is_leaving_one = False
    session.wait(0)
    assert attached == [0, 0, 1]
