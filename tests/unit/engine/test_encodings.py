"""Each encoding of a link gets its turn, and what is in hand keeps its order."""

from __future__ import annotations

from amqsidecar.broker import Delivery
from amqsidecar.engine.encodings import TURN_S, EncodingTurns, InHand
from amqsidecar.model.destination import queue
from amqsidecar.model.provenance import Provenance


def delivery(name: str, encoding: str) -> Delivery:
    return Delivery(name, queue("DLQ"), b"", Provenance(), encoding)


def test_an_encoding_keeps_its_turn_while_another_waits_and_then_changes() -> None:
    turns = EncodingTurns(["core/1", "amqp/1.0"])
    assert turns.next(["core/1"], 0.0) == "core/1"
    assert turns.next(["amqp/1.0", "core/1"], TURN_S / 2) == "core/1"
    assert turns.next(["core/1", "amqp/1.0"], TURN_S) == "amqp/1.0"
    assert turns.next(["core/1", "amqp/1.0"], TURN_S * 1.5) == "amqp/1.0"
    assert turns.next(["core/1", "amqp/1.0"], TURN_S * 2) == "core/1"


def test_where_only_one_has_work_it_goes_on_at_once() -> None:
    turns = EncodingTurns(["core/1", "amqp/1.0"])
    assert turns.next(["core/1"], 0.0) == "core/1"
    assert turns.next(["amqp/1.0"], 0.0) == "amqp/1.0"
    assert turns.next([], 0.0) == "amqp/1.0"


def test_an_encoding_that_the_link_does_not_have_gets_no_turn() -> None:
    turns = EncodingTurns(["core/1", "amqp/1.0"])
    assert turns.next(["stomp/1.2"], 9.0) == "core/1"
    assert turns.next(["stomp/1.2", "amqp/1.0"], 9.0) == "amqp/1.0"


def test_with_three_none_waits_for_ever() -> None:
    turns = EncodingTurns(["a/1", "b/1", "c/1"])
    got = [turns.next(["a/1", "b/1", "c/1"], number * TURN_S) for number in range(9)]
    assert all(set(got[at : at + 3]) == {"a/1", "b/1", "c/1"} for at in range(0, 9, 3))


def test_what_is_given_back_comes_first_again() -> None:
    in_hand = InHand()
    in_hand.add([delivery("c1", "core/1"), delivery("c2", "core/1")])
    in_hand.add([delivery("a1", "amqp/1.0")])
    in_hand.add([])
    first = in_hand.first("core/1", 1)
    in_hand.remove(first)
    in_hand.add([delivery("c3", "core/1")])
    in_hand.give_back(first)
    assert [one.handle for one in in_hand.first("core/1", 9)] == ["c1", "c2", "c3"]
    assert [one.handle for one in in_hand.first("amqp/1.0", 9)] == ["a1"]
    assert in_hand.encodings == ["core/1", "amqp/1.0"]
    assert len(in_hand) == 4


def test_what_has_to_wait_stays_in_hand_before_what_is_taken() -> None:
    in_hand = InHand()
    in_hand.add([delivery(name, "core/1") for name in ("waits", "taken", "waits too", "later")])
    in_hand.remove([in_hand.first("core/1", 9)[1]])
    assert [one.handle for one in in_hand.first("core/1", 9)] == ["waits", "waits too", "later"]
