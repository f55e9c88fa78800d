"""The plugin contract: what a link of the decision chain is, and the names it may use.

A package registers an object of type `Plugin` in the entry-point group `amqsidecar.plugins`. The
chain asks the plugin listed last first, as the broker does; the first answer other than None wins.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver
from amqsidecar.model.destination import Destination, DestinationKind, parse_destination
from amqsidecar.policy.classic_rules import (
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    DiscardingRules,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.dead_letter_decider import DeadLetterDecider
from amqsidecar.policy.discarding_decider import DiscardingDecider
from amqsidecar.policy.option_reader import OptionReader
from amqsidecar.policy.redelivery_decider import RedeliveryDecider
from amqsidecar.policy.rule_source import RuleSource

Chance = Callable[[], float]
"""A source of chance: each call returns a number that is uniform in [0, 1)."""


class Decider(Protocol):
    """A compiled set of rules; pure, total and deterministic for a given chance."""

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return what happens to a dead letter; None = not mine, ask the next in the chain.

        Args:
            dead_letter: what the rules may look at.
            chance: where collision avoidance draws from; None switches it off.
        """
        ...


class Plugin(Protocol):
    """A kind of rules that can be put into the chain."""

    name: str

    def parse_options(self, options: Mapping[str, object], source: RuleSource) -> object:
        """Return the checked options of one use of this plugin in a YAML policy.

        Raises:
            ConfigError: with every problem found.
        """
        ...

    def compile(self, options: object) -> Decider:
        """Return a decider; all work that doesn't depend on the message is done here.

        Raises:
            ConfigError: with every problem found.
        """
        ...


__all__ = [
    "Chance",
    "ConfigError",
    "DeadLetter",
    "DeadLetterDecider",
    "DeadLetterRules",
    "DeadLetterStrategy",
    "DeadLetterTo",
    "Decider",
    "Decision",
    "Destination",
    "DestinationKind",
    "Discard",
    "DiscardingDeadLetterStrategy",
    "DiscardingDecider",
    "DiscardingRules",
    "IndividualDeadLetterStrategy",
    "OptionReader",
    "Plugin",
    "PolicyEntry",
    "Problem",
    "Redeliver",
    "RedeliveryDecider",
    "RedeliveryEntry",
    "RedeliveryPolicy",
    "RedeliveryRules",
    "RuleSource",
    "SharedDeadLetterStrategy",
    "parse_destination",
]
