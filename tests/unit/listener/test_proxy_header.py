"""The client's address as the PROXY protocol carries it."""

import pytest

from amqsidecar.listener.server import proxy_header

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a21")


@pytest.mark.parametrize(
    ("client", "listener", "after"),
    [
        pytest.param(
            ("192.0.2.7", 50_000),
            ("127.0.0.1", 61_613),
            "11 000c c0000207 7f000001 c350 f0ad",
            id="IPv4",
        ),
        pytest.param(
            ("2001:db8::7", 50_000, 0, 0),
            ("::1", 61_613, 0, 0),
            "21 0024" + "20010db8" + "0" * 23 + "7" + "0" * 31 + "1" + "c350 f0ad",
            id="IPv6",
        ),
        pytest.param(
            ("fe80::7%eth0", 50_000, 0, 2),
            ("192.0.2.1", 61_613),
            "21 0024" + "fe80" + "0" * 27 + "7" + "0" * 20 + "ffff" + "c0000201" + "c350 f0ad",
            id="one of each, with a scope",
        ),
    ],
)
def test_the_header_has_both_ends(
    client: tuple[object, ...], listener: tuple[object, ...], after: str
) -> None:
    assert proxy_header(client, listener) == SIGNATURE + bytes.fromhex(after)
