"""How long a host may take to accept a connection."""

import socket
from contextlib import ExitStack

import pytest

from amqsidecar.brokers.connection.broker_socket import connect
from amqsidecar.errors import LinkLost
from support.brokers.loopback import at_loopback

AN_HOUR_S = 3600


def test_a_host_that_is_gone_is_given_up_long_before_a_broker_that_is_slow() -> None:
    """A full backlog makes the kernel drop what comes, as the network does with a host's address
    after the host has gone."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(silent.getsockname())
        with pytest.raises(LinkLost, match="can't be reached: timed out"):
            connect(at_loopback(silent.getsockname()[1], connect_timeout_s=AN_HOUR_S))
