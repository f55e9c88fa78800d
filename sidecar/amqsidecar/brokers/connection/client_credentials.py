"""Tokens of an OpenID provider by the flow of client credentials (RFC 6749 section 4.4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oauth2.rfc7523 import PrivateKeyJWT
from joserfc.jwk import RSAKey

from amqsidecar.brokers.connection.bearer_tokens import BearerToken, BearerTokens, lifetime_s
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost

_TIMEOUT_S: Final = 10
_NO_KEY: Final = (
    "broker.oidc.client_key_file: the file holds no private RSA key in PEM without a passphrase"
)


@dataclass(frozen=True)
class OidcClient:
    """A client that a provider knows.

    Attributes:
        issuer: URL of the provider.
        client_id: its name there.
        proof: reads its secret, or its private key in PEM; raises ConfigError.
        is_key: whether the proof is a key, which signs an assertion (`private_key_jwt`, RFC 7523).
        scopes: that it asks for.
        audience: whom it asks a token for; "" = the provider's default.
    """

    issuer: str
    client_id: str
    proof: Callable[[], str]
    is_key: bool
    scopes: Sequence[str]
    audience: str


def tokens_of_provider(client: OidcClient, clock: Clock) -> BearerTokens:
    """Return the tokens of a client, each used until it is nearly expired."""

    def obtain() -> BearerToken:
        return _token(client, clock)

    return BearerTokens(obtain, clock, is_cheap=False)


def _token(client: OidcClient, clock: Clock) -> BearerToken:
    """Return a new token.

    Raises:
        ConfigError: the secret or the key can't be read.
        LinkLost: the provider can't be reached, or fails.
        BrokerRefused: it knows neither us nor the scopes, or is another provider; the key is none.
    """
    with OAuth2Client(
        client.client_id,
        _private_key(client.proof()) if client.is_key else client.proof(),
        token_endpoint_auth_method="private_key_jwt" if client.is_key else "client_secret_basic",
        scope=" ".join(client.scopes) or None,
        timeout=_TIMEOUT_S,
    ) as session:
        try:
            endpoint = _token_endpoint(session, client.issuer)
            session.register_client_auth_method(PrivateKeyJWT(endpoint))
            answer = session.fetch_token(
                endpoint,
                grant_type="client_credentials",
                **({"audience": client.audience} if client.audience else {}),
            )
        except AuthlibBaseError as error:
            raise BrokerRefused(
                f"{client.issuer} gives {client.client_id} no token ({error.error}): check "
                "broker.oidc, and that the client may use the flow of client credentials"
            ) from error
        except (httpx2.HTTPError, ValueError) as error:
            raise _unreachable(client.issuer, error) from error
    text, lasts_s = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(text, str) or not text:
        raise BrokerRefused(f"{client.issuer} answers without an access token")
    if isinstance(lasts_s, int | float):
        return BearerToken(text, float(lasts_s))
    return BearerToken(text, lifetime_s(text, clock.now_ms()))


def _private_key(text: str) -> RSAKey:
    """Return the key that signs.

    Raises:
        BrokerRefused: it is none, or a passphrase protects it.
    """
    try:
        key = RSAKey.import_key(text)
    except (ValueError, TypeError) as error:
        raise BrokerRefused(f"{_NO_KEY}: {error}") from error
    if not key.is_private:
        raise BrokerRefused(f"{_NO_KEY}: it is a public one")
    return key


def _token_endpoint(session: Any, issuer: str) -> str:
    """Return where a provider gives tokens, by its own metadata (OpenID Connect Discovery)."""
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    answer = session.request("GET", url, withhold_token=True)
    answer.raise_for_status()
    metadata = answer.json()
    found = metadata if isinstance(metadata, dict) else {}
    endpoint = found.get("token_endpoint")
    if found.get("issuer") != issuer or not isinstance(endpoint, str):
        raise BrokerRefused(
            f"{issuer} describes itself as {found.get('issuer')!r:.200}: write that into "
            "broker.oidc.issuer if it is the provider that you mean"
        )
    # Why: the secret goes there. An issuer without TLS is allowed on this machine only.
    if urlsplit(issuer).scheme == "https" and urlsplit(endpoint).scheme != "https":
        raise BrokerRefused(f"{issuer} names {endpoint:.200}, which is without TLS")
    return endpoint


def _unreachable(issuer: str, error: Exception) -> LinkLost:
    return LinkLost(f"the OpenID provider {issuer} gives no token now: {error}")
