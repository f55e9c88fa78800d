"""Finds the group of a death: by its consumer's stack, else by templates learned from causes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from amqsidecar.broker import Delivery
from amqsidecar.engine.cause_notebook import Death
from amqsidecar.model.cause_groups import STACK, CauseGroups
from amqsidecar.model.cause_note import CauseNote
from amqsidecar.model.destination import Destination
from amqsidecar.model.failure import failure_cause, group_with

FieldsOf = Callable[[Delivery, Destination], Sequence[tuple[str, str]]]
"""Delivery and the destination where it died to the names and values that divide groups."""

FindNote = Callable[[Delivery], CauseNote | None]
"""Delivery to the note about it; None = none came by now."""

_STACK_SHOWN = 12


def no_fields(_delivery: Delivery, _place: Destination, /) -> Sequence[tuple[str, str]]:
    """Return no fields."""
    return ()


def no_note(_delivery: Delivery, /) -> CauseNote | None:
    """Return that no note came."""
    return None


class DeathGroups:
    """Finds groups, and learns from each text.

    Args:
        fields_of, find_note: see their types.
        alone: keeps other threads out while one learns; None = only one asks.
    """

    def __init__(
        self,
        fields_of: FieldsOf,
        find_note: FindNote,
        alone: AbstractContextManager[object] | None = None,
    ) -> None:
        self._fields_of = fields_of
        self._find_note = find_note
        self._alone = alone or nullcontext()
        self._known = CauseGroups()

    def learn(self, known: CauseGroups) -> None:
        """Replace the learned groups by a store's groups; may be called by any thread."""
        self._known = known

    def of_delivery(self, delivery: Delivery, origin: Destination | None, cause: str | None) -> str:
        """Return the group of a dead letter; never empty.

        Args:
            origin: where it died; None = it is not known.
            cause: in the consumer's words or the broker's.
        """
        place = origin or delivery.source
        group = failure_cause(cause, expired=delivery.provenance.expired)
        if fields := self._fields_of(delivery, place):
            group = group_with(group, fields)
        return self._add(str(place), group, self._find_note(delivery))

    def of_late_note(self, death: Death, note: CauseNote) -> str:
        """Return the group of a death whose note came after it."""
        group, bracket, fields = death.cause_group.partition(" [")
        if note.cause:
            group = failure_cause(note.cause, expired=death.is_expired)
        if bracket and fields.endswith("]"):
            group += bracket + fields
        return self._add(str(death.destination), group, note)

    def _add(self, destination: str, group: str, note: CauseNote | None) -> str:
        if note is not None and note.stack_hash:
            words, bracket, fields = group.partition(" [")
            group = (note.place or words) + bracket + fields
            group = group_with(group, [(STACK, note.stack_hash[:_STACK_SHOWN])])
        with self._alone:
            return self._known.add(destination, group)
