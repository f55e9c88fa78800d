"""The transport of stomp.py: a thread reads, and the owner of the connection writes."""

import logging
import os
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress

from amqsidecar.brokers.connection.broker_socket import connect
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.silence import Silence
from amqsidecar.errors import RemoteProtocolError

# Why: stomp.py asks the DNS for this host's names when it is imported, which may take seconds.
os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
from stomp.exception import ConnectionClosedException
from stomp.transport import Transport
from stomp.utils import PollableQueue

# Why: it logs bodies and passwords on its lower levels, and on the others errors that we raise.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL + 1)

ANSWER_TIMEOUT_S = 60.0
"""How long a broker may take nothing, or leave a frame without its answer."""

_READ_BYTES = 1 << 18
_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
_JOIN_TIMEOUT_S = 2.0


class StompTransport(Transport):  # type: ignore[misc]
    """stomp.py's transport, with its lossy parts replaced.

    - Its own frames keep one header of a name, replace invalid UTF-8, and read large bodies in
      quadratic time: here `FrameReader` gets the bytes as they come.
    - It makes its own TLS context, and reads a TLS connection that the broker has closed again and
      again, without an end.
    - It connects several times and does not report why it failed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        take: Callable[[bytes], None],
        lost: Callable[[object], None],
        silence: Silence,
    ) -> None:
        super().__init__(
            [(endpoint.host, endpoint.port)],
            prefer_localhost=False,
            try_loopback_connect=False,
            auto_decode=False,
        )
        self._endpoint = endpoint
        self._take = take
        self._lost = lost
        self._silence = silence

    def attempt_connection(self) -> None:
        """Connect once.

        Raises:
            LinkLost, BrokerRefused: it failed.
        """
        connected = connect(self._endpoint)
        if self._endpoint.tls is not None:
            # Why: two threads must not use a TLS connection at once, so stomp.py's writes too.
            self.send_queue = PollableQueue()
            self.sel = selectors.DefaultSelector()
            self.sel.register(self.send_queue, selectors.EVENT_READ)
            self.sel.register(connected, selectors.EVENT_READ)
            self.blocking = False
            connected.setblocking(False)
        else:
            connected.settimeout(self._silence.after_s)
        self.socket = connected
        self.current_host_and_port = (self._endpoint.host, self._endpoint.port)

    # Why the name: stomp.py's loop calls a private method of its base class.
    def _BaseTransport__read_frames(self) -> None:  # noqa: N802
        while self.running:
            try:
                data = self.socket.recv(_READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except TimeoutError:
                continue
            except (OSError, AttributeError) as cause:
                self._end(cause)
            if not data:
                self._end("the broker closed the connection")
            # Why: a broker that writes two frames one by one waits with the second until the first
            # is acknowledged, which Linux puts off for 40 ms.
            if _QUICK_ACK is not None:
                with suppress(OSError):
                    self.socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
            try:
                self._take(data)
            except RemoteProtocolError as cause:
                self._end(str(cause))

    def _end(self, reason: object) -> None:
        self._lost(reason)
        raise ConnectionClosedException

    def write(self, data: bytes) -> None:
        """Send bytes; with TLS stomp.py's thread does it soon.

        Raises:
            OSError: the connection is gone, or the broker took nothing for a minute.
            LinkLost: the broker took nothing for a while, and it is known why.
        """
        if not self.running or self.socket is None:
            raise OSError("it is closed")
        if self.blocking:
            self._send_all(memoryview(data))
        else:
            self.send_queue.put(data)

    def _send_all(self, data: memoryview) -> None:
        stalled_s = 0.0
        # Why once: stomp.py's thread forgets it when the connection ends.
        connected = self.socket
        if connected is None:
            raise OSError("it is closed")
        while data:
            try:
                data = data[connected.send(data) :]
                stalled_s = 0.0
            except TimeoutError:
                stalled_s += self._silence.after_s
                if stalled_s >= ANSWER_TIMEOUT_S:
                    raise
                self._silence.ask()

    def end(self) -> None:
        """Close the socket and wait for stomp.py's thread; never raises."""
        self.running = False
        connected, thread = self.socket, self.io_thread
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_TIMEOUT_S)
        if connected is not None:
            with suppress(OSError):
                connected.close()
