"""The plugin `deadletter`: ActiveMQ Classic's dead-letter strategies, innermost in every chain."""

from amqsidecar.plugin import (
    DeadLetterDecider,
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    OptionReader,
    OptionsPlugin,
    PolicyEntry,
    SharedDeadLetterStrategy,
    read_options,
)

_STRATEGIES: dict[str, type[DeadLetterStrategy]] = {
    "shared": SharedDeadLetterStrategy,
    "individual": IndividualDeadLetterStrategy,
    "discarding": DiscardingDeadLetterStrategy,
}


def _read_strategy(reader: OptionReader) -> DeadLetterStrategy:
    kind = reader.text("kind", "shared")
    if kind not in _STRATEGIES:
        reader.fail("kind", f"expected one of {', '.join(_STRATEGIES)}, found {kind!r}")
    strategy_type = _STRATEGIES.get(kind, SharedDeadLetterStrategy)
    given: dict[str, object] = {"source": reader.source}
    if strategy_type is SharedDeadLetterStrategy:
        usual = SharedDeadLetterStrategy().dead_letter_queue
        given["dead_letter_queue"] = reader.destination("dead_letter_queue", usual)
    strategy = read_options(strategy_type, reader, **given)
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


def _read(reader: OptionReader) -> DeadLetterRules:
    default_entry = reader.mapping("default_entry")
    return DeadLetterRules(
        entries=tuple(_read_entry(entry, is_default=False) for entry in reader.mappings("entries")),
        default_entry=(
            None if default_entry is None else _read_entry(default_entry, is_default=True)
        ),
        source=reader.source,
    )


plugin = OptionsPlugin("deadletter", DeadLetterRules, _read, DeadLetterDecider)
