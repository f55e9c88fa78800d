"""Test runs beside each other are not given the same ports."""

import os
import socket
import sys
from pathlib import Path

from support.machine.ports import free_port, is_open
from support.machine.processes import run_program


def given_elsewhere(port: int) -> str:
    """Make another process ask for a port that can only be this one; return its last line."""
    script = (
        "from support.machine import ports\n"
        f"ports.LOWEST = ports.HIGHEST = {port}\n"
        "print(ports.free_port())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = run_program([sys.executable, "-c", script], env=environment)
    return (done.stdout + done.stderr).splitlines()[-1]


def test_a_port_is_ours_also_without_a_listener() -> None:
    """As it is while a broker starts, or is down before it comes back."""
    port = free_port()
    assert not is_open(port)
    assert "no free port" in given_elsewhere(port)


def test_a_listener_on_any_address_keeps_the_port() -> None:
    """A broker on all addresses is met on 127.0.0.1, too."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert "no free port" in given_elsewhere(port)
    assert given_elsewhere(port) == str(port)
