"""The only broker of a service that has no list of them."""


class OneBroker:
    """The only candidate of a broker without a list."""

    count = 1
    current = "the broker"

    def go_on(self) -> None:
        """Do nothing: it stays the current one."""

    def login_refused(self) -> None:
        """Do nothing: there is no other log-in."""

    def has_learned(self) -> bool:
        """Return False: nothing is remembered from link to link."""
        return False

    def login_outdated(self, since_s: float) -> bool:
        """Return False: a log-in lasts."""
        return False
