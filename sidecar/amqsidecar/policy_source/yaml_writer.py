"""Writes rules as a YAML policy that reads back to the same rules."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from io import StringIO
from textwrap import indent
from typing import Protocol, runtime_checkable

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from amqsidecar.model.destination import Destination, DestinationKind
from amqsidecar.policy.artemis_rules import ArtemisRules, WildcardSyntax
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DeadLetterStrategy,
    DestinationInterceptors,
    DiscardingDeadLetterStrategy,
    DiscardingRules,
    ForwardTo,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    RedeliveryRules,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.option_table import without_defaults

_STRATEGY_KINDS = {
    SharedDeadLetterStrategy: "shared",
    IndividualDeadLetterStrategy: "individual",
    DiscardingDeadLetterStrategy: "discarding",
}
_KEYS = {
    DestinationKind.QUEUE: "queue",
    DestinationKind.TOPIC: "topic",
    DestinationKind.TEMP_QUEUE: "temp_queue",
    DestinationKind.TEMP_TOPIC: "temp_topic",
}
_WIDTH = 100


@runtime_checkable
class _WritesItself(Protocol):
    """Options of a plugin that know how a YAML policy writes them."""

    def to_mapping(self) -> Mapping[str, object]: ...


def write_yaml(rules: ClassicRules | ArtemisRules) -> str:
    """Return the YAML policy that is equivalent to some rules, its warnings as comments.

    Promise: reading it gives equal rules, sources and warnings aside.
    """
    yaml = YAML(typ="rt")
    yaml.width = _WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = StringIO()
    yaml.dump(_quoted(to_mapping(rules)), text)
    comments = [f"# From {rules.source}."]
    comments += [f"# Warning: {line}" for warning in rules.warnings for line in [_line(warning)]]
    return "\n".join([*comments, text.getvalue()])


def write_helm_values(rules: ClassicRules | ArtemisRules, head: str = "") -> str:
    """Return values of the Helm chart whose policy is equivalent to some rules."""
    return f"config:\n  policy:\n    rules:\n{indent(head + write_yaml(rules), ' ' * 6)}"


def to_mapping(rules: ClassicRules | ArtemisRules) -> dict[str, object]:
    """Return the mapping of a YAML policy of these rules, without defaults."""
    if isinstance(rules, ArtemisRules):
        return _artemis(rules)
    content: dict[str, object] = {
        "plugins": [{plugin.name: _options(plugin.options)} for plugin in rules.plugins]
    }
    if rules.dead_letter.entries or rules.dead_letter.default_entry is not None:
        content["dead_letter"] = _dead_letter(rules.dead_letter)
    if rules.interceptors.are_known:
        content["destination_interceptors"] = _interceptors(rules.interceptors)
    if rules.scheduler_support:
        content["scheduler_support"] = True
    return content


def _line(text: str) -> str:
    return " ".join(text.split())


def _artemis(rules: ArtemisRules) -> dict[str, object]:
    content: dict[str, object] = {
        "address_settings": [
            {
                "match": entry.match,
                **{
                    field.name: getattr(entry.settings, field.name)
                    for field in fields(entry.settings)
                    if getattr(entry.settings, field.name) is not None
                },
            }
            for entry in rules.entries
        ]
    }
    if rules.wildcards != WildcardSyntax():
        content["wildcard_addresses"] = {
            field.name: getattr(rules.wildcards, field.name) for field in fields(WildcardSyntax)
        }
    if rules.literal_match_markers is not None:
        content["literal_match_markers"] = rules.literal_match_markers
    if rules.plugins:
        content["plugins"] = [{plugin.name: _options(plugin.options)} for plugin in rules.plugins]
    return content


def _options(options: object) -> object:
    if isinstance(options, RedeliveryRules):
        content = without_defaults(options, frozenset({"entries", "default_entry"}))
        if options.default_entry is not None:
            content["default_entry"] = without_defaults(options.default_entry)
        if options.entries:
            content["entries"] = [
                {**_pattern(entry.destinations), **without_defaults(entry.policy)}
                for entry in options.entries
            ]
        return content
    if isinstance(options, DiscardingRules):
        return without_defaults(options)
    if isinstance(options, _WritesItself):
        return options.to_mapping()
    if is_dataclass(options):
        return {field.name: getattr(options, field.name) for field in fields(options)}
    return options


def _dead_letter(rules: DeadLetterRules) -> dict[str, object]:
    content: dict[str, object] = {}
    if rules.default_entry is not None:
        content["default_entry"] = _entry(rules.default_entry)
    if rules.entries:
        content["entries"] = [
            {**_pattern(entry.destinations), **_entry(entry)} for entry in rules.entries
        ]
    return content


def _interceptors(interceptors: DestinationInterceptors) -> dict[str, object]:
    content: dict[str, object] = {}
    if interceptors.composites:
        content["composites"] = [
            {
                **_pattern(one.destinations),
                **without_defaults(one, frozenset({"destinations", "forward_to"})),
                "forward_to": [_forward(forward) for forward in one.forward_to],
            }
            for one in interceptors.composites
        ]
    if interceptors.virtual_topics:
        content["virtual_topics"] = [
            {**_pattern(one.destinations), **without_defaults(one, frozenset({"destinations"}))}
            for one in interceptors.virtual_topics
        ]
    if interceptors.mirrored_queues is not None:
        content["mirrored_queues"] = without_defaults(interceptors.mirrored_queues)
    return content


def _forward(forward: ForwardTo) -> dict[str, object]:
    selector = {} if forward.selector is None else {"selector": forward.selector}
    return {**_pattern([forward.destination]), **selector}


def _entry(entry: PolicyEntry) -> dict[str, object]:
    strategy = entry.dead_letter_strategy
    return {} if strategy is None else {"dead_letter_strategy": _strategy(strategy)}


def _strategy(strategy: DeadLetterStrategy) -> dict[str, object]:
    content: dict[str, object] = {"kind": _STRATEGY_KINDS[type(strategy)]}
    content.update(without_defaults(strategy))
    if isinstance(strategy, SharedDeadLetterStrategy):
        content["dead_letter_queue"] = str(strategy.dead_letter_queue)
    return content


def _pattern(destinations: Sequence[Destination]) -> dict[str, object]:
    kind = destinations[0].kind
    texts = [
        destination.name
        if destination.kind == kind and "://" not in destination.name
        else str(destination)
        for destination in destinations
    ]
    return {_KEYS[kind]: texts[0] if len(texts) == 1 and "," not in texts[0] else texts}


def _quoted(value: object) -> object:
    """Quote every text, so that no reader takes `>`, `#`, `*` or `no` for something else."""
    if isinstance(value, Mapping):
        return {key: _quoted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_quoted(item) for item in value]
    return DoubleQuotedScalarString(value) if isinstance(value, str) else value
