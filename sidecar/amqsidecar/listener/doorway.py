"""Places of clients that have not logged in, so that strangers can't keep consumers out; no IO.

A client has a place from its acceptance until the broker accepts its log-in. Where one address or
network has more than its share, or all places are taken, the oldest of the crowd gives way. A
client whose protocol is not read may never log in: it has one of the places for such clients.
"""

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, NamedTuple

IpNetwork = IPv4Network | IPv6Network

_NETWORK_BYTES: Final = {4: 3, 6: 8}
"""Bytes of an address that its network has."""

GRACE_S: Final = 0.25
"""Time in which no guest gives way to its own network: a log-in takes milliseconds, so a rush of
consumers gets in."""


class _Place(NamedTuple):
    address: str
    network: bytes
    is_trusted: bool
    since_s: float


class Doorway:
    """The places before the log-in, in the order taken; guests are numbers.

    Args:
        places_max: all places; at most half for one address, three quarters for one network.
        trusted: networks without these limits, such as the networks of proxies.
        unread_max: places of clients whose protocol is not known yet; half for one address.
    """

    def __init__(self, places_max: int, trusted: Sequence[IpNetwork], unread_max: int) -> None:
        self._unread_max = unread_max
        self._unread: dict[int, str] = {}
        self._places_max = places_max
        self._trusted = tuple(trusted)
        self._places: dict[int, _Place] = {}

    def __len__(self) -> int:
        """Return how many places are taken."""
        return len(self._places)

    def enter(self, guest: int, address: str, now_s: float, *, is_full: bool = False) -> int | None:
        """Take a place; return the guest that gives way, maybe this one; None = there is room."""
        place = self._place_at(address, now_s)
        crowd = self._crowd(place, len(self._places) if is_full else self._places_max)
        evicted = crowd[0] if crowd else None
        if evicted is not None:
            is_new = now_s - self._places[evicted].since_s < GRACE_S
            if is_new and not self._goes_before(place, self._places[evicted]):
                return guest
            self.leave(evicted)
        self._places[guest] = place
        return evicted

    def leave(self, guest: int) -> None:
        """Give a place up; safe to call twice."""
        self._places.pop(guest, None)
        self._unread.pop(guest, None)

    def pass_unread(self, guest: int) -> bool:
        """Exchange a place for one of unread clients; return whether there is one."""
        place = self._places.pop(guest)
        if not place.is_trusted:
            same = sum(one == place.address for one in self._unread.values())
            if len(self._unread) >= self._unread_max or same >= max(1, self._unread_max // 2):
                return False
            self._unread[guest] = place.address
        return True

    def _goes_before(self, place: _Place, other: _Place) -> bool:
        """Return whether a guest at a place gets another guest's at once, for fair shares."""
        if other.is_trusted or place.is_trusted:
            return not other.is_trusted
        taken = Counter(one.network for one in self._places.values() if not one.is_trusted)
        return taken[place.network] < taken[other.network]

    def _place_at(self, address: str, now_s: float) -> _Place:
        found = ip_address(address.partition("%")[0])
        if found.version == 6 and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        network = found.packed[: _NETWORK_BYTES[found.version]]
        is_trusted = any(found.version == one.version and found in one for one in self._trusted)
        return _Place(str(found), network, is_trusted, now_s)

    def _crowd(self, place: _Place, places_max: int) -> list[int]:
        """Return the candidates to give way for a place, the oldest first; [] = none."""
        of = self._places
        if not place.is_trusted:
            same = [one for one in of if of[one].address == place.address]
            if len(same) >= max(1, self._places_max // 2):
                return same
            near = [one for one in of if of[one].network == place.network]
            if len(near) >= max(1, self._places_max * 3 // 4):
                return near
        if len(of) < places_max:
            return []
        strangers = Counter(one.network for one in of.values() if not one.is_trusted)
        if not strangers:
            return list(of)
        busiest, _ = strangers.most_common(1)[0]
        return [one for one in of if of[one].network == busiest and not of[one].is_trusted]
