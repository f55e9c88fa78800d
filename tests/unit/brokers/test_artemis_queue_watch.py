"""What is new on an Artemis broker, and when a look is worth it."""

from __future__ import annotations

from amqsidecar.brokers.artemis.queue_watch import ArtemisQueueWatch
from support.virtual_clock import VirtualClock


class Broker:
    """Knows where the dead letters of addresses go, and counts the questions."""

    def __init__(self) -> None:
        self.dead: dict[str, str] = {}
        self.asked: list[list[str]] = []

    def addresses_of(self, names: list[str]) -> list[str]:
        self.asked.append(names)
        return [self.dead.get(name, "DLQ") for name in names]


def watch_of(broker: Broker, clock: VirtualClock) -> ArtemisQueueWatch:
    """Return a watch after its first look, which knew the address orders."""
    watch = ArtemisQueueWatch(clock, broker.addresses_of)
    watch.watch(["DLQ"])
    watch.looked({"DLQ": "1", "orders": "2"}, ["#", "orders"])
    return watch


def test_a_queue_with_another_number_than_at_the_look_before_is_newborn() -> None:
    watch = watch_of(Broker(), VirtualClock())
    assert not watch.is_newborn("DLQ"), "what was there at the first look is of any age"
    watch.looked({"DLQ": "1", "orders": "7", "later": "8"}, ["#"])
    assert [watch.is_newborn(name) for name in ("DLQ", "orders", "later")] == [False, True, True]
    watch.looked({"DLQ": "1", "later": "8"}, ["#"])
    assert [watch.is_newborn(name) for name in ("DLQ", "orders", "later")] == [False, False, True]


def test_a_queue_of_a_dead_letter_address_is_worth_a_look_when_it_comes_and_goes() -> None:
    watch = watch_of(broker := Broker(), VirtualClock())
    for is_added in (True, False):
        watch.bound("dead.x", "DLQ", is_added=is_added)
        assert watch.has_changed()
        assert not watch.has_changed(), "it is reported once"
    assert watch.is_newborn("dead.x")
    assert broker.asked == []


def test_the_settings_of_a_new_address_are_asked_for_once() -> None:
    """Only a dead-letter address that is not known makes a look worth it."""
    broker, clock = Broker(), VirtualClock()
    watch = watch_of(broker, clock)
    for _ in range(2):
        watch.bound("orders", "orders", is_added=True)
        watch.bound("plain", "plain", is_added=True)
        watch.bound("gone", "gone", is_added=False)
        watch.bound("d33420c5-5bda-497a-b81e-6b1c0beaf96c", "reply", is_added=True)
        assert not watch.has_changed()
        clock.advance(2000)
    assert broker.asked == [["plain", "reply"]]
    broker.dead["own"] = "own.DLA"
    watch.bound("own", "own", is_added=True)
    assert watch.has_changed()


def test_temporary_queues_cost_no_question_and_many_addresses_few() -> None:
    broker, clock = Broker(), VirtualClock()
    watch = watch_of(broker, clock)
    name = "d33420c5-5bda-497a-b81e-6b1c0beaf96c"
    watch.bound(name, name, is_added=True)
    assert not watch.has_changed()
    assert broker.asked == []
    for number in range(5000):
        watch.bound(f"q{number}", f"q{number}", is_added=True)
    for _ in range(50):
        assert not watch.has_changed()
    assert [len(names) for names in broker.asked] == [50], "one question a second"
    clock.advance(1000)
    assert not watch.has_changed()
    assert len(broker.asked) == 2
