"""A given policy beside the live address settings of an Artemis broker.

The given policy acts as if its entries stood before all entries of the broker: a setting that it
does not say for an address is the broker's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from amqsidecar.policy.address_settings import (
    CompiledAddressSettings,
    EffectiveSettings,
    xml_name,
)
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings
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
"""Key of `getAddressSettingsAsJSON` to our field; a missing key leaves the field unset."""

_FATES = {
    "max_delivery_attempts": "another number of redeliveries",
    "redelivery_delay_ms": "another delay",
    "redelivery_delay_multiplier": "another delay",
    "redelivery_collision_avoidance_factor": "another delay",
    "max_redelivery_delay_ms": "another delay",
    "dead_letter_address": "another final queue of exhausted messages",
    "expiry_address": "another final queue of expired messages",
}
_ADDRESSES = frozenset({"dead_letter_address", "expiry_address"})


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    """A setting by which a given policy and the broker decide differently about an address.

    Attributes:
        given: the value in the policy; None = the policy does not say it, and the broker's acts.
        live: the value in the broker; None = it has no such address.
        is_place: it names where messages end, not how often or when they are redelivered.
        mend: the line for the policy that ends the difference; "" = there is none.
    """

    setting: str
    given: str | None
    live: str | None
    is_place: bool
    what: str
    mend: str

    @property
    def is_meant(self) -> bool:
        """Whether a policy is written for it: counts and delays of its own."""
        return self.given is not None and not self.is_place


def live_entry(address: str, answer: Mapping[str, Any]) -> AddressSettingEntry:
    """Return the broker's answer about an address as an entry that covers it."""
    values = {ours: answer[key] for key, ours in JSON_KEYS.items() if key in answer}
    return AddressSettingEntry(
        match="#",
        settings=AddressSettings(**values),
        source=RuleSource(f"the broker's settings of {address}, read live"),
    )


def list_differences(
    address: str, given: CompiledAddressSettings, live: AddressSettingEntry, *, is_xml: bool = False
) -> Iterator[PolicyDifference]:
    """Yield each difference that changes the fate of a message that died at an address."""
    ours = given.effective(address)
    theirs = CompiledAddressSettings.of_broker({address: live}).effective(address)
    for name, effect in _FATES.items():
        is_written = name in ours.decided_by
        if name == "max_redelivery_delay_ms" and not (is_written or name in theirs.decided_by):
            continue
        mine, their = _text(ours, name), _text(theirs, name)
        if mine == their or (
            is_written and name not in _ADDRESSES and _is_idle(name, ours, theirs)
        ):
            continue
        setting = xml_name(name)
        mend = "" if their is None else _line(address, name, their, is_xml=is_xml)
        if is_written:
            place = ours.decided_by[name].source
            what = f"says {setting}={mine!r} ({place}), the broker {_or_none(their)}: {effect}"
        else:
            what = (
                f"does not say {setting}: a run takes the broker's {_or_none(their)}, and what "
                f"reads the policy alone takes {_or_none(mine)}"
            )
        yield PolicyDifference(
            setting, mine if is_written else None, their, name in _ADDRESSES, what, mend
        )


def _is_idle(name: str, ours: EffectiveSettings, theirs: EffectiveSettings) -> bool:
    """Return whether a setting of the delay changes nothing, since neither side has a delay."""
    return name != "max_delivery_attempts" and (
        max(ours.redelivery_delay_ms, theirs.redelivery_delay_ms) <= 0
    )


def _text(settings: EffectiveSettings, name: str) -> str | None:
    value = getattr(settings, name)
    return None if value is None or value == "" else str(value)


def _or_none(value: str | None) -> str:
    return "no address" if value is None else repr(value)


def _line(address: str, name: str, value: str, *, is_xml: bool) -> str:
    if is_xml:
        element = xml_name(name)
        return (
            f"<address-setting match={quoteattr(address)}><{element}>{escape(value)}</{element}>"
            "</address-setting>"
        )
    return f"address_settings: [{{match: {quoteattr(address)}, {name}: {value}}}]"
