"""Explanations of tokens of unknown schedules."""

from collections.abc import Iterable
from datetime import UTC, datetime

from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX
from amqsidecar.model.foreign_token import ForeignToken

ORPHAN_MENDS = (
    "start a sidecar with their store; or, if that store is lost or empty, set "
    "store.accept_orphans=true or delete these queues"
)

FOREIGN_SIDECAR = (
    "another sidecar with its own schedule uses this broker; if both read the same dead-letter "
    "queue, each decides by its own rules"
)


DIFFERENT_RULES = (
    "it uses other rules (digest {theirs}, here {ours}): give both the same policy, or separate "
    "dead-letter queues (intake.queues)"
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
        "the broker holds tokens of other schedules that no sidecar works on: "
        f"{', '.join(map(describe, tokens))}; their waiting messages are not sent"
    )
