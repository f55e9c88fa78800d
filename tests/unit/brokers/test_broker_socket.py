"""How long a host may take to accept a connection, alone and where others take over."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from amqsidecar.brokers.connection import broker_socket
from amqsidecar.brokers.connection.broker_socket import connect
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.errors import LinkLost
from support.brokers.loopback import at_loopback
from support.machine.ports import silent_port
from support.waiting import PATIENCE_S

AN_HOUR_S = 3600


@pytest.fixture
def silent() -> Iterator[int]:
    with silent_port() as port:
        yield port


@pytest.fixture
def accepting() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        yield server


@pytest.fixture
def without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only another address ends the wait for one that does not answer."""
    monkeypatch.setattr(broker_socket, "_TCP_TIMEOUT_S", AN_HOUR_S)


def endpoint(port: int, *others: int) -> Endpoint:
    places = tuple(("127.0.0.1", other) for other in others)
    return at_loopback(port, connect_timeout_s=AN_HOUR_S, others=places)


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def test_a_host_that_is_gone_is_given_up_long_before_a_broker_that_is_slow(silent: int) -> None:
    with pytest.raises(LinkLost, match="can't be reached: timed out"):
        connect(endpoint(silent))


@pytest.mark.usefixtures("without_limit")
def test_a_host_that_is_gone_is_given_up_once_another_accepts(
    silent: int, accepting: socket.socket
) -> None:
    """And nothing is sent to the other one."""
    with silent_port() as second:
        place = f"127.0.0.1:{port_of(accepting)}"
        with pytest.raises(LinkLost, match=f"it does not answer, but {place} does"):
            connect(endpoint(silent, second, port_of(accepting)))
    probe, _ = accepting.accept()
    with probe:
        assert probe.recv(1) == b""


@pytest.mark.usefixtures("without_limit")
def test_the_first_address_that_accepts_is_connected_and_others_are_left_alone(
    silent: int, accepting: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[Any] = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
        for port in (silent, port_of(accepting))
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    with connect(endpoint(silent)) as connected:
        assert connected.getpeername()[1] == port_of(accepting)


@pytest.mark.usefixtures("without_limit")
def test_a_host_that_refuses_is_given_up_though_others_do_not_answer(silent: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = port_of(server)
    with pytest.raises(LinkLost, match="Connection refused"):
        connect(endpoint(closed, silent))
