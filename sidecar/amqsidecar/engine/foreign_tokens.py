"""Explanations of tokens of unknown schedules."""

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


DIFFERENT_RULES = (
    "it decides by other rules than this one (the digest of its rules is {theirs}, here {ours}): "
    "give both the same policy, or give each its own dead-letter queues (intake.queues)"
)


def foreign_sentence(token: ForeignToken, rules_digest: str) -> str:
    """Return the effect of another running sidecar on one with these rules, as a sentence."""
    if not has_other_rules(token, rules_digest):
        return FOREIGN_SIDECAR
    differs = DIFFERENT_RULES.format(theirs=token.rules_digest, ours=rules_digest)
    return f"{FOREIGN_SIDECAR}; {differs}"


def has_other_rules(token: ForeignToken, rules_digest: str) -> bool:
    """Whether a sidecar at work is known to decide by other rules."""
    return token.is_held and token.rules_digest not in ("", rules_digest)


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
    """Return the meaning of orphaned tokens, with the queue and age of each."""
    return (
        "the broker holds tokens of schedules that are not in this store, and no sidecar has them "
        f"in hand: {', '.join(map(describe, tokens))}; their waiting messages are not sent"
    )
