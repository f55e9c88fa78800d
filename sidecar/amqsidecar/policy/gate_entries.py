"""Options of a gate by destination: entries with patterns, as in Classic's policies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic

from amqsidecar.model.destination import Destination, DestinationKind
from amqsidecar.policy.destination_map import DestinationMap, V
from amqsidecar.policy.option_reader import OptionReader, read_whole
from amqsidecar.policy.rule_source import RuleSource


@dataclass(frozen=True, slots=True)
class GateEntries(Generic[V]):
    """The checked options of one gate.

    Attributes:
        entries: patterns with the options that act there.
        default_entry: for all other destinations; None = they are not the gate's business.
    """

    entries: tuple[tuple[tuple[Destination, ...], V], ...]
    default_entry: V | None


class EntryFinder(Generic[V]):
    """Finds the one entry that acts on a destination; of `address::queue` the address counts."""

    def __init__(self, options: GateEntries[V]) -> None:
        self._map = DestinationMap(options.entries)
        self._default = options.default_entry

    def find(self, destination: Destination) -> V | None:
        """Return the entry that acts on a destination; None = none."""
        if "::" in destination.name:
            destination = Destination(DestinationKind(destination.kind), destination.address)
        found = self._map.find(destination)
        return self._default if found is None else found

    def describe(self, destination: Destination) -> str | None:
        """Return a text of the entry that acts on a destination; None = none."""
        found = self.find(destination)
        return None if found is None else str(found)


def read_entries(
    options: Mapping[str, object], source: RuleSource, read: Callable[[OptionReader], V]
) -> GateEntries[V]:
    """Return the options of a gate: `entries`, each with a pattern, and `default_entry`.

    Raises:
        ConfigError: with every problem found.
    """
    return read_whole(options, source, partial(entries_in, read=read))


def entries_in(reader: OptionReader, read: Callable[[OptionReader], V]) -> GateEntries[V]:
    """Return the same of a reader."""
    entries = []
    for entry in reader.mappings("entries"):
        entries.append((entry.pattern(), read(entry)))
        entry.finish()
    default = reader.mapping("default_entry")
    default_entry = None if default is None else read(default)
    if default is not None:
        default.finish()
    if not entries and default is None:
        reader.fail("entries", "expected entries or a default_entry: it would act nowhere")
    return GateEntries(tuple(entries), default_entry)
