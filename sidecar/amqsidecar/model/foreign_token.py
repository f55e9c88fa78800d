"""Tokens that other schedules have in the same broker."""

from collections.abc import Iterable

import msgspec


class ForeignToken(msgspec.Struct, frozen=True, kw_only=True):
    """The token of an instance that is not in the caller's schedule.

    Attributes:
        instance: its name, which ends the name of its token queue.
        sent_at_ms: when its last cycle was committed, by the clock of broker or sender; None = the
            broker does not say.
        is_held: whether a consumer is on its queue: a sidecar is at work with another schedule.
            False = its schedule has no sidecar: its waiting messages are not sent.
        rules_digest: of the rules of the sidecar that sent it; "" = unknown.
    """

    instance: str
    sent_at_ms: int | None
    is_held: bool
    rules_digest: str = ""


def orphans(tokens: Iterable[ForeignToken]) -> list[ForeignToken]:
    """Return the tokens that no sidecar holds."""
    return [one for one in tokens if not one.is_held]
