"""What remembers something per name does not grow with the number of names that senders make up."""

from collections.abc import Mapping, Sequence
from typing import Any

from amqsidecar.brokers.connection.message_sizes import AHEAD_AT_FIRST, MessageSizes
from amqsidecar.engine.blockage import BLOCKED_MAX, Blockages
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import queue
from amqsidecar.runtime.live_policy import LivePolicy
from support.virtual_clock import VirtualClock


def test_destinations_blocked_longest_ago_are_open_again() -> None:
    blockages = Blockages()
    for number in range(BLOCKED_MAX):
        blockages.block(f"queue://hostile.{number}", now_ms=0, reason="no such queue")
    blockages.block("queue://hostile.0", now_ms=1_000, reason="still none")

    blockages.block("queue://one.more", now_ms=1_000, reason="no such queue")

    assert len(blockages) == BLOCKED_MAX
    assert blockages.get("queue://hostile.1") is None
    still = blockages.get("queue://hostile.0")
    assert still is not None
    assert still.delay_ms == 2_000


class Settings:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_once: list[int] = []

    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        self.asked += addresses
        self.at_once.append(len(addresses))
        return [{"maxDeliveryAttempts": 3} for _ in addresses]


def test_settings_of_many_addresses_are_asked_for_again() -> None:
    """Within a bound the broker is asked once for each; ever new ones don't stay."""
    link = Settings()
    policy = LivePolicy(link, VirtualClock(), keep_s=60)

    def decide(name: str) -> None:
        policy.decide(DeadLetter(destination=queue(name), redelivery_count=0), None)

    for _ in range(2):
        decide("orders")
    assert link.asked == ["orders"]
    for number in range(2_000):
        decide(f"hostile.{number}")

    decide("orders")

    assert link.asked.count("orders") == 2


def test_changed_settings_are_seen_after_a_while() -> None:
    """What was asked longer ago than it may be kept is asked again, whichever queues are read."""
    link, clock = Settings(), VirtualClock()
    policy = LivePolicy(link, clock, keep_s=60)
    dead_letter = DeadLetter(destination=queue("orders"), redelivery_count=0)

    for _ in range(3):
        policy.decide(dead_letter, None)
        clock.advance(31_000)

    assert link.asked == ["orders", "orders"]


def test_settings_that_are_needed_are_asked_for_again_at_once() -> None:
    """Queries one by one take as many round trips; unneeded ones are left out."""
    link, clock = Settings(), VirtualClock()
    policy = LivePolicy(link, clock, keep_s=60)

    def decide(count: int) -> None:
        for number in range(count):
            letter = DeadLetter(destination=queue(f"orders.{number}"), redelivery_count=0)
            policy.decide(letter, None)

    decide(30)
    clock.advance(61_000)
    decide(20)
    clock.advance(61_000)
    decide(20)

    assert link.at_once == [*[1] * 30, 30, 20]


def test_large_messages_make_fewer_be_ahead() -> None:
    sizes = MessageSizes(64 * 2**20)
    first = sizes.ahead(400)
    sizes.note(1_000)
    small = sizes.ahead(400)
    for _ in range(20):
        sizes.note(10_000_000)
    large = sizes.ahead(400)
    sizes.note(200 * 2**20)
    for _ in range(20):
        sizes.note(200 * 2**20)

    assert (first, small, large, sizes.ahead(400)) == (3, 400, 4, 1)


def test_the_largest_messages_of_unknown_size_fit_the_memory_of_the_chart() -> None:
    idle, largest, limit = 64, 100, 512
    growing, copied = AHEAD_AT_FIRST * largest * 9 / 8, largest
    assert idle + growing + copied <= limit
