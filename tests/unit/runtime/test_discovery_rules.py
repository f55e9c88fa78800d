"""What is found by rules and names, and that the rest is reported once."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from amqsidecar.broker import BrokerDescription, BrokerKind, Features, IntakeQueue
from amqsidecar.errors import DiscoveryRefused
from amqsidecar.model.destination import queue
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    IndividualDeadLetterStrategy,
    PolicyEntry,
)
from amqsidecar.runtime.discovery import Discovery
from support.brokers.memory import ENCODING, MemoryBroker, MemoryLink

DASHES = ClassicRules(
    dead_letter=DeadLetterRules(
        entries=(
            PolicyEntry(
                destinations=(queue("orders.>"),),
                dead_letter_strategy=IndividualDeadLetterStrategy(
                    queue_prefix="D-", topic_prefix="T."
                ),
            ),
        )
    )
)


class ListingLink(MemoryLink):
    """Returns its queues, or raises the reason."""

    names: tuple[str, ...] = ()
    refusal = ""

    @property
    def features(self) -> Features:
        return Features(listing=self)

    def queue_names(self) -> tuple[str, ...]:
        if self.refusal:
            raise DiscoveryRefused(self.refusal)
        return self.names

    def final_names(self) -> tuple[str, ...]:
        return ()


class ArtemisLink(MemoryLink):
    """Has a dead-letter queue, and ever more expiry queues."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.looks = 0
        self.description = BrokerDescription(BrokerKind.ARTEMIS, "memory", (ENCODING,))

    def discover(self) -> tuple[IntakeQueue, ...]:
        self.looks += 1
        expiry = [IntakeQueue(queue(f"E.{at}"), expires=True) for at in range(self.looks)]
        return IntakeQueue(queue("DLQ")), *expiry


def names(discovery: Discovery, link: MemoryLink) -> list[str]:
    return [one.destination.name for one in discovery.find(link)]


def test_queues_that_come_later_are_found_by_their_names() -> None:
    link, discovery = ListingLink(MemoryBroker()), Discovery(DASHES)
    assert names(discovery, link) == ["ActiveMQ.DLQ", "T.>"]
    link.names = ("D-orders.a", "D-others", "ActiveMQ.DLQ", "orders.a")
    assert names(discovery, link) == ["ActiveMQ.DLQ", "T.>", "D-orders.a"]


@pytest.mark.parametrize("can_list", [True, False])
def test_where_queues_are_not_listed_the_named_ones_are_read_and_it_is_reported_once(
    capsys: pytest.CaptureFixture[str], can_list: bool
) -> None:
    link = ListingLink(MemoryBroker()) if can_list else MemoryLink(MemoryBroker())
    discovery = Discovery(DASHES)
    for number in range(3):
        if isinstance(link, ListingLink):
            link.refusal = f"connection {number}: grant read"
        assert names(discovery, link) == ["ActiveMQ.DLQ", "T.>"]
    said = capsys.readouterr().out
    assert said.count("intake_incomplete") == 1
    assert ("grant read" if can_list else "name them in intake.queues") in said


def test_without_rules_only_the_default_queue_is_read_and_it_is_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    link, discovery = ListingLink(MemoryBroker()), Discovery(None)
    for _ in range(3):
        assert names(discovery, link) == ["ActiveMQ.DLQ"]
    assert capsys.readouterr().out.count("intake_limited") == 1


def test_expiry_queues_of_artemis_are_left_out_and_each_is_reported_once() -> None:
    link, discovery = ArtemisLink(MemoryBroker()), Discovery(None)
    with capture_logs() as logs:
        for _ in range(3):
            assert names(discovery, link) == ["DLQ"]
    assert [(one["event"], one["queues"]) for one in logs] == [
        ("expiry_queues_left_out", [f"E.{at}"]) for at in range(3)
    ]
