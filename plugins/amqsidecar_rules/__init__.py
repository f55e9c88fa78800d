"""The plugin `rules`: an ordered table of rules beyond the broker's; the first that matches wins.

In the spirit of IBM MQ's dead-letter handler, with the delays of ActiveMQ's redelivery policies.
"""

from amqsidecar.plugin import OptionsPlugin
from amqsidecar_rules.decider import RulesDecider
from amqsidecar_rules.options import RuleTable, read_table

plugin = OptionsPlugin("rules", RuleTable, read_table, RulesDecider)
