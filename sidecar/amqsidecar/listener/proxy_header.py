"""The header of the PROXY protocol, version 2, which carries a client's address; no IO.

Source: HAProxy, proxy-protocol.txt, section 2.2.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_PROXY: Final = b"\x21"
_TCP4, _TCP6 = b"\x11", b"\x21"


def proxy_header(client: Sequence[Any], listener: Sequence[Any]) -> bytes:
    """Return the header for a connection.

    Args:
        client: address and port of the client, first of what its socket says.
        listener: the same of the end that it connected to.
    """
    ends = [ip_address(str(end[0]).partition("%")[0]) for end in (client, listener)]
    ports = int(client[1]).to_bytes(2) + int(listener[1]).to_bytes(2)
    if all(isinstance(end, IPv4Address) for end in ends):
        addresses = b"".join(end.packed for end in ends)
        kind = _TCP4
    else:
        addresses = b"".join(_as_ipv6(end).packed for end in ends)
        kind = _TCP6
    content = addresses + ports
    return _SIGNATURE + _PROXY + kind + len(content).to_bytes(2) + content


def _as_ipv6(address: IPv4Address | IPv6Address) -> IPv6Address:
    is_short = isinstance(address, IPv4Address)
    return IPv6Address(f"::ffff:{address}") if is_short else IPv6Address(address)
