"""What `run` serves, and what it does not start with."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.config.load import check_start, load_config
from amqsidecar.engine.crash_points import no_crash
from amqsidecar.errors import ConfigError
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.wiring.parts import ProcessParts
from support.web.client import web_client

EVERYWHERE = "http.listen=0.0.0.0:0"


def statuses(folder: Path, sets: Sequence[str]) -> dict[str, int]:
    """Start with these options, and return how some places answer."""
    path = folder / "schedule.db"
    store = SqliteStore(path, clock=SystemClock())
    store.open()
    store.close()
    config = load_config(None, ["http.listen=127.0.0.1:0", f"store.url=sqlite://{path}", *sets], {})
    parts = ProcessParts(config, SystemClock(), SystemClock(), no_crash, needs_token=True)
    with (
        parts.serving() as address,
        web_client(f"http://{address}") as client,
    ):
        places = ("/", "/login", "/api/v1/status", "/metrics", "/healthz")
        return {place: client.get(place).status_code for place in places}


def test_on_loopback_everything_is_open(tmp_path: Path) -> None:
    found = statuses(tmp_path, [])
    assert found == {
        "/": 200,
        "/login": 404,
        "/api/v1/status": 200,
        "/metrics": 200,
        "/healthz": 200,
    }


def test_beyond_loopback_nothing_starts_without_a_way_in(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"http\.listen: is beyond loopback") as refused:
        statuses(tmp_path, [EVERYWHERE])
    assert len(refused.value.problems) == 1
    file = tmp_path / "sidecar.yaml"
    file.write_text("http:\n  listen: 0.0.0.0:1\n")
    problems = check_start(load_config(file, [], {}))  # what `doctor` reports
    assert [problem.where for problem in problems] == [f"{file}:2"]
    for address in ("[::]:0", "192.0.2.1:0"):
        with pytest.raises(ConfigError, match="is beyond loopback"):
            statuses(tmp_path, [f"http.listen={address}"])


def test_beyond_loopback_each_authentication_method_admits_its_users(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ci viewer sha256:" + "0" * 64 + "\n")
    found = statuses(tmp_path, [EVERYWHERE, f"http.tokens_file={tokens}"])
    assert found == {
        "/": 401,
        "/login": 404,
        "/api/v1/status": 401,
        "/metrics": 200,
        "/healthz": 200,
    }


def test_metrics_and_health_alone_need_no_way_in(tmp_path: Path) -> None:
    found = statuses(tmp_path, [EVERYWHERE, "http.console=false"])
    assert {found[place] for place in ("/metrics", "/healthz")} == {200}
    assert {found[place] for place in ("/", "/login", "/api/v1/status")} == {404}


def test_a_sidecar_whose_broker_keeps_the_schedule_has_none_to_show(tmp_path: Path) -> None:
    found = statuses(tmp_path, ["store.url=broker:", "intake.backlog=process"])
    assert (found["/"], found["/api/v1/status"], found["/metrics"]) == (404, 404, 200)


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        (["http.tokens_file=/nowhere/tokens"], "http.tokens_file: .* can't be used"),
        (["http.users_file=/nowhere/users"], "http.users_file: .* can't be used"),
        (["http.session_key_file={short}"], "fewer than 32 characters"),
        (["http.proxy_user_header=X-User", "http.viewer_groups=*"], "trusted_proxies: is empty"),
        (["http.proxy_user_header=X-User", "http.trusted_proxies=::1"], "no user could log in"),
        (["http.trusted_proxies=10.0.0.1/8"], "has host bits set"),
        (["http.oidc.issuer=https://op.example", "http.viewer_groups=*"], "oidc.client_id"),
        (["http.oidc.issuer=https://op.example", "http.oidc.client_id=x"], "http.public_url"),
        (["http.oidc.issuer=op.example"], "expected a URL"),
        (["http.oidc.issuer=http://op.example"], "is without TLS"),
        (["http.public_url=https://u:p@x/"], "without user"),
        (["http.masked=("], "no regular expression"),
        (["http.bodies=all"], "operators"),
    ],
)
def test_what_can_t_work_is_reported_at_the_start(
    tmp_path: Path, sets: Sequence[str], what: str
) -> None:
    short = tmp_path / "short"
    short.write_text("too short\n")
    with pytest.raises(ConfigError, match=what):
        statuses(tmp_path, [text.format(short=short) for text in sets])
