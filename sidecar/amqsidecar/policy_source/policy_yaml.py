"""Reads our own YAML policies: the brokers' words in snake case, with units.

A policy is either Classic's (`plugins:` in the broker's order, `dead_letter:`,
`destination_interceptors:`, `scheduler_support:`) or Artemis's (`address_settings:`,
`wildcard_addresses:`, `literal_match_markers:`, and `plugins:` beyond the broker's rules).
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Plugin
from amqsidecar.policy.artemis_rules import (
    AddressSettingEntry,
    AddressSettings,
    ArtemisRules,
    WildcardSyntax,
)
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    PluginRules,
)
from amqsidecar.policy.option_reader import OptionReader
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source import artemis_warnings, classic_warnings
from amqsidecar.policy_source.destination_interceptors import read_interceptor_options
from amqsidecar.policy_source.yaml_text import VALUES_MAX, NotYaml, read_yaml_text

CLASSIC_KEYS = ("plugins", "dead_letter", "destination_interceptors", "scheduler_support")
ARTEMIS_KEYS = ("address_settings", "wildcard_addresses", "literal_match_markers")
_SETTINGS = {field.name: str(field.type).split(" ")[0] for field in fields(AddressSettings)}
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
}


def read_yaml(path: str, data: bytes, *, values_max: int = VALUES_MAX) -> Mapping[str, object]:
    """Return the mapping that a YAML file holds; its values know their lines.

    Args:
        path: named in problems.
        values_max: see `read_yaml_text`.

    Raises:
        ConfigError: too large, not YAML, or no mapping.
    """
    try:
        content = read_yaml_text(data.decode("utf-8-sig"), keeps_lines=True, values_max=values_max)
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(path, f"is not UTF-8: {error.reason}")]) from error
    except NotYaml as error:
        where = path if error.line is None else f"{path}:{error.line}"
        raise ConfigError([Problem(where, f"is not YAML: {error}")]) from error
    if not isinstance(content, Mapping):
        raise ConfigError([Problem(path, "expected a mapping of policies, found something else")])
    return content


def read_policy_mapping(
    content: Mapping[str, object], source: RuleSource, plugins: Mapping[str, Plugin]
) -> ClassicRules | ArtemisRules:
    """Return the rules that a mapping writes.

    Raises:
        ConfigError: with every problem found.
    """
    reader = _PolicyMapping(source, plugins)
    rules = reader.read(content)
    if reader.problems:
        raise ConfigError(reader.problems)
    if isinstance(rules, ClassicRules):
        return replace(rules, warnings=classic_warnings.list_warnings(rules))
    return replace(rules, warnings=(*rules.warnings, *artemis_warnings.list_warnings(rules)))


class _PolicyMapping:
    def __init__(self, source: RuleSource, plugins: Mapping[str, Plugin]) -> None:
        self._source = source
        self._plugins = plugins
        self.problems: list[Problem] = []

    def read(self, content: Mapping[str, object]) -> ClassicRules | ArtemisRules:
        is_artemis = any(key in content for key in ARTEMIS_KEYS)
        # Why not the first, `plugins`: they may stand beside address settings, too.
        is_classic = any(key in content for key in CLASSIC_KEYS[is_artemis:])
        if is_classic and is_artemis:
            self._problem(
                content,
                None,
                f"mixes {', '.join(CLASSIC_KEYS)} (Classic) with {', '.join(ARTEMIS_KEYS)} "
                "(Artemis); a policy is for one kind of broker",
            )
            return ClassicRules()
        if not is_classic and not is_artemis:
            self._problem(
                content,
                None,
                "is no policy: expected plugins and dead_letter (Classic), or address_settings "
                "(Artemis)",
            )
        self._refuse_unknown(content, ("plugins", *ARTEMIS_KEYS) if is_artemis else CLASSIC_KEYS)
        return self._artemis(content) if is_artemis else self._classic(content)

    def _place(self, content: object, key: object = None) -> RuleSource:
        position = getattr(content, "lc", None)
        line = getattr(position, "line", None)
        data = getattr(position, "data", None)
        if key is not None and data and key in data:
            line = data[key][0]
        return RuleSource(self._source.path, line + 1) if isinstance(line, int) else self._source

    def _problem(self, content: object, key: object, what: str) -> None:
        self.problems.append(Problem(str(self._place(content, key)), what))

    def _refuse_unknown(self, content: Mapping[str, object], known: tuple[str, ...]) -> None:
        for key in content:
            if key not in known:
                close = get_close_matches(str(key), known, 1)
                hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
                self._problem(content, key, f"{key}: there is no such key{hint}")

    def _links(self, content: Mapping[str, object]) -> tuple[PluginRules, ...]:
        plugins = []
        for index, item in enumerate(self._list(content, "plugins")):
            if not isinstance(item, Mapping) or len(item) != 1:
                self._problem(
                    item if isinstance(item, Mapping) else content,
                    None if isinstance(item, Mapping) else "plugins",
                    f"plugins[{index}]: expected one plugin's name with its options, such as "
                    "redelivery: {…}",
                )
                continue
            ((name, options),) = item.items()
            source = self._place(item, name)
            if name == "deadletter":
                self._problem(item, name, "deadletter stands outside of plugins, under dead_letter")
                continue
            plugins.append(
                PluginRules(
                    name=str(name),
                    options=self._options(str(name), options, source),
                    source=source,
                )
            )
        return tuple(plugins)

    def _classic(self, content: Mapping[str, object]) -> ClassicRules:
        plugins = self._links(content)
        dead_letter = DeadLetterRules(source=self._source, is_known=False)
        if content.get("dead_letter") is not None:
            read = self._options(
                "deadletter", content["dead_letter"], self._place(content, "dead_letter")
            )
            if isinstance(read, DeadLetterRules):
                dead_letter = read
        interceptors = ClassicRules().interceptors
        written = content.get("destination_interceptors")
        if isinstance(written, Mapping):
            place = self._place(content, "destination_interceptors")
            interceptors = read_interceptor_options(OptionReader(written, place, self.problems))
        elif written is not None:
            self._problem(
                content, "destination_interceptors", "destination_interceptors: expected a mapping"
            )
        scheduler_support = content.get("scheduler_support", False)
        if not isinstance(scheduler_support, bool):
            self._problem(content, "scheduler_support", "scheduler_support: expected true or false")
        return ClassicRules(
            plugins=plugins,
            dead_letter=dead_letter,
            interceptors=interceptors,
            scheduler_support=scheduler_support is True,
            source=self._source,
        )

    def _options(self, name: str, options: object, source: RuleSource) -> object:
        plugin = self._plugins.get(name)
        if plugin is None:
            close = get_close_matches(name, self._plugins, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            known = ", ".join(sorted(set(self._plugins) - {"deadletter"}))
            self.problems.append(
                Problem(str(source), f"there is no plugin named {name!r}{hint}; installed: {known}")
            )
            return None
        if options is None:
            options = {}
        if not isinstance(options, Mapping):
            self.problems.append(Problem(str(source), f"{name}: expected a mapping of options"))
            return None
        try:
            return plugin.parse_options(options, source)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None

    def _list(self, content: Mapping[str, object], key: str) -> list[object]:
        value = content.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self._problem(content, key, f"{key}: expected a list")
            return []
        return value

    def _artemis(self, content: Mapping[str, object]) -> ArtemisRules:
        entries: dict[str, AddressSettingEntry] = {}
        warnings = []
        for index, item in enumerate(self._list(content, "address_settings")):
            if not isinstance(item, Mapping):
                self._problem(
                    content, "address_settings", f"address_settings[{index}]: expected a mapping"
                )
                continue
            entry = self._entry(item)
            if entry is None:
                continue
            if entries.setdefault(entry.match, entry) is not entry:
                warnings.append(
                    f'{entry.source}: a second entry with match "{entry.match}" is ignored, as in '
                    f"the broker; the first one stands at {entries[entry.match].source}"
                )
        return ArtemisRules(
            entries=tuple(entries.values()),
            wildcards=self._wildcards(content),
            literal_match_markers=self._markers(content),
            warnings=tuple(warnings),
            source=self._source,
            plugins=self._links(content),
        )

    def _entry(self, item: Mapping[str, object]) -> AddressSettingEntry | None:
        self._refuse_unknown(item, ("match", *_SETTINGS))
        match = item.get("match")
        if not isinstance(match, str):
            self._problem(item, None, "match: expected a text such as orders.#")
            return None
        values: dict[str, Any] = {}
        for name, kind in _SETTINGS.items():
            if item.get(name) is not None:
                values[name] = self._value(item, name, kind)
        return AddressSettingEntry(
            match=str(match), settings=AddressSettings(**values), source=self._place(item)
        )

    def _value(self, item: Mapping[str, object], name: str, kind: str) -> object:
        value = item[name]
        what = _EXPECTED[kind]
        if isinstance(value, bool) or kind == "bool":
            if isinstance(value, bool) and kind == "bool":
                return value
        elif kind == "str" and isinstance(value, str):
            return str(value)
        elif kind == "int" and isinstance(value, int):
            bits = 32 if name == "max_delivery_attempts" else 64
            if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                return int(value)
            what = f"a number that fits into {bits} bits"
        elif kind == "float" and isinstance(value, int | float):
            if name != "redelivery_collision_avoidance_factor" or 0 <= value <= 1:
                return float(value)
            what = "a number from 0 to 1"
        self._problem(item, name, f"{name}: expected {what}, found {value!r}")
        return None

    def _wildcards(self, content: Mapping[str, object]) -> WildcardSyntax:
        given = content.get("wildcard_addresses")
        if given is None:
            return WildcardSyntax()
        if not isinstance(given, Mapping):
            self._problem(content, "wildcard_addresses", "wildcard_addresses: expected a mapping")
            return WildcardSyntax()
        names = tuple(field.name for field in fields(WildcardSyntax))
        self._refuse_unknown(given, names)
        values = {}
        for name in names:
            if name not in given:
                continue
            if isinstance(given[name], str) and len(given[name]) == 1:
                values[name] = str(given[name])
            else:
                self._problem(given, name, f"{name}: expected one character, found {given[name]!r}")
        return WildcardSyntax(**values)

    def _markers(self, content: Mapping[str, object]) -> str | None:
        markers = content.get("literal_match_markers")
        if markers is None:
            return None
        if isinstance(markers, str) and len(markers) == 2:
            return str(markers)
        self._problem(
            content,
            "literal_match_markers",
            f"literal_match_markers: expected exactly two characters, found {markers!r}",
        )
        return None
