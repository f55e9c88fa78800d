"""`run --check`: all errors that would end a start are reported at once, without a request."""

from pathlib import Path

import pytest

from amqsidecar.cli import main
from amqsidecar.wiring.check import FILES as FILES_OF_A_START

FILES = {"empty": "", "odd": "anna\n"}
WRONG = {
    "rules": ("policy.rules", "{plugins: [{redelivery: {no_such: 1}}]}"),
    "a gate": ("policy.gates", "[{pace: {default_entry: {messages: -1}}}]"),
    "a rule": ("policy.plugins", "[{rules: {rules: [{action: none}]}}]"),
    "a plugin of no package": ("policy.plugins", "[{lunch: {}}]"),
    "a field": ("intake.group_by", "{default_entry: {fields: [code]}}"),
    "a gate of no package": ("policy.gates", "[{lunch: {}}]"),
    "an empty password": ("broker.password_file", "empty"),
    "a certificate": ("broker.tls.ca_file", "empty"),
    "a database's password": ("store.password_file", "empty"),
    "who may come in": ("http.users_file", "odd"),
    "a short key": ("http.session_key_file", "odd"),
    "a key of copies": ("listener.copy_key_file", "odd"),
    "a secret of a webhook": (
        "webhooks.subscriptions",
        "{hook: {url: 'https://h.invalid', secret_file: /no/such}}",
    ),
    "a retention": ("redelivery.parked_keep", "{default_entry: {days: -1}}"),
    "a journal of an unknown kind": ("journal.path", "nosuch://bucket/journal"),
}


def check(folder: Path, *settings: tuple[str, str], awaits: bool = False) -> int:
    """Return the exit code of the check of these options; a value may be one of `FILES`."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments = ["run", "--check", "--set", "broker.url=amqps://a@nobody.invalid"]
    arguments += ["--await-files"] if awaits else []
    for key, value in (("store.url", f"sqlite://{folder}/no/such/schedule.db"), *settings):
        arguments += ["--set", f"{key}={folder / value if value in FILES else value}"]
    return main.run_command_line(arguments)


def test_what_is_right_is_so_without_broker_and_store(tmp_path: Path) -> None:
    gates = ("policy.gates", "[{pace: {default_entry: {messages: 5}}}]")
    rules = ("policy.plugins", "[{rules: {rules: [{action: park}]}}]")
    fields = ("intake.group_by", "{default_entry: {fields: [property:code]}}")
    assert check(tmp_path, gates, rules, fields) == main.EXIT_DONE
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("name", WRONG)
def test_what_would_end_a_start_is_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, value = WRONG[name]
    more = [("store.url", "postgresql://a@nobody.invalid/r")] if key.startswith("store.") else []
    assert check(tmp_path, *more, (key, value)) == main.EXIT_CONFIG
    assert key in capsys.readouterr().err


def test_a_warning_about_rules_is_printed_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dropping = "{plugins: [{discarding: {drop_only: orders.*}}]}"
    assert check(tmp_path, ("policy.rules", dropping)) == main.EXIT_DONE
    assert 'dropOnly="orders.*" also discards orders2' in capsys.readouterr().out


def test_a_broker_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["run", "--check"]) == main.EXIT_CONFIG
    assert "broker.url" in capsys.readouterr().err


def test_all_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, WRONG["a gate"], WRONG["a certificate"]) == main.EXIT_CONFIG
    said = capsys.readouterr().err
    assert "policy.gates" in said
    assert "broker.tls.ca_file" in said


@pytest.mark.parametrize("key", sorted(FILES_OF_A_START))
def test_a_file_that_may_come_later_is_named_and_the_rest_is_checked(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = (key, str(tmp_path / "absent"))
    assert check(tmp_path, *together(key), absent) == main.EXIT_CONFIG
    assert check(tmp_path, *together(key), absent, awaits=True) == main.EXIT_DONE
    assert f"{key}: {tmp_path / 'absent'} does not exist yet" in capsys.readouterr().out
    assert check(tmp_path, *together(key), absent, WRONG["rules"], awaits=True) == main.EXIT_CONFIG
    assert "policy.rules" in capsys.readouterr().err


def test_so_may_a_file_of_a_webhook(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, WRONG["a secret of a webhook"], awaits=True) == main.EXIT_DONE
    said = capsys.readouterr().out
    assert "webhooks.subscriptions.hook.secret_file: /no/such does not exist yet" in said


def test_a_file_that_is_there_is_checked_also_when_others_are_awaited(tmp_path: Path) -> None:
    absent = ("broker.password_file", str(tmp_path / "absent"))
    wrong = WRONG["a certificate"]
    assert check(tmp_path, absent, wrong, awaits=True) == main.EXIT_CONFIG


def together(key: str) -> list[tuple[str, str]]:
    """Return the options without which that of a file is not looked at."""
    if key == "store.password_file":
        return [("store.url", "postgresql://a@nobody.invalid/r")]
    if key == "broker.tls.key_file":
        return [("broker.tls.cert_file", "certificate")]
    if key.startswith("broker.oidc."):
        return [("broker.oidc.issuer", "https://login.invalid"), ("broker.oidc.client_id", "a")]
    if key == "http.oidc.client_secret_file":
        provider = {"issuer": "https://login.invalid", "client_id": "a"}
        more = {"public_url": "https://redelivery.invalid", "operator_groups": "[ops]"}
        return [
            *((f"http.oidc.{name}", value) for name, value in provider.items()),
            *((f"http.{name}", value) for name, value in more.items()),
        ]
    return []


@pytest.mark.parametrize(
    ("key", "rules"),
    [
        ("policy.plugins", "[{rules: {rules: [%s]}}]"),
        ("policy.rules", "{plugins: [{rules: {rules: [%s]}}]}"),
    ],
)
def test_a_rule_that_waits_for_an_event_is_refused_where_the_broker_keeps_what_waits(
    key: str, rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = (("store.url", "broker:"), ("intake.backlog", "process"))
    action = "{redeliver: {maximum_redeliveries: 3%s}}"
    assert check(tmp_path, *held, (key, rules % (action % ""))) == main.EXIT_DONE
    waits = (key, rules % (action % ", until: paid"))
    assert check(tmp_path, waits) == main.EXIT_DONE
    assert check(tmp_path, *held, waits) == main.EXIT_CONFIG
    assert "rule 1 until paid" in capsys.readouterr().err
