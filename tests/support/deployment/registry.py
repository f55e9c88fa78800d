"""A registry of images on a free port of 127.0.0.1, for pushes; it keeps manifests only."""

import hashlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit


class Registry(ThreadingHTTPServer):
    """Answers the calls of a push.

    Attributes:
        manifests: digest by `name:tag`, of what was pushed whole.
        documents: type and content of each manifest, by digest.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blobs: set[str] = set()
        self.manifests: dict[str, str] = {}
        self.documents: dict[str, tuple[str, bytes]] = {}

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, body = self.server.documents.get(self.path.rpartition("/")[2], ("", b""))
        self._answer(200, body, {"Content-Type": kind} if kind else {})

    def do_HEAD(self) -> None:
        digest = self.path.rpartition("/")[2]
        self._answer(200 if digest in self.server.blobs else 404)

    def do_POST(self) -> None:
        self._body()
        place = urlsplit(self.path).path.rstrip("/")
        self._answer(202, headers={"Location": f"{place}/{uuid.uuid4()}", "Range": "0-0"})

    def do_PATCH(self) -> None:
        size = len(self._body())
        self._answer(202, headers={"Location": self.path, "Range": f"0-{max(0, size - 1)}"})

    def do_PUT(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        if "/manifests/" not in parts.path:
            digest = parse_qs(parts.query)["digest"][0]
            self.server.blobs.add(digest)
        else:
            name, _, tag = parts.path.removeprefix("/v2/").partition("/manifests/")
            digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
            self.server.manifests[f"{name}:{tag}"] = digest
            self.server.documents[digest] = (self.headers["Content-Type"], body)
        self._answer(201, headers={"Docker-Content-Digest": digest, "Location": parts.path})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def running_registry() -> Iterator[Registry]:
    """Run a registry until the block ends."""
    with Registry() as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        yield registry
        registry.shutdown()
