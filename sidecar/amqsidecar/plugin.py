"""The plugin contracts: links of the decision chain, gates, and the names that both may use.

A package registers an object of type `Plugin` in the entry-point group `amqsidecar.plugins`. The
chain asks the plugin listed last first, as the broker does; the first answer other than None wins.

A package registers an object of type `GatePlugin` in the group `amqsidecar.gates`. Gates are beyond
the broker's policies: they decide nothing, they delay due redeliveries.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, runtime_checkable

import msgspec

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.cause import cause_classes, cause_group
from amqsidecar.model.dead_letter import DeadLetter, Facts
from amqsidecar.model.decision import (
    DeadLetterTo,
    Decision,
    Discard,
    Exhaust,
    Park,
    Redeliver,
    Redirect,
    WrittenLine,
)
from amqsidecar.model.destination import Destination, DestinationKind, parse_destination
from amqsidecar.model.message import MessageEdit, PropertyEdit, describe_edit, lock_of
from amqsidecar.model.schedule import GroupPlace, RowState
from amqsidecar.model.signal import DEFAULT_WAIT_MS, WAIT_MAX_MS
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
from amqsidecar.policy.destination_map import DestinationMap, V
from amqsidecar.policy.discarding_decider import DiscardingDecider
from amqsidecar.policy.gate_entries import EntryFinder, GateEntries, entries_in, read_entries
from amqsidecar.policy.java_regex.java_regex import (
    JavaRegex,
    JavaRegexError,
    JavaRegexTimeout,
    compile_java_regex,
)
from amqsidecar.policy.option_reader import OptionReader, read_whole
from amqsidecar.policy.option_table import read_options
from amqsidecar.policy.redelivery_decider import RedeliveryDecider, describe_rule
from amqsidecar.policy.redelivery_policy import Chance, DelayTable
from amqsidecar.policy.rule_source import RuleSource, written_line


class Decider(Protocol):
    """A compiled set of rules; pure, total and deterministic for a given chance."""

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the decision on a dead letter; None = the next decider in the chain decides.

        Args:
            dead_letter: the facts that the rules may read.
            chance: the random source of collision avoidance; None switches it off.
        """
        ...


class Plugin(Protocol):
    """A kind of rules that can be put into the chain.

    Its options may have a method `to_mapping()`, which returns them as a YAML policy writes them;
    it serves to print and compare rules and to put them into Helm values. A decider that reads
    `DeadLetter.facts` lists the facts in its attribute `asks`, a frozenset: `age`, `cause`,
    `jms_type`, `property:NAME` and `header:NAME`. A decider whose `Redeliver` may have `until`
    lists the rules that set it in its attribute `awaits`, a tuple of texts.
    """

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


class DueMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A redelivery whose time has come.

    Attributes:
        destination: where it would be sent now.
        due_at_ms: since when; after a wait of a gate exactly the time that the gate named.
        redelivery_count: the count that it will carry.
        passes_gates: a person retried it: the gates are notified, not asked.
        redelivery_id: its id over all its deaths.
        group: its message group, where a gate looks at groups; None = none.
        place: where it stands in its group; None = it has none, or `passes_gates`.
    """

    destination: Destination
    due_at_ms: int
    redelivery_count: int
    passes_gates: bool = False
    redelivery_id: str = ""
    group: str | None = None
    place: GroupPlace | None = None


class Wait(msgspec.Struct, frozen=True, gc=False):
    """A due message does not go now.

    Attributes:
        until_ms: when to ask again.
        reason: for the operator, who sees it beside the message.
        is_news: the destination was open until now; this is logged.
    """

    until_ms: int
    reason: str
    is_news: bool = False


class Gate(Protocol):
    """Holds due redeliveries back; its state comes only from its methods' calls, and isn't stored.

    One thread asks it. Its memory is bounded for any number of destinations.
    """

    def describe(self, destination: Destination) -> str | None:
        """Return a description of its effect on redeliveries to a destination; None = no effect."""
        ...

    def wait_of(self, message: DueMessage, now_ms: int) -> Wait | None:
        """Return until when a due message waits and why; None = it may go now.

        Called in the order of due times, once for each time that a message is due. One answer for
        many messages costs few writes.
        """
        ...

    def passed(self, message: DueMessage, now_ms: int) -> None:
        """No gate delays this message, or a person bypassed the gates: it is sent now."""
        ...

    def resent(self, destination: Destination, now_ms: int) -> None:
        """The broker has a message that passed before."""
        ...

    def returned(self, destination: Destination, now_ms: int) -> None:
        """A message that was re-sent there died again."""
        ...


@runtime_checkable
class GroupGate(Gate, Protocol):
    """A gate that looks at message groups, which are read and kept only where there is one."""

    def arrived(self, message: DueMessage, now_ms: int) -> None:
        """The broker has a message of a group that passed before, since now at the latest."""
        ...


class GatePlugin(Protocol):
    """A kind of gate that can be put before the re-sends."""

    name: str

    def parse_options(self, options: Mapping[str, object], source: RuleSource) -> object:
        """Return the checked options of one use of this gate in `policy.gates`.

        Raises:
            ConfigError: with every problem found.
        """
        ...

    def compile(self, options: object) -> Gate:
        """Return a gate that has seen nothing yet.

        Raises:
            ConfigError: with every problem found.
        """
        ...


class OptionsPlugin(Generic[V]):
    """A kind of rules or of gate made of two functions; see `Plugin` and `GatePlugin`.

    Args:
        name: see `Plugin`.
        kind: the type of its options.
        read: reads them all.
        make: returns a decider or a gate.
    """

    def __init__(
        self,
        name: str,
        kind: type[V],
        read: Callable[[OptionReader], V],
        make: Callable[[V], Decider | Gate],
    ) -> None:
        self.name = name
        self._kind = kind
        self._read = read
        self._make = make

    def parse_options(self, options: Mapping[str, object], source: RuleSource) -> V:
        """Return the checked options.

        Raises:
            ConfigError: with every problem found.
        """
        return read_whole(options, source, self._read)

    def compile(self, options: object) -> Any:
        """Return what these options make.

        Raises:
            ConfigError: with every problem found.
        """
        if not isinstance(options, self._kind):
            raise TypeError(f"expected {self._kind.__name__}, found {type(options).__name__}")
        return self._make(options)


class EntriesPlugin(OptionsPlugin[GateEntries[V]]):
    """A kind of gate whose options are entries; see `GatePlugin`."""

    def __init__(
        self, name: str, read: Callable[[OptionReader], V], gate: Callable[[GateEntries[V]], Gate]
    ) -> None:
        super().__init__(name, GateEntries, partial(entries_in, read=read), gate)


__all__ = [
    "DEFAULT_WAIT_MS",
    "WAIT_MAX_MS",
    "Chance",
    "ConfigError",
    "DeadLetter",
    "DeadLetterDecider",
    "DeadLetterRules",
    "DeadLetterStrategy",
    "DeadLetterTo",
    "Decider",
    "Decision",
    "DelayTable",
    "Destination",
    "DestinationKind",
    "DestinationMap",
    "Discard",
    "DiscardingDeadLetterStrategy",
    "DiscardingDecider",
    "DiscardingRules",
    "DueMessage",
    "EntriesPlugin",
    "EntryFinder",
    "Exhaust",
    "Facts",
    "Gate",
    "GateEntries",
    "GatePlugin",
    "GroupGate",
    "GroupPlace",
    "IndividualDeadLetterStrategy",
    "JavaRegex",
    "JavaRegexError",
    "JavaRegexTimeout",
    "MessageEdit",
    "OptionReader",
    "OptionsPlugin",
    "Park",
    "Plugin",
    "PolicyEntry",
    "Problem",
    "PropertyEdit",
    "Redeliver",
    "RedeliveryDecider",
    "RedeliveryEntry",
    "RedeliveryPolicy",
    "RedeliveryRules",
    "Redirect",
    "RowState",
    "RuleSource",
    "SharedDeadLetterStrategy",
    "Wait",
    "WrittenLine",
    "cause_classes",
    "cause_group",
    "compile_java_regex",
    "describe_edit",
    "describe_rule",
    "lock_of",
    "parse_destination",
    "read_entries",
    "read_options",
    "written_line",
]
