"""Slows down password guessing without locking users out.

Counted are failures of an address, of a name from an address, and of a name wherever they come
from. A browser with an earlier log-in is counted by itself: strangers can't make it
wait. IPv6 addresses of one /64 count as one, because one client has them all.
"""

from collections import OrderedDict
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Final

from amqsidecar.clock import Clock

_FREE: Final = 5
"""Failed attempts before the next one has to wait."""

_MAX_WAIT_S: Final = 60.0

NAME: Final = "name "
"""Prefix of the keys of names. Strangers can fail in another person's name, so a name has more free
attempts, and shorter waits for browsers that are not known yet."""

_FREE_OF_NAME: Final = 20
_MAX_WAIT_OF_NAME_S: Final = 15.0
_FORGET_S: Final = 900.0
_MAX_KNOWN: Final = 10_000


_IPV6_PREFIX: Final = 64


def network_of(address: str) -> str:
    """Return the key of an address; any other text is returned unchanged.

    Example:
        >>> network_of("2001:db8::1:2:3:4"), network_of("::ffff:192.0.2.1"), network_of("192.0.2.1")
        ('2001:db8::/64', '192.0.2.1', '192.0.2.1')
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), _IPV6_PREFIX), strict=False))


class FailedLogins:
    """Failures by key, the least recent forgotten first; for one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_s(self, key: str) -> float:
        """Return for how many seconds the next attempt is refused; 0 = it is allowed."""
        count, last_s = self._failures.get(key, (0, 0.0))
        is_name = key.startswith(NAME)
        free = _FREE_OF_NAME if is_name else _FREE
        longest_s = _MAX_WAIT_OF_NAME_S if is_name else _MAX_WAIT_S
        if count < free:
            return 0.0
        passed_s = self._clock.monotonic_s() - last_s
        if passed_s >= _FORGET_S:
            return 0.0
        # Why a bound: a power of some hundreds is no float.
        return max(0.0, min(longest_s, 2.0 ** min(10, count - free)) - passed_s)

    def failed(self, key: str) -> None:
        """Count a failure."""
        now_s = self._clock.monotonic_s()
        count, last_s = self._failures.pop(key, (0, now_s))
        self._failures[key] = (1 if now_s - last_s >= _FORGET_S else count + 1, now_s)
        if len(self._failures) > _MAX_KNOWN:
            self._failures.popitem(last=False)

    def succeeded(self, key: str) -> None:
        """Forget the failures."""
        self._failures.pop(key, None)
