"""Sockets through the listener: ends, resets, slow readers, a broker that is not there, the end."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
import trustme

from amqsidecar.formats.stomp_frame import encode
from amqsidecar.listener import relay
from amqsidecar.listener.server import Listener, ListenerSettings
from amqsidecar.listener.session import GiveUp, NackOutcome, OnFailure
from amqsidecar.telemetry.listener_metrics import ListenerMetrics
from support.waiting import PATIENCE_S

CONNECT = b"CONNECT\naccept-version:1.2\n\n\0"
CONNECTED = encode("CONNECTED", [(b"version", b"1.2"), (b"server", b"ActiveMQ-Artemis/2.44.0")])
SUBSCRIBE = b"SUBSCRIBE\nid:s\ndestination:q\nack:client-individual\n\n\0"
MESSAGE = b"MESSAGE\nsubscription:s\nmessage-id:1,2\ndestination:q\nack:1,2\n\nbody\0"
NACK, ACK = b"NACK\nid:1,2\n\n\0", b"ACK\nid:1,2\n\n\0"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no broker that does not answer."""
    monkeypatch.setattr(relay, "RESCUE_S", PATIENCE_S)


class Counts(ListenerMetrics):
    """What a listener counted."""

    def __init__(self) -> None:
        super().__init__()
        self.open = self.from_client = self.from_broker = 0
        self.refusals = self.failures = 0
        self.outcomes: list[NackOutcome] = []
        self.memory_bytes: Callable[[], int] = lambda: 0

    def connections(self, count: int, without_login: int) -> None:
        self.open, self.without_login = count, without_login

    def refused(self) -> None:
        self.refusals += 1

    def unreached(self) -> None:
        self.failures += 1

    def relayed(self, from_client: int, from_broker: int, duration_s: float) -> None:
        self.from_client += from_client
        self.from_broker += from_broker
        assert duration_s >= 0

    def settled(self, how: str, outcome: str, messages: int) -> None:
        assert how is GiveUp.NACK
        self.outcomes += [NackOutcome(outcome)] * messages

    def unkept(self) -> None:
        raise AssertionError("there is room")

    def watch(self, memory_bytes: Callable[[], int], spooled_bytes: Callable[[], int]) -> None:
        self.memory_bytes = memory_bytes
        assert spooled_bytes() == 0


class Between:
    """A listener, and a broker of which the test plays the part."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.stop = asyncio.Event()
        self.port = 0
        self._came: asyncio.Queue[Pair] = asyncio.Queue()
        self._running: asyncio.Task[None] | None = None

    async def start(
        self, folder: Path, *, has_broker: bool, connections_max: int, authority: trustme.CA | None
    ) -> None:
        async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._came.put((reader, writer))

        server = client = None
        if authority is not None:
            server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert("127.0.0.1").configure_cert(server)
            client = ssl.create_default_context()
            authority.configure_trust(client)
        self.tls = client
        self._broker = await asyncio.start_server(came, "127.0.0.1", 0, limit=1 << 16, ssl=server)
        broker_port = self._broker.sockets[0].getsockname()[1]
        if not has_broker:
            self._broker.close()
        settings = ListenerSettings(
            host="127.0.0.1",
            port=0,
            broker_host="127.0.0.1",
            broker_port=broker_port,
            on_failure=OnFailure.CLOSED,
            connections_max=connections_max,
            logins_max=connections_max,
            login_s=PATIENCE_S,
            connect_timeout_s=PATIENCE_S,
            drain_s=PATIENCE_S,
            memory_bytes_max=1 << 20,
            spool_bytes_max=1 << 20,
            spool_folder=folder,
            tls=None if server is None else lambda: server,
            broker_tls=None if client is None else lambda: client,
        )
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.listener = Listener(settings, self.counts)
        serving = self.listener.serve(self.stop, lambda _host, port: started.set_result(port))
        self._running = asyncio.ensure_future(serving)
        self.port = await started

    async def connect(self) -> tuple[Pair, Pair]:
        """Return a client's and the broker's end of one connection."""
        client = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        return client, await self._came.get()

    async def subscribed(self) -> tuple[Pair, Pair]:
        """Return both ends of a connection whose client has a message in hand."""
        client, broker = await self.connect()
        client[1].write(CONNECT + SUBSCRIBE)
        assert await broker[0].readexactly(len(CONNECT + SUBSCRIBE)) == CONNECT + SUBSCRIBE
        broker[1].write(CONNECTED + MESSAGE)
        assert await client[0].readexactly(len(CONNECTED + MESSAGE)) == CONNECTED + MESSAGE
        return client, broker

    async def finish(self) -> None:
        self.stop.set()
        assert self._running is not None
        await self._running
        self._broker.close()
        while not self._came.empty():
            (await self._came.get())[1].close()
        # Why: transports close in the loop's next turns.
        for _ in range(5):
            await asyncio.sleep(0)
        assert self.counts.open == 0
        assert self.counts.memory_bytes() == 0


@asynccontextmanager
async def between(
    folder: Path,
    *,
    has_broker: bool = True,
    connections_max: int = 10,
    authority: trustme.CA | None = None,
) -> AsyncIterator[Between]:
    made = Between()
    await made.start(
        folder, has_broker=has_broker, connections_max=connections_max, authority=authority
    )
    async with asyncio.timeout(PATIENCE_S):
        yield made
        await made.finish()


def confirm(broker: Pair, sent: bytes) -> None:
    """Answer the SEND of a copy by its receipt."""
    receipt = sent.rpartition(b"receipt:")[2].partition(b"\n")[0]
    broker[1].write(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt)


def close(*pairs: Pair) -> None:
    for _, writer in pairs:
        writer.close()


def is_reset(pair: Pair) -> "asyncio.Future[bool]":
    async def read() -> bool:
        try:
            return not await pair[0].read(1) and False
        except ConnectionResetError:
            return True

    return asyncio.ensure_future(read())


async def write_until_held_up(writer: asyncio.StreamWriter, piece: bytes) -> int:
    """Write until nothing more goes out; return the number of written bytes, at most a gigabyte.

    Why several looks: a busy machine gives us no processor for as long as some take.
    """
    sent = 0
    while sent < 1 << 30:
        writer.write(piece)
        sent += len(piece)
        for _ in range(10):
            with suppress(TimeoutError):
                await asyncio.wait_for(writer.drain(), 0.05)
                break
        else:
            break
    return sent


def reset(pair: Pair) -> None:
    connected = pair[1].get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair[1].transport.abort()


async def test_half_an_end_is_passed_on_and_the_other_half_goes_on(tmp_path: Path) -> None:
    async with between(tmp_path) as both:
        client, broker = await both.connect()
        client[1].write(CONNECT + b"SEND\ndestin")
        client[1].write_eof()
        assert await broker[0].read() == CONNECT + b"SEND\ndestin", "also half a head"
        broker[1].write(CONNECTED)
        broker[1].close()
        assert await client[0].read() == CONNECTED
        close(client)


@pytest.mark.parametrize("from_client", [True, False])
async def test_a_connection_that_both_sides_have_ended_is_forgotten(
    tmp_path: Path, from_client: bool
) -> None:
    """At once, not when the listener ends: else `connections_max` would be reached."""
    async with between(tmp_path, connections_max=1) as both:
        for _ in range(3):
            client, broker = await both.connect()
            client[1].write(CONNECT)
            await broker[0].readexactly(len(CONNECT))
            here, there = (client, broker) if from_client else (broker, client)
            close(here)
            assert await there[0].read() == b""
            close(there)
            while both.counts.open:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("from_client", [True, False])
async def test_a_reset_is_passed_on(tmp_path: Path, from_client: bool) -> None:
    async with between(tmp_path) as both:
        client, broker = await both.connect()
        here, there = (client, broker) if from_client else (broker, client)
        here[1].write(CONNECT)
        await here[1].drain()
        if from_client:
            await there[0].readexactly(len(CONNECT))
        reset(here)
        if not from_client:
            with suppress(asyncio.IncompleteReadError, ConnectionResetError):
                await there[0].readexactly(len(CONNECT))
        assert await is_reset(there)
        close(client, broker)


async def test_a_broker_that_is_not_there_looks_so(tmp_path: Path) -> None:
    async with between(tmp_path, has_broker=False) as both:
        client = await asyncio.open_connection("127.0.0.1", both.port)
        assert await is_reset(client)
        assert both.counts.failures == 1
        close(client)


async def test_beyond_the_limit_a_client_is_refused(tmp_path: Path) -> None:
    async with between(tmp_path, connections_max=1) as both:
        first = await both.connect()
        second = await asyncio.open_connection("127.0.0.1", both.port)
        assert await is_reset(second)
        assert both.counts.refusals == 1
        close(second, *first)


async def test_it_says_which_places_are_short_and_when_nobody_gives_way(tmp_path: Path) -> None:
    async with between(tmp_path, connections_max=1) as both:
        assert (both.listener.problem, both.listener.shortage) == ("", "")
        client, broker = await both.connect()
        logging_in = "1 of 1 connections without a log-in are taken"
        assert logging_in in both.listener.shortage
        assert both.listener.problem == "", "it gives way to the next client"
        client[1].write(CONNECT)
        broker[1].write(CONNECTED)
        await client[0].readexactly(len(CONNECTED))
        assert both.listener.problem == "all 1 connections are taken"
        assert both.listener.shortage == "1 of 1 connections are taken"
        close(client, broker)


async def test_a_client_counts_until_it_has_all_that_is_still_to_send(tmp_path: Path) -> None:
    """Else one that reads nothing, and is ended again and again, would fill the memory."""
    async with between(tmp_path) as both:
        client, broker = await both.connect()
        client[1].write(CONNECT)
        cast("asyncio.Transport", client[1].transport).pause_reading()
        await broker[0].readexactly(len(CONNECT))
        broker[1].write(CONNECTED)
        await write_until_held_up(broker[1], MESSAGE.replace(b"body", b"x" * 65_536))
        client[1].write(b"NACK\nid:" + b"n" * (2 << 20))
        with suppress(ConnectionResetError):
            while await broker[0].read(1 << 16):
                pass
        assert both.counts.open == 1
        reset(client)
        while both.counts.open:
            await asyncio.sleep(0.01)
        close(broker)


@pytest.mark.parametrize("from_client", [True, False])
async def test_a_side_that_does_not_read_stops_the_other(tmp_path: Path, from_client: bool) -> None:
    """What is on its way stays bounded; nothing of it is lost once it is read."""
    async with between(tmp_path) as both:
        client, broker = await both.connect()
        here, there = (client, broker) if from_client else (broker, client)
        client[1].write(CONNECT)
        await broker[0].readexactly(len(CONNECT))
        size = 64 << 20
        head = b"SEND\ncontent-length:%d\n\n" % size
        here[1].write(head)
        piece = b"x" * (1 << 16)
        sent = await write_until_held_up(here[1], piece)
        held_up_at = both.counts.from_client + both.counts.from_broker
        assert sent < size, "it was held up"
        received = len(await there[0].readexactly(len(head)))
        rest = (sent, asyncio.ensure_future(_read(there[0], size)))
        for _ in range(sent, size, len(piece)):
            here[1].write(piece)
            await here[1].drain()
        here[1].write(b"\0")
        assert await rest[1] == size
        assert await there[0].readexactly(1) == b"\0"
        assert held_up_at < 32 << 20
        assert received == len(head)
        close(client, broker)


async def _read(reader: asyncio.StreamReader, size: int) -> int:
    read = 0
    while read < size:
        data = await reader.read(min(1 << 16, size - read))
        assert data
        read += len(data)
    return read


@pytest.mark.parametrize("last", [b"", b"DISCONNECT\n\n\0"])
async def test_a_client_that_leaves_after_its_nack_has_given_up(
    tmp_path: Path, last: bytes
) -> None:
    """The broker's end stays until the copy is safe and the original acknowledged."""
    async with between(tmp_path) as both:
        client, broker = await both.subscribed()
        client[1].write(NACK + last)
        client[1].close()
        sent = await broker[0].readuntil(b"\nbody\0")
        confirm(broker, sent)
        assert await broker[0].read() == ACK + last
        assert both.counts.outcomes == [NackOutcome.INTERCEPTED]
        close(broker)


async def test_a_client_that_is_reset_while_it_reads_nothing_has_given_up(tmp_path: Path) -> None:
    """What it had not read is thrown away, so that the receipt behind it arrives."""
    async with between(tmp_path) as both:
        client, broker = await both.subscribed()
        cast("asyncio.Transport", client[1].transport).pause_reading()
        body = b"x" * (32 << 20)
        broker[1].write(b"MESSAGE\ncontent-length:%d\n\n%b\0" % (len(body), body))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker[1].drain(), 0.5)
        client[1].write(NACK)
        sent = await broker[0].readuntil(b"\nbody\0")
        reset(client)
        confirm(broker, sent)
        assert await broker[0].read() == ACK
        assert both.counts.outcomes == [NackOutcome.INTERCEPTED]
        close(broker)


async def test_the_end_of_the_listener_waits_for_what_was_given_up(tmp_path: Path) -> None:
    async with between(tmp_path) as both:
        client, broker = await both.subscribed()
        idle = await both.connect()
        client[1].write(NACK)
        sent = await broker[0].readuntil(b"\nbody\0")
        both.stop.set()
        assert await idle[0][0].read() == b"", "who has nothing open is let go"
        confirm(broker, sent)
        assert await broker[0].read() == ACK
        close(client, broker, *idle)


async def test_tls_on_both_sides(tmp_path: Path) -> None:
    """Interception as without; an end of one side ends the other, since TLS has no half of one."""
    async with between(tmp_path, authority=trustme.CA()) as both:
        client, broker = await both.subscribed()
        client[1].write(NACK)
        sent = await broker[0].readuntil(b"\nbody\0")
        confirm(broker, sent)
        assert await broker[0].readexactly(len(ACK)) == ACK
        broker[1].close()
        assert await client[0].read() == b""
        close(client)
