"""Judgements: the rules' decision and what the sidecar does besides."""

from __future__ import annotations

from typing import TypedDict, TypeVar, Unpack

import pytest
from msgspec.structs import replace

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.engine.judging.judge import LATEST_DUE_MS, Judge, Judgement, Readers
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.errors import LinkLost
from amqsidecar.model.dead_letter import DeadLetter, KnownFacts
from amqsidecar.model.decision import (
    DeadLetterTo,
    Decision,
    Discard,
    Exhaust,
    Redeliver,
    WrittenLine,
)
from amqsidecar.model.destination import Destination, parse_destination, queue, topic
from amqsidecar.model.event import Discarded, Exhausted, Held, Parked, Received, Returned, Scheduled
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.schedule import RowState, TakenRow
from amqsidecar.model.signal import WAIT_MAX_MS
from amqsidecar.plugin import Chance

E = TypeVar("E")

NOW = 1_000_000


class Answers:
    """Rules that always answer the same, and remember what they were asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[DeadLetter] = []

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        self.asked.append(dead_letter)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]  # some answer what they must not


class Fields(TypedDict, total=False):
    """Fields of a provenance."""

    origin: Destination | None
    cause: str | None
    message_id: str | None
    redelivery_id: str | None
    redelivery_count: int
    problem: str | None


def judge(
    answer: object,
    *,
    backlog: bool = False,
    parks_topics: bool = True,
    keeps_exhausted: bool = False,
    readers: Readers = Readers(),  # noqa: B008 - it is immutable
    **provenance: Unpack[Fields],
) -> tuple[Judgement, Answers]:
    rules = Answers(answer)
    fields: Fields = {"origin": queue("orders"), **provenance}
    judged = Judge(
        rules,
        SendRules(
            BrokerKind.CLASSIC,
            lambda one: one.name in ("DLQ", "DLA::DLQ.x"),
            ".exhausted",
            parks_topics=parks_topics,
        ),
        lambda: 0.5,
        readers,
        keeps_exhausted=keeps_exhausted,
    ).judge(
        Delivery(1, queue("DLQ"), b"body", Provenance(**fields), "e/1"),
        "i1",
        7,
        NOW,
        is_backlog=backlog,
    )
    return judged, rules


def row_of(verdict: Judgement) -> TakenRow:
    assert verdict.row is not None
    return verdict.row


def event_of(verdict: Judgement, kind: type[E]) -> E:
    """Return the only event of a kind."""
    [found] = [one for one in verdict.events if type(one) is kind]
    return found


REDELIVER = Redeliver(500, 1, "rule")


class Drawn(Answers):
    """Rules that draw their delay by chance."""

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        assert chance is not None
        super().decide(dead_letter, chance)
        return Redeliver(int(chance() * 1000), 1, "drawn")


@pytest.mark.parametrize(
    ("rules", "readers", "questions"),
    [
        (Answers(REDELIVER), Readers(), 2),
        (Answers(Exhaust("rule")), Readers(), 2),
        (Answers(None), Readers(), 2),
        (Answers(Redeliver(1.5, 1, "rule")), Readers(), 2),  # type: ignore[arg-type]
        (Drawn(None), Readers(), 6),
        (Answers(REDELIVER), Readers(facts=lambda _, cause, age: KnownFacts(age, cause)), 6),
    ],
)
def test_equal_questions_of_a_cycle_are_asked_once(
    rules: Answers, readers: Readers, questions: int
) -> None:
    chances = iter(range(10))
    judged = Judge(
        rules,
        SendRules(BrokerKind.CLASSIC, lambda one: one.name == "DLQ", ".exhausted"),
        lambda: next(chances) / 1000,
        readers,
    )
    dead = [
        Delivery(1, queue("DLQ"), b"x", Provenance(origin=queue(name)), "e/1")
        for name in ("orders", "orders", "bills", "orders", "orders", "bills")
    ]
    alone = [
        row_of(judged.judge(one, "i1", at, NOW, is_backlog=False)) for at, one in enumerate(dead)
    ]
    assert len(rules.asked) == len(dead), "what was not prepared for is asked each time"
    rules.asked.clear()
    for _ in range(2):
        chances = iter(range(10))
        judged.prepare(dead)
        found = [judged.judge(one, "i1", at, NOW, is_backlog=False) for at, one in enumerate(dead)]
        assert [row_of(one) for one in found] == alone
        assert len(rules.asked) == questions
        rules.asked.clear()


def test_a_redelivery_waits_for_its_delay_with_the_rules_words() -> None:
    verdict, _ = judge(REDELIVER, cause="why")
    row = row_of(verdict)
    assert (row.state, row.destination, row.due_at_ms) == (
        RowState.WAITING,
        "queue://orders",
        NOW + 500,
    )
    assert (row.redelivery_count, row.rule, row.cause, row.message) == (1, "rule", "why", b"body")
    assert [type(event) for event in verdict.events] == [Received, Scheduled]
    assert row.redelivery_id == "i1-000000000007"


REDELIVERED = TakenRow(
    id=7,
    state=RowState.WAITING,
    due_at_ms=NOW + 500,
    destination="queue://orders",
    is_final=False,
    source="queue://DLQ",
    redelivery_id="other",
    redelivery_count=1,
    delay_ms=500,
    expiration_ms=0,
    rule="rule",
    received_at_ms=NOW,
    encoding="e/1",
    message=b"body",
    cause_group="why",
    cause="why",
    message_id="ID:9",
)


def test_each_value_has_its_place_in_the_row() -> None:
    verdict, _ = judge(
        REDELIVER, cause="why", message_id="ID:9", redelivery_id="other", redelivery_count=3
    )
    assert verdict.row == REDELIVERED
    verdict, _ = judge(
        DeadLetterTo(queue("final"), 60, "last"), cause="why", message_id="ID:9", redelivery_count=3
    )
    assert verdict.row == replace(
        REDELIVERED,
        due_at_ms=NOW,
        is_final=True,
        redelivery_id="i1-000000000007",
        redelivery_count=3,
        delay_ms=0,
        expiration_ms=60,
        rule="last",
        final_queue="queue://final",
    )


@pytest.mark.parametrize(
    ("said", "by_broker", "expected"),
    [("mine", "its", "mine"), (None, "its", "its"), (None, None, None)],
)
def test_what_a_consumer_says_of_the_cause_counts_before_the_brokers_words(
    said: str | None, by_broker: str | None, expected: str | None
) -> None:
    readers = Readers(cause=lambda *message: said if message == ("e/1", b"body") else None)
    verdict, _ = judge(REDELIVER, readers=readers, cause=by_broker)
    assert event_of(verdict, Received).cause == expected
    assert row_of(verdict).cause == expected
    assert row_of(verdict).cause_group == (expected or "(no reason given)")


def test_the_event_has_only_the_chosen_properties() -> None:
    assert event_of(judge(REDELIVER)[0], Received).properties is None
    readers = Readers(properties=lambda encoding, message: {encoding: message.decode()})
    verdict, _ = judge(REDELIVER, readers=readers)
    assert event_of(verdict, Received).properties == {"e/1": "body"}


def test_a_message_that_came_back_keeps_its_redelivery_id() -> None:
    verdict, rules = judge(REDELIVER, redelivery_id="other-1", redelivery_count=2)
    assert row_of(verdict).redelivery_id == "other-1"
    assert type(verdict.events[0]) is Returned
    assert rules.asked[0].redelivery_count == 2


@pytest.mark.parametrize("delay_ms", [0, -1, -2000])
def test_a_delay_of_nothing_is_due_at_once(delay_ms: int) -> None:
    verdict, _ = judge(Redeliver(delay_ms, 1, "rule"))
    assert (row_of(verdict).due_at_ms, row_of(verdict).delay_ms) == (NOW, 0)


def test_an_endless_delay_ends_in_the_year_9999() -> None:
    verdict, _ = judge(Redeliver(2**63 - 1, 1, "rule"))
    assert row_of(verdict).due_at_ms == LATEST_DUE_MS


def test_a_redelivery_may_wait_for_an_event_outside() -> None:
    verdict, _ = judge(Redeliver(1_000, 1, "rule", until="invoice-1", longest_ms=5_000))
    row = row_of(verdict)
    assert (row.state, row.gate, row.due_at_ms) == (RowState.HELD, "invoice-1", NOW + 5_000)
    assert row.delay_ms == 1_000
    assert event_of(verdict, Held).reason.startswith("waits for invoice-1, at the latest until ")
    for longest_ms, until_ms in ((10, NOW + 1_000), (10**15, NOW + WAIT_MAX_MS)):
        wait = Redeliver(1_000, 1, "rule", until="a", longest_ms=longest_ms)
        assert row_of(judge(wait)[0]).due_at_ms == until_ms
    assert row_of(judge(wait, backlog=True)[0]).gate is None


@pytest.mark.parametrize("name", ["a\x07", "x" * 201, 7, ".", ".."])
def test_an_event_without_a_name_parks_what_would_wait_for_it(name: str) -> None:
    row = row_of(judge(Redeliver(0, 1, "rule", until=name))[0])
    assert row.state is RowState.PARKED


def test_the_final_queue_gets_a_suffix_where_the_intake_reads_it() -> None:
    verdict, _ = judge(DeadLetterTo(queue("DLQ"), 60_000, "rule"))
    row = row_of(verdict)
    assert (row.destination, row.final_queue, row.is_final, row.expiration_ms) == (
        "queue://orders",
        "queue://DLQ.exhausted",
        True,
        60_000,
    )
    event = verdict.events[1]
    assert type(event) is Exhausted
    assert event.decided_destination == "queue://DLQ"


def test_a_final_queue_that_is_not_read_keeps_its_name() -> None:
    verdict, _ = judge(DeadLetterTo(queue("archive"), 0, "rule"))
    assert row_of(verdict).final_queue == "queue://archive"
    assert event_of(verdict, Exhausted).decided_destination is None


def test_a_final_topic_becomes_the_final_queue_of_the_source() -> None:
    verdict, _ = judge(DeadLetterTo(topic("dead"), 0, "rule"))
    assert row_of(verdict).final_queue == "queue://DLQ.exhausted"


@pytest.mark.parametrize("is_backlog", [False, True])
def test_an_exhausted_message_is_kept_with_its_final_queue_where_wanted(is_backlog: bool) -> None:
    verdict, _ = judge(
        DeadLetterTo(queue("DLQ"), 0, "rule"), keeps_exhausted=True, backlog=is_backlog
    )
    row = row_of(verdict)
    assert row.state is (RowState.HELD if is_backlog else RowState.EXHAUSTED)
    # What is backlog goes to its final queue once a person has released it.
    assert row.is_final is is_backlog
    assert (row.destination, row.final_queue) == ("queue://orders", "queue://DLQ.exhausted")


def test_a_discard_leaves_no_row_but_an_event_with_the_rule() -> None:
    verdict, _ = judge(Discard(WrittenLine("drop it", "policy.yaml:7")))
    assert verdict.row is None
    discarded = verdict.events[1]
    assert type(discarded) is Discarded
    assert discarded.rule == "drop it (policy.yaml:7)"


def test_what_the_broker_would_destroy_by_a_default_is_kept() -> None:
    verdict, _ = judge(Exhaust("no expiry-address", is_discard_of_broker=True))
    assert row_of(verdict).final_queue == "queue://DLQ.exhausted"
    assert event_of(verdict, Exhausted).rule == "no expiry-address"


def test_a_discard_of_a_plugin_without_a_written_line_is_parked() -> None:
    verdict, _ = judge(Discard("patience"))  # type: ignore[arg-type]
    assert row_of(verdict).state is RowState.PARKED
    assert "only a written line orders a discard" in event_of(verdict, Parked).reason


@pytest.mark.parametrize("place", ["", " ", "(defaults)"])
def test_no_discard_is_built_of_a_default(place: str) -> None:
    with pytest.raises(ValueError, match="needs the place of the line"):
        WrittenLine("dropAll=true", place)


@pytest.mark.parametrize(
    ("provenance", "words"),
    [
        ({"origin": None}, "does not name"),
        ({"problem": "it can't be parsed"}, "parsed"),
        ({"origin": queue("DLQ")}, "itself a dead-letter queue"),
        ({"origin": queue("DLQ.exhausted")}, "itself a dead-letter queue"),
        ({"origin": topic("ActiveMQ.Advisory.Queue.X")}, "advisory"),
    ],
)
def test_what_cannot_be_sent_back_is_parked_unasked(provenance: Fields, words: str) -> None:
    verdict, rules = judge(REDELIVER, **provenance)
    assert row_of(verdict).state is RowState.PARKED
    parked = verdict.events[1]
    assert type(parked) is Parked
    assert words in parked.reason
    assert rules.asked == []
    assert row_of(verdict).message == b"body"


def test_a_topic_is_parked_unless_allowed() -> None:
    parked, _ = judge(REDELIVER, origin=topic("news"))
    assert row_of(parked).state is RowState.PARKED
    sent, _ = judge(REDELIVER, origin=topic("news"), parks_topics=False)
    assert (row_of(sent).state, row_of(sent).destination) == (RowState.WAITING, "topic://news")


def test_the_true_origin_is_asked_about_and_sent_to() -> None:
    readers = Readers(true_origin=lambda origin, source: queue(f"{source.name}.{origin.name}"))
    verdict, rules = judge(REDELIVER, readers=readers, origin=topic("news"))
    assert rules.asked[0].destination == queue("DLQ.news")
    assert (row_of(verdict).state, row_of(verdict).destination) == (
        RowState.WAITING,
        "queue://DLQ.news",
    )
    assert event_of(verdict, Received).origin == "queue://DLQ.news"


def test_rules_know_an_address_without_its_queue() -> None:
    verdict, rules = judge(
        REDELIVER, origin=parse_destination("topic://t.news::c1.s1"), parks_topics=False
    )
    assert rules.asked[0].destination == Destination(topic("t").kind, "t.news")
    assert row_of(verdict).destination == "topic://t.news::c1.s1"


def test_a_backlog_is_held_whatever_the_rules_say() -> None:
    dropped = Discard(WrittenLine("rule", "policy.yaml:7"))
    for answer in (REDELIVER, DeadLetterTo(queue("DLQ"), 0, "rule"), dropped):
        verdict, _ = judge(answer, backlog=True)
        assert row_of(verdict).state is RowState.HELD
        assert type(verdict.events[-1]) is Held


def test_rules_that_fail_park_the_message_with_their_words() -> None:
    verdict, _ = judge(ZeroDivisionError("by zero"))
    assert row_of(verdict).state is RowState.PARKED
    assert "ZeroDivisionError: by zero" in event_of(verdict, Parked).reason


def test_a_link_lost_while_asking_is_not_the_messages_fault() -> None:
    with pytest.raises(LinkLost):
        judge(LinkLost("gone"))


def test_rules_that_say_nothing_park_it() -> None:
    verdict, _ = judge(None)
    assert "no plugin" in event_of(verdict, Parked).reason


@pytest.mark.parametrize("answer", [Redeliver(500, 2**31, "rule"), ZeroDivisionError("parked")])
def test_a_count_stays_at_what_the_wire_can_carry(answer: object) -> None:
    verdict, _ = judge(answer, redelivery_count=2**31 - 1)
    assert row_of(verdict).redelivery_count == 2**31 - 1


@pytest.mark.parametrize(
    "answer",
    [
        Redeliver(1500.5, 1, "rule"),  # type: ignore[arg-type]
        Redeliver(True, 1, "rule"),
        Redeliver(500, None, "rule"),  # type: ignore[arg-type]
        DeadLetterTo(queue("archive"), 0.5, "rule"),  # type: ignore[arg-type]
        "redeliver",
    ],
)
def test_an_answer_that_no_store_can_keep_parks_the_message(answer: object) -> None:
    verdict, _ = judge(answer)
    assert row_of(verdict).state is RowState.PARKED
    assert "the rules failed on this message" in event_of(verdict, Parked).reason


def test_numbers_of_strangers_end_where_64_bits_end() -> None:
    verdict, _ = judge(Redeliver(2**70, 1, "rule"))
    assert (row_of(verdict).delay_ms, row_of(verdict).due_at_ms) == (2**63 - 1, LATEST_DUE_MS)
    verdict, _ = judge(DeadLetterTo(queue("archive"), 2**63 - 1, "rule"))
    assert (row_of(verdict).expiration_ms, event_of(verdict, Exhausted).expiration_ms) == (0, 0)


def test_a_redelivery_id_that_is_too_long_is_none_of_ours() -> None:
    verdict, _ = judge(REDELIVER, redelivery_id="x" * 257, redelivery_count=2)
    assert row_of(verdict).redelivery_id == "i1-000000000007"


@pytest.mark.parametrize("name", ["amqsidecar.token.east", "orders ", " "])
def test_an_origin_that_must_never_be_sent_to_is_none_of_the_row(name: str) -> None:
    verdict, rules = judge(REDELIVER, origin=queue(name))
    assert (row_of(verdict).state, row_of(verdict).destination) == (RowState.PARKED, "queue://DLQ")
    assert event_of(verdict, Received).origin == f"queue://{name}"
    assert rules.asked == []


def test_names_and_ids_of_any_length_stay_out_of_rows_and_events() -> None:
    judged, rules = judge(
        Redeliver(delay_ms=0, redelivery_count=1, rule="r"),
        origin=queue("o" * 2**20),
        message_id="m" * 2**20,
    )
    [received, parked] = judged.events
    assert isinstance(received, Received)
    assert isinstance(parked, Parked)
    assert parked.reason == "the name of its origin has 1048576 characters, more than 2048"
    assert not rules.asked
    assert row_of(judged).state is RowState.PARKED
    assert row_of(judged).destination == "queue://DLQ"
    assert row_of(judged).message_id == received.message_id
    assert received.message_id is not None
    assert len(received.message_id) <= 1_024
    other, _ = judge(None, message_id="m" * (2**20 + 1))
    assert row_of(other).message_id != row_of(judged).message_id


def test_a_reason_is_bounded() -> None:
    judged, _ = judge(ValueError("x" * 2**20))
    assert len(row_of(judged).rule) == 2_048
    assert row_of(judged).rule.startswith("the rules failed on this message: ValueError: xxx")
