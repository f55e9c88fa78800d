"""Discards in a simulated world, and their undoing at any progress."""

from __future__ import annotations

from typing import Final

from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.operate import Wish, begin, carry_out, undo
from simulation.world import World

SUFFIX: Final = ".exhausted"


def discard_some(world: World, count: int) -> int:
    """Begin to discard the oldest messages; return the operation's number."""
    ids = tuple(row.id for row in world.store.list_rows(RowFilter(), count))
    wish = Wish(action=Action.DISCARD, selection=Selection(rows=RowFilter(ids=ids)), actor="ann")
    operation = begin(world.store, wish, world.clock.now_ms())
    _carry_out(world, operation.id)
    return operation.id


def undo_all(world: World, number: int) -> None:
    """Undo a discard at any progress of it, and wait until all is put back."""
    undo(world.store, number, world.clock.now_ms(), "ann")
    _carry_out(world, number)


def _carry_out(world: World, number: int) -> None:
    while carry_out(world.store, number, "me", SUFFIX, world.clock.now_ms).next_at_ms:
        world.clock.advance(1_000)
