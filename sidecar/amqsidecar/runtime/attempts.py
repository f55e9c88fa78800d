"""Attempts to connect: the broker to try next, and the pause before."""

import re
from typing import Final, Protocol

import structlog

from amqsidecar.broker import BrokerDescription
from amqsidecar.diagnosis.releases import PRODUCT, release_faults, untested_release
from amqsidecar.errors import BrokerRefused, ConfigError, LinkLost
from amqsidecar.plugin import Chance

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
"""Pauses between attempts of a service to connect."""


log = structlog.get_logger()


def describe_broker(url: str, description: BrokerDescription) -> str:
    """Return product, version and address of a broker for people."""
    address = re.sub("//[^/]*@", "//", url)
    return f"{PRODUCT[description.kind]} {description.version}".rstrip() + f" at {address}"


def log_link_up(url: str, description: BrokerDescription, **facts: str) -> None:
    """Log that a link is up; warn about a release that is untested or has a known fault."""
    kind, version = description.kind.value, description.version
    log.info("link_up", url=url, broker=kind, version=version, **facts)
    if why := untested_release(description):
        log.warning("broker_version_untested", url=url, reason=f"the broker {why}")
    for fault in release_faults(description):
        log.warning("broker_version_faulty", url=url, reason=f"the broker {fault}")


class CurrentBroker(Protocol):
    """The broker that links are made to; there may be others, which take over."""

    @property
    def current(self) -> str:
        """The URL of the current one, without its password."""
        ...

    def login_outdated(self, since_s: float) -> bool:
        """Return whether a link that was up then should end, so that the next one logs in again."""
        ...


class Candidates(CurrentBroker, Protocol):
    """The brokers that take over from each other."""

    @property
    def count(self) -> int:
        """How many there are, at least 1."""
        ...

    def go_on(self) -> None:
        """Make the next one current; the first after the last."""
        ...

    def login_refused(self) -> None:
        """Take note that a broker refused us, perhaps for our log-in."""
        ...

    def has_learned(self) -> bool:
        """Return, once, whether the last link found a feature that the next one won't use."""
        ...


class Attempts:
    """Decides the next step after each failed attempt.

    A link that was up and is lost is first tried at the same broker, since a standby accepts no
    client while that one lives. All brokers are tried before the pauses grow. A link that ended for
    a cause that the next one avoids, such as a message that STOMP can't show, is replaced at once:
    there may be many such messages, and each ends one link only.
    """

    def __init__(
        self, candidates: Candidates, first_pause_s: float, max_pause_s: float, chance: Chance
    ) -> None:
        self._candidates = candidates
        self._first_pause_s = first_pause_s
        self._max_pause_s = max_pause_s
        self._chance = chance
        self._pause_s = first_pause_s
        self._failures = 0
        self._refusal: BrokerRefused | None = None
        self.has_been_up = False

    @property
    def current(self) -> str:
        """The URL of the current broker, without its password."""
        return self._candidates.current

    def login_outdated(self, since_s: float) -> bool:
        """Return whether a link that was up then should end, so that the next one logs in again."""
        return self._candidates.login_outdated(since_s)

    def up(self) -> None:
        """Take note that the link is up."""
        self.has_been_up = True
        self._failures = 0
        self._pause_s = self._first_pause_s
        self._refusal = None

    def fault(
        self, error: LinkLost | BrokerRefused | ConfigError, *, was_up: bool, is_first: bool
    ) -> tuple[str, float]:
        """Return the log line about the end of a link, and the seconds to wait.

        Args:
            error: the reason of its end.
            was_up: whether it had been up.
            is_first: whether it was the first attempt of the process.

        Raises:
            BrokerRefused: see `failed`.
            ConfigError: a file can't be used, at the first attempt.
        """
        # Why here: going on to the next broker changes the current one.
        broker = self._candidates.current
        if isinstance(error, ConfigError):
            if is_first:
                raise error
            # Why: a mounted secret is gone for a moment while it is replaced.
            return f"not connected to {broker}: {error}", self.ended()
        if isinstance(error, BrokerRefused):
            self._candidates.login_refused()
            pause_s = self.ended() if was_up else self.failed(error)
            return f"{broker} refuses: {error}", pause_s
        pause_s = self.ended() if was_up else self.failed()
        return f"the link to {broker} is lost: {error}", pause_s

    def ended(self) -> float:
        """Return how long to wait after a link that was up, or after a fault that is not its."""
        return 0.0 if self._candidates.has_learned() else self._spread()

    def failed(self, refusal: BrokerRefused | None = None) -> float:
        """Go on to the next broker and return how long to wait before, in seconds.

        Raises:
            BrokerRefused: never was a link up, and in this round over all brokers one refused us.
        """
        if refusal is None and self._candidates.has_learned():
            return 0.0
        self._failures += 1
        self._refusal = self._refusal or refusal
        self._candidates.go_on()
        if self._failures % self._candidates.count:
            return 0.0
        refusal, self._refusal = self._refusal, None
        if refusal is not None and not self.has_been_up:
            raise refusal
        return self._spread()

    def _spread(self) -> float:
        pause_s = self._pause_s * (0.5 + self._chance())
        self._pause_s = min(self._pause_s * 2, self._max_pause_s)
        return pause_s
