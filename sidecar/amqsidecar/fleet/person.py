"""The credentials that a request passes on to sidecars: the person's own, nothing stronger."""

from hashlib import sha256

from starlette.requests import Request

from amqsidecar.fleet.gather import Person
from amqsidecar.http.access import Access
from amqsidecar.http.authentication.session import COOKIE
from amqsidecar.http.authentication.settings import AccessSettings
from amqsidecar.http.guard import caller_of


def person_of(request: Request, access: Access, settings: AccessSettings) -> Person:
    """Return the caller that the guard has passed, with the proof that they gave.

    A token is passed on as it is; the headers of a trusted proxy, to sidecars that trust this
    console as their proxy; the cookie of a session, to sidecars with the same session key.
    """
    caller = caller_of(request)
    headers = {}
    match caller.way:
        case "token":
            headers["Authorization"] = request.headers["authorization"]
        case "proxy":
            names = (settings.proxy_user_header, settings.proxy_groups_header)
            headers = {name: request.headers[name] for name in names if name in request.headers}
        case "password" | "oidc":
            cookie = request.cookies.get(f"__Host-{COOKIE}") or request.cookies.get(COOKIE, "")
            # Why both: a sidecar that browsers reach by TLS knows it by the longer name.
            headers["Cookie"] = f"{COOKIE}={cookie}; __Host-{COOKIE}={cookie}"
            # Why: a page could lead a browser to the provider again; this is none.
            headers["Sec-Fetch-Mode"] = "cors"
    # A renewed cookie is of the same session.
    proof = caller.session if "Cookie" in headers else sorted(headers.items())
    who = repr((caller.way, caller.name, caller.role, proof))
    if address := access.address_of(request):
        headers["X-Forwarded-For"] = address
    return Person(sha256(who.encode()).hexdigest(), headers)
