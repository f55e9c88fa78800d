"""How a STOMP connection says goodbye."""

import socket
import threading

from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.clock import SystemClock
from support.brokers.loopback import at_loopback


def test_a_goodbye_asks_for_no_receipt_and_waits_for_the_end() -> None:
    """A receipt for it locks Artemis 2.44 up when the connection fails at that moment."""
    heard: list[bytes] = []

    def listen() -> None:
        peer, _ = server.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(b"CONNECTED\nversion:1.2\n\n\0")
            heard.append(peer.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=listen)
        thread.start()
        endpoint = at_loopback(server.getsockname()[1])
        connection = StompConnection(endpoint, SystemClock())
        connection.disconnect(30.0)
        thread.join()
    assert heard == [b"DISCONNECT\n\n\0"]
