"""A wire over which nothing arrives reads a queue alone for a while, or attaches again."""

from __future__ import annotations

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis_pair.turns import ReaderTurns
from amqsidecar.model.destination import queue

FIRST, SECOND = 0, 1
QUEUE, OTHER = queue("DLQ"), queue("ExpiryQueue")


def attached(now_s: float = 0.0) -> ReaderTurns:
    turns = ReaderTurns(2)
    turns.attach([QUEUE], now_s)
    return turns


def begin(turns: ReaderTurns, now_s: float) -> None:
    """Begin a turn of the second wire, where no consumer of before is left."""
    turns.begin(QUEUE, SECOND, now_s)
    assert turns.waiting() == [QUEUE]
    turns.free(QUEUE, now_s)


def readers(turns: ReaderTurns) -> list[int]:
    return [wire for wire in (FIRST, SECOND) if turns.reads(IntakeQueue(QUEUE), wire)]


def test_both_wires_read_until_a_turn_begins() -> None:
    turns = attached()
    assert readers(turns) == [FIRST, SECOND]
    begin(turns, 5.0)
    assert readers(turns) == [SECOND]
    assert turns.reads(IntakeQueue(OTHER), FIRST)


def test_a_wire_is_due_that_is_idle_whoever_has_read() -> None:
    """A group may be bound to the consumer of another sidecar."""
    turns = attached()
    assert turns.due(0.9) == []
    assert turns.due(1.9) == [(QUEUE, FIRST)]


def test_where_nothing_stays_all_wires_begin_to_be_idle() -> None:
    turns = attached()
    turns.nothing_stays(QUEUE, 1.0)
    assert turns.due(1.9) == []
    assert turns.due(2.9) == [(QUEUE, FIRST)]


def test_a_wire_that_attached_again_waits_ten_seconds_longer_also_where_nothing_stays() -> None:
    turns = attached()
    turns.renewed(QUEUE, FIRST, 1.0)
    turns.renewed(QUEUE, SECOND, 2.0)
    turns.nothing_stays(QUEUE, 3.0)
    assert turns.due(11.9) == []
    assert turns.due(12.9) == [(QUEUE, FIRST)]


def test_of_many_queues_some_are_looked_at_and_the_others_next() -> None:
    turns = ReaderTurns(2)
    queues = [queue(f"DLQ.{number}") for number in range(30)]
    turns.attach(queues, 0.0)
    seen = []
    for now_s in (1.0, 2.0):
        for one, _ in turns.due(now_s):
            seen.append(one)
            turns.nothing_stays(one, now_s)
    assert len(seen) == 40
    assert set(seen) == set(queues)


def test_the_wire_is_due_that_is_idle_while_the_other_reads() -> None:
    turns = attached()
    turns.arrived(QUEUE, FIRST, 1.9)
    assert turns.due(2.0) == [(QUEUE, SECOND)]


def test_the_wire_is_due_that_was_idle_for_longer() -> None:
    turns = attached()
    turns.arrived(QUEUE, SECOND, 1.0)
    turns.arrived(QUEUE, FIRST, 2.0)
    assert turns.due(10.0) == [(QUEUE, SECOND)]


def test_a_queue_is_looked_at_once_a_second_and_not_during_a_turn() -> None:
    turns = attached()
    turns.arrived(QUEUE, FIRST, 2.0)
    assert turns.due(2.0) == [(QUEUE, SECOND)]
    assert turns.due(2.9) == []
    assert turns.due(3.0) == [(QUEUE, SECOND)]
    begin(turns, 3.0)
    assert turns.due(9.0) == []


def test_a_turn_goes_on_while_its_wire_reads_something() -> None:
    turns = attached()
    begin(turns, 1.0)
    turns.arrived(QUEUE, SECOND, 1.4)
    assert not turns.end(1.8)
    assert readers(turns) == [SECOND]
    assert turns.end(1.9)
    assert readers(turns) == [FIRST, SECOND]
    assert not turns.end(9.0)


def test_a_turn_ends_after_five_seconds_also_while_its_wire_reads() -> None:
    """Otherwise a wire that is busy from then on would keep the queue for ever."""
    turns = attached()
    begin(turns, 1.0)
    for at in range(11, 59):
        turns.arrived(QUEUE, SECOND, at / 10)
        assert not turns.end(at / 10)
    turns.arrived(QUEUE, SECOND, 5.9)
    assert turns.end(6.0)
    assert turns.due(6.0) == [(QUEUE, FIRST)]


def test_a_turn_ends_after_five_seconds_also_where_consumers_of_before_stay() -> None:
    turns = attached()
    turns.begin(QUEUE, SECOND, 1.0)
    assert (readers(turns), turns.waiting()) == ([], [QUEUE])
    assert not turns.end(5.9)
    assert turns.end(6.0)
    assert (readers(turns), turns.waiting()) == ([FIRST, SECOND], [])


def test_what_arrives_late_over_the_other_wire_does_not_prolong_a_turn() -> None:
    turns = attached()
    begin(turns, 1.0)
    turns.arrived(QUEUE, FIRST, 1.4)
    assert turns.end(1.5)


def test_after_a_turn_without_a_message_the_wire_waits_ten_seconds_longer() -> None:
    turns = attached()
    turns.arrived(QUEUE, FIRST, 1.0)
    begin(turns, 2.0)
    assert turns.end(2.5)
    turns.arrived(QUEUE, FIRST, 13.4)
    assert turns.due(13.4) == []
    turns.arrived(QUEUE, FIRST, 14.4)
    assert turns.due(14.4) == [(QUEUE, SECOND)]


def test_after_a_turn_with_messages_the_wire_may_have_the_next_one_at_once() -> None:
    turns = attached()
    turns.arrived(QUEUE, FIRST, 1.0)
    begin(turns, 2.0)
    turns.arrived(QUEUE, SECOND, 2.1)
    assert turns.end(2.6)
    turns.arrived(QUEUE, FIRST, 3.6)
    assert turns.due(3.6) == [(QUEUE, SECOND)]


def test_a_turn_survives_an_attach_of_its_queue_and_ends_with_another() -> None:
    turns = attached()
    begin(turns, 1.0)
    turns.attach([OTHER, QUEUE], 1.1)
    assert readers(turns) == [SECOND]
    turns.attach([OTHER], 1.2)
    assert readers(turns) == [FIRST, SECOND]
    assert not turns.end(9.0)


def test_a_queue_that_comes_again_has_no_past() -> None:
    turns = attached()
    turns.attach([OTHER], 2.0)
    turns.attach([QUEUE], 3.0)
    assert turns.due(3.9) == []
    assert turns.due(4.9) == [(QUEUE, FIRST)]


def test_a_queue_that_is_not_attached_is_not_noted() -> None:
    turns = attached()
    turns.arrived(OTHER, FIRST, 1.0)
    turns.attach([QUEUE, OTHER], 2.0)
    assert turns.due(2.0) == [(QUEUE, FIRST)]
