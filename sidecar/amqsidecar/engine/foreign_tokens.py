"""What tokens of schedules mean that a sidecar doesn't know, in words."""

from collections.abc import Iterable
from datetime import UTC, datetime

from amqsidecar.broker import ForeignToken
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX

ORPHAN_MENDS = (
    "start a sidecar with the store that they belong to; or, if that store is gone for good or "
    "held nothing, set store.accept_orphans=true or delete these queues"
)

FOREIGN_SIDECAR = (
    "a sidecar with another schedule is at work beside this broker; where both read a dead-letter "
    "queue, each decides by its own rules"
)


def orphans(tokens: Iterable[ForeignToken]) -> list[ForeignToken]:
    """Return those that no sidecar holds."""
    return [one for one in tokens if not one.is_held]


def describe(token: ForeignToken) -> str:
    """Return the token's queue and time, for people.

    Example:
        >>> describe(ForeignToken(instance="a1", sent_at_ms=1_700_000_000_123, is_held=False))
        'amqsidecar.token.a1 (last cycle 2023-11-14 22:13:20Z)'
    """
    name = f"{TOKEN_QUEUE_PREFIX}{token.instance}"
    if token.sent_at_ms is None:
        return name
    return f"{name} (last cycle {datetime.fromtimestamp(token.sent_at_ms // 1000, UTC):%F %TZ})"


def orphan_sentence(tokens: Iterable[ForeignToken]) -> str:
    """Return what orphans mean, with the queue and age of each."""
    return (
        "the broker holds tokens of schedules that are not in this store, and no sidecar has them "
        f"in hand: {', '.join(map(describe, tokens))}; their waiting messages are not sent"
    )
