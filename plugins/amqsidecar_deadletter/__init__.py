"""The plugin `deadletter`: ActiveMQ Classic's dead-letter strategies, innermost in every chain."""

from collections.abc import Mapping
from dataclasses import replace

from amqsidecar.plugin import (
    ConfigError,
    DeadLetterDecider,
    DeadLetterRules,
    DeadLetterStrategy,
    Decider,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    OptionReader,
    PolicyEntry,
    Problem,
    RuleSource,
    SharedDeadLetterStrategy,
)

INT_MAX = 2**31 - 1

_STRATEGIES: dict[str, type[DeadLetterStrategy]] = {
    "shared": SharedDeadLetterStrategy,
    "individual": IndividualDeadLetterStrategy,
    "discarding": DiscardingDeadLetterStrategy,
}


def _read_strategy(reader: OptionReader) -> DeadLetterStrategy:
    kind = reader.text("kind", "shared")
    if kind not in _STRATEGIES:
        reader.fail("kind", f"expected one of {', '.join(_STRATEGIES)}, found {kind!r}")
    default = _STRATEGIES.get(kind, SharedDeadLetterStrategy)()
    strategy = replace(
        default,
        process_expired=reader.boolean("process_expired", default=default.process_expired),
        process_non_persistent=reader.boolean(
            "process_non_persistent", default=default.process_non_persistent
        ),
        enable_audit=reader.boolean("enable_audit", default=default.enable_audit),
        expiration_ms=reader.integer("expiration_ms", default.expiration_ms),
        max_producers_to_audit=reader.integer(
            "max_producers_to_audit", default.max_producers_to_audit, most=INT_MAX
        ),
        max_audit_depth=reader.integer("max_audit_depth", default.max_audit_depth, most=INT_MAX),
        source=reader.source,
    )
    match strategy:
        case SharedDeadLetterStrategy():
            strategy = replace(
                strategy,
                dead_letter_queue=reader.destination(
                    "dead_letter_queue", strategy.dead_letter_queue
                ),
            )
        case IndividualDeadLetterStrategy():
            strategy = replace(
                strategy,
                queue_prefix=reader.text("queue_prefix", strategy.queue_prefix),
                queue_suffix=reader.text("queue_suffix", strategy.queue_suffix),
                topic_prefix=reader.text("topic_prefix", strategy.topic_prefix),
                topic_suffix=reader.text("topic_suffix", strategy.topic_suffix),
                use_queue_for_queue_messages=reader.boolean(
                    "use_queue_for_queue_messages", default=strategy.use_queue_for_queue_messages
                ),
                use_queue_for_topic_messages=reader.boolean(
                    "use_queue_for_topic_messages", default=strategy.use_queue_for_topic_messages
                ),
                destination_per_durable_subscriber=reader.boolean(
                    "destination_per_durable_subscriber",
                    default=strategy.destination_per_durable_subscriber,
                ),
            )
    reader.finish()
    return strategy


def _read_entry(reader: OptionReader, *, is_default: bool) -> PolicyEntry:
    strategy = reader.mapping("dead_letter_strategy")
    entry = PolicyEntry(
        destinations=() if is_default else reader.pattern(),
        dead_letter_strategy=None if strategy is None else _read_strategy(strategy),
        source=reader.source,
    )
    reader.finish()
    return entry


class DeadLetterPlugin:
    """Knows the dead-letter destination of every destination."""

    name = "deadletter"

    def parse_options(self, options: Mapping[str, object], source: RuleSource) -> DeadLetterRules:
        """Return the rules that a YAML policy writes.

        Raises:
            ConfigError: with every problem found.
        """
        problems: list[Problem] = []
        reader = OptionReader(options, source, problems)
        default_entry = reader.mapping("default_entry")
        rules = DeadLetterRules(
            entries=tuple(
                _read_entry(entry, is_default=False) for entry in reader.mappings("entries")
            ),
            default_entry=(
                None if default_entry is None else _read_entry(default_entry, is_default=True)
            ),
            source=reader.source,
        )
        reader.finish()
        if problems:
            raise ConfigError(problems)
        return rules

    def compile(self, options: object) -> Decider:
        """Return the decider of these rules."""
        if not isinstance(options, DeadLetterRules):
            raise TypeError(f"expected DeadLetterRules, found {type(options).__name__}")
        return DeadLetterDecider(options)


plugin = DeadLetterPlugin()
