"""Where the sidecar never sends, without asking a broker."""

import pytest

from amqsidecar.broker import BrokerKind
from amqsidecar.engine.judging.send_rules import LONGEST_NAME, SendRules
from amqsidecar.model.destination import Destination, DestinationKind, parse_destination, queue

CLASSIC, ARTEMIS = BrokerKind.CLASSIC, BrokerKind.ARTEMIS


def rules(kind: BrokerKind, *allowed: str) -> SendRules:
    return SendRules(kind, lambda one: one.name == "DLQ", ".exhausted", allowed_origins=allowed)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        *((kind, f"amqsidecar.{name}", "the sidecar's own") for kind in BrokerKind
          for name in ("causes", "intercepted", "token.x", "waiting", "parked", "anything")),
        (ARTEMIS, "x::amqsidecar.causes", "the sidecar's own"),
        (ARTEMIS, "jms.queue.amqsidecar.causes", "the sidecar's own"),
        (ARTEMIS, "activemq.management", "the broker's own"),
        (ARTEMIS, "jms.queue.activemq.notifications", "the broker's own"),
        (ARTEMIS, "activemq.management::x", "the broker's own"),
        (ARTEMIS, "$.artemis.internal.sf.cluster.1", "the broker's own"),
        (ARTEMIS, "$.activemq.internal.sf.cluster.1", "the broker's own"),
        (ARTEMIS, "$sys.mqtt.sessions", "the broker's own"),
        (ARTEMIS, "temp-queue://x", "temporary"),
        (ARTEMIS, "topic://>", "no name of one"),
        (ARTEMIS, "news.#", "no name of one"),
        (CLASSIC, "topic://ActiveMQ.Advisory.Queue", "the broker's own"),
        (CLASSIC, "ActiveMQ.Statistics.Broker", "the broker's own"),
        (CLASSIC, "ActiveMQ.Scheduler.Management", "the broker's own"),
        (CLASSIC, "a,b", "no name of one"),
        (CLASSIC, "topic://news.>", "no name of one"),
        (CLASSIC, "x" * (LONGEST_NAME + 1), "characters"),
    ],
)  # fmt: skip
def test_nothing_is_sent_to_what_is_no_applications(
    kind: BrokerKind, name: str, words: str
) -> None:
    """Not as an origin, not as a redirect's target, and not as a final queue."""
    destination = parse_destination(name)
    assert words in str(rules(kind).problem(destination))
    assert words in str(rules(kind).final_problem(destination))


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("notes", "notes"),
        ("a::notes", "notes"),
        ("jms.queue.notes", "notes"),
        ("a", "a::notes"),
        ("a::notes", "a::notes"),
    ],
)
def test_nothing_is_sent_to_the_queue_of_notes_whatever_its_name(name: str, notes: str) -> None:
    made = SendRules(ARTEMIS, lambda _: False, ".exhausted", notes=notes)
    assert "holds the notes" in str(made.problem(queue(name)))
    assert made.problem(queue("other")) is None


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (CLASSIC, "orders"),
        (CLASSIC, "ActiveMQ.DLQ"),
        (CLASSIC, "temp-queue://ID:x"),
        (CLASSIC, "orders.exhausted"),
        (ARTEMIS, "orders.exhausted"),
        (ARTEMIS, "topic://news.eu::news.#"),
        (ARTEMIS, "a,b"),
        (ARTEMIS, "my$sysadmin".replace("$sys", "$")),
    ],
)
def test_an_applications_destination_has_no_problem(kind: BrokerKind, name: str) -> None:
    assert rules(kind).problem(parse_destination(name)) is None


def test_blanks_at_an_end_of_a_name_would_get_lost() -> None:
    destination = Destination(DestinationKind.QUEUE, " orders ")
    assert "blanks" in str(rules(CLASSIC).problem(destination))


@pytest.mark.parametrize("name", ["DLQ", "DLQ.exhausted", "x::DLQ.exhausted"])
def test_a_dead_letter_queue_takes_final_dead_letters_only(name: str) -> None:
    asked = rules(ARTEMIS)
    assert "dead-letter queue" in str(asked.problem(queue(name)))
    assert asked.final_problem(queue(name)) is None


def test_a_final_queue_is_known_after_its_dead_letter_queue_is_read_no_more() -> None:
    asked = rules(ARTEMIS)
    assert asked.problem(queue("old.exhausted")) is None
    asked.note_finals([queue("old.exhausted")])
    assert "dead-letter queue" in str(asked.problem(queue("old.exhausted")))


def test_what_the_operator_does_not_allow_is_refused() -> None:
    assert "allowed_origins" in str(rules(ARTEMIS, "orders.#").problem(queue("other")))
    assert rules(ARTEMIS, "orders.#").problem(queue("orders.eu")) is None
