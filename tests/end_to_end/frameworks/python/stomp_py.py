"""An application on stomp.py that gives a message up until the sidecar has sent it again.

Arguments: port, destination, and `nack` or `disconnect`.
"""

import sys
import threading

import stomp
from stomp.utils import Frame


class Listener(stomp.ConnectionListener):  # type: ignore[misc]  # the library has no types
    """Fails until the sidecar has sent a message again."""

    def __init__(self, connection: stomp.Connection12, answer: str) -> None:
        self._connection = connection
        self._answer = answer
        self.has_failed = threading.Event()

    def on_message(self, frame: Frame) -> None:
        if "amqsidecarRedeliveryCount" in frame.headers:
            print("succeeded", flush=True)
            self._connection.ack(frame.headers["ack"])
            return
        print("failed", flush=True)
        if self._answer == "nack":
            self._connection.nack(frame.headers["ack"])
        else:
            self.has_failed.set()


def main(port: str, destination: str, answer: str) -> None:
    """Subscribe; after a failure that disconnects, subscribe over the next connection."""
    is_first = True
    while True:
        connection = stomp.Connection12([("127.0.0.1", int(port))])
        listener = Listener(connection, answer)
        connection.set_listener("application", listener)
        connection.connect("admin", "admin", wait=True)
        connection.subscribe(destination, id="1", ack="client-individual")
        if is_first:
            print("ready", flush=True)
            is_first = False
        listener.has_failed.wait()
        connection.disconnect()


if __name__ == "__main__":
    main(*sys.argv[1:])
