"""Loads a policy, whatever it is written in, and compiles it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Decider, Plugin
from amqsidecar.policy.artemis_decider import compile_artemis
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.chain import Chain, compile_classic, compile_plugins
from amqsidecar.policy.classic_rules import ClassicRules, PluginRules, RedeliveryRules
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.activemq_xml import read_activemq_xml
from amqsidecar.policy_source.broker_xml import read_broker_xml
from amqsidecar.policy_source.jms_uri import PREFIX, read_jms_uri
from amqsidecar.policy_source.policy_yaml import read_policy_mapping, read_yaml
from amqsidecar.policy_source.xml_file import MAX_FILE_BYTES, local_name, read_xml

INLINE = RuleSource("policy.rules")
"""Where rules stand that are written in the configuration itself."""


def load_policy(
    policy: str | Path | Mapping[str, object],
    plugins: Mapping[str, Plugin],
    environment: Mapping[str, str] | None = None,
) -> ClassicRules | ArtemisRules:
    """Return the rules of a policy; what it is written in is found out by looking at it.

    Args:
        policy: a file (XML of either broker, or YAML), a connection URI with
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
    if path.lower().endswith((".yaml", ".yml")) or not _looks_like_xml(path, data):
        return read_policy_mapping(read_yaml(path, data), RuleSource(path), plugins)
    root = read_xml(path, data)
    if local_name(root) in ("configuration", "core", "address-settings"):
        folder = Path(path).parent
        return read_broker_xml(path, data, environment, lambda href: _read(folder / href))
    return read_activemq_xml(path, data, environment)


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

    Args:
        content: one mapping a plugin, from its name to its options.
        source: where the list stands.
        plugins: name to plugin.

    Raises:
        ConfigError: with every problem found.
    """
    return read_policy_mapping({"plugins": list(content)}, source, plugins).plugins


def with_plugins(rules: Rules, links: Sequence[PluginRules]) -> Rules:
    """Return the rules with more links of the chain, which are asked before all others."""
    return replace(rules, plugins=(*rules.plugins, *links)) if links else rules


def _read(path: Path) -> bytes:
    """Return the bytes of a file, of a longer one than is allowed enough to see that it is."""
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
