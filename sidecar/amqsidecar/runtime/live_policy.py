"""Artemis's own address settings, asked of the live broker per address."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from amqsidecar.broker import TellsSettings
from amqsidecar.clock import Clock
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Decision
from amqsidecar.plugin import Chance, Decider
from amqsidecar.policy.artemis_decider import compile_artemis
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy.rule_source import RuleSource

JSON_KEYS = {
    "maxDeliveryAttempts": "max_delivery_attempts",
    "redeliveryDelay": "redelivery_delay_ms",
    "redeliveryMultiplier": "redelivery_delay_multiplier",
    "redeliveryCollisionAvoidanceFactor": "redelivery_collision_avoidance_factor",
    "maxRedeliveryDelay": "max_redelivery_delay_ms",
    "deadLetterAddress": "dead_letter_address",
    "autoCreateDeadLetterResources": "auto_create_dead_letter_resources",
    "deadLetterQueuePrefix": "dead_letter_queue_prefix",
    "deadLetterQueueSuffix": "dead_letter_queue_suffix",
    "expiryAddress": "expiry_address",
}
"""Key of `getAddressSettingsAsJSON` to our field; what is unset there is unset here."""

# Bound: an address costs some kilobytes, and dead letters may name any number of them.
_ADDRESSES_MAX = 2_000


class SeenSettings:
    """The broker's last answers about addresses, for threads that may not ask it.

    One thread notes, any thread reads: `entries` is replaced as a whole, never changed.

    Attributes:
        entries: by address; the source says when the settings were read.
        changed_at_ms: when an address had other settings than before; None = never.
    """

    def __init__(self) -> None:
        self.entries: Mapping[str, AddressSettingEntry] = {}
        self.changed_at_ms: int | None = None

    def note(self, found: Mapping[str, AddressSettingEntry], at_ms: int) -> None:
        """Store settings that were read just now."""
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        noted = {
            address: replace(entry, source=RuleSource(f"{entry.source.path} at {at:%F %T}Z"))
            for address, entry in found.items()
        }
        if any(
            address in self.entries and self.entries[address].settings != entry.settings
            for address, entry in found.items()
        ):
            self.changed_at_ms = at_ms
        is_full = len(self.entries) + len(noted) > _ADDRESSES_MAX
        self.entries = noted if is_full else {**self.entries, **noted}


class LivePolicy:
    """Decides by the broker's settings of an address; asks again once an answer is too old."""

    def __init__(
        self, link: TellsSettings, clock: Clock, keep_s: float, seen: SeenSettings | None = None
    ) -> None:
        """Ask over a link.

        Args:
            link: to the broker; only the thread that decides uses it.
            clock: decides when to ask again.
            keep_s: how long an answer is valid.
            seen: called with each answer; None = not called.
        """
        self._link = link
        self._clock = clock
        self._keep_s = keep_s
        self._seen = SeenSettings() if seen is None else seen
        self._look_at_s = 0.0
        self._deciders: dict[str, Decider] = {}
        self._needed: set[str] = set()

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the decision of the broker's settings; see `plugin.Decider`.

        Raises:
            LinkLost: the broker could not be asked.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._look_at_s:
            self._look_again()
            self._look_at_s = now_s + self._keep_s
        address = dead_letter.destination.address
        decider = self._deciders.get(address)
        if decider is None:
            if len(self._deciders) >= _ADDRESSES_MAX:
                self._deciders.clear()
                self._needed.clear()
            self._deciders |= self._ask([address])
            decider = self._deciders[address]
        self._needed.add(address)
        return decider.decide(dead_letter, chance)

    def _look_again(self) -> None:
        """Ask for all that was needed since the last time at once; forget the others."""
        self._deciders = self._ask(sorted(self._needed)) if self._needed else {}
        self._needed.clear()

    def _ask(self, addresses: Sequence[str]) -> dict[str, Decider]:
        answers = self._link.address_settings(addresses)
        found = {
            address: _entry(address, answer)
            for address, answer in zip(addresses, answers, strict=True)
        }
        self._seen.note(found, self._clock.now_ms())
        return {
            address: compile_artemis(ArtemisRules(entries=(entry,)))
            for address, entry in found.items()
        }


def _entry(address: str, answer: Mapping[str, Any]) -> AddressSettingEntry:
    values = {ours: answer[key] for key, ours in JSON_KEYS.items() if key in answer}
    return AddressSettingEntry(
        match="#",
        settings=AddressSettings(**values),
        source=RuleSource(f"the broker's settings of {address}, read live"),
    )
