"""The plugin `discarding`: ActiveMQ Classic's discardingDLQBrokerPlugin."""

from amqsidecar.plugin import (
    DiscardingDecider,
    DiscardingRules,
    OptionReader,
    OptionsPlugin,
    read_options,
)


def _read(reader: OptionReader) -> DiscardingRules:
    # `drop_only` is one text as in the XML, or a list of patterns.
    drop_only = reader.words("drop_only")
    return read_options(DiscardingRules, reader, drop_only=drop_only, source=reader.source)


plugin = OptionsPlugin("discarding", DiscardingRules, _read, DiscardingDecider)
