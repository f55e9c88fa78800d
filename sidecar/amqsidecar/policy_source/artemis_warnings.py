"""Warnings about address settings."""

from collections.abc import Iterator

from amqsidecar.model.sidecar_names import OWN_PREFIX
from amqsidecar.policy.address_settings import (
    CompiledAddressSettings,
    EffectiveSettings,
    compile_address_settings,
)
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy_source.policy_warning import PolicyWarning, policy_warning

_EMPTY = AddressSettings()


def list_warnings(rules: ArtemisRules) -> tuple[str, ...]:
    """Return the sentences of `find_warnings`."""
    return tuple(one.text for one in find_warnings(rules))


def find_warnings(rules: ArtemisRules) -> tuple[PolicyWarning, ...]:
    """Return one sentence for each surprise in the settings, with its place.

    Raises:
        ConfigError: the broker refuses a match.

    Source: `spec-artemis.md` 1, 2, 4, 9 and 14.
    """
    settings = compile_address_settings(rules)
    return tuple(dict.fromkeys(_warnings(rules, settings)))


def _warnings(rules: ArtemisRules, settings: CompiledAddressSettings) -> Iterator[PolicyWarning]:
    for entry in rules.entries:
        # Why not ours: no message of an application dies there.
        if entry.settings == _EMPTY or entry.match.startswith(OWN_PREFIX):
            continue
        sample = settings.effective(_sample_address(entry.match, rules))
        if entry in sample.decided_by.values():
            yield from _entry_warnings(entry, sample)
    first_naming: dict[str, AddressSettingEntry] = {}
    for entry in rules.entries:
        first_naming.setdefault(entry.settings.dead_letter_address or "", entry)
    for address, entry in first_naming.items():
        if address:
            yield from _dead_letter_address_warnings(entry, settings.effective(address))


def _sample_address(match: str, rules: ArtemisRules) -> str:
    """Return an address that an entry matches, unless it is exotic."""
    markers, syntax = rules.literal_match_markers, rules.wildcards
    if markers is not None and match.startswith(markers[0]) and match.endswith(markers[1]):
        return match[1:-1]
    address = match.removesuffix(syntax.any_words).removesuffix(syntax.delimiter)
    return address.replace(syntax.single_word, "x")


def _entry_warnings(
    entry: AddressSettingEntry, merged: EffectiveSettings
) -> Iterator[PolicyWarning]:
    own, place = entry.settings, entry.source
    if own.max_delivery_attempts == 0:
        yield policy_warning("attempts_unlimited", place)
    is_about_limit = own.max_delivery_attempts is not None or own.dead_letter_address is not None
    if merged.max_delivery_attempts > 0 and not merged.dead_letter_address and is_about_limit:
        yield policy_warning(
            "no_dead_letter_address", place, max_delivery_attempts=merged.max_delivery_attempts
        )
    elif merged.max_delivery_attempts == 1 and is_about_limit:
        yield policy_warning("never_redelivered", place)
    varies = {
        "redelivery-delay-multiplier": own.redelivery_delay_multiplier,
        "max-redelivery-delay": own.max_redelivery_delay_ms,
        "redelivery-collision-avoidance-factor": own.redelivery_collision_avoidance_factor,
    }
    given = [name for name, value in varies.items() if value is not None]
    if merged.redelivery_delay_ms <= 0:
        if given:
            yield policy_warning("delay_settings_unused", place, detail=" and ".join(given))
        return
    if merged.max_redelivery_delay_ms <= 0:
        if own.max_redelivery_delay_ms is not None:
            yield policy_warning(
                "maximum_delay_zero", place, max_redelivery_delay_ms=own.max_redelivery_delay_ms
            )
    elif (
        own.redelivery_delay_multiplier is not None
        and own.redelivery_delay_multiplier > 1
        and "max_redelivery_delay_ms" not in merged.decided_by
    ):
        yield policy_warning(
            "delay_stops_growing", place, max_redelivery_delay_ms=merged.max_redelivery_delay_ms
        )


def _dead_letter_address_warnings(
    entry: AddressSettingEntry, of_address: EffectiveSettings
) -> Iterator[PolicyWarning]:
    address = of_address.address
    if of_address.max_delivery_attempts > 0:
        yield policy_warning(
            "dead_letter_address_limited",
            entry.source,
            address=address,
            max_delivery_attempts=of_address.max_delivery_attempts,
        )
    elif of_address.redelivery_delay_ms > 0:
        yield policy_warning(
            "dead_letter_address_delays",
            entry.source,
            address=address,
            redelivery_delay_ms=of_address.redelivery_delay_ms,
        )
