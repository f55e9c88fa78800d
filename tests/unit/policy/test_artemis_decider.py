"""Artemis's redelivery decision: count, delay, where a message goes in the end.

The delays are the ones that QueueImpl.calculateRedeliveryDelay gave (specification note for
Artemis, section 2).
"""

from collections.abc import Callable
from itertools import cycle
from typing import TypedDict, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Exhaust, Redeliver
from amqsidecar.model.destination import queue
from amqsidecar.policy.artemis_decider import ArtemisDecider, compile_artemis, redelivery_delay_ms
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy.rule_source import RuleSource


def _decider(**settings: object) -> ArtemisDecider:
    return compile_artemis(
        ArtemisRules(
            entries=(
                AddressSettingEntry(
                    match="orders.#",
                    settings=AddressSettings(**settings),  # type: ignore[arg-type]
                    source=RuleSource("broker.xml", 41),
                ),
            )
        )
    )


class Flags(TypedDict, total=False):
    expired: bool
    persistent: bool
    is_store_duplicate: bool


def _dead_letter(delivery_count: int, **other: Unpack[Flags]) -> DeadLetter:
    return DeadLetter(queue("orders.eu"), redelivery_count=delivery_count - 1, **other)


def _chance(*values: float) -> Callable[[], float]:
    return cycle(values).__next__


@pytest.mark.parametrize(
    ("delay", "multiplier", "maximum", "expected"),
    [
        (100, 2, None, [100, 100, 200, 400, 800, 1000, 1000]),
        (333, 1.5, None, [333, 333, 499, 749, 1123, 1685, 2528, 3330, 3330]),
        (1000, 2, 5500, [1000, 1000, 2000, 4000, 5500, 5500]),
        (1000, 0.5, None, [1000, 1000, 500, 250, 125, 62, 31, 15, 7]),
        (7, 1.1, None, [7, 7, 7, 8, 9, 10, 11, 12, 13]),
        (1000, 0, None, [1000, 1000, 0, 0]),
        (1000, -2, None, [1000, 1000, -2000, 4000, -8000, 10000]),
        (1000, 2, 0, [0, 0, 0, 0]),
        (1000, 2, -1, [-1, -1, -1, -1]),
        (2**63 - 1, 2, 2**63 - 1, [2**63 - 1, 2**63 - 1, 2**63 - 1]),
        (2**62, -4, 2**63 - 1, [2**62, 2**62, -(2**63), 2**63 - 1]),
        (2**62, 2, None, [-(2**63)]),
        (1000, float("nan"), None, [1000, 1000, 0, 0]),
    ],
)
def test_delays_of_the_real_method(
    delay: int, multiplier: float, maximum: int | None, expected: list[int]
) -> None:
    """The delays for the delivery counts 0, 1, 2, …"""
    settings = _decider(
        redelivery_delay_ms=delay,
        redelivery_delay_multiplier=float(multiplier),
        max_redelivery_delay_ms=maximum,
    ).effective("orders.eu")
    assert [redelivery_delay_ms(settings, n, None) for n in range(len(expected))] == expected


def test_a_huge_exponent_saturates() -> None:
    """No overflow reaches the caller."""
    settings = _decider(
        redelivery_delay_ms=1, redelivery_delay_multiplier=-3.0, max_redelivery_delay_ms=50
    ).effective("orders.eu")
    assert redelivery_delay_ms(settings, 100_001, None) == 50
    assert redelivery_delay_ms(settings, 100_000, None) == -(2**63)


def test_chance_varies_by_the_factor_and_the_cap_comes_after_it() -> None:
    """First draw: the sign; second: the size; then the cap."""
    settings = _decider(
        redelivery_delay_ms=1000, redelivery_collision_avoidance_factor=0.5
    ).effective("orders.eu")
    assert redelivery_delay_ms(settings, 1, _chance(0.0, 0.5)) == 1250
    assert redelivery_delay_ms(settings, 1, _chance(0.9, 0.5)) == 750
    assert redelivery_delay_ms(settings, 1, None) == 1000
    capped = _decider(
        redelivery_delay_ms=1000,
        redelivery_collision_avoidance_factor=0.5,
        max_redelivery_delay_ms=1000,
    ).effective("orders.eu")
    assert redelivery_delay_ms(capped, 1, _chance(0.0, 0.5)) == 1000
    assert redelivery_delay_ms(capped, 1, _chance(0.9, 0.5)) == 750


def test_the_count_includes_the_delivery_that_failed() -> None:
    """Three attempts give two redeliveries."""
    decider = _decider(max_delivery_attempts=3, dead_letter_address="DLA", redelivery_delay_ms=10)
    assert decider.decide(_dead_letter(1), None) == Redeliver(
        10,
        1,
        'address-setting match="orders.#" max-delivery-attempts=3 redelivery-delay=10'
        " (broker.xml:41)",
    )
    second = decider.decide(_dead_letter(2), None)
    assert isinstance(second, Redeliver)
    assert second.redelivery_count == 2
    assert decider.decide(_dead_letter(3), None) == DeadLetterTo(
        queue("DLA"),
        0,
        'address-setting match="orders.#" max-delivery-attempts=3 dead-letter-address="DLA"'
        " (broker.xml:41)",
    )


@pytest.mark.parametrize("attempts", [0, -1, -7])
def test_zero_and_negative_attempts_are_unlimited(attempts: int) -> None:
    """No count is too high."""
    decider = _decider(max_delivery_attempts=attempts, dead_letter_address="DLA")
    assert isinstance(decider.decide(_dead_letter(1_000_000), None), Redeliver)


@pytest.mark.parametrize("delay", [0, -5])
def test_a_delay_that_is_not_positive_means_at_once(delay: int) -> None:
    """The multiplier and the cap don't matter then."""
    decision = _decider(redelivery_delay_ms=delay, max_redelivery_delay_ms=-9).decide(
        _dead_letter(1), None
    )
    assert isinstance(decision, Redeliver)
    assert decision.delay_ms == 0


@pytest.mark.parametrize(
    ("address", "words"), [(None, "no dead-letter-address"), ("", "empty dead-letter-address")]
)
def test_without_a_dead_letter_address_the_broker_destroys_the_message(
    address: str | None, words: str
) -> None:
    """The rule says so in words."""
    decision = _decider(max_delivery_attempts=1, dead_letter_address=address).decide(
        _dead_letter(1), None
    )
    assert isinstance(decision, Exhaust)
    assert decision.is_discard_of_broker
    assert words in decision.rule
    assert "the broker destroys the message" in decision.rule
    assert "broker.xml:41" in decision.rule


def test_an_expired_message_is_not_redelivered() -> None:
    """It belongs to the expiry address, or the broker drops it where there is none."""
    dead_letter = _dead_letter(1, expired=True)
    assert _decider(expiry_address="EXP").decide(dead_letter, None) == DeadLetterTo(
        queue("EXP"), 0, 'address-setting match="orders.#" expiry-address="EXP" (broker.xml:41)'
    )
    for decider in (_decider(), _decider(expiry_address="")):
        decision = decider.decide(dead_letter, None)
        assert isinstance(decision, Exhaust)
        assert decision.is_discard_of_broker


def test_auto_created_queue_is_reported_and_the_destination_is_the_address() -> None:
    """The dead letter is sent to the address; the queue behind it is a detail of the settings."""
    decider = _decider(
        max_delivery_attempts=1, dead_letter_address="DLA", auto_create_dead_letter_resources=True
    )
    decision = decider.decide(_dead_letter(1), None)
    assert isinstance(decision, DeadLetterTo)
    assert str(decision.destination) == "queue://DLA"
    assert decider.effective("orders.eu::sub").dead_letter_queue == "DLQ.orders.eu"


def test_rules_name_every_entry_that_contributed() -> None:
    """Each value stands with the entry that set it, defaults are named as such."""
    decider = compile_artemis(
        ArtemisRules(
            entries=(
                AddressSettingEntry(
                    match="#",
                    settings=AddressSettings(redelivery_delay_multiplier=2.0),
                    source=RuleSource("broker.xml", 3),
                ),
                AddressSettingEntry(
                    match="orders.#",
                    settings=AddressSettings(redelivery_delay_ms=100),
                    source=RuleSource("broker.xml", 9),
                ),
            )
        )
    )
    decision = decider.decide(_dead_letter(1), None)
    assert decision.rule == (
        'address-setting match="orders.#" redelivery-delay=100 (broker.xml:9); '
        'address-setting match="#" redelivery-delay-multiplier=2.0 (broker.xml:3); '
        "broker default max-delivery-attempts=10"
    )


_DELAYS = st.integers(1, 10**12)
_COUNTS = st.integers(1, 200)


@given(_DELAYS, st.floats(1, 50), _COUNTS)
def test_without_chance_delays_never_shrink_and_never_pass_the_cap(
    delay: int, multiplier: float, count: int
) -> None:
    """For multipliers of at least one."""
    settings = _decider(
        redelivery_delay_ms=delay, redelivery_delay_multiplier=multiplier
    ).effective("orders.eu")
    one, next_one = (redelivery_delay_ms(settings, n, None) for n in (count, count + 1))
    assert delay <= one <= next_one <= settings.max_redelivery_delay_ms == 10 * delay


@given(_DELAYS, st.floats(0, 1), st.floats(0, 1, exclude_max=True), st.booleans())
def test_chance_stays_within_the_factor(
    delay: int, factor: float, size: float, is_plus: bool
) -> None:
    """The result lies in [delay * (1 - factor), delay * (1 + factor)]."""
    settings = _decider(
        redelivery_delay_ms=delay, redelivery_collision_avoidance_factor=factor
    ).effective("orders.eu")
    result = redelivery_delay_ms(settings, 1, _chance(0.0 if is_plus else 0.9, size))
    assert int(delay * (1 - factor)) - 1 <= result <= delay * (1 + factor) + 1


@given(st.integers(-3, 12), st.integers(1, 30))
def test_attempts_decide_alone(attempts: int, count: int) -> None:
    """Redelivered exactly while the count is below the limit, or there is no limit."""
    decision = _decider(max_delivery_attempts=attempts, dead_letter_address="DLA").decide(
        _dead_letter(count), None
    )
    assert isinstance(decision, Redeliver) is (attempts <= 0 or count < attempts)
