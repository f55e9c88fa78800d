"""Static files: read once, known by their contents, cached by browsers for ever."""

from collections.abc import Mapping
from hashlib import sha256
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATH: Final = "/static/"

_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
    "txt": "text/plain; charset=utf-8",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class _File(NamedTuple):
    content: bytes
    kind: str
    version: str


class StaticFiles:
    """The files of a folder with known endings; nothing else is served."""

    def __init__(self, folder: Traversable) -> None:
        self._files: Mapping[str, _File] = {
            entry.name: _File(content, kind, sha256(content).hexdigest()[:16])
            for entry in folder.iterdir()
            if (kind := _TYPES.get(entry.name.rpartition(".")[2]))
            and (content := entry.read_bytes())
        }

    def url(self, name: str) -> str:
        """Return the URL of a file; changes with its contents.

        Raises:
            KeyError: the file doesn't exist.
        """
        return f"{PATH}{name}?v={self._files[name].version}"

    def route(self) -> Route:
        """Return the route that serves them."""
        return Route(f"{PATH}{{name}}", self._serve, name="static")

    async def _serve(self, request: Request) -> Response:
        file = self._files.get(request.path_params["name"])
        if file is None:
            return Response("404 not found\n", 404, media_type="text/plain")
        is_exact = request.query_params.get("v") == file.version
        headers = {
            "Content-Type": file.kind,
            "ETag": f'"{file.version}"',
            "Cache-Control": _FOR_EVER if is_exact else "no-cache",
        }
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers)
