"""Warnings about address settings."""

from collections.abc import Iterator

from amqsidecar.model.sidecar_names import OWN_PREFIX
from amqsidecar.policy.address_settings import (
    CompiledAddressSettings,
    EffectiveSettings,
    compile_address_settings,
)
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules

_EMPTY = AddressSettings()


def list_warnings(rules: ArtemisRules) -> tuple[str, ...]:
    """Return one sentence for each surprise in the settings, with its place.

    Raises:
        ConfigError: the broker refuses a match.

    Source: `spec-artemis.md` 1, 2, 4, 9 and 14.
    """
    settings = compile_address_settings(rules)
    return tuple(dict.fromkeys(_warnings(rules, settings)))


def _warnings(rules: ArtemisRules, settings: CompiledAddressSettings) -> Iterator[str]:
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


def _entry_warnings(entry: AddressSettingEntry, merged: EffectiveSettings) -> Iterator[str]:
    own, place = entry.settings, entry.source
    if own.max_delivery_attempts == 0:
        yield f"{place}: max-delivery-attempts=0 means without limit, not never"
    is_about_limit = own.max_delivery_attempts is not None or own.dead_letter_address is not None
    if merged.max_delivery_attempts > 0 and not merged.dead_letter_address and is_about_limit:
        yield (
            f"{place}: no dead-letter-address: the broker destroys a message at delivery "
            f"{merged.max_delivery_attempts}, before the sidecar can see it"
        )
    elif merged.max_delivery_attempts == 1 and is_about_limit:
        yield (
            f"{place}: max-delivery-attempts=1: the sidecar never redelivers these messages; let "
            "the broker alone have this count, and give the sidecar a policy of its own"
        )
    varies = {
        "redelivery-delay-multiplier": own.redelivery_delay_multiplier,
        "max-redelivery-delay": own.max_redelivery_delay_ms,
        "redelivery-collision-avoidance-factor": own.redelivery_collision_avoidance_factor,
    }
    given = [name for name, value in varies.items() if value is not None]
    if merged.redelivery_delay_ms <= 0:
        if given:
            yield f"{place}: {' and '.join(given)} act only with a redelivery-delay above 0"
        return
    if merged.max_redelivery_delay_ms <= 0:
        if own.max_redelivery_delay_ms is not None:
            yield (
                f"{place}: max-redelivery-delay={own.max_redelivery_delay_ms} makes every "
                "redelivery immediate"
            )
    elif (
        own.redelivery_delay_multiplier is not None
        and own.redelivery_delay_multiplier > 1
        and "max_redelivery_delay_ms" not in merged.decided_by
    ):
        yield (
            f"{place}: without max-redelivery-delay the delay stops growing at ten times the "
            f"redelivery-delay, {merged.max_redelivery_delay_ms} ms"
        )


def _dead_letter_address_warnings(
    entry: AddressSettingEntry, of_address: EffectiveSettings
) -> Iterator[str]:
    address = of_address.address
    if of_address.max_delivery_attempts > 0:
        yield (
            f"{entry.source}: the dead-letter address {address} is itself limited to "
            f"{of_address.max_delivery_attempts} deliveries: a dead letter that is returned "
            "that often (by crashes, for example) loses its origin for good; write "
            f'<address-setting match="{address}"><max-delivery-attempts>-1</max-delivery-attempts>'
            "<redelivery-delay>0</redelivery-delay></address-setting>"
        )
    elif of_address.redelivery_delay_ms > 0:
        yield (
            f"{entry.source}: dead letters on {address} are delayed by "
            f"{of_address.redelivery_delay_ms} ms whenever they are given back; write a "
            f'redelivery-delay of 0 for match="{address}"'
        )
