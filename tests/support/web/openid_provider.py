"""A small OpenID provider on loopback: code flow with PKCE, ID tokens, client credentials."""

import json
import secrets
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import httpx2
from joserfc import jwt
from joserfc.errors import BadSignatureError
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from amqsidecar.http.serving import HttpServer
from support.web.client import fetch

CLIENT_ID, CLIENT_SECRET = "amqsidecar", "a-secret-of-the-client"
AUDIENCE = "broker"
"""Whom the access tokens are for."""


@dataclass
class Provider:
    """Logs every user in, with the claims of the test.

    Attributes:
        issuer: its URL.
        claims: of the next ID tokens, over those that are right.
        sign_with: another key than the one that it shows; None = the right one.
        algorithm: that it signs by; `none` = it doesn't.
        metadata: what it says of itself, over what is right.
        back: more that it gives browsers on their way back.
        more_keys: that it shows beside its own.
        client_key: public key of a client that authenticates by a signature; None = by secret.
        lifetime_s: of the access tokens that clients get by their credentials.
        is_down: whether it gives no tokens for now.
        access_tokens: those, the newest last.
    """

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    sign_with: Any = None
    algorithm: str = "RS256"
    metadata: dict[str, Any] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)
    more_keys: list[dict[str, Any]] = field(default_factory=list)
    client_key: RSAKey | None = None
    lifetime_s: int = 300
    is_down: bool = False
    access_tokens: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/openid-configuration", self._discovery),
            Route("/keys", self._keys),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
        ]

    async def _discovery(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "id_token_signing_alg_values_supported": ["RS256"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                **self.metadata,
            }
        )

    async def _keys(self, _request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False), *self.more_keys]})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["client_id"] == CLIENT_ID
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe()
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"], **self.back}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}")

    async def _token(self, request: Request) -> Response:
        form = await request.form()
        if form.get("grant_type") == "client_credentials":
            return self._client_token(request.headers.get("authorization", ""), form)
        asked = self.codes.pop(str(form["code"]), None)
        digest = sha256(str(form["code_verifier"]).encode()).digest()
        challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
        basic = request.headers.get("authorization", "")
        if asked is None or asked["code_challenge"] != challenge or not basic.startswith("Basic "):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "007",
            "iat": now,
            "exp": now + 60,
            "nonce": asked["nonce"],
            "preferred_username": "olga",
            "groups": ["operators"],
            **self.claims,
        }
        header = {"alg": self.algorithm, "kid": "one"}
        if self.algorithm == "none":
            parts = [urlsafe_b64encode(json.dumps(one).encode()) for one in (header, claims)]
            token = ".".join(part.rstrip(b"=").decode() for part in parts) + "."
        else:
            key = self.sign_with or self.key
            token = jwt.encode(header, claims, key, algorithms=[self.algorithm])
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": token})

    def _client_token(self, authorization: str, form: FormData) -> Response:
        if self.is_down:
            return JSONResponse({"error": "server_error"}, 503)
        right = b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {right}" and not self._is_signed(form):
            return JSONResponse({"error": "invalid_client"}, 401)
        text = self.access_token(aud=form.get("audience", AUDIENCE))
        answer = {"access_token": text, "token_type": "Bearer", "expires_in": self.lifetime_s}
        return JSONResponse(answer)

    def _is_signed(self, form: FormData) -> bool:
        """Whether the client has authenticated by its key (RFC 7523, section 3)."""
        assertion = form.get("client_assertion")
        if self.client_key is None or not isinstance(assertion, str):
            return False
        try:
            claims = jwt.decode(assertion, self.client_key, algorithms=["RS256"]).claims
        except BadSignatureError:
            return False
        assert form["client_assertion_type"] == (
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        )
        assert claims["exp"] > time.time()
        return (claims["iss"], claims["sub"], claims["aud"]) == (
            CLIENT_ID,
            CLIENT_ID,
            f"{self.issuer}/token",
        )

    def access_token(self, **claims: Any) -> str:
        """Return a token for a broker, with the claims of the test over those that are right."""
        now = int(time.time())
        right = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "sidecar",
            "azp": CLIENT_ID,
            "iat": now,
            "exp": now + self.lifetime_s,
            "jti": secrets.token_urlsafe(),
            "roles": ["amq"],
        }
        header = {"alg": "RS256", "kid": "one"}
        text = jwt.encode(header, {**right, **claims}, self.key, algorithms=["RS256"])
        self.access_tokens.append(text)
        return text


def come_back(client: httpx2.Client, to: str = "/") -> httpx2.Response:
    """Let a browser log in: it goes to the provider, which leads it back."""
    away = client.get("/login/oidc", params={"next": to})
    assert away.status_code == 302
    assert "code_challenge=" in away.headers["location"]
    back = fetch(away.headers["location"])
    return client.get(back.headers["location"])


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Serve a provider while the block runs."""
    provider = Provider()
    server = HttpServer(Starlette(routes=provider.routes()))
    host, port = server.start("127.0.0.1", 0)
    provider.issuer = f"http://{host}:{port}"
    try:
        yield provider
    finally:
        server.stop()
