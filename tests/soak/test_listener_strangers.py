"""Hostile clients of every kind at once, while good consumers come, work and go."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from soak.watch import MIB
from support.brokers.real import ArtemisBroker
from support.machine.certificates import Pki
from support.sidecar.listener import ListenerProcess
from support.tier import at_length
from support.wires.stomp_peer import StompPeer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(1800, otherwise=300))]

LIMIT_MIB = 384
"""The chart's."""
SOCKETS = at_length(1_000, otherwise=400)
GOOD = at_length(50, otherwise=20)
STRANGER = "127.0.0.9"
HEAD = b"CONNECT\nx:" + b"a" * (1 << 20)
BEGIN = b"BEGIN\ntransaction:%06d" + b"b" * 900_000 + b"\n\n\0"


class Attack(threading.Thread):
    """Opens sockets from one address, does its worst on each, and opens them again when cut."""

    def __init__(self, port: int, act: Callable[[socket.socket], None], over: threading.Event):
        super().__init__(daemon=True)
        self._port, self._act, self._over = port, act, over
        self._open: list[socket.socket] = []

    def run(self) -> None:
        while not self._over.is_set():
            if len(self._open) >= SOCKETS:
                self._open.pop(0).close()
            with suppress(OSError):
                made = socket.create_connection(
                    ("127.0.0.1", self._port), 5, source_address=(STRANGER, 0)
                )
                self._open.append(made)
                made.settimeout(0.2)
                self._act(made)
        for one in self._open:
            one.close()


def silent(_connected: socket.socket) -> None:
    pass


def endless_head(connected: socket.socket) -> None:
    connected.sendall(HEAD)


def half_hello(connected: socket.socket) -> None:
    connected.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + b"\x03\x03" + b"c" * 16_000)


def many_transactions(connected: socket.socket) -> None:
    connected.sendall(b"CONNECT\naccept-version:1.2\nlogin:admin\npasscode:admin\n\n\0")
    connected.recv(4096)
    for number in range(600):
        connected.sendall(BEGIN % number)


def peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 // MIB


def test_strangers_neither_kill_the_listener_nor_keep_consumers_out(tmp_path: Path) -> None:
    over = threading.Event()
    with ArtemisBroker() as broker, ListenerProcess(tmp_path, broker.ports["PORT"]) as listener:
        assert listener.process is not None
        acts = (silent, endless_head, endless_head, many_transactions)
        attacks = [Attack(listener.port, act, over) for act in acts]
        for one in attacks:
            one.start()
        try:
            for number in range(GOOD):
                with StompPeer(listener.port) as consumer:
                    consumer.send("good", {"destination-type": "ANYCAST"}, b"%d" % number)
                    consumer.subscribe("good", headers={"subscription-type": "ANYCAST"})
                    consumer.ack(consumer.receive())
                    consumer.unsubscribe()
        finally:
            over.set()
            for one in attacks:
                one.join(30)
        peak = peak_mib(listener.process.pid)
        print(f"{SOCKETS} sockets of each of {len(acts)} kinds: peak {peak} MiB")
        assert peak < LIMIT_MIB


def test_unfinished_tls_handshakes_do_not_either(tmp_path: Path) -> None:
    pki, over = Pki(tmp_path / "pki"), threading.Event()
    ours = pki.client("listener", hosts=["localhost"])
    sets = [f"listener.cert_file={ours.certificate}", f"listener.key_file={ours.key}"]
    context = ssl.create_default_context(cafile=str(pki.ca_file))
    with (
        ArtemisBroker() as broker,
        ListenerProcess(tmp_path, broker.ports["PORT"], sets) as listener,
    ):
        assert listener.process is not None
        attacks = [Attack(listener.port, act, over) for act in (half_hello, half_hello, silent)]
        for one in attacks:
            one.start()
        try:
            for _ in range(GOOD):
                with (
                    socket.create_connection(("127.0.0.1", listener.port), 30) as plain,
                    context.wrap_socket(plain, server_hostname="localhost") as good,
                ):
                    good.sendall(b"CONNECT\naccept-version:1.2\nlogin:admin\npasscode:admin\n\n\0")
                    assert good.recv(4096).startswith(b"CONNECTED")
        finally:
            over.set()
            for one in attacks:
                one.join(30)
        peak = peak_mib(listener.process.pid)
        print(f"unfinished handshakes: peak {peak} MiB")
        assert peak < LIMIT_MIB
