"""Previews that may become operations: a caller's own, each once, for a while."""

import secrets
from typing import Any, Final, NamedTuple

from amqsidecar.clock import Clock

KEPT_S: Final = 900.0
"""An older preview can't be acted on."""

_PER_CALLER_MAX: Final = 50
_CALLERS_MAX: Final = 200


class PreviewedOperation(NamedTuple):
    """An operation that a preview was shown of: all of the request but its reason."""

    request: dict[str, Any]
    expected: int


class _Kept(NamedTuple):
    until_s: float
    operation: PreviewedOperation


class Previews:
    """Keeps them in memory; for one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, dict[str, _Kept]] = {}

    def keep(self, caller: str, operation: PreviewedOperation) -> str:
        """Keep an operation; returns the token that takes it, the only way to it."""
        token, kept = secrets.token_urlsafe(16), self._kept.pop(caller, {})
        kept[token] = _Kept(self._clock.monotonic_s() + KEPT_S, operation)
        while len(kept) > _PER_CALLER_MAX:
            del kept[next(iter(kept))]
        self._kept[caller] = kept
        while len(self._kept) > _CALLERS_MAX:
            del self._kept[next(iter(self._kept))]
        return token

    def take(self, caller: str, token: str, expected: int) -> PreviewedOperation | None:
        """Return an operation of this caller, once; None = none has this token and count.

        A wrong count does not use it up.
        """
        kept = self._kept.get(caller, {})
        found = kept.get(token)
        if found is None or found.operation.expected != expected:
            return None
        del kept[token]
        return found.operation if self._clock.monotonic_s() < found.until_s else None
