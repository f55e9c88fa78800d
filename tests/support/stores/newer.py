"""Operations as a newer version of the program might write them."""

from enum import StrEnum
from typing import Any

import msgspec

from amqsidecar.model.operation import Action, Operation, OperationPace, Selection
from amqsidecar.model.schedule import RowFilter


class NewerFilter(RowFilter, frozen=True, kw_only=True):
    """Conditions, and one that this version does not know."""

    priority: int | None = None


class NewerSelection(Selection, frozen=True, kw_only=True):
    """Another unknown condition."""

    headers: tuple[tuple[str, str], ...] = ()


class NewerPace(OperationPace, frozen=True, kw_only=True):
    """An unknown limit."""

    until_ms: int | None = None


class NewerAction(StrEnum):
    """An unknown action."""

    ARCHIVE = "archive"


class NewerState(StrEnum):
    """An unknown state."""

    ASKED = "asked"


class NewerOperation(Operation, frozen=True, kw_only=True):
    """An unknown guard."""

    needs_third: bool = False


def newer_operation(**fields: Any) -> Operation:
    """Return an operation that has no unknown field set but those."""
    plain = NewerOperation(
        id=0,
        action=Action.RETRY,
        selection=NewerSelection(rows=NewerFilter()),
        actor="console:anna",
        reason="the \ud800 fix is out",
        created_at_ms=5,
        until_id=0,
        pace=NewerPace(),
    )
    return msgspec.structs.replace(plain, **fields)
