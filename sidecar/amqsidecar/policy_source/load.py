"""Loads a policy in any of its formats, and compiles it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import parse_qsl

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Decider, Plugin
from amqsidecar.policy.artemis_decider import compile_artemis
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.chain import Chain, compile_classic, compile_plugins
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    PluginRules,
    RedeliveryPolicy,
    RedeliveryRules,
)
from amqsidecar.policy.option_table import Notation, broker_name, names_of, read_options
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.activemq_xml import read_activemq_xml
from amqsidecar.policy_source.broker_properties import (
    read_broker_properties,
    read_custom_resource,
)
from amqsidecar.policy_source.broker_xml import read_broker_xml
from amqsidecar.policy_source.policy_yaml import read_policy_mapping, read_yaml
from amqsidecar.policy_source.xml_file import MAX_FILE_BYTES, local_name, read_xml, whole_number

_CUSTOM_RESOURCES = ("ActiveMQArtemis", "Broker")
PREFIX = "jms.redeliveryPolicy."
"""The prefix of the options of a redelivery policy."""

_KNOWN = names_of(RedeliveryPolicy) | {"preDispatchCheck"}
_BOOLEAN = re.compile("true|false", re.IGNORECASE)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def read_jms_uri(uri: str) -> RedeliveryPolicy:
    """Return the policy that `jms.redeliveryPolicy.*` options of a URI make, over the defaults.

    Args:
        uri: such as `tcp://host:61616?jms.redeliveryPolicy.maximumRedeliveries=3`; of a composite
            (`failover:(…)?…`) the outer options count.

    Raises:
        ConfigError: with every option that is unknown or has a bad value.

    Source: org.apache.activemq.ActiveMQConnectionFactory, buildFromMap.
    """
    place = re.sub(r"(?<=/)[^/@?()]*@", "", uri.split("?", 1)[0])
    options = _UriOptions(place)
    for key, text in parse_qsl(_query(uri), keep_blank_values=True):
        if key.startswith(PREFIX):
            options.add(key.removeprefix(PREFIX), text.strip())
    options.flag("pre_dispatch_check", default=True)
    policy = read_options(RedeliveryPolicy, options, source=RuleSource(place))
    if options.problems:
        raise ConfigError(options.problems)
    return policy


def _query(uri: str) -> str:
    outer = uri.rsplit(")", 1)[-1] if "(" in uri else uri
    return outer.split("?", 1)[1] if "?" in outer else ""


class _UriOptions(Notation):
    """The options of a URI, for `read_options`; of several of a name the last counts."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._texts: dict[str, str] = {}
        self.problems: list[Problem] = []

    def add(self, name: str, text: str) -> None:
        """Add an option by the broker's name."""
        self._texts[name] = text
        if name not in _KNOWN:
            close = get_close_matches(name, sorted(_KNOWN), 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            self._fail(name, f"there is no such option{hint}")

    def _fail(self, name: str, what: str) -> None:
        self.problems.append(Problem(self._place, f"{PREFIX}{name}={self._texts[name]}: {what}"))

    def _read(self, key: str, form: re.Pattern[str], expected: str) -> str | None:
        """Return the text of an option; None = it is not given, or a problem is noted."""
        name = broker_name(key)
        text = self._texts.get(name)
        if text is None or form.fullmatch(text):
            return text
        self._fail(name, f"expected {expected}")
        return None

    def flag(self, key: str, default: bool | None) -> bool | None:
        text = self._read(key, _BOOLEAN, "true or false")
        return default if text is None else text.lower() == "true"

    def integer(self, key: str, default: int, *, least: int, most: int) -> int:
        text = self._read(key, _INTEGER, "a whole number without a unit")
        if text is None:
            return default
        bits = max(most, -least - 1).bit_length() + 1
        value = whole_number(text, bits)
        if value is None:
            self._fail(broker_name(key), f"does not fit into {bits} bits")
            return default
        return value

    def number(self, key: str, default: float) -> float:
        text = self._read(key, _NUMBER, "a number such as 2 or 1.5")
        return default if text is None else float(text)

    def text(self, key: str, default: str) -> str:
        return self._texts.get(broker_name(key), default)


INLINE = RuleSource("policy.rules")
"""Where rules stand that are written in the configuration itself."""


def load_policy(
    policy: str | Path | Mapping[str, object],
    plugins: Mapping[str, Plugin],
    environment: Mapping[str, str] | None = None,
) -> ClassicRules | ArtemisRules:
    """Return the rules of a policy, whose format is detected.

    Args:
        policy: a file (XML of either broker, broker.properties, or YAML), a connection URI with
            `jms.redeliveryPolicy.*`, or the mapping under `policy.rules`.
        plugins: name to plugin.
        environment: where `${…}` in XML is looked up; None = the process's environment.

    Raises:
        ConfigError: with every problem found.
    """
    if isinstance(policy, Mapping):
        return read_policy_mapping(policy, INLINE, plugins)
    if PREFIX in str(policy):
        return _rules_of_uri(str(policy))
    path = Path(policy)
    try:
        data = _read(path)
    except OSError as error:
        why = error.strerror or error
        what = f"can't be read: {why}; check the path of the policy (policy.source)"
        raise ConfigError([Problem(str(policy), what)]) from error
    return parse_policy(
        str(policy), data, plugins, os.environ if environment is None else environment
    )


def parse_policy(
    path: str, data: bytes, plugins: Mapping[str, Plugin], environment: Mapping[str, str]
) -> ClassicRules | ArtemisRules:
    """Return the rules that the bytes of a policy file write.

    Raises:
        ConfigError: with every problem found.
    """

    def read_file(href: str) -> bytes:
        return _read(Path(path).parent / href)

    if path.lower().endswith(".properties"):
        return read_broker_properties(
            path, data, _broker_xml_beside(path, environment), environment
        )
    if path.lower().endswith((".yaml", ".yml")) or not _looks_like_xml(path, data):
        content = read_yaml(path, data)
        spec = content.get("spec")
        if content.get("kind") in _CUSTOM_RESOURCES and isinstance(spec, Mapping):
            base = _broker_xml_beside(path, environment)
            return read_custom_resource(path, spec, base, environment)
        return read_policy_mapping(content, RuleSource(path), plugins)
    root = read_xml(path, data)
    if local_name(root) in ("configuration", "core", "address-settings"):
        return read_broker_xml(path, data, environment, read_file)
    return read_activemq_xml(path, data, environment, read_file)


def _broker_xml_beside(path: str, environment: Mapping[str, str]) -> ArtemisRules:
    """Return the rules of the `broker.xml` in a file's folder, over which its settings stand."""
    beside = Path(path).with_name("broker.xml")
    if beside.is_file():
        rules = load_policy(beside, {}, environment)
        if isinstance(rules, ArtemisRules):
            return rules
    return ArtemisRules(
        warnings=(
            f"{path}: no broker.xml stands beside it, so that the settings there, such as "
            "dead-letter-address, are not known: put the broker's own there",
        )
    )


def compile_policy(rules: ClassicRules | ArtemisRules, plugins: Mapping[str, Plugin]) -> Decider:
    """Return the decider of a set of rules; all work that needs no message is done here.

    Raises:
        ConfigError: with every problem found.
    """
    if isinstance(rules, ArtemisRules):
        settings = compile_artemis(rules)
        links = compile_plugins(rules.plugins, plugins)
        return Chain([settings, *links]) if links else settings
    return compile_classic(rules, plugins)


def read_plugins(
    content: Sequence[Mapping[str, object]], source: RuleSource, plugins: Mapping[str, Plugin]
) -> tuple[PluginRules, ...]:
    """Return the links of a chain that a list writes, as `plugins:` in a policy.

    Raises:
        ConfigError: with every problem found.
    """
    return read_policy_mapping({"plugins": list(content)}, source, plugins).plugins


def with_plugins(rules: Rules, links: Sequence[PluginRules]) -> Rules:
    """Return the rules with more links of the chain, which are asked before all others."""
    return replace(rules, plugins=(*rules.plugins, *links)) if links else rules


def _read(path: Path) -> bytes:
    """Return the bytes of a file, one more than allowed if it is too long."""
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def _looks_like_xml(path: str, data: bytes) -> bool:
    start = data.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")[:1]
    return start == b"<" or path.lower().endswith(".xml")


def _rules_of_uri(uri: str) -> ClassicRules:
    policy = read_jms_uri(uri)
    rules = RedeliveryRules(default_entry=policy, source=policy.source)
    return ClassicRules(
        plugins=(PluginRules(name="redelivery", options=rules, source=policy.source),),
        source=policy.source,
    )
