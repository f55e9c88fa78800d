"""Outcomes of members of operations, and of re-sends, for every store."""

from collections.abc import Iterable

import msgspec

from amqsidecar.ledger import MemberUpdate
from amqsidecar.model.event import AnyEvent, OutcomeProved, Received, Resent
from amqsidecar.model.operation import Member, OutcomeKind


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
