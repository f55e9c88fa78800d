"""Log-in by an OpenID provider that really runs: who it vouches for comes in, and nobody else."""

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from joserfc.jwk import RSAKey

from amqsidecar.http.access_settings import OidcSettings
from support.openid_provider import CLIENT_ID, CLIENT_SECRET, Provider, running_provider
from support.ports import free_port
from support.web_site import Site, running_site

TO = "/groups?destination=queue%3A%2F%2Forders"


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def provider(shared: Provider) -> Provider:
    shared.claims, shared.sign_with = {}, None
    return shared


@pytest.fixture(scope="module")
def site(shared: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    port = free_port()
    settings = OidcSettings(
        issuer=shared.issuer,
        client_id=CLIENT_ID,
        client_secret=lambda: CLIENT_SECRET,
        scopes=("openid", "profile"),
        name_claim="preferred_username",
        groups_claim="groups",
    )
    public_url = f"http://127.0.0.1:{port}"
    folder = tmp_path_factory.mktemp("site")
    with running_site(folder, oidc=settings, public_url=public_url, port=port) as running:
        yield running


def come_back(client: httpx2.Client) -> httpx2.Response:
    """Go to the provider and follow it back."""
    away = client.get("/login/oidc", params={"next": TO})
    assert away.status_code == 302
    assert "code_challenge=" in away.headers["location"]
    back = httpx2.get(away.headers["location"])
    return client.get(back.headers["location"])


@pytest.mark.usefixtures("provider")
def test_who_the_provider_vouches_for_comes_in(site: Site) -> None:
    client = site.client()
    answer = come_back(client)
    assert answer.status_code == 200
    to = re.search(r'url=([^"]*)', answer.text)
    assert to is not None
    assert to[1] == TO
    cookies = "\n".join(answer.headers.get_list("set-cookie"))
    assert "amqsidecar_session=" in cookies
    assert "SameSite=strict" in cookies
    session = client.get("/api/v1/session").json()
    assert (session["actor"], session["role"], session["way"]) == ("api:olga", "operator", "oidc")
    path = "/api/v1/operations/1/pause"
    assert client.post(path).status_code == 403
    assert client.post(path, headers=site.csrf(client)).status_code == 404


@pytest.mark.parametrize(
    ("groups", "role"), [(["viewers", "x"], "viewer"), ("operators", "operator")]
)
def test_groups_give_the_role(site: Site, provider: Provider, groups: Any, role: str) -> None:
    provider.claims["groups"] = groups
    client = site.client()
    come_back(client)
    assert client.get("/api/v1/session").json()["role"] == role


@pytest.mark.parametrize(
    "claims",
    [
        {"groups": []},
        {"groups": ["staff"]},
        {"groups": None},
        {"groups": {"operators": True}},
        {"iss": "https://evil.example"},
        {"aud": "another client"},
        {"aud": ["another client"]},
        {"nonce": "of another log-in"},
        {"exp": int(time.time()) - 3600},
        {"sub": None},
    ],
)
def test_a_token_that_is_not_for_us_lets_nobody_in(
    site: Site, provider: Provider, claims: dict[str, Any]
) -> None:
    provider.claims.update(claims)
    client = site.client()
    answer = come_back(client)
    assert answer.status_code == 403
    assert "Traceback" not in answer.text
    assert client.get("/api/v1/status").status_code == 401


def test_a_token_that_another_has_signed_lets_nobody_in(site: Site, provider: Provider) -> None:
    provider.sign_with = RSAKey.generate_key(2048, {"kid": "one"})
    client = site.client()
    assert come_back(client).status_code == 403
    assert client.get("/api/v1/status").status_code == 401


def test_a_log_in_ends_in_the_browser_that_began_it(site: Site) -> None:
    """A stranger can't make somebody log in as the stranger."""
    away = site.client().get("/login/oidc")
    back = httpx2.get(away.headers["location"])
    assert site.client().get(back.headers["location"]).status_code == 403
    other = site.client()
    other.get("/login/oidc")
    assert other.get(back.headers["location"]).status_code == 403


def test_a_provider_that_is_away_is_said_so(site: Site, provider: Provider) -> None:
    client = site.client()
    location = client.get("/login/oidc").headers["location"]
    assert location.startswith(provider.issuer)
    answer = client.get("/login/oidc/back?error=access_denied&state=x")
    assert answer.status_code == 403
