"""The plugin `redelivery`: ActiveMQ Classic's redeliveryPlugin."""

from collections.abc import Mapping

from amqsidecar.plugin import (
    ConfigError,
    Decider,
    OptionReader,
    Problem,
    RedeliveryDecider,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    RuleSource,
    read_options,
)


def _policy(reader: OptionReader) -> RedeliveryPolicy:
    return read_options(RedeliveryPolicy, reader, source=reader.source)


class RedeliveryPlugin:
    """Redelivers by a map of redelivery policies."""

    name = "redelivery"

    def parse_options(self, options: Mapping[str, object], source: RuleSource) -> RedeliveryRules:
        """Return the rules that a YAML policy writes.

        Raises:
            ConfigError: with every problem found.
        """
        problems: list[Problem] = []
        reader = OptionReader(options, source, problems)
        entries = []
        for entry in reader.mappings("entries"):
            destinations = entry.pattern()
            entries.append(RedeliveryEntry(destinations=destinations, policy=_policy(entry)))
            entry.finish()
        default_entry = reader.mapping("default_entry")
        rules = read_options(
            RedeliveryRules,
            reader,
            entries=tuple(entries),
            default_entry=None if default_entry is None else _policy(default_entry),
            source=reader.source,
        )
        if default_entry is not None:
            default_entry.finish()
        reader.finish()
        if problems:
            raise ConfigError(problems)
        return rules

    def compile(self, options: object) -> Decider:
        """Return the decider of these rules."""
        if not isinstance(options, RedeliveryRules):
            raise TypeError(f"expected RedeliveryRules, found {type(options).__name__}")
        return RedeliveryDecider(options)


plugin = RedeliveryPlugin()
