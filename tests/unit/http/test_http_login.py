"""Passwords over HTTP: the answers to a guesser, and that strangers lock no user out."""

import json
import sys
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from io import StringIO
from pathlib import Path
from threading import Event

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.cli.main import run_command_line
from amqsidecar.errors import ConfigError
from amqsidecar.http.access import HttpRefused, Role
from amqsidecar.http.authentication import files as access_files
from amqsidecar.http.authentication import login
from amqsidecar.http.authentication.attempts import FailedLogins
from amqsidecar.http.authentication.files import (
    NAME,
    access_file,
    is_password,
    parse_tokens,
    parse_users,
    password_proof,
    token_digest,
)
from amqsidecar.http.authentication.login import PLACES_OF_ONE, PasswordPlaces
from support.virtual_clock import VirtualClock
from support.waiting import PATIENCE_S, eventually
from support.web.site import PASSWORD, Site, running_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    # Why a clock that stands still: on a busy machine a log-in takes longer than the first wait.
    with running_site(tmp_path, clock=VirtualClock()) as running:
        yield running


def log_in(client: httpx2.Client, name: str, password: str, address: str = "") -> httpx2.Response:
    headers = {"X-Forwarded-For": address} if address else {}
    return client.post("/login", data={"name": name, "password": password}, headers=headers)


@pytest.mark.parametrize(
    ("name", "password"), [("operator", "wrong"), ("nobody", PASSWORD), ("", ""), ("operator", "")]
)
def test_a_wrong_name_or_password_says_the_same(site: Site, name: str, password: str) -> None:
    answer = log_in(site.client(), name, password)
    assert answer.status_code == 403
    assert "Name or password is wrong." in answer.text
    assert "set-cookie" not in answer.headers


def test_only_a_guesser_is_delayed(site: Site) -> None:
    anna = site.client("password", Role.OPERATOR)  # has logged in here before
    for _ in range(5):
        assert log_in(anna, "operator", "wrong", "203.0.113.7").status_code == 403
    stranger = site.client()
    for _ in range(5):
        assert log_in(stranger, "operator", "wrong").status_code == 403
    refused = log_in(stranger, "operator", PASSWORD)
    assert refused.status_code == 429
    assert 0 <= int(refused.headers["retry-after"]) <= 60
    elsewhere = site.client()
    assert log_in(elsewhere, "operator", PASSWORD, "203.0.113.8").status_code == 303


def test_guesses_from_many_addresses_are_delayed(site: Site) -> None:
    """Also from the many addresses in one /64 of IPv6."""
    operator = site.client("password", Role.OPERATOR)
    stranger = site.client()
    for number in range(5):
        assert log_in(stranger, "x", "wrong", f"2001:db8::{number}").status_code == 403
    assert log_in(stranger, "y", "wrong", "2001:db8::ffff:1:2:3").status_code == 429
    assert log_in(stranger, "y", "wrong", "2001:db8:0:1::1").status_code == 403
    for number in range(20):
        assert log_in(stranger, "operator", "wrong", f"203.0.113.{number}").status_code == 403
    refused = log_in(stranger, "operator", PASSWORD, "198.51.100.1")
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) <= 15
    assert log_in(stranger, "viewer", PASSWORD, "198.51.100.1").status_code == 303
    assert log_in(operator, "operator", PASSWORD, "198.51.100.1").status_code == 303


def test_every_cookie_is_for_tls_only_where_the_browser_came_by_it(site: Site) -> None:
    form = {"name": "operator", "password": PASSWORD}
    answer = site.client().post("/login", data=form, headers={"X-Forwarded-Proto": "https"})
    cookies = answer.headers.get_list("set-cookie")
    assert {cookie.partition("=")[0] for cookie in cookies} == {
        "__Host-amqsidecar_session",
        "__Host-amqsidecar_known",
    }
    assert all("; Secure" in cookie and "HttpOnly" in cookie for cookie in cookies)


def test_a_browser_that_was_let_in_before_does_not_wait_for_strangers(site: Site) -> None:
    anna = site.client("password", Role.OPERATOR)
    stranger = site.client()
    for _ in range(6):
        log_in(stranger, "operator", "wrong")
    assert log_in(stranger, "operator", PASSWORD).status_code == 429
    assert log_in(anna, "operator", PASSWORD).status_code == 303
    assert log_in(anna, "viewer", PASSWORD).status_code == 429


def test_the_cookie_of_a_known_browser_does_not_show_its_person(site: Site) -> None:
    known = [site.client("password").cookies["amqsidecar_known"] for _ in range(2)]
    shown = urlsafe_b64decode(known[0].partition(".")[0] + "==")
    assert b"operator" not in shown
    assert known[0] != known[1]


def test_guessers_take_no_place_of_a_known_browser_or_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty log-ins from as many addresses wait; each is as slow as the slowest password."""
    goes_on, counts = Event(), Counter[tuple[str, str]]()

    def check(password: str, proof: str) -> bool:
        if password == "slow":
            goes_on.wait(PATIENCE_S)
        return is_password(password, proof)

    def count(caller: str, result: str) -> None:
        counts[caller, result] += 1

    monkeypatch.setattr(login, "is_password", check)
    with running_site(tmp_path, count=count) as site, ThreadPoolExecutor(26) as pool:
        anna = site.client()
        assert log_in(anna, "operator", PASSWORD, "198.51.100.1").status_code == 303
        clients = [site.client() for _ in range(26)]
        guesses = [
            pool.submit(log_in, client, f"x{number}", "slow", f"203.0.113.{number}")
            for number, client in enumerate(clients)
        ]
        eventually(lambda: counts["unknown", "crowded"] == 6)
        assert log_in(site.client(), "operator", PASSWORD, "192.0.2.1").status_code == 503
        assert log_in(anna, "operator", PASSWORD, "192.0.2.1").status_code == 303
        assert log_in(site.client(), "viewer", PASSWORD, "198.51.100.1").status_code == 303
        goes_on.set()
        statuses = Counter(guess.result().status_code for guess in guesses)
    assert statuses == {403: 20, 503: 6}
    assert counts == {
        ("unknown", "accepted"): 1,
        ("known", "accepted"): 2,
        ("unknown", "crowded"): 7,
        ("unknown", "wrong"): 20,
    }


async def test_one_network_takes_a_part_of_the_places() -> None:
    places = PasswordPlaces()
    with ExitStack() as taken:
        for _ in range(PLACES_OF_ONE):
            taken.enter_context(places.taken("one"))
        with pytest.raises(HttpRefused), places.taken("one"):
            pass
        with places.taken("another"):
            pass
    with places.taken("one"):
        pass


def test_waiting_grows_and_ends() -> None:
    clock = VirtualClock()
    attempts = FailedLogins(clock)
    waits = []
    for _ in range(20):
        attempts.failed("x")
        waits.append(attempts.wait_s("x"))
    assert waits[:4] == [0, 0, 0, 0]
    assert waits[4:8] == [1, 2, 4, 8]
    assert waits[-1] == 60
    assert attempts.wait_s("y") == 0
    clock.advance(60_000)
    assert attempts.wait_s("x") == 0
    attempts.failed("x")
    assert attempts.wait_s("x") == 60
    attempts.succeeded("x")
    assert attempts.wait_s("x") == 0


def test_so_many_strangers_are_remembered_and_no_more() -> None:
    attempts = FailedLogins(VirtualClock())
    for number in range(10_005):
        attempts.failed(str(number))
    assert len(attempts._failures) == 10_000


# --- files ------------------------------------------------------------------------------------


def test_a_password_is_known_by_its_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_files, "_COST", (4, 8, 1))
    proof = password_proof("häslich £")
    assert is_password("häslich £", proof)
    assert not is_password("häslich", proof)
    assert proof != password_proof("häslich £")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("anna operator", "line 1"),
        ("\n# x\nanna boss scrypt$1", "line 3"),
        ("an/na viewer x", "line 1"),
        ("anna viewer scrypt$99$8$1$YQ==$YQ==", "line 1"),
        ("anna viewer plain", "line 1"),
    ],
)
def test_what_is_wrong_in_a_file_is_reported_by_its_line(
    tmp_path: Path, text: str, what: str
) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"http\.users_file: .*{what}"):
        access_file(path, "http.users_file", parse_users)
    with pytest.raises(ConfigError, match=r"http\.tokens_file: .*can't be used"):
        access_file(tmp_path / "none", "http.tokens_file", parse_tokens)


@given(st.text())
def test_any_file_is_read_or_refused(text: str) -> None:
    for parse in (parse_users, parse_tokens):
        with suppress(ValueError):
            assert all(NAME.fullmatch(named.name) for named in parse(text).values())


# --- commands ---------------------------------------------------------------------------------


def test_a_command_makes_a_token_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["access", "token", "ci", "--role", "operator"]) == 0
    captured = capsys.readouterr()
    token = captured.err.split()[-1]
    [(digest, user)] = parse_tokens(captured.out).items()
    assert (digest, user.name, user.role) == (token_digest(token), "ci", Role.OPERATOR)
    assert token not in captured.out
    assert run_command_line(["access", "token", "ci", "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    [(digest, user)] = parse_tokens(made["line"]).items()
    assert (digest, user.name, user.role) == (token_digest(made["token"]), "ci", Role.VIEWER)


def test_a_command_makes_the_line_of_a_user(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(f"{PASSWORD}\n"))
    assert run_command_line(["access", "user", "anna", "--role", "operator"]) == 0
    line = capsys.readouterr().out
    user = parse_users(line)["anna"]
    assert user.role == Role.OPERATOR
    assert is_password(PASSWORD, user.proof)
    assert PASSWORD not in line
    monkeypatch.setattr(sys, "stdin", StringIO("short\n"))
    assert run_command_line(["access", "user", "anna"]) == 2
    assert run_command_line(["access", "token", "an na"]) == 2
