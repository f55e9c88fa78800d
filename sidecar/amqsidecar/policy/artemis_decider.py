"""The decisions of Artemis on a message that a consumer gave back."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Exhaust, Redeliver
from amqsidecar.model.destination import queue
from amqsidecar.policy.address_settings import (
    CompiledAddressSettings,
    EffectiveSettings,
    compile_address_settings,
)
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.redelivery_policy import trunc64

_MEMO_SIZE = 8192


class ArtemisDecider:
    """Decides as the broker's queue does when a message is returned to it."""

    def __init__(self, settings: CompiledAddressSettings) -> None:
        self._decisions: Callable[[str], _Decisions] = lru_cache(_MEMO_SIZE)(
            lambda address: _decisions_of(settings.effective(address))
        )

    def effective(self, address: str) -> EffectiveSettings:
        """Return the settings of an address or of a fully qualified queue name."""
        return self._decisions(address).settings

    def decide(self, dead_letter: DeadLetter, chance: Callable[[], float] | None) -> Decision:
        """Return the decision on a dead letter; Artemis has one for every message.

        An expired message is never redelivered: it belongs to the expiry address.

        Source: org.apache.activemq.artemis.core.server.impl.QueueImpl, checkRedelivery,
        sendToDeadLetterAddress, expire.
        """
        decisions = self._decisions(dead_letter.destination.name)
        if dead_letter.expired:
            return decisions.expired
        settings = decisions.settings
        delivery_count = dead_letter.redelivery_count + 1
        if 0 < settings.max_delivery_attempts <= delivery_count:
            return decisions.exhausted
        delay_ms = 0
        if settings.redelivery_delay_ms > 0:
            delay_ms = redelivery_delay_ms(settings, delivery_count, chance)
        return Redeliver(delay_ms, delivery_count, decisions.redeliver_rule)


def compile_artemis(rules: ArtemisRules) -> ArtemisDecider:
    """Return the decider of a set of address settings.

    Raises:
        ConfigError: with every match that the broker refuses at its start.
    """
    return ArtemisDecider(compile_address_settings(rules))


def redelivery_delay_ms(
    settings: EffectiveSettings, delivery_count: int, chance: Callable[[], float] | None
) -> int:
    """Return the delay after a failed delivery in milliseconds; may be negative.

    Args:
        settings: of the queue's address.
        delivery_count: deliveries so far, 1-based, the failed one included.
        chance: two draws, sign and size of the variation; None = no collision avoidance.

    Source: QueueImpl, calculateRedeliveryDelay: the cap comes after the variation, and there is no
    lower bound.
    """
    exponent = delivery_count - 1 if delivery_count > 0 else 0
    multiplier = settings.redelivery_delay_multiplier
    delay = trunc64(settings.redelivery_delay_ms * _java_pow(multiplier, exponent))
    factor = settings.redelivery_collision_avoidance_factor
    if factor > 0 and chance is not None:
        sign = 1 if chance() < 0.5 else -1
        delay = trunc64(delay + delay * (sign * factor * chance()))
    return min(delay, settings.max_redelivery_delay_ms)


@dataclass(frozen=True, slots=True)
class _Decisions:
    settings: EffectiveSettings
    redeliver_rule: str
    exhausted: Decision
    expired: Decision


def _decisions_of(settings: EffectiveSettings) -> _Decisions:
    delay_fields = ["redelivery_delay_ms"]
    if settings.redelivery_delay_ms > 0:
        delay_fields += [
            name
            for name in (
                "redelivery_delay_multiplier",
                "max_redelivery_delay_ms",
                "redelivery_collision_avoidance_factor",
            )
            if name in settings.decided_by
        ]
    return _Decisions(
        settings,
        settings.rule("max_delivery_attempts", *delay_fields),
        _to_address(settings, "dead_letter_address", "max_delivery_attempts"),
        _to_address(settings, "expiry_address"),
    )


def _to_address(settings: EffectiveSettings, field: str, *reasons: str) -> Decision:
    address: str | None = getattr(settings, field)
    if address:
        return DeadLetterTo(queue(address), 0, settings.rule(*reasons, field))
    name = field.replace("_", "-")
    if address is None:
        because = f"{settings.rule(*reasons)}; no {name}" if reasons else f"no {name}"
    else:
        because = f"{settings.rule(*reasons, field)}; empty {name}"
    return Exhaust(f"{because}: the broker destroys the message", is_discard_of_broker=True)


def _java_pow(base: float, exponent: int) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 else math.inf
