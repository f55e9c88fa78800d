"""Artemis's redelivery decision: count, delay, where a message goes in the end.

The delays are the ones that QueueImpl.calculateRedeliveryDelay gave (specification note for
Artemis, section 2).
"""

from typing import TypedDict, Unpack

import pytest

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


def test_a_huge_exponent_saturates() -> None:
    settings = _decider(
        redelivery_delay_ms=1, redelivery_delay_multiplier=-3.0, max_redelivery_delay_ms=50
    ).effective("orders.eu")
    assert redelivery_delay_ms(settings, 100_001, None) == 50
    assert redelivery_delay_ms(settings, 100_000, None) == -(2**63)


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


@pytest.mark.parametrize(
    ("address", "words"), [(None, "no dead-letter-address"), ("", "empty dead-letter-address")]
)
def test_without_a_dead_letter_address_the_broker_destroys_the_message(
    address: str | None, words: str
) -> None:
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


def test_rules_name_every_entry_that_contributed() -> None:
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
