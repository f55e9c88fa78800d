"""The credentials of a user: the contract, and a password."""

from collections.abc import Callable
from typing import Final, Protocol


class Credentials(Protocol):
    """Gives the password or token of a user; shared by all connections to a broker.

    Attributes:
        is_token: whether it is a bearer token, so that the mechanisms of SASL for tokens fit.
    """

    @property
    def is_token(self) -> bool:
        """Whether it is a bearer token."""

    def secret(self) -> str | None:
        """Return the present secret; asked at each log-in; None = none.

        Raises:
            ConfigError: its file can't be read or is empty.
            LinkLost: the provider of tokens can't be reached.
            BrokerRefused: the provider gives us none.
        """

    def outdated(self, since_s: float) -> bool:
        """Return whether a connection of that log-in should log in again, with a newer secret.

        Args:
            since_s: when it had logged in, by the monotonic clock.
        """


class Password:
    """A password, or none; a connection keeps the one that it logged in with."""

    is_token = False

    def __init__(self, read: Callable[[], str | None]) -> None:
        self._read = read

    def secret(self) -> str | None:
        return self._read()

    def outdated(self, since_s: float) -> bool:
        """Return False: brokers check a password at the log-in only."""
        return False


def fixed_password(text: str | None) -> Password:
    """Return a password that never changes; None = there is none."""
    return Password(lambda: text)


NO_PASSWORD: Final = fixed_password(None)
