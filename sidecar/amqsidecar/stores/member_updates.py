"""Outcomes of members of operations and of re-sends, and rows that they leave to others."""

from collections.abc import Iterable
from typing import Final

import msgspec

from amqsidecar.ledger import MemberUpdate
from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    Edited,
    Held,
    OutcomeProved,
    Received,
    Redirected,
    Released,
    Resent,
    Restored,
    Retried,
)
from amqsidecar.model.operation import Action, Member, Operation, OutcomeKind


def updated(member: Member, update: MemberUpdate) -> Member | None:
    """Return an open member after an update; None = no change.

    A death proves a re-send, too: the event of the re-send may come later, or be forgotten.
    """
    if update.at_ms < member.changed_at_ms:
        return None
    resent_at_ms = member.resent_at_ms
    if not update.has_returned:
        if resent_at_ms is not None:
            return None
        if update.destination not in (None, member.destination):
            return msgspec.structs.replace(
                member,
                resent_at_ms=update.at_ms,
                outcome=OutcomeKind.UNKNOWN,
                evidence=f"it was sent to {update.destination}: changed by another action",
            )
        return msgspec.structs.replace(
            member, resent_at_ms=update.at_ms, outcome=OutcomeKind.RESENT
        )
    return msgspec.structs.replace(
        member,
        resent_at_ms=update.at_ms if resent_at_ms is None else resent_at_ms,
        outcome=OutcomeKind.CAME_BACK,
        evidence="it died again",
    )


def new_outcomes(known: Iterable[AnyEvent], proved: Iterable[OutcomeProved]) -> list[OutcomeProved]:
    """Return the outcomes of re-sends after which nothing is known of their messages.

    Args:
        known: all events of these messages in the store, in order.
        proved: at most one outcome of each message.
    """
    latest: dict[str, AnyEvent] = {}
    for event in known:
        if isinstance(event, Received | Resent | OutcomeProved):
            latest[event.redelivery_id] = event
    return [
        one
        for one in proved
        if isinstance(sent := latest.get(one.redelivery_id), Resent)
        and sent.redelivery_count == one.redelivery_count
    ]


_ACTIONS: Final = {
    Retried: Action.RETRY,
    Redirected: Action.REDIRECT,
    Cancelled: Action.CANCEL,
    Held: Action.HOLD,
    Released: Action.RELEASE,
}


def overtaken_rows(operation: Operation, events: Iterable[AnyEvent]) -> set[int]:
    """Return the rows that people changed otherwise, by the events after `since`.

    Changes by operations that already ran when this one began don't count.
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
