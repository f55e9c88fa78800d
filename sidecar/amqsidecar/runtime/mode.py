"""Follows changes of which dead letters are left to a person, while the service runs.

A change ends the link: messages in hand go back, and the next link reads by the new options. So no
message is judged by one mode and taken by another.
"""

from collections.abc import Callable
from typing import Final

import structlog

from amqsidecar.broker import LookSession
from amqsidecar.engine.manual import PATTERNS_OPTION, Manual
from amqsidecar.errors import BrokerRefused, ConfigError, StoreError

LOOK_S: Final = 5.0
"""How often the options are read again."""

CHANGED: Final = "redelivery.mode or redelivery.manual of a sidecar on this schedule changed"

log = structlog.get_logger("amqsidecar.service")


class LiveMode:
    """The mode of a process.

    Attributes:
        now: acts; only the thread that opens links changes it, while none is open.
        has_left: messages that are taken by now may have been left to a person before.

    Args:
        now: the mode at the start.
        read: returns the mode by the options, and by those of the sidecars that share the
            schedule; raises ConfigError and StoreError. None = they never change.
    """

    def __init__(self, now: Manual, read: Callable[[], Manual] | None = None) -> None:
        self.now = now
        self._read = read
        self._wanted = self._latest = now
        self._refused: Manual | None = None
        self._has_begun = self.has_left = False
        self._refusal = ""

    def follow(self, renew: Callable[[str], None]) -> None:
        """Read the options again, and call `renew` with the reason if they have changed."""
        if self._read is None:
            return
        try:
            latest, refusal = self._read(), ""
        except (ConfigError, StoreError) as error:
            latest, refusal = self._latest, str(error)
        if refusal and refusal != self._refusal:
            log.warning("mode_not_read", reason=refusal, meaning="the mode of before goes on")
        self._refusal = refusal
        if latest != self._latest:
            self._latest = self._wanted = latest
            renew(f"{CHANGED}; left to a person: {latest}")

    def begin(self, link: LookSession) -> None:
        """Act by the latest options from now on, or as before if the link can't.

        Raises:
            BrokerRefused: the link can't, and this is the first.
        """
        # Why once: `follow` may want another one meanwhile, for the next link.
        wanted = self._wanted
        if wanted is not self._refused and (problem := wanted.problem(link)):
            if not self._has_begun:
                raise BrokerRefused(f"{PATTERNS_OPTION}: {problem}")
            log.warning("mode_refused", reason=problem, meaning="the mode of before goes on")
            self._refused = wanted
        if wanted is self._refused:
            wanted = self.now
        self.has_left |= wanted != self.now
        self.now, self._has_begun = wanted, True
