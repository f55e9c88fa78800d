"""The listener's memory with 1,000 AMQP connections: idle, and while no client reads."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_frames import FrameCutter, described, frame_of, read_performative
from soak.watch import MIB
from support.brokers.real import FULL_SPEED, ArtemisBroker
from support.machine.ports import free_port, is_open
from support.sidecar.process import COMMAND
from support.waiting import PATIENCE_S, eventually
from support.wires.amqp_options import Anycast

pytestmark = [pytest.mark.broker, pytest.mark.proof, pytest.mark.timeout(1200)]

CONNECTIONS = 1_000
MESSAGES, SIZE_BYTES = 2_000, 60_000
"""More than `listener.memory_mib`, each of a size that is kept in memory."""
IDLE_MAX_MIB, UNREAD_MAX_MIB = 150, 384
"""The second one is the chart's limit."""

SASL, AMQP = b"AMQP\3\1\0\0", b"AMQP\0\1\0\0"


def login() -> bytes:
    fields = [amqp.symbol("PLAIN"), b"\xa0\x0c\0admin\0admin"]
    frame = bytearray(frame_of(0, frames.SASL_INIT, fields))
    frame[5] = 1
    return SASL + bytes(frame)


def session(number: int) -> bytes:
    """Open a connection with a session and a link that has credit for ten messages."""
    uint, text = amqp.unsigned, amqp.string
    queue = [text("unread"), *[amqp.NULL] * 9, amqp.symbol("queue")]
    ends = [described(frames.SOURCE, queue), described(frames.TARGET, [])]
    window = [uint(0), uint(2000), uint(2000)]
    link = [text(f"l{number}"), uint(0), frames.TRUE, amqp.NULL, amqp.NULL, *ends]
    flow = [uint(0), uint(2000), uint(0), uint(2000), uint(0), uint(0), uint(10)]
    return b"".join(
        (
            AMQP,
            frame_of(0, frames.OPEN, [text(f"c{number}")]),
            frame_of(0, frames.BEGIN, [amqp.NULL, *window]),
            frame_of(0, frames.ATTACH, link),
            frame_of(0, frames.FLOW, flow),
        )
    )


async def consume(port: int, number: int) -> asyncio.StreamWriter:
    """Connect until the link is there; then read no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 14)
    writer.write(login())
    cutter, is_attached = FrameCutter(), False
    while not is_attached:
        data = await reader.read(1 << 12)
        assert data, f"connection {number} has ended"
        for piece in cutter.feed(data):
            if piece.raw.startswith(b"AMQP"):
                continue
            code = read_performative(piece.raw).code
            if code == SASL_OUTCOME:
                writer.write(session(number))
            is_attached = is_attached or code == frames.ATTACH
    transport: Any = writer.transport
    transport.pause_reading()
    return writer


SASL_OUTCOME = 0x44


def memory_mib(pid: int, name: str = "VmRSS") -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024 // MIB


def fill(broker: ArtemisBroker) -> None:
    url = f"amqp://127.0.0.1:{broker.ports['PORT']}"
    connection = BlockingConnection(
        url, PATIENCE_S, user="admin", password="admin", allowed_mechs="PLAIN"
    )
    sender = connection.create_sender("unread", options=Anycast())
    for _ in range(MESSAGES):
        sender.send(Message(body=b"x" * SIZE_BYTES))
    connection.close()


async def observe(port: int, broker: ArtemisBroker, rss_mib: Callable[[], int]) -> tuple[int, int]:
    writers: list[asyncio.StreamWriter] = []
    for begin in range(0, CONNECTIONS, 50):
        numbers = range(begin, begin + 50)
        writers += await asyncio.gather(*(consume(port, number) for number in numbers))
    idle = rss_mib()
    await asyncio.to_thread(fill, broker)
    before = -1
    # Why: what the broker has sent and nobody reads arrives in the listener until it is held up.
    while before != (before := rss_mib()):
        await asyncio.sleep(2)
    for writer in writers:
        writer.transport.abort()
    return idle, before


def test_a_thousand_connections_stay_below_the_limit_of_the_chart(tmp_path: Path) -> None:
    port = free_port()
    with ArtemisBroker(jvm_flags=FULL_SPEED) as broker:
        options = (
            f"listener.listen=127.0.0.1:{port}",
            f"listener.acceptor=amqp://127.0.0.1:{broker.ports['PORT']}",
            f"listener.spool_path={tmp_path}",
            "listener.http_listen=",
        )
        sets = [part for one in options for part in ("--set", one)]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen([*COMMAND, "listen", *sets], stdout=log, stderr=log)
        try:
            eventually(lambda: is_open(port), what="the listener listens")
            idle, unread = asyncio.run(observe(port, broker, lambda: memory_mib(process.pid)))
            peak = memory_mib(process.pid, "VmHWM")
        finally:
            process.kill()
            process.wait()
        print(f"{CONNECTIONS} connections: idle {idle} MiB, unread {unread} MiB, peak {peak} MiB")
        assert idle < IDLE_MAX_MIB
        assert peak < UNREAD_MAX_MIB
