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
)

INT_MAX, SHORT_MIN, SHORT_MAX = 2**31 - 1, -(2**15), 2**15 - 1


def _read_policy(reader: OptionReader) -> RedeliveryPolicy:
    default = RedeliveryPolicy()
    return RedeliveryPolicy(
        maximum_redeliveries=reader.limit(
            "maximum_redeliveries", default.maximum_redeliveries, most=INT_MAX
        ),
        initial_redelivery_delay_ms=reader.integer(
            "initial_redelivery_delay_ms", default.initial_redelivery_delay_ms
        ),
        redelivery_delay_ms=reader.integer("redelivery_delay_ms", default.redelivery_delay_ms),
        maximum_redelivery_delay_ms=reader.limit(
            "maximum_redelivery_delay_ms", default.maximum_redelivery_delay_ms
        ),
        use_exponential_back_off=reader.boolean(
            "use_exponential_back_off", default=default.use_exponential_back_off
        ),
        back_off_multiplier=reader.number("back_off_multiplier", default.back_off_multiplier),
        use_collision_avoidance=reader.boolean(
            "use_collision_avoidance", default=default.use_collision_avoidance
        ),
        collision_avoidance_percent=reader.integer(
            "collision_avoidance_percent",
            default.collision_avoidance_percent,
            least=SHORT_MIN,
            most=SHORT_MAX,
        ),
        source=reader.source,
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
            entries.append(RedeliveryEntry(destinations=destinations, policy=_read_policy(entry)))
            entry.finish()
        default_entry = reader.mapping("default_entry")
        rules = RedeliveryRules(
            entries=tuple(entries),
            default_entry=None if default_entry is None else _read_policy(default_entry),
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
