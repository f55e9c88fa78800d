"""What a live policy read of the broker, as other threads may look at it."""

from collections.abc import Mapping, Sequence
from typing import Any

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import queue
from amqsidecar.runtime.live_policy import LivePolicy, SeenSettings
from support.virtual_clock import VirtualClock


class Settings:
    attempts = 3

    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        return [{"maxDeliveryAttempts": self.attempts} for _ in addresses]


def test_what_was_read_is_seen_with_its_time_and_never_changed() -> None:
    """A snapshot that somebody holds stays; what is no longer needed is still known."""
    link, clock, seen = Settings(), VirtualClock(), SeenSettings()
    policy = LivePolicy(link, clock, 60, seen)

    def decide(name: str) -> None:
        policy.decide(DeadLetter(queue(name)), None)

    decide("orders")
    first = seen.entries
    link.attempts = 5
    clock.advance(61_000)
    decide("bills")
    clock.advance(61_000)
    decide("bills")

    assert set(first) == {"orders"}
    assert first["orders"].settings.max_delivery_attempts == 3
    assert set(seen.entries) == {"orders", "bills"}
    assert seen.entries["orders"].settings.max_delivery_attempts == 5
    assert seen.entries["orders"].source.path.startswith(
        "the broker's settings of orders, read live at "
    )


def test_a_change_of_known_settings_is_noticed_and_new_addresses_are_none() -> None:
    link, clock, seen = Settings(), VirtualClock(), SeenSettings()
    policy = LivePolicy(link, clock, 60, seen)
    for name in ("orders", "bills"):
        policy.decide(DeadLetter(queue(name)), None)
        clock.advance(61_000)
    policy.decide(DeadLetter(queue("bills")), None)
    assert seen.changed_at_ms is None
    link.attempts = 5
    clock.advance(61_000)
    policy.decide(DeadLetter(queue("bills")), None)
    assert seen.changed_at_ms == clock.now_ms()


def test_ever_new_addresses_are_not_kept_for_ever() -> None:
    seen = SeenSettings()
    policy = LivePolicy(Settings(), VirtualClock(), 60, seen)
    for number in range(2_001):
        policy.decide(DeadLetter(queue(f"hostile.{number}")), None)
    assert set(seen.entries) == {"hostile.2000"}
