"""What tests do with a session of any link: make and hold its token, receive, send back."""

import time
import uuid
from typing import Any, Final, Protocol, TypeVar

from amqsidecar.broker import Delivery, Resend, TakeSession
from amqsidecar.model.destination import queue
from support.waiting import PATIENCE_S, eventually

T = TypeVar("T", bound=TakeSession)

IDLE_S: Final = 5.0
"""Agreed silence of a link that stays idle: a busy machine stops a broker for a part of it."""


class Waits(Protocol):
    """A link, or a connection."""

    def wait(self, seconds: float, /) -> object: ...


def stay_idle(link: Waits) -> None:
    """Use a link for nothing for longer than `IDLE_S`: only heart-beats keep it."""
    ends_s = time.monotonic() + 1.5 * IDLE_S
    while time.monotonic() < ends_s:
        link.wait(0.5)


def with_token(session: T, number: int = 0) -> T:
    """Return the session, which now holds the first token of its instance."""
    session.token.create(number)
    assert session.token.take(PATIENCE_S) == number
    return session


def receive(session: TakeSession, count: int, within_s: float = PATIENCE_S) -> list[Delivery]:
    """Return the next dead letters, exactly this many."""
    found: list[Delivery] = []

    def are_all() -> bool:
        session.wait(0.2)
        found.extend(session.receive(count - len(found)))
        return len(found) == count

    eventually(are_all, within_s=within_s, what=f"{count} deliveries")
    return found


def move(session: TakeSession, count: int, number: int = 1) -> list[Delivery]:
    """Send the next dead letters back to where they died, in the cycle of that number."""
    deliveries = receive(session, count)
    session.commit_cycle(deliveries, [resend(one) for one in deliveries], number)
    return deliveries


def resend(delivery: Delivery, count: int | None = None, **changes: Any) -> Resend:
    """Return the send that brings a dead letter back to its origin, counted once more.

    Args:
        changes: other values of the send.
    """
    provenance = delivery.provenance
    if "destination" not in changes:
        assert provenance.origin is not None, provenance.problem
        changes["destination"] = provenance.origin
    changes.setdefault(
        "redelivery_id", provenance.redelivery_id or provenance.message_id or uuid.uuid4().hex
    )
    changes.setdefault("encoding", delivery.encoding)
    next_count = provenance.redelivery_count + 1 if count is None else count
    return resend_of(delivery.message, redelivery_count=next_count, **changes)


def resend_of(message: bytes, **changes: Any) -> Resend:
    """Return the first redelivery of an encoded message to the queue `orders`.

    Args:
        changes: other values of the send.
    """
    values: dict[str, Any] = {
        "destination": queue("orders"),
        "message": message,
        "is_final": False,
        "redelivery_id": "r-1",
        "redelivery_count": 1,
        "redelivery_delay_ms": 5000,
    }
    return Resend(**(values | changes))
