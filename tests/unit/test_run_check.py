"""`run --check`: what would end a start is said, all at once, and nobody is asked."""

from pathlib import Path

import pytest

from amqsidecar.cli import main

FILES = {"empty": "", "odd": "anna\n"}
WRONG = {
    "rules": ("policy.rules", "{plugins: [{redelivery: {no_such: 1}}]}"),
    "a gate": ("policy.gates", "[{pace: {default_entry: {messages: -1}}}]"),
    "a gate of no package": ("policy.gates", "[{lunch: {}}]"),
    "an empty password": ("broker.password_file", "empty"),
    "a certificate": ("broker.tls.ca_file", "empty"),
    "a database's password": ("store.password_file", "empty"),
    "who may come in": ("http.users_file", "odd"),
    "a short key": ("http.session_key_file", "odd"),
    "a journal of an unknown kind": ("journal.path", "nosuch://bucket/journal"),
}


def check(folder: Path, *settings: tuple[str, str]) -> int:
    """Return the exit code of the check of these options; a value may be one of `FILES`."""
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    arguments = ["run", "--check", "--set", "broker.url=amqps://a@nobody.invalid"]
    for key, value in (("store.url", f"sqlite://{folder}/no/such/schedule.db"), *settings):
        arguments += ["--set", f"{key}={folder / value if value in FILES else value}"]
    return main.run_command_line(arguments)


def test_what_is_right_is_so_without_broker_and_store(tmp_path: Path) -> None:
    gates = ("policy.gates", "[{pace: {default_entry: {messages: 5}}}]")
    assert check(tmp_path, gates) == main.EXIT_DONE
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("name", WRONG)
def test_what_would_end_a_start_is_said(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, value = WRONG[name]
    more = [("store.url", "postgresql://a@nobody.invalid/r")] if key.startswith("store.") else []
    assert check(tmp_path, *more, (key, value)) == main.EXIT_CONFIG
    assert key in capsys.readouterr().err


def test_a_broker_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["run", "--check"]) == main.EXIT_CONFIG
    assert "broker.url" in capsys.readouterr().err


def test_all_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, WRONG["a gate"], WRONG["a certificate"]) == main.EXIT_CONFIG
    said = capsys.readouterr().err
    assert "policy.gates" in said
    assert "broker.tls.ca_file" in said
