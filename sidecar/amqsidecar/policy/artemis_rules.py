"""The address settings of a `broker.xml` that concern dead letters, as values.

None always means "not set at this match": merging fills it from a less specific match, and the
default is applied after merging (`spec-artemis.md` 1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from amqsidecar.policy.classic_rules import PluginRules
from amqsidecar.policy.rule_source import DEFAULTS, RuleSource


@dataclass(frozen=True, slots=True, kw_only=True)
class WildcardSyntax:
    """The three special characters of a match.

    Source: org.apache.activemq.artemis.core.config.WildcardConfiguration.
    """

    delimiter: str = "."
    single_word: str = "*"
    any_words: str = "#"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettings:
    """One `<address-setting>`, or several merged.

    Attributes:
        max_delivery_attempts: 0 and negative = unlimited; default 10.
        redelivery_delay_ms: acts only above 0; default 0.
        redelivery_delay_multiplier: default 1.0; any double.
        redelivery_collision_avoidance_factor: 0.0 to 1.0; default 0.0.
        max_redelivery_delay_ms: default ten times the merged redelivery delay.
        dead_letter_address: "" is a value of its own (an empty element).
        expiry_address: "" as above.
        expiry_delay_ms: default -1 (off).

    Source: org.apache.activemq.artemis.core.settings.impl.AddressSettings.
    """

    max_delivery_attempts: int | None = None
    redelivery_delay_ms: int | None = None
    redelivery_delay_multiplier: float | None = None
    redelivery_collision_avoidance_factor: float | None = None
    max_redelivery_delay_ms: int | None = None
    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool | None = None
    dead_letter_queue_prefix: str | None = None
    dead_letter_queue_suffix: str | None = None
    expiry_address: str | None = None
    auto_create_expiry_resources: bool | None = None
    expiry_queue_prefix: str | None = None
    expiry_queue_suffix: str | None = None
    expiry_delay_ms: int | None = None
    min_expiry_delay_ms: int | None = None
    max_expiry_delay_ms: int | None = None
    no_expiry: bool | None = None
    send_to_dla_on_no_route: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSettingEntry:
    """A match and the settings written for it."""

    match: str
    settings: AddressSettings
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtemisRules:
    """Everything in a `broker.xml` that decides about dead letters.

    Attributes:
        entries: in file order; of entries with an equal `match` the first counts.
        literal_match_markers: two characters, such as `()`; None = off.
        warnings: one sentence each about these rules, with place.
        source: the file, or the live broker.
        plugins: rules beyond the broker's, the last one asked first, all before the entries.
        live: by address, the broker's own settings; they fill what the entries leave unset.
    """

    entries: tuple[AddressSettingEntry, ...] = ()
    wildcards: WildcardSyntax = field(default_factory=WildcardSyntax)
    literal_match_markers: str | None = None
    warnings: tuple[str, ...] = ()
    source: RuleSource = DEFAULTS
    plugins: tuple[PluginRules, ...] = ()
    live: Mapping[str, AddressSettingEntry] = field(default_factory=dict, compare=False)
