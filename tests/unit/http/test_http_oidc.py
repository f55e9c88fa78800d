"""Log-in by an OpenID provider that really runs: it admits its users, and no others."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any, Self

import pytest
from joserfc.jwk import OctKey, RSAKey

from amqsidecar.http.authentication import session as access_session
from amqsidecar.http.authentication.settings import OidcSettings
from support.machine.ports import free_port
from support.web.client import fetch
from support.web.openid_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    Provider,
    come_back,
    running_provider,
)
from support.web.site import Site, running_site

TO = "/groups?destination=queue%3A%2F%2Forders"


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def provider(shared: Provider) -> Provider:
    shared.claims, shared.metadata, shared.back, shared.more_keys = {}, {}, {}, []
    shared.sign_with, shared.algorithm = None, "RS256"
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


@pytest.mark.usefixtures("provider")
def test_a_user_of_the_provider_is_admitted(site: Site) -> None:
    client = site.client()
    answer = come_back(client, TO)
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
def test_a_token_for_another_audience_admits_no_user(
    site: Site, provider: Provider, claims: dict[str, Any]
) -> None:
    provider.claims.update(claims)
    client = site.client()
    answer = come_back(client)
    assert answer.status_code == 403
    assert "Traceback" not in answer.text
    assert client.get("/api/v1/status").status_code == 401


def test_a_token_signed_by_another_key_admits_no_user(site: Site, provider: Provider) -> None:
    provider.sign_with = RSAKey.generate_key(2048, {"kid": "one"})
    client = site.client()
    assert come_back(client).status_code == 403
    assert client.get("/api/v1/status").status_code == 401


@pytest.mark.parametrize("algorithm", ["HS256", "none"])
def test_only_an_asymmetric_signature_admits_a_user(
    site: Site, provider: Provider, algorithm: str
) -> None:
    """Even where the provider itself names the other ones, and shows the secret as a key."""
    secret = OctKey.import_key(CLIENT_SECRET * 3, {"kid": "one"})
    provider.metadata["id_token_signing_alg_values_supported"] = [algorithm, "RS256"]
    provider.algorithm, provider.sign_with = algorithm, secret
    provider.more_keys = [{**secret.as_dict(private=True), "kid": "one"}]
    client = site.client()
    assert come_back(client).status_code == 403
    assert client.get("/api/v1/status").status_code == 401


def test_a_provider_that_signs_by_no_such_algorithm_is_not_gone_to(
    site: Site, provider: Provider
) -> None:
    provider.metadata["id_token_signing_alg_values_supported"] = ["HS256"]
    assert site.client().get("/login/oidc").status_code == 503


def test_a_provider_that_calls_itself_otherwise_is_not_gone_to(
    site: Site, provider: Provider
) -> None:
    provider.metadata["issuer"] = "https://evil.example"
    answer = site.client().get("/login/oidc")
    assert answer.status_code == 503
    assert "not the one" in answer.text


def test_a_provider_that_changes_its_name_admits_no_user(site: Site, provider: Provider) -> None:
    client = site.client()
    away = client.get("/login/oidc")
    back = fetch(away.headers["location"])
    provider.metadata["issuer"] = "https://evil.example"
    assert client.get(back.headers["location"]).status_code == 403


NAMES_ITSELF = {"authorization_response_iss_parameter_supported": True}


@pytest.mark.parametrize(
    ("metadata", "issuer", "is_admitted"),
    [
        ({}, None, True),
        ({}, "right", True),
        ({}, "https://evil.example", False),
        (NAMES_ITSELF, "right", True),
        (NAMES_ITSELF, None, False),
        (NAMES_ITSELF, "", False),
    ],
)
def test_a_browser_comes_back_from_the_provider_that_it_went_to(
    site: Site,
    provider: Provider,
    metadata: dict[str, Any],
    issuer: str | None,
    is_admitted: bool,
) -> None:
    """RFC 9207: an answer of another provider is not taken for one of this provider."""
    provider.metadata = metadata
    if issuer is not None:
        provider.back = {"iss": provider.issuer if issuer == "right" else issuer}
    assert (come_back(site.client()).status_code == 200) == is_admitted


def test_a_log_in_is_answered_once(site: Site, provider: Provider) -> None:
    client = site.client()
    away = client.get("/login/oidc")
    cookie = client.cookies.get("amqsidecar_login")
    asked = {part.partition("=")[0]: part for part in away.headers["location"].split("&")}
    back = fetch(away.headers["location"])
    assert client.get(back.headers["location"]).status_code == 200
    again = site.client()
    assert cookie is not None
    again.cookies.set("amqsidecar_login", cookie)
    code = fetch(away.headers["location"]).headers["location"]
    assert asked["state"].partition("=")[2] in code
    assert again.get(code).status_code == 403
    assert again.get("/api/v1/status").status_code == 401


def test_a_role_that_was_withdrawn_ends(
    site: Site, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = site.client()
    come_back(client)
    page = {"Sec-Fetch-Mode": "navigate"}
    script = {"Sec-Fetch-Mode": "cors"}
    now = datetime.now(UTC)

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(now.timestamp() + passed_s, tz)

    monkeypatch.setattr(access_session, "datetime", Later)
    csrf = site.csrf(client) if (passed_s := 100) else {}
    assert client.get("/groups", headers=page).status_code == 200
    passed_s = 400
    assert client.get("/groups", headers=page).status_code == 401
    assert client.get("/api/v1/status", headers=script).status_code == 200
    assert client.post("/api/v1/operations/1/pause", headers=csrf | script).status_code == 404

    leads = client.get("/login", params={"next": TO})
    assert leads.status_code == 303
    assert leads.headers["location"].startswith("/login/oidc?next=%2Fgroups")
    come_back(client)
    monkeypatch.undo()
    assert client.post("/api/v1/operations/1/pause", headers=csrf).status_code == 404

    monkeypatch.setattr(access_session, "datetime", Later)
    passed_s = 400 + 700
    assert client.get("/api/v1/status", headers=script).status_code == 401
    provider.claims["groups"] = []
    assert come_back(client).status_code == 403
    refused = client.get("/groups", headers=page | {"HX-Request": "true"})
    assert refused.status_code == 401
    assert refused.headers["hx-refresh"] == "true"


def test_a_log_in_ends_in_the_browser_that_began_it(site: Site) -> None:
    """A stranger can't make somebody log in as the stranger."""
    away = site.client().get("/login/oidc")
    back = fetch(away.headers["location"])
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
