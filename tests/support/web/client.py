"""HTTP clients of tests: they wait as long as a test does, on a busy machine too."""

import ssl

import httpx2

from support.waiting import PATIENCE_S

_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Why: to read the authorities of the system takes longer than a test."""


def web_client(base_url: str = "") -> httpx2.Client:
    """Return a client for loopback addresses, which come after `base_url`."""
    # Why: the server ends a silent connection, perhaps while a stalled client writes to it.
    limits = httpx2.Limits(keepalive_expiry=1)
    return httpx2.Client(base_url=base_url, timeout=PATIENCE_S, verify=_NO_TLS, limits=limits)


def web_client_of(token: str) -> httpx2.AsyncClient:
    """Return an asynchronous client for loopback addresses, with a token; "" = without."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S, verify=_NO_TLS)


def fetch(url: str) -> httpx2.Response:
    """Return the answer to a GET by a client of its own."""
    with web_client() as client:
        return client.get(url)
