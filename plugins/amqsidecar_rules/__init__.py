"""The plugin `rules`: an ordered table of rules beyond the broker's; the first that matches wins.

In the spirit of IBM MQ's dead-letter handler, with the delays of ActiveMQ's redelivery policies.
"""

from collections.abc import Mapping

from amqsidecar.plugin import Decider, RuleSource
from amqsidecar_rules.decider import RulesDecider
from amqsidecar_rules.options import RuleTable, read_table


class RulesPlugin:
    """Decides by destination, cause, properties, headers, count and age."""

    name = "rules"

    def parse_options(self, options: Mapping[str, object], source: RuleSource) -> RuleTable:
        """Return the table that a YAML policy writes.

        Raises:
            ConfigError: with every problem found.
        """
        return read_table(options, source)

    def compile(self, options: object) -> Decider:
        """Return the decider of a table."""
        if not isinstance(options, RuleTable):
            raise TypeError(f"expected RuleTable, found {type(options).__name__}")
        return RulesDecider(options)


plugin = RulesPlugin()
