"""Bearer tokens to log in with: out of a file that others renew, or from an OpenID provider.

Artemis checks a token again while a connection is in use (`security-invalidation-interval`), so a
connection has to log in with the next one before the token expires.
"""

import json
import math
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

import structlog

from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerError, ConfigError

_MARGIN_PART: Final = 0.2
_MARGIN_MAX_S: Final = 60.0
"""A token is renewed when this much of its life is left."""
_AGAIN_S: Final = 5.0
"""Time until another attempt where there was no new one."""
_SHORTEST_S: Final = 1.0
"""A token is not looked at more often, however soon it expires."""

log = structlog.get_logger("amqsidecar.service")


class BearerToken(NamedTuple):
    """A token, and how long it counts.

    Attributes:
        text: itself.
        lifetime_s: from now; infinity = unknown.
    """

    text: str
    lifetime_s: float


def lifetime_s(token: str, now_ms: int) -> float:
    """Return how long a token counts yet, in seconds, by its `exp` (RFC 7519).

    Infinity if it is no JSON Web Token, or names no end. Its signature is the broker's business.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return math.inf
    padded = parts[1] + "=" * (-len(parts[1]) % 4)
    try:
        claims = json.loads(urlsafe_b64decode(padded))
    except (ValueError, NotBase64):
        return math.inf
    ends_s = claims.get("exp") if isinstance(claims, dict) else None
    return ends_s - now_ms / 1000 if isinstance(ends_s, int | float) else math.inf


class BearerTokens:
    """The newest token, renewed before it expires; any thread may ask.

    Args:
        obtain: gives the newest token; raises as `Credentials.secret`.
        clock: the machine's own.
        is_cheap: whether each log-in obtains it again, as out of a file; else a token whose end is
            known is used until it is due.
    """

    is_token = True

    def __init__(self, obtain: Callable[[], BearerToken], clock: Clock, *, is_cheap: bool) -> None:
        self._obtain = obtain
        self._clock = clock
        self._is_cheap = is_cheap
        self._lock = Lock()
        self._token = ""
        self._since_s = 0.0
        self._due_s = -math.inf

    def secret(self) -> str:
        with self._lock:
            is_endless = self._due_s == math.inf
            if self._is_cheap or is_endless or self._clock.monotonic_s() >= self._due_s:
                self._renew()
            return self._token

    def refused(self) -> None:
        """Obtain the token of the next log-in anew: the broker may have refused this one.

        It may have ended while the machine slept, or its provider may have revoked it.
        """
        with self._lock:
            self._due_s = -math.inf

    def outdated(self, since_s: float) -> bool:
        """Return whether there is a newer token than that of a connection; obtains it when due.

        A token that can't be renewed is used on, and said so in the log.
        """
        with self._lock:
            if self._clock.monotonic_s() >= self._due_s:
                try:
                    self._renew()
                except (ConfigError, BrokerError) as error:
                    log.warning(
                        "bearer_token_not_renewed", reason=str(error), next_attempt_s=_AGAIN_S
                    )
                    self._due_s = self._clock.monotonic_s() + _AGAIN_S
            return since_s < self._since_s

    def _renew(self) -> None:
        found = self._obtain()
        now_s = self._clock.monotonic_s()
        if found.text == self._token:
            # Why: the writer of the next one may be a moment late.
            self._due_s = max(self._due_s, now_s + _AGAIN_S)
            return
        self._token = found.text
        if self._is_cheap or found.lifetime_s < math.inf:
            # Why not others: two links would get the next token by turns, without an end.
            self._since_s = now_s
        margin_s = min(_MARGIN_MAX_S, max(0.0, found.lifetime_s) * _MARGIN_PART)
        self._due_s = now_s + max(_SHORTEST_S, found.lifetime_s - margin_s)


def token_in_file(read: Callable[[], str], clock: Clock) -> BearerTokens:
    """Return the token of a file that others replace, such as the kubelet.

    Args:
        read: gives its content; raises ConfigError.
        clock: the machine's own.
    """

    def obtain() -> BearerToken:
        text = read()
        return BearerToken(text, lifetime_s(text, clock.now_ms()))

    return BearerTokens(obtain, clock, is_cheap=True)
