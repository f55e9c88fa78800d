"""Reads the address settings of a `broker.properties` and of a custom resource of ArkMQ.

Source: org.apache.activemq.artemis.core.config.impl.ConfigurationImpl, parsePrefixedProperties;
brokerPropertiesData of the operator, which writes each item of `brokerProperties` as a line.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.artemis_warnings import list_warnings
from amqsidecar.policy_source.broker_xml import (
    ENDLESS,
    SETTING_TYPES,
    SETTINGS,
    fill_placeholders,
)
from amqsidecar.policy_source.properties_file import logical_lines, split_property
from amqsidecar.policy_source.xml_file import MAX_FILE_BYTES, whole_number

_LISTS = ("addressSettings", "addressesSettings")
_SYNTAX = {
    "wildcardConfiguration.delimiter": "delimiter",
    "wildcardConfiguration.singleWord": "single_word",
    "wildcardConfiguration.anyWords": "any_words",
}
_OURS = re.compile("(address(es)?Settings|wildcardConfiguration|literalMatch|key|remove)")
_MALFORMED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_ORDINAL = re.compile(r"broker-[^.]*\.")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_BYTES = re.compile(r"\s*([0-9]+)\s*(?:([kmg])i?)?b?\s*", re.IGNORECASE | re.ASCII)
_DOUBLE = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|Infinity|NaN)"
)
_BOOLEANS = dict.fromkeys(("true", "yes", "y", "on", "1"), True) | dict.fromkeys(
    ("false", "no", "n", "off", "0"), False
)
_EXPECTED = {"bool": "true or false", "float": "a number", "int": "a whole number"}
_FACTOR = "redelivery_collision_avoidance_factor"
_OBJECTS = ("expiry_delay_ms", "min_expiry_delay_ms", "max_expiry_delay_ms")
"""Settings of the class Long, which take no unit; only settings of the type long do."""
_OTHER_NAMES = """
IDCacheSize addressFullMessagePolicy autoCreateAddresses autoCreateJmsQueues autoCreateJmsTopics
autoCreateQueues autoDeleteAddresses autoDeleteAddressesDelay autoDeleteAddressesSkipUsageCheck
autoDeleteCreatedQueues autoDeleteJmsQueues autoDeleteJmsTopics autoDeleteQueues
autoDeleteQueuesDelay autoDeleteQueuesMessageCount autoDeleteQueuesSkipUsageCheck
configDeleteAddresses configDeleteDiverts configDeleteQueues defaultAddressRoutingType
defaultConsumerWindowSize defaultConsumersBeforeDispatch defaultDelayBeforeDispatch
defaultExclusiveQueue defaultGroupBuckets defaultGroupFirstKey defaultGroupRebalance
defaultGroupRebalancePauseDispatch defaultLastValueKey defaultLastValueQueue defaultMaxConsumers
defaultNonDestructive defaultPurgeOnNoConsumers defaultQueueRoutingType defaultRingSize
diskFullMessagePolicy enableIngressTimestamp enableMetrics initialQueueBufferSize
managementBrowsePageSize managementMessageAttributeSizeLimit maxReadPageBytes
maxReadPageMessages maxSizeBytes maxSizeBytesRejectThreshold maxSizeMessages
messageCounterHistoryDayLimit pageCacheMaxSize pageFullMessagePolicy pageLimitBytes
pageLimitMessages pageSizeBytes prefetchPageBytes prefetchPageMessages queuePrefetch
redistributionDelay retroactiveMessageCount slowConsumerCheckPeriod slowConsumerPolicy
slowConsumerThreshold slowConsumerThresholdMeasurementUnit
"""
_OTHERS = frozenset(_OTHER_NAMES.split())
"""Source: the setters of AddressSettings of 2.55, except `_NAMES`."""


def _camel_case(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(part.capitalize() for part in rest)


_RESOURCE_NAMES = {_camel_case(name): field for name, field in SETTINGS.items()}
"""By the name in `addressSetting` of a custom resource, the field."""
_RENAMED = {
    "redeliveryDelayMultiplier": "redeliveryMultiplier",
    "sendToDlaOnNoRoute": "sendToDLAOnNoRoute",
}
_NAMES = {_RENAMED.get(name, name): field for name, field in _RESOURCE_NAMES.items()}
"""By the name of a bean's property, the field."""


def read_broker_properties(
    path: str, data: bytes, base: ArtemisRules, environment: Mapping[str, str]
) -> ArtemisRules:
    """Return address settings, each overridden by its value in a `broker.properties`.

    Args:
        path: file name for messages and rule sources.
        data: the file's bytes.
        base: of the `broker.xml` that the broker reads before.
        environment: where `${name}` is looked up; the broker asks Java's system properties first.

    Raises:
        ConfigError: with every problem found.
    """
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError([Problem(path, f"is longer than {MAX_FILE_BYTES} bytes")])
    reader = _BrokerProperties(base, environment)
    lines = logical_lines(data.decode("latin-1"))
    reader.read((RuleSource(path, number), line) for number, line in lines)
    return reader.rules(RuleSource(path))


def read_custom_resource(
    path: str, spec: Mapping[str, object], base: ArtemisRules, environment: Mapping[str, str]
) -> ArtemisRules:
    """Return address settings, each overridden by its value in an `ActiveMQArtemis`.

    Args:
        path: file name for messages and rule sources.
        spec: its key `spec`, whose values know their lines.
        base: as in `read_broker_properties`.
        environment: as in `read_broker_properties`.

    Raises:
        ConfigError: with every problem found.
    """
    reader = _BrokerProperties(base, environment)
    settings = spec.get("addressSettings")
    items = settings.get("addressSetting") if isinstance(settings, Mapping) else None
    for index, item in enumerate(items if isinstance(items, Sequence) else ()):
        if isinstance(item, Mapping):
            reader.read_setting(RuleSource(path, _line(items, index)), item)
    lines: list[tuple[RuleSource, str]] = []
    written = spec.get("brokerProperties")
    for index, text in enumerate(written if isinstance(written, list) else ()):
        place = RuleSource(path, _line(written, index))
        if found := _ORDINAL.match(str(text)):
            reader.warnings.append(
                f"{place}: {found[0]}… is a setting of that broker alone, and is left out"
            )
            continue
        # Why so: the operator writes UTF-8, and the broker reads ISO-8859-1.
        latin = str(text).encode().decode("latin-1")
        lines += [(place, line) for _, line in logical_lines(latin)]
    reader.read(lines)
    return reader.rules(RuleSource(path))


def _line(items: object, index: int) -> int | None:
    position = getattr(getattr(items, "lc", None), "data", {}).get(index)
    return position[0] + 1 if position else None


class _BrokerProperties:
    def __init__(self, base: ArtemisRules, environment: Mapping[str, str]) -> None:
        self._base = base
        self._environment = environment
        self._entries = {entry.match: entry for entry in base.entries}
        self._wildcards = base.wildcards
        self._markers = base.literal_match_markers
        self._problems: list[Problem] = []
        self.warnings: list[str] = []

    def rules(self, source: RuleSource) -> ArtemisRules:
        """Return the rules that the properties make.

        Raises:
            ConfigError: with every problem found.
        """
        if self._problems:
            raise ConfigError(self._problems)
        rules = ArtemisRules(
            entries=tuple(self._entries.values()),
            wildcards=self._wildcards,
            literal_match_markers=self._markers,
            source=source,
        )
        stale = list_warnings(self._base)
        read = (warning for warning in self._base.warnings if warning not in stale)
        warnings = (*read, *self.warnings, *list_warnings(rules))
        return replace(rules, warnings=tuple(dict.fromkeys(warnings)))

    def read(self, lines: Iterable[tuple[RuleSource, str]]) -> None:
        """Read logical lines of properties."""
        found: dict[str, tuple[RuleSource, str]] = {}
        for place, line in lines:
            if _MALFORMED.search(line):
                self._problem(place, "\\u needs four digits: the broker reads nothing of this file")
                continue
            key, value = split_property(line)
            key = self._filled(place, key)
            # Why not each: `${…}` of another setting is not ours to warn of.
            found[key] = (place, self._filled(place, value) if _OURS.match(key) else value)
        _, surround = found.pop("key.surround", (None, '"'))
        _, remove = found.pop("remove.value", (None, "-"))
        quote = re.escape(surround)
        form = re.compile(rf"(?:{quote}(.*?){quote}\.?|([^.(\[]+)(?:\.|\Z))(.*)", re.DOTALL)
        for key, (place, value) in found.items():
            top, _, rest = key.partition(".")
            if top in _LISTS:
                self._read_address_setting(place, key, form.fullmatch(rest), value, remove)
            elif key in _SYNTAX and value:
                self._wildcards = replace(self._wildcards, **{_SYNTAX[key]: value[0]})
            elif key == "literalMatchMarkers":
                self._markers = value
                if len(value) != 2:
                    self._problem(place, f"{key}={value}: expected exactly two characters")
            elif close := get_close_matches(top, _LISTS, 1, 0.8):
                self._ignored(place, key, f"there is no {top}; did you mean {close[0]}?")

    def read_setting(self, place: RuleSource, item: Mapping[str, object]) -> None:
        """Read an item of `addressSetting` of a custom resource."""
        match = item.get("match")
        if not isinstance(match, str):
            self._problem(place, "match: expected a text such as orders.#")
            return
        for name, value in item.items():
            if name in _RESOURCE_NAMES and value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                self._set(place, str(match), _RESOURCE_NAMES[name], name, text)
            elif name != "match" and (close := get_close_matches(name, _RESOURCE_NAMES, 1, 0.85)):
                what = f"{name}: there is no such setting; did you mean {close[0]}?"
                self._problem(place, what)

    def _filled(self, place: RuleSource, text: str) -> str:
        filled = fill_placeholders(
            text, self._environment, lambda what: self.warnings.append(f"{place}: {what}")
        )
        if filled is None:
            self._problem(place, ENDLESS)
        return filled or ""

    def _problem(self, place: RuleSource, what: str) -> None:
        self._problems.append(Problem(str(place), what))

    def _ignored(self, place: RuleSource, key: str, why: str) -> None:
        self.warnings.append(f"{place}: the broker logs an error and ignores {key}: {why}")

    def _read_address_setting(
        self,
        place: RuleSource,
        key: str,
        found: re.Match[str] | None,
        value: str,
        remove: str,
    ) -> None:
        quoted, bare, name = found.groups() if found else (None, None, "")
        match = bare if quoted is None else quoted
        if value == remove and key in _LISTS:
            self._entries.clear()
        elif match is None or (not name and value != remove):
            what = f'{key}: expected {_LISTS[0]}."match".setting; put the match in quotes'
            self._problem(place, what)
        elif not name:
            self._entries.pop(match, None)
        elif name in _NAMES and value != remove:
            self._set(place, match, _NAMES[name], name, value)
        else:
            # Why an entry all the same: the broker has it, and checks its match.
            self._entries.setdefault(match, _entry(match, place))
            if name not in _OTHERS:
                close = get_close_matches(name, _NAMES, 1)
                hint = f"; did you mean {close[0]}?" if close else "; is the match in quotes?"
                self._ignored(place, key, f"{name} is no setting that takes {value}{hint}")

    def _set(self, place: RuleSource, match: str, field: str, name: str, text: str) -> None:
        kind = SETTING_TYPES[field]
        value: object = text
        if kind == "bool":
            value = _BOOLEANS.get(text.lower())
        elif kind == "float":
            value = _number(text.strip(), field)
        elif kind == "int":
            value = _whole_number(text, field)
        if value is None:
            expected = _EXPECTED[kind]
            if field == _FACTOR:
                expected += " from 0 to 1"
            what = f"{name}={text}: expected {expected}; the broker may start with another value"
            self._problem(place, what)
            return
        entry = self._entries.get(match, _entry(match, place))
        settings = replace(entry.settings, **{field: value})  # type: ignore[arg-type]
        self._entries[match] = replace(entry, settings=settings, source=place)


def _entry(match: str, place: RuleSource) -> AddressSettingEntry:
    return AddressSettingEntry(match=match, settings=AddressSettings(), source=place)


def _number(text: str, field: str) -> float | None:
    value = float(text.rstrip("fFdD")) if _DOUBLE.fullmatch(text) else None
    # Why a bound, which the broker lacks here: it refuses the same in a broker.xml.
    return value if value is None or field != _FACTOR or 0 <= value <= 1 else None


def _whole_number(text: str, field: str) -> int | None:
    """Return a number; None = the broker reads another one, or none."""
    bits = 32 if field == "max_delivery_attempts" else 64
    if bits == 32 or field in _OBJECTS:
        text = text.strip()
    elif found := _BYTES.fullmatch(text):
        exponent = " kmg".index((found[2] or " ").lower())
        value = whole_number(found[1], bits)
        # Why whole_number again: the product must fit, too.
        return None if value is None else whole_number(str(value * 1024**exponent), bits)
    return whole_number(text, bits) if _INTEGER.fullmatch(text) else None
