"""A receiver of webhooks over TLS on loopback, which keeps what it was sent.

with Receiver(folder) as receiver:
    receiver.url            # https://localhost:PORT/hook
    receiver.pki.ca_file    # trust this
    receiver.answers = 503  # from now on
"""

import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from support.machine.certificates import Pki


@dataclass(frozen=True)
class Received:
    """One request; header names are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """See the module.

    Attributes:
        answers: status of the next answers.
        more: headers of the next answers.
        body: of the next answers.
        missing: bytes more of it that their heads announce.
        holds: while set, an answer with missing bytes does not end.
        hangs: while set, requests are kept and not answered.
        requests: all that came, in order.
    """

    def __init__(self, folder: Path) -> None:
        self.pki = Pki(folder)
        files = self.pki.client("receiver", hosts=["localhost", "127.0.0.1"])
        self.answers = 204
        self.more: dict[str, str] = {}
        self.body, self.missing = b"", 0
        self.holds = threading.Event()
        self.hangs = threading.Event()
        self.requests: list[Received] = []
        self._ended = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append(Received(self.path, headers, body))
                if receiver.hangs.is_set():
                    receiver._ended.wait()
                    return
                self.send_response(receiver.answers)
                for name, value in receiver.more.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.body) + receiver.missing))
                self.end_headers()
                self.wfile.write(receiver.body)
                if receiver.holds.is_set():
                    receiver._ended.wait()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Say nothing: a killed client ends its connection."""

        self._server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        # Why not at once: a handshake would be made by the thread that accepts.
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self._server.server_address[1]
        self.url = f"https://localhost:{self.port}/hook"

    def events(self, kind: str = "") -> list[Any]:
        """Return the CloudEvents so far; only those of a kind if it is given."""
        found = [one.json for one in self.requests]
        return [one for one in found if kind in ("", one["data"]["kind"])]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
