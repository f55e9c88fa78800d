"""The plugin `redelivery`: ActiveMQ Classic's redeliveryPlugin."""

from amqsidecar.plugin import (
    OptionReader,
    OptionsPlugin,
    RedeliveryDecider,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    read_options,
)


def _policy(reader: OptionReader) -> RedeliveryPolicy:
    return read_options(RedeliveryPolicy, reader, source=reader.source)


def _read(reader: OptionReader) -> RedeliveryRules:
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
    return rules


plugin = OptionsPlugin("redelivery", RedeliveryRules, _read, RedeliveryDecider)
