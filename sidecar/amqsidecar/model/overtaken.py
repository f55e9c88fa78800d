"""Rows that an operation leaves to others: the action that began last wins."""

from collections.abc import Iterable
from typing import Final

from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    Edited,
    Held,
    Redirected,
    Released,
    Restored,
    Retried,
)
from amqsidecar.model.operation import Action, Operation

_ACTIONS: Final = {
    Retried: Action.RETRY,
    Redirected: Action.REDIRECT,
    Cancelled: Action.CANCEL,
    Held: Action.HOLD,
    Released: Action.RELEASE,
}


def overtaken_rows(operation: Operation, events: Iterable[AnyEvent]) -> set[int]:
    """Return numbers of rows that people did something else to, by what happened `since`.

    What operations do that ran when this one began does not count.
    """
    return {event.id for event in events if _overtakes(operation, event)}


def _overtakes(operation: Operation, event: AnyEvent) -> bool:
    match event:
        case Edited() | Restored():
            return True
        case Held(actor=None):  # By the sidecar: backlog.
            return False
        case Retried() | Redirected() | Cancelled() | Held() | Released():
            return (_ACTIONS[type(event)], event.actor) not in operation.beside
        case _:
            return False
