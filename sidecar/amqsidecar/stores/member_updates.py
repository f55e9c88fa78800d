"""What a sighting makes of a member of an operation, whichever store keeps it."""

import msgspec

from amqsidecar.ledger import Sighting
from amqsidecar.model.operation import Member, OutcomeKind


def seen(member: Member, sighting: Sighting) -> Member | None:
    """Return an open member after it was seen; None = it tells nothing new of it.

    A death tells of a re-send, too: what tells of that may come later, or be forgotten.
    """
    if sighting.at_ms < member.changed_at_ms:
        return None
    resent_at_ms = member.resent_at_ms
    if not sighting.has_returned:
        if resent_at_ms is not None:
            return None
        if sighting.destination not in (None, member.destination):
            return msgspec.structs.replace(
                member,
                resent_at_ms=sighting.at_ms,
                outcome=OutcomeKind.UNKNOWN,
                evidence=f"it was sent to {sighting.destination}: changed by another action",
            )
        return msgspec.structs.replace(
            member, resent_at_ms=sighting.at_ms, outcome=OutcomeKind.RESENT
        )
    return msgspec.structs.replace(
        member,
        resent_at_ms=sighting.at_ms if resent_at_ms is None else resent_at_ms,
        outcome=OutcomeKind.CAME_BACK,
        evidence="it died again",
    )
