"""The plugin `discarding`: ActiveMQ Classic's discardingDLQBrokerPlugin."""

from collections.abc import Mapping

from amqsidecar.plugin import (
    ConfigError,
    Decider,
    DiscardingDecider,
    DiscardingRules,
    OptionReader,
    Problem,
    RuleSource,
    read_options,
)


class DiscardingPlugin:
    """Drops dead letters by kind and by name."""

    name = "discarding"

    def parse_options(self, options: Mapping[str, object], source: RuleSource) -> DiscardingRules:
        """Return the rules that a YAML policy writes.

        `drop_only` is one text as in the XML, or a list of patterns.

        Raises:
            ConfigError: with every problem found.
        """
        problems: list[Problem] = []
        reader = OptionReader(options, source, problems)
        drop_only = reader.words("drop_only")
        rules = read_options(DiscardingRules, reader, drop_only=drop_only, source=reader.source)
        reader.finish()
        if problems:
            raise ConfigError(problems)
        return rules

    def compile(self, options: object) -> Decider:
        """Return the decider of these rules.

        Raises:
            ConfigError: a pattern is not supported.
        """
        if not isinstance(options, DiscardingRules):
            raise TypeError(f"expected DiscardingRules, found {type(options).__name__}")
        return DiscardingDecider(options)


plugin = DiscardingPlugin()
