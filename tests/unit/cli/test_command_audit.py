"""Commands in the audit: one line an act, by the operating system's user."""

import io
import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.cli.main import run_command_line
from amqsidecar.clock import SystemClock
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import taken_row
from support.web.console_store import keep

CAUSE = "java.net.ConnectException: refused"


@pytest.fixture(autouse=True)
def named_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "mallory")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock(), instance_name="test")
    keep(store, [taken_row(number, due_at_ms=4_000_000_000_000) for number in (1, 2, 3)])
    store.close()
    return tmp_path


def run(folder: Path, *command: str) -> int:
    where = (f"store.url=sqlite://{folder}/schedule.db", f"log.audit={folder}/audit.jsonl")
    return run_command_line([*command, *(part for one in where for part in ("--set", one))])


def lines_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "audit.jsonl"
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def test_a_command_is_audited_with_user_selection_counts_and_reason(folder: Path) -> None:
    assert run(folder, "hold", "--destination", "orders", "--yes", "--reason", "mend \x1b") == 0
    begun, done = lines_of(folder)
    me = pwd.getpwuid(os.getuid()).pw_name
    assert (begun["user.name"], begun["user.id"]) == (me, str(os.getuid()))
    assert (begun["amqsidecar.way"], done["amqsidecar.way"]) == ("uid", "rule")
    assert done["amqsidecar.asked_by"] == f"cli:{me}"
    for line in (begun, done):
        assert line["event.outcome"] == "success"
        assert line["amqsidecar.operation"] == 1
        assert line["amqsidecar.selection"]["destination"] == "queue://orders"
        assert "source.ip" not in line
    assert (begun["event.action"], begun["event.reason"]) == ("hold", "mend \x1b")
    assert (begun["amqsidecar.count"], begun["amqsidecar.after"]["state"]) == (3, "running")
    assert (done["event.action"], done["amqsidecar.count"]) == ("operation-done", 3)
    assert done["amqsidecar.before"] == {"state": "running"}
    assert done["amqsidecar.after"]["state"] == "done"


@pytest.mark.parametrize(
    ("command", "action"),
    [
        (("show", "1", "--save", "{}/message"), "download-message"),
        (("backup", "{}/copy.db"), "backup"),
        (("journal", "export", "--path", "{}", "--output-file", "{}/events"), "export"),
    ],
)
def test_reading_messages_is_audited(folder: Path, command: tuple[str, ...], action: str) -> None:
    assert run(folder, *(part.format(folder) for part in command)) == 0
    (line,) = lines_of(folder)
    assert (line["event.action"], line["event.type"]) == (action, ["access"])


def test_lines_that_grant_access_are_audited_without_their_secrets(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    where = ("--set", f"log.audit={folder}/audit.jsonl")
    for command in (("access", "token", "ci"), ("access", "user", "ann", "--role", "operator")):
        assert run_command_line([*command, *where]) == 0
    token, user = lines_of(folder)
    assert (token["event.action"], user["event.action"]) == ("make-token", "make-user")
    assert token["amqsidecar.after"] == {"name": "ci", "role": "viewer"}
    assert user["amqsidecar.after"] == {"name": "ann", "role": "operator"}
    assert all(line["amqsidecar.way"] == "uid" for line in (token, user))
    secret = capsys.readouterr().err.split()[-1]
    assert secret not in str(token)
    assert "horse" not in str(user)


@pytest.mark.parametrize("target", ["stderr", "stdout"])
def test_where_the_audit_is_a_stream_a_command_writes_to_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    where = (f"store.url=sqlite://{folder}/schedule.db", f"log.audit={target}")
    sets = [part for one in where for part in ("--set", one)]
    assert run_command_line(["hold", "1", "--output", "json", *sets]) == 0
    said = capsys.readouterr()
    json.loads(said.out)
    lines = [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]
    assert [line["event.action"] for line in lines] == ["hold", "operation-done"]


def test_in_the_container_of_the_service_it_writes_to_that_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqsidecar.cli.user.SERVICE", folder)
    (folder / "cmdline").write_bytes(b"python\0amqsidecar\0run\0")
    (folder / "fd").mkdir()
    (folder / "fd" / "1").touch()
    where = (f"store.url=sqlite://{folder}/schedule.db", "log.audit=stdout")
    assert run_command_line(["hold", "1", *(x for one in where for x in ("--set", one))]) == 0
    lines = (folder / "fd" / "1").read_text("ascii").splitlines()
    assert [json.loads(line)["event.action"] for line in lines] == ["hold", "operation-done"]


def test_looking_at_the_schedule_writes_no_line_and_needs_no_file(folder: Path) -> None:
    (folder / "audit.jsonl").mkdir()
    assert run(folder, "list") == 0
    assert run(folder, "status") == 0


def test_nothing_is_changed_that_can_t_be_audited(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "audit.jsonl").mkdir()
    assert run(folder, "hold", "1") == 78
    assert "log.audit" in capsys.readouterr().err
    run(folder, "list", "--state", "held", "--output", "json")
    assert json.loads(capsys.readouterr().out)["rows"] == []


def test_a_file_that_was_rotated_is_begun_again_for_its_owner_only(folder: Path) -> None:
    assert run(folder, "hold", "1") == 0
    (folder / "audit.jsonl").rename(folder / "audit.jsonl.1")
    assert run(folder, "release", "1") == 0
    assert [line["event.action"] for line in lines_of(folder)] == ["release", "operation-done"]
    assert (folder / "audit.jsonl").stat().st_mode & 0o077 == 0
