"""Headers of trusted proxies: user, source address, TLS."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from starlette.requests import HTTPConnection

from amqsidecar.http.access import Caller
from amqsidecar.http.authentication.roles import Roles

Network = IPv4Network | IPv6Network

_MAX_NAME: Final = 128


class Proxies:
    """The proxies that we trust, by address."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = tuple(networks)

    def is_trusted(self, request: HTTPConnection) -> bool:
        """Whether a request comes from one of them."""
        return request.client is not None and self.has(request.client.host)

    def client_address(self, request: HTTPConnection) -> str:
        """Return a request's source address before all trusted proxies; "" = unknown."""
        address = "" if request.client is None else request.client.host
        before = [
            part.strip()
            for line in request.headers.getlist("x-forwarded-for")
            for part in line.split(",")
        ]
        while before and self.has(address):
            address = before.pop()
        return address[:_MAX_NAME]

    def is_https(self, request: HTTPConnection) -> bool:
        """Whether the browser came by TLS, as a trusted proxy says."""
        says = request.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip()
        return says == "https" and self.is_trusted(request)

    def has(self, address: str) -> bool:
        """Whether one of them has this address."""
        try:
            found = ip_address(address)
        except ValueError:
            return False
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found in network for network in self._networks)


def clean_name(text: str) -> str:
    r"""Return a name from elsewhere as logs and events can have it.

    Example:
        >>> clean_name("anna\n")
        'anna'
    """
    return "".join(character for character in text[:_MAX_NAME] if character.isprintable()).strip()


class ProxyWay:
    """A trusted proxy names the user in headers."""

    def __init__(
        self, proxies: Proxies, roles: Roles, user_header: str, groups_header: str
    ) -> None:
        self._proxies = proxies
        self._roles = roles
        self._user_header = user_header
        self._groups_header = groups_header

    def caller(self, request: HTTPConnection) -> Caller | None:
        """Return the user that a trusted proxy names, if their groups give a role.

        Of two headers one may be the stranger's own, so two of a kind name nobody.
        """
        if not self._proxies.is_trusted(request):
            return None
        names = request.headers.getlist(self._user_header)
        name = clean_name(names[0]) if len(names) == 1 else ""
        if not name:
            return None
        lines = request.headers.getlist(self._groups_header) if self._groups_header else []
        groups = [group.strip() for line in lines for group in line.split(",")]
        role = self._roles.of_groups([group for group in groups if group])
        if role is None or len(lines) > 1:
            return None
        return Caller(name=name, role=role, way="proxy", session=f"proxy:{name}")
