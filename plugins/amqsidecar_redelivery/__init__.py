"""The plugin `redelivery`: ActiveMQ Classic's redeliveryPlugin."""

from collections.abc import Mapping

from amqsidecar.plugin import (
    ConfigError,
    Decider,
    OptionReader,
    Problem,
    RedeliveryDecider,
    RedeliveryEntry,
    RedeliveryRules,
    RuleSource,
    read_redelivery_policy,
)


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
            entries.append(
                RedeliveryEntry(destinations=destinations, policy=read_redelivery_policy(entry))
            )
            entry.finish()
        default_entry = reader.mapping("default_entry")
        rules = RedeliveryRules(
            entries=tuple(entries),
            default_entry=None if default_entry is None else read_redelivery_policy(default_entry),
            fallback_to_dead_letter=reader.boolean("fallback_to_dead_letter", default=True),
            send_to_dlq_if_max_retries_exceeded=reader.boolean(
                "send_to_dlq_if_max_retries_exceeded", default=True
            ),
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
