"""Answers that every part gives alike: refusals, and pages that lead on."""

from html import escape
from typing import Final
from urllib.parse import quote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from amqsidecar.http.access import HttpRefused

API: Final = "/api/"
FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"
PROBLEM_TYPE: Final = "application/problem+json"


class ProblemAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the form of RFC 9457.

    Attributes:
        status: of HTTP.
        title: the status in words.
        detail: one sentence.
    """

    status: int
    title: str
    detail: str


def show_refusal(request: Request, refused: HttpRefused) -> Response:
    """Return the answer of a refusal: a problem for programs, a line for people."""
    title = HTTPException(refused.status).detail
    # What is refused may have line ends of its own.
    what = " ".join(refused.what.split())
    if request.scope["path"].startswith(API):
        problem = ProblemAnswer(status=refused.status, title=title, detail=what)
        body, kind = msgspec.json.encode(problem), PROBLEM_TYPE
    else:
        body = f"{refused.status} {title.lower()}: {what}\n".encode()
        kind = "text/plain; charset=utf-8"
    return Response(body, refused.status, headers={**refused.headers, "Content-Type": kind})


def lead_on(url: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a page that leads to one of our pages at once.

    Why not a redirect: a browser that came by a link of another site would follow it without the
    session, which it sends only from a page of the console (SameSite=Strict).
    """
    where = escape(url, quote=True)
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>amqsidecar</title>'
        f'<meta http-equiv="refresh" content="0; url={where}"><a href="{where}">Go on</a></html>\n',
        status,
        headers,
    )


def login_url(request: Request) -> str:
    """Return the log-in page that leads back to the requested page."""
    path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
    return f"/login?next={quote(path + ('?' + query if query else ''), safe='')}"


def own_path(text: str) -> str:
    """Return a path of the console; a link to another site becomes the first page.

    Example:
        >>> own_path("//evil.example/"), own_path("/groups?x=1")
        ('/', '/groups?x=1')
    """
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_ours else "/"
