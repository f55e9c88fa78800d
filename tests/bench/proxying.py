"""What the listener costs between a STOMP client and a broker that only answers.

Beside a direct connection, and `socat` and HAProxy where they are installed; all in one run.
"""

import multiprocessing
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from support.machine.ports import free_port
from support.sidecar.process import COMMAND
from support.waiting import eventually

_CONNECT: Final = b"CONNECT\naccept-version:1.2\nlogin:bench\n\n\0"
_CONNECTED: Final = b"CONNECTED\nversion:1.2\nserver:ActiveMQ-Artemis/2.44.0\nsession:1\n\n\0"
_REQUEST: Final = b"SEND\ndestination:q\nreceipt:1\n\nbody\0"
_ANSWER: Final = b"RECEIPT\nreceipt-id:1\n\n\0"
_READ_BYTES: Final = 1 << 18
_MESSAGES_A_WRITE: Final = 64


class Passage(NamedTuple):
    """What one way to the broker does.

    Attributes:
        p50_ms, p99_ms: of a request and its answer.
        per_second: messages of 1 KiB, each acknowledged.
        mb_per_second: of messages of 1 MiB.
    """

    p50_ms: float
    p99_ms: float
    per_second: float
    mb_per_second: float


def bench_proxying(
    folder: Path, *, requests: int, messages: int, large: int, rounds: int
) -> dict[str, Passage]:
    """Return what each way does, by its name, medians of rounds that take turns."""
    with ExitStack() as stack:
        broker = stack.enter_context(_broker())
        ports = {"direct": broker}
        for name, command_of in _WAYS.items():
            port = free_port()
            command = command_of(folder, port, broker)
            if name == "listener" or shutil.which(command[0]):
                stack.enter_context(_running(command, port))
                ports[name] = port
        found: dict[str, list[Passage]] = {name: [] for name in ports}
        for _ in range(rounds):
            for name, port in ports.items():
                found[name].append(_measure(port, requests, messages, large))
    return {
        name: Passage(*(median(values) for values in zip(*of_way, strict=True)))
        for name, of_way in found.items()
    }


def _measure(port: int, requests: int, messages: int, large: int) -> Passage:
    with _connected(port) as client:
        times_ms = []
        for _ in range(requests):
            began = time.perf_counter()
            client.sendall(_REQUEST)
            _read(client, len(_ANSWER))
            times_ms.append(1e3 * (time.perf_counter() - began))
    times_ms.sort()
    return Passage(
        times_ms[len(times_ms) // 2],
        times_ms[len(times_ms) * 99 // 100],
        messages / _consume(port, messages, 1 << 10),
        large * 1.048_576 / _consume(port, large, 1 << 20),
    )


def _consume(port: int, count: int, size: int) -> float:
    """Acknowledge messages one by one; return the seconds until the broker has every ACK."""
    with _connected(port) as client:
        began = time.perf_counter()
        ask = b"SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\nbench:%d,%d\n\n\0"
        client.sendall(ask % (count, size))
        seen = 0
        while seen < count:
            came = client.recv(_READ_BYTES).count(b"\0")
            acks = (b"ACK\nid:%d\n\n\0" % number for number in range(seen, seen + came))
            client.sendall(b"".join(acks))
            seen += came
        _read(client, len(_ANSWER))
        return time.perf_counter() - began


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(_CONNECT)
        _read(client, len(_CONNECTED))
        yield client


def _read(client: socket.socket, size: int) -> None:
    while size > 0:
        data = client.recv(size)
        if not data:
            raise ConnectionError("the connection has ended")
        size -= len(data)


# The broker, a process of its own.


@contextmanager
def _broker() -> Iterator[int]:
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(port,), daemon=True)
    process.start()
    try:
        eventually(lambda: _takes_connections(port), what="the broker listens")
        yield port
    finally:
        process.terminate()
        process.join()


def _serve(port: int) -> None:
    with socket.create_server(("127.0.0.1", port), backlog=128) as server:
        while True:
            client, _ = server.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_answer, args=(client,), daemon=True).start()


def _answer(client: socket.socket) -> None:
    with client, suppress(OSError):
        while data := client.recv(_READ_BYTES):
            if data.startswith(b"CONNECT"):
                client.sendall(_CONNECTED)
            elif data.startswith(b"SUBSCRIBE"):
                count, _, size = data.partition(b"bench:")[2].partition(b"\n")[0].partition(b",")
                _deliver(client, int(count), int(size))
            else:
                client.sendall(_ANSWER)


def _deliver(client: socket.socket, count: int, size: int) -> None:
    """Send messages and take their acknowledgements beside them, then say that all are there."""

    def send() -> None:
        head = (
            b"MESSAGE\nsubscription:s\nmessage-id:%d\ndestination:q\nack:%d\ncontent-length:%d\n\n"
        )
        body = b"x" * size + b"\0"
        for begin in range(0, count, _MESSAGES_A_WRITE):
            numbers = range(begin, min(begin + _MESSAGES_A_WRITE, count))
            client.sendall(b"".join(head % (one, one, size) + body for one in numbers))

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    missing = count
    while missing > 0:
        data = client.recv(_READ_BYTES)
        if not data:
            return
        missing -= data.count(b"\0")
    sender.join()
    client.sendall(_ANSWER)


# The ways to it.


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: _takes_connections(port), what=f"{command[0]} listens")
            yield
        finally:
            process.terminate()


def _takes_connections(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _listener(folder: Path, port: int, broker: int) -> list[str]:
    options = (
        f"listener.listen=127.0.0.1:{port}",
        f"listener.acceptor=stomp://127.0.0.1:{broker}",
        f"listener.spool_path={folder}",
        "listener.http_listen=",
    )
    return [*COMMAND, "listen", *(part for one in options for part in ("--set", one))]


def _socat(_: Path, port: int, broker: int) -> list[str]:
    listen = f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork,nodelay"
    return ["socat", listen, f"TCP:127.0.0.1:{broker},nodelay"]


def _haproxy(folder: Path, port: int, broker: int) -> list[str]:
    path = folder / "haproxy.cfg"
    path.write_text(
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
        f"listen bench\n  bind 127.0.0.1:{port}\n  server broker 127.0.0.1:{broker}\n",
        encoding="utf-8",
    )
    return ["haproxy", "-db", "-f", str(path)]


_WAYS: Final[dict[str, Callable[[Path, int, int], list[str]]]] = {
    "listener": _listener,
    "socat": _socat,
    "haproxy": _haproxy,
}
