"""The command: exit codes, what goes where, JSON shapes; over a real store in a file."""

import json
import os
import pwd
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import typer
from msgspec.structs import replace

import amqsidecar.cli.run_work
from amqsidecar import __version__
from amqsidecar.cli import main, printing
from amqsidecar.cli.options import duration_ms
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.errors import BrokerRefused, LinkLost, SchemaMismatch, StoreUnavailable
from amqsidecar.model import operation
from amqsidecar.model.cause import group_number
from amqsidecar.model.event import AnyEvent, Received, Returned
from amqsidecar.model.operation import Operation, OperationState
from amqsidecar.model.schedule import RowFilter, RowState, first_redelivery_id
from amqsidecar.operations import preview, words
from amqsidecar.operations.clock_gap import keep_clock_gap
from amqsidecar.operations.timeline import DESCRIPTIONS
from amqsidecar.stores.sqlite.store import SqliteStore
from support.machine.processes import run_program
from support.stores.rows import take_rows, taken_row, took
from support.web.console_store import dead, keep, open_store

FAR_MS = 4_000_000_000_000


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class EndsEarly(Protocol):
    def __call__(self, one: Operation, /, *, now_ms: int) -> Operation: ...


@dataclass
class Cli:
    """Runs commands in this process on one store."""

    path: Path
    capsys: pytest.CaptureFixture[str]
    rows: dict[int, object] = field(default_factory=dict)

    def __call__(self, *arguments: str, url: str | None = None) -> Result:
        where = f"store.url={url or f'sqlite://{self.path}'}"
        code = main.run_command_line([*arguments, "--set", where])
        captured = self.capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def opened(self) -> AbstractContextManager[SqliteStore]:
        return closing(open_store(self.path))

    def states(self) -> dict[int, str]:
        rows = self("list", "--output", "json").json["rows"]
        return {row["id"]: row["state"] for row in rows}


@pytest.fixture
def empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """A store without rows."""
    path = tmp_path / "schedule.db"
    store = SqliteStore(path, clock=SystemClock(), instance_name="test")
    store.open()
    store.close()
    return Cli(path, capsys)


@pytest.fixture
def cli(empty: Cli) -> Cli:
    """Rows 1 and 2 wait, 3 is held, 4 is parked, 5 waits elsewhere and is overdue."""
    rows = [
        taken_row(1, due_at_ms=FAR_MS, cause="java.lang.Exception: [db] down"),
        taken_row(2, due_at_ms=FAR_MS, cause="timeout"),
        taken_row(3, state=RowState.HELD, rule="backlog"),
        taken_row(4, state=RowState.PARKED, rule="no origin"),
        taken_row(5, due_at_ms=1_000, destination="queue://bills", received_at_ms=FAR_MS),
    ]
    store = SqliteStore(empty.path, clock=SystemClock(), instance_name="test")
    keep(store, rows)
    store.close()
    return empty


def fail_with(error: Exception) -> Callable[..., int]:
    def run_service(_config: Config, **_options: object) -> int:
        raise error

    return run_service


def act_as(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Give the process's user this name."""
    known = pwd.struct_passwd((name, "x", os.getuid(), 0, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: known)


# --- exit codes -------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["--version"]) == 0
    assert capsys.readouterr().out == f"amqsidecar {__version__}\n"


# They take no configuration: groups of commands, what needs none, and what writes one.
OTHERS = ("access", "demo", "init", "journal", "operation", "pipeline", "schedule")


@pytest.mark.parametrize("command", [name for name in main.COMMANDS if name not in OTHERS])
def test_every_command_has_help_and_the_common_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command_line([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--config" in text
    assert "--set" in text
    assert ("--output" in text) == (command not in ("run", "listen", "fleet", "mcp"))


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {command}" in text for command in main.COMMANDS)


def whole(command: Any) -> Any:
    """Return a command with its options; a list has only its summary."""
    return command.make_context(command.name, [], resilient_parsing=True).command


def test_a_list_of_commands_says_what_their_help_begins_with() -> None:
    listed = main.COMMANDS.values()
    assert [one.help for one in listed] == [whole(one).get_short_help_str(200) for one in listed]


def test_no_number_of_an_option_is_larger_than_what_takes_it() -> None:
    """A larger one ended as a fault of ours: SQLite takes none."""

    def numbers(command: Any, path: str) -> Iterator[tuple[str, int | None]]:
        context = typer.Context(command, info_name=path)
        for option in command.params:
            kind = getattr(option, "type_descriptor", None)
            if kind is not None and kind.annotation is int and option.name != "seed":
                yield f"{path} {option.name}", option.max
        for name in getattr(command, "list_commands", lambda _: [])(context):
            yield from numbers(whole(command.get_command(context, name)), f"{path} {name}")

    found = list(numbers(typer.main.get_command(main.app), "amqsidecar"))
    assert len(found) > 40
    assert [name for name, most in found if most is None or most >= 2**31] == []


def test_no_line_of_a_list_of_commands_is_cut() -> None:
    def cut(command: Any, path: str) -> Iterator[str]:
        context = typer.Context(command, info_name=path)
        names = command.list_commands(context)
        room = 80 - 2 - 6 - max(map(len, names))
        for name in names:
            found = command.get_command(context, name)
            if found.get_short_help_str(room).endswith("..."):
                yield f"{path} {name}"
            found = whole(found)
            if hasattr(found, "list_commands"):
                yield from cut(found, f"{path} {name}")

    assert list(cut(typer.main.get_command(main.app), "amqsidecar")) == []


def test_a_misspelled_command_gets_the_right_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run_command_line(["retri"]) == 2
    assert "Did you mean 'retry'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["list", "--nonsense"],
        ["list", "--limit", "0"],
        ["list", "--state", "dead"],
        ["list", "--older-than", "3"],
        ["list", "--destination", "queue://"],
        ["show"],
        ["status", "--output", "xml"],
        ["retry"],
        ["retry", "1", "--all"],
        ["retry", "1", "--cause", "x"],
        ["hold", "--all", "--cause", "x"],
        ["cancel", "--cause", ""],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command_line(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" or not arguments
    assert "Usage: amqsidecar" in captured.err + captured.out


def test_a_wrong_configuration_is_78_with_every_problem(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["status", "--set", "log.level=loud", "--set", "log.fromat=json"]
    assert main.run_command_line(arguments) == 78
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--set log.level: log.level: expected debug" in captured.err
    assert "did you mean `log.format`?" in captured.err


def test_a_missing_file_is_78(cli: Cli) -> None:
    result = cli("status", "--config", "/none.yaml")
    assert result.code == 78
    assert "/none.yaml: can't be read" in result.err


def test_run_needs_a_broker_and_its_files(tmp_path: Path, cli: Cli) -> None:
    result = cli("run")
    assert result.code == 78
    assert "broker.url: is not set" in result.err
    result = cli("run", "--set", f"policy.source={tmp_path}/none.xml")
    assert result.code == 78
    assert "none.xml can't be read" in result.err


def test_run_gives_the_code_of_the_service(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Config] = []

    def run(config: Config, *, read_again: Callable[[], Config]) -> int:
        seen.append(config)
        assert read_again() == config
        return 0

    monkeypatch.setattr(amqsidecar.cli.run_work, "run_service", run)
    assert cli("run", "--set", "broker.url=amqp://h").code == 0
    assert str(seen[0].broker.url[0]) == "amqp://h:5672"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerRefused("wrong password"), 69),
        (LinkLost("gone"), 69),
        (StoreUnavailable("disk full"), 69),
        (SchemaMismatch("version 9"), 69),
        (ValueError("oops"), 70),
        (AssertionError("oops"), 70),
    ],
)
def test_an_error_has_its_exit_code_and_a_short_message(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    monkeypatch.setattr(amqsidecar.cli.run_work, "run_service", fail_with(error))
    result = cli("run", "--set", "broker.url=amqp://h")
    assert result.code == code
    assert result.out == ""
    assert str(error) in result.err.splitlines()[-1]
    assert ("Traceback" in result.err) == (code == 70)


@pytest.mark.parametrize(
    "arguments", [["status"], ["list"], ["show", "1"], ["retry", "1"], ["hold", "--all", "--yes"]]
)
def test_looking_at_a_store_that_is_not_there_does_not_create_it(
    empty: Cli, tmp_path: Path, arguments: list[str]
) -> None:
    result = empty(*arguments, url=f"sqlite://{tmp_path}/none.db")
    assert result.code == 69
    assert "does not exist" in result.err
    assert not (tmp_path / "none.db").exists()


def test_the_installed_program_runs_and_starts_light() -> None:
    code = (
        "import sys; from amqsidecar.cli.main import run_command_line\n"
        "code = run_command_line(['--help']) or run_command_line(['--version'])\n"
        "heavy = {'pydantic', 'rich', 'structlog', 'prometheus_client', 'lxml', 'apscheduler',"
        " 'sqlite3', 'proton'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    done = run_program([sys.executable, "-c", code], timeout=60, code=0)
    assert done.stdout.endswith(f"\namqsidecar {__version__}\n")
    done = run_program([sys.executable, "-m", "amqsidecar", "nonsense"], timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such command 'nonsense'" in done.stderr


def test_help_of_run_imports_no_work() -> None:
    code = (
        "import sys; from amqsidecar.cli.main import run_command_line\n"
        "code = run_command_line(['run', '--help'])\n"
        "heavy = {'structlog', 'lxml', 'apscheduler', 'amqsidecar.wiring.app'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    run_program([sys.executable, "-c", code], timeout=60, code=0)


def test_a_reader_that_leaves_early_is_no_failure(cli: Cli) -> None:
    program = f"{sys.executable} -m amqsidecar list --set store.url=sqlite://{cli.path}"
    script = f"set -o pipefail; {program} | true"
    done = run_program(["bash", "-c", script], timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("amqsidecar redi", {"redirect"}),
        ("amqsidecar operation p", {"pause"}),
        ("amqsidecar list --output ", {"text", "table", "json"}),
        ("amqsidecar list --st", {"--state"}),
    ],
)
def test_a_shell_completes_commands_options_and_their_values(
    line: str,
    expected: set[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("_AMQSIDECAR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    assert main.run_command_line([]) == 0
    assert set(capsys.readouterr().out.split()) == expected


# --- looking ----------------------------------------------------------------------------------


def test_groups_without_a_cause_come_with_the_ways_to_get_one(cli: Cli) -> None:
    assert "deploy/reference/causes.md" in cli("groups").err
    assert cli("groups", "--output", "json").err == ""


def test_a_group_is_muted_and_merged_and_separated_again(cli: Cli) -> None:
    one, other, *_ = (
        group
        for group in cli("groups", "--output", "json").json
        if group["destination"] == "queue://orders"
    )
    place = ["--destination", "orders", "--cause-group", other["cause_group"]]
    assert "\nmuted until clearly more than " in cli("note", "known", *place, "--mute").out
    assert "muted" not in cli("note", *place, "--unmute").out
    merged = cli("note", "same", *place, "--merge-into", str(one["number"])).out
    assert f"  {other['cause_group']} is a part of {one['cause_group']}\n" in merged
    left = {group["number"]: group["total"] for group in cli("groups", "--output", "json").json}
    assert left[one["number"]] == one["total"] + other["total"]
    assert other["number"] not in left
    assert cli("note", "--group", str(other["number"])).out == merged
    assert cli("note", *place, "--merge-into", "none").code == main.EXIT_FAILED
    cli("note", *place, "--merge-into", "")
    assert other["number"] in {group["number"] for group in cli("groups", "--output", "json").json}


def test_a_note_is_left_on_a_group_and_read(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as(monkeypatch, "ann")
    [group, *_] = cli("groups", "--output", "json").json
    assert group["note"] is None
    place = ["--destination", group["destination"], "--cause-group", group["cause_group"]]
    assert cli("note", *place).err == "no notes on this group\n"
    assert cli("note", "first", *place).code == 0
    done = cli("note", "second\nline", *place)
    assert re.fullmatch(
        r"[-0-9]+ [:.0-9]+Z  cli:ann: second.line\n[-0-9]+ [:.0-9]+Z  cli:ann: first\n", done.out
    ), done.out
    found = cli("note", *place, "--output", "json").json
    assert [note["text"] for note in found] == ["second\nline", "first"]
    assert cli("groups", "--output", "json").json[0]["note"] == found[0]
    assert cli("note", "x", *place[:3], "never seen").code == main.EXIT_FAILED
    assert cli("note", " ", *place).code == main.EXIT_USAGE
    written = cli("note", *place, "--owner", "bob", "--snooze", "8h").out
    assert "\nowner: bob\nsnoozed until 2" in written
    written = cli("note", "still broken", *place, "--snooze", "0s").out
    assert written.endswith("\nowner: bob\n")
    found = cli("note", *place, "--output", "json").json
    for numbered in ([*place[:3], str(group["number"])], ["--group", str(group["number"])]):
        assert cli("note", *numbered, "--output", "json").json == found
    assert cli("note", "--group", "999999999").code == main.EXIT_FAILED
    assert "give the group" in cli("note").err
    assert "x names no group" in cli("note", "x").err
    assert cli("note", str(group["number"]), "by number").out.startswith(
        cli("note", *place).out.splitlines()[0]
    )
    assert "in quotes" in cli("note", "1", "by", "words").err


@pytest.mark.parametrize(
    "command", [["status"], ["list"], ["groups"], ["operations"], ["show", "1"]]
)
def test_what_goes_into_a_pipe_is_plain_and_a_table_is_text(
    cli: Cli, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    text, table = cli(*command), cli(*command, "--output", "table")
    assert (table.code, table.out) == (0, text.out)
    assert "\x1b" not in table.out + table.err


def test_status_as_json(cli: Cli) -> None:
    found = cli("status", "--output", "json").json
    assert found.pop("store_size_bytes") > 0
    assert found.pop("oldest_overdue_seconds") > 1_000_000
    assert found == {
        "instance": "test",
        "cycle": 1,
        "unfinished_cycle": None,
        "total": 5,
        "waiting": [
            {"destination": "queue://orders", "state": "waiting", "count": 2},
            {"destination": "queue://bills", "state": "waiting", "count": 1},
            {"destination": "queue://orders", "state": "held", "count": 1},
            {"destination": "queue://orders", "state": "parked", "count": 1},
        ],
        "next_due_at_ms": 1000,
        "room": {"is_enough": True, "reason": ""},
        "backlog": {},
        "instances": [],
        "gates": [],
        "exhausted": [],
        "missing": [],
        "unknown": [],
    }


def test_status_as_text(cli: Cli) -> None:
    result = cli("status")
    assert result.code == 0
    assert "messages     5" in result.out
    assert "next due     overdue" in result.out
    assert "queue://orders  waiting  2" in result.out
    assert "\x1b" not in result.out


def test_status_shows_a_cycle_and_a_backlog(cli: Cli) -> None:
    with cli.opened() as store:
        with store.transaction() as tx:
            tx.record_cycle(2, [taken_row(6)], [], [])
        with store.transaction() as tx:
            tx.set_hold("queue://DLQ", 12)
    found = cli("status", "--output", "json").json
    assert found["unfinished_cycle"] == {"cycle": 2, "taken_count": 1, "sent_count": 0}
    assert found["backlog"] == {"queue://DLQ": 12}
    text = cli("status").out
    assert "cycle 2 runs now or was interrupted: 1 taken, 0 sent" in text
    assert "the next 12 dead letters of queue://DLQ will be held" in text


def test_status_shows_what_gates_delay_until_when(cli: Cli) -> None:
    with cli.opened() as store:
        far_ms = 4_102_444_800_000
        with store.transaction() as tx:
            waiting = RowFilter(destination="queue://orders", state=RowState.WAITING)
            one, other = (row.id for row in store.list_rows(waiting, 2))
            tx.postpone([one], far_ms, "closed", "windows")
        assert re.search(r"in \d+d(?: \d+h)? \(windows\) +1 +- +queue://orders", cli("list").out)
        assert (
            "gate         1 due for queue://orders wait for windows until 2100-01-01 00:00"
            in cli("status").out
        )
        with store.transaction() as tx:
            tx.postpone([other], far_ms + 60_000, "closed", "windows")
    assert cli("status", "--output", "json").json["gates"] == [
        {
            "destination": "queue://orders",
            "gate": "windows",
            "count": 2,
            "next_due_at_ms": far_ms,
            "last_due_at_ms": far_ms + 60_000,
        }
    ]
    assert "until 2100-01-01 00:00:00.000Z to 2100-01-01 00:01:00.000Z (in " in cli("status").out


def test_an_empty_schedule_is_reported(empty: Cli) -> None:
    assert "messages     0" in empty("status").out
    result = empty("list")
    assert (result.out, result.err) == ("", "nothing waits\n")
    assert empty("list", "--output", "json").json == {"rows": [], "next_after": None}


def test_list_as_json(cli: Cli) -> None:
    found = cli("list", "--limit", "1", "--output", "json").json
    assert found["next_after"] == 1
    assert found["rows"] == [
        {
            "id": 1,
            "state": "waiting",
            "due_at_ms": FAR_MS,
            "destination": "queue://orders",
            "is_final": False,
            "source": "queue://DLQ",
            "redelivery_id": "test-000000000001",
            "redelivery_count": 1,
            "delay_ms": 500,
            "rule": "policy.yaml:3",
            "cause": "java.lang.Exception: [db] down",
            "message_id": "ID:1",
            "received_at_ms": 500,
            "encoding": "amqp/1.0",
            "size_bytes": 9,
            "reason": None,
            "in_flight": False,
            "cause_group": "",
            "gate": None,
            "final_queue": None,
            "recall": "none",
            "recall_operation": 0,
            "group": None,
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [1, 2, 3, 4, 5]),
        (["--destination", "bills"], [5]),
        (["--destination", "queue://orders"], [1, 2, 3, 4]),
        (["--destination", "topic://orders"], []),
        (["--state", "held"], [3]),
        (["--cause", "[db]"], [1]),
        (["--older-than", "1h"], [1, 2, 3, 4]),
        (["--after", "3"], [4, 5]),
        (["--after", "3", "--limit", "1"], [4]),
        (["--destination", "orders", "--state", "waiting", "--cause", "time"], [2]),
    ],
)
def test_list_filters(cli: Cli, arguments: list[str], expected: list[int]) -> None:
    rows = cli("list", *arguments, "--output", "json").json["rows"]
    assert [row["id"] for row in rows] == expected


def test_list_as_text_says_how_to_go_on(cli: Cli) -> None:
    result = cli("list", "--limit", "2")
    assert "java.lang.Exception: [db] down" in result.out
    assert "more results: --after 2" in result.err
    assert cli("list", "--after", "99").err == "no more\n"


@pytest.mark.parametrize("reference", ["1", "test-000000000001"])
def test_show_as_json_has_the_row_and_the_history(cli: Cli, reference: str) -> None:
    found = cli("show", reference, "--output", "json").json
    assert found["redelivery_id"] == "test-000000000001"
    assert [row["id"] for row in found["rows"]] == [1]
    assert [event["type"] for event in found["history"]] == ["received", "scheduled"]
    assert found["history"][0]["cause"] == "java.lang.Exception: [db] down"


def test_show_as_text_is_a_timeline(cli: Cli) -> None:
    text = cli("show", "1").out
    assert "1970-01-01 00:00:00.500Z  received" in text
    assert "from queue://DLQ, java.lang.Exception: [db] down" in text
    assert "to queue://orders in 500ms, count 1: policy.yaml:3" in text


def test_the_bytes_of_a_message_are_saved_and_nothing_is_written_over(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "message.bin"
    assert cli("show", "2", "--save", str(path)).code == 0
    with cli.opened() as store:
        assert path.read_bytes() == store.message(2)
        assert path.stat().st_mode & 0o777 == 0o600
    again = cli("show", "1", "--save", str(path))
    assert (again.code, "File exists" in again.err) == (2, True)
    gone = cli("show", "99", "--save", f"{path}.2")
    assert (gone.code, "is no longer waiting" in gone.err) == (2, True)
    assert not Path(f"{path}.2").exists()


def test_the_history_of_a_message_that_left_is_shown_by_its_number(cli: Cli) -> None:
    with cli.opened() as store, store.transaction() as tx:
        tx.remove([5])
    found = cli("show", "test-000000000005", "--output", "json").json
    assert found["rows"] == []
    assert len(found["history"]) == 2
    assert "waits          no longer" in cli("show", "test-000000000005").out


def test_show_finds_every_id_that_an_output_prints(cli: Cli) -> None:
    with cli.opened() as store:
        uid = store.state().uid
        died = Received(
            at_ms=1,
            redelivery_id="gone",
            source="queue://DLQ",
            origin="queue://a",
            message_id="ID:gone",
        )
        again = replace(died, redelivery_id="twin", cause="late", at_ms=2)
        with store.transaction() as tx:
            tx.record([died, *(took(taken_row(one)) for one in range(100, 300))])
            tx.record([again])
        number = group_number(store.group_key, "queue://a", "late")
    cli("hold", "1")

    def found(reference: str) -> tuple[str | None, list[tuple[str, str]]]:
        told = cli("show", reference, "--output", "json").json
        return told["redelivery_id"], [(one["kind"], one["id"]) for one in told["also"]]

    assert found("ID:2") == ("test-000000000002", [])
    assert found("ID:gone") == ("twin", [("message", "gone")])
    assert found("test-000000000002") == ("test-000000000002", [])
    assert found("1") == ("test-000000000001", [("operation", "1")])
    assert found(f"#{number}") == found(str(number)) == (None, [("group", str(number))])
    assert found(uid) == found("test") == (None, [("store", uid)])
    shown = cli("show", str(number))
    assert shown.out == f"group {number}, queue://a: late: `amqsidecar list --group {number}`\n"
    assert "operation 1, hold by " in cli("show", "1").err
    assert cli("show", "ID:nobody").code == 1
    assert cli("show", "ID:nobody", "--output", "json").json is None


def test_a_message_shows_the_number_of_its_group(cli: Cli) -> None:
    with cli.opened() as store:
        row_id = store.allocate_ids(1)
        take_rows(store, 2, [taken_row(row_id, cause_group="late")])
        [row] = store.list_rows(RowFilter(ids=(row_id,)), 1)
        number = group_number(store.group_key, row.destination, "late")
    assert f"group          {number}\n" in cli("show", str(row_id)).out
    rows = cli("list", "--output", "json").json["rows"]
    assert {row["id"]: row["group"] for row in rows}[row_id] == number
    assert f"  {number}  " in cli("list").out


def test_a_message_that_left_is_found_by_its_first_number(cli: Cli) -> None:
    with cli.opened() as store:
        uid = store.state().uid
        name = first_redelivery_id(uid, 77)
        with store.transaction() as tx:
            tx.record([Received(at_ms=1, id=77, redelivery_id=name, source="queue://DLQ")])
    assert cli("show", "77", "--output", "json").json["redelivery_id"] == name


def test_nothing_known_is_reported(cli: Cli) -> None:
    result = cli("show", "99")
    assert (result.code, result.out) == (1, "")
    assert "99 is unknown: it was never here" in result.err
    assert cli("show", "nobody", "--output", "json").json is None


def test_every_event_can_be_described() -> None:
    assert {*DESCRIPTIONS, Received, Returned} == set(AnyEvent.__args__)


# --- acting -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "changed", "states"),
    [
        (["retry", "3", "test-000000000004"], 2, {3: "waiting", 4: "waiting"}),
        (["retry", "--state", "parked", "--yes"], 1, {3: "held", 4: "waiting"}),
        (["retry", "--all", "--yes"], 5, {3: "waiting", 4: "waiting"}),
        (["hold", "--destination", "orders", "--yes"], 2, {1: "held", 2: "held", 5: "waiting"}),
        (["hold", "3"], 0, {3: "held"}),
        (["release", "--all", "--yes"], 1, {3: "waiting", 4: "parked"}),
        (["cancel", "--cause", "timeout", "--yes"], 1, {2: "waiting"}),
    ],
)
def test_an_action_changes_what_it_names(
    cli: Cli, arguments: list[str], changed: int, states: dict[int, str]
) -> None:
    result = cli(*arguments, "--output", "json")
    assert result.code == (0 if changed else 1)
    assert result.json["action"] == arguments[0]
    assert result.json["changed"] == changed
    assert cli.states().items() >= states.items()


def test_giving_up_goes_to_the_final_queue(cli: Cli) -> None:
    suffix = ("--set", "redelivery.final_suffix=.given-up")
    assert cli("give-up", "1", "--yes", *suffix).code == 0
    (row,) = cli("show", "1", "--output", "json").json["rows"]
    found = row["destination"], row["final_queue"], row["is_final"]
    assert found == ("queue://orders", "queue://DLQ.given-up", True)
    result = cli("give-up", "1", "--yes")
    assert (result.code, result.out) == (0, "give-up: 0 messages\n")
    assert "1 more were not changed" in result.err


def test_an_action_is_an_event_with_the_actor(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as(monkeypatch, "ada")
    cli("hold", "1")
    history = cli("show", "1", "--output", "json").json["history"]
    assert history[-1]["type"] == "held"
    assert history[-1]["actor"] == "cli:ada"


def test_the_actor_may_have_no_name(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_uid: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    cli("hold", "1")
    actor = cli("show", "1", "--output", "json").json["history"][-1]["actor"]
    assert actor == f"cli:{os.getuid()}"


def test_what_matches_nothing_ends_with_1_and_says_what_is_near(cli: Cli) -> None:
    result = cli("retry", "--cause", "nobody", "--yes")
    assert (result.code, result.out) == (1, "retry: 0 messages\n")
    assert "nothing matched; 5 messages are in the schedule" in result.err
    result = cli("list", "--destination", "order")
    assert result.code == 1
    assert "the schedule has no messages of queue://order, but of 'queue://orders'" in result.err
    result = cli("retry", "99", "nobody")
    assert (result.code, result.out) == (1, "")
    assert "99: does not wait (any more)\nnobody: does not wait" in result.err


def test_a_filter_asks_first_and_a_script_must_say_yes(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    result = cli("give-up", "--all")
    assert result.code == 2
    assert "this would give-up 5 messages, to their final dead-letter queue" in result.err
    assert "add --yes to confirm" in result.err
    for action in ("give-up", "cancel", "discard"):
        assert cli(action, "1").code == 2, action
    assert not any(row["is_final"] for row in cli("list", "--output", "json").json["rows"])


@pytest.mark.parametrize(("answer", "held"), [(True, 3), (False, 0)])
def test_an_answer_decides(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: bool, held: int
) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: bool) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", confirm)
    result = cli("hold", "--all")
    assert result.code == 0
    assert asked == ["hold 3 messages?"]
    assert result.out == f"hold: {held} messages\n"
    assert ("nothing was done" in result.err) != answer


def test_nothing_is_done_to_far_more_than_a_person_said_yes_to(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others die while the person thinks."""

    def think(_text: str, **_: bool) -> bool:
        with cli.opened() as store:
            rows = [taken_row(number) for number in range(6, 26)]
            store.allocate_ids(len(rows))
            take_rows(store, 2, rows)
        return True

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", think)
    result = cli("discard", "--destination", "orders")
    assert result.code == 2
    assert "this would change 24 messages, not 4; look again" in result.err
    assert len(cli.states()) == 25


def test_what_is_to_begin_later_is_left_to_the_service(cli: Cli) -> None:
    result = cli("retry", "--all", "--yes", "--at", "06:00", "--output", "json")
    assert result.code == 0
    begins = datetime.fromtimestamp(result.json["operation"]["pace"]["begin_at_ms"] / 1000, UTC)
    ahead = begins - datetime.now(UTC)
    assert (begins.hour, begins.minute) == (6, 0)
    assert timedelta() < ahead <= timedelta(days=1)
    assert cli.states() == {1: "waiting", 2: "waiting", 3: "held", 4: "parked", 5: "waiting"}
    assert "within 30 days" in cli("retry", "--all", "--yes", "--at", "2999-01-01").err
    assert "--at" in cli("retry", "--all", "--yes", "--at", "soon").err
    assert "25:00 is no time of day" in cli("retry", "--all", "--yes", "--at", "25:00").err


def test_a_begin_says_its_zone_and_the_local_time(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        said = cli("retry", "--all", "--yes", "--at", "06:00").err
    finally:
        monkeypatch.undo()
        time.tzset()
    assert re.search(r"06:00 UTC \(\d{4}-\d\d-\d\d 15:00 here, JST\)", said)


def test_other_operations_that_run_are_named(cli: Cli) -> None:
    cli("retry", "--all", "--yes", "--detach")
    assert "operation 1 (retry by cli:" in cli("hold", "--all", "--yes").err


def test_what_was_only_counted_in_part_is_no_expectation(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "ROWS_MAX", 1)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda _text, **_: True)
    assert cli("hold", "--cause", "o").out == "hold: 2 messages\n"
    [begun] = cli("operations", "--output", "json").json["operations"]
    assert begun["expected"] is None


def test_millions_are_not_counted_unasked(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting by cause looks at every row; by destination and state it costs nothing."""
    counted: list[object] = []
    count_rows = SqliteStore.count_rows

    def noted(store: SqliteStore, row_filter: Any) -> int:
        counted.append(row_filter)
        return count_rows(store, row_filter)

    monkeypatch.setattr(SqliteStore, "count_rows", noted)
    assert cli("give-up", "--cause", "timeout", "--yes").out == "give-up: 1 message\n"
    assert counted == []
    assert "nothing matched" in cli("cancel", "--cause", "none", "--yes").err
    cli("hold", "--all", "--yes")
    assert len(counted) == 1


def test_no_answer_is_no(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(_text: str, **_: bool) -> bool:
        raise typer.Abort

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", abort)
    result = cli("hold", "--all")
    assert (result.code, result.out) == (0, "hold: 0 messages\n")


def test_an_interrupted_action_says_what_is_done_and_again_does_the_rest(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C waits for the end of the running step, and cancels the rest."""
    monkeypatch.setattr(operation, "STEP_MAX", 2)
    step_operation = SqliteStore.step_operation

    def interrupted(store: SqliteStore, *arguments: Any, **named: Any) -> Operation:
        signal.raise_signal(signal.SIGINT)
        return step_operation(store, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "step_operation", interrupted)
        first = cli("cancel", "--all", "--yes")
    assert (first.code, first.out) == (130, "give-up: 2 messages\n")
    assert "the same command does the rest" in first.err

    second = cli("cancel", "--all", "--yes")

    assert (second.code, second.out) == (0, "give-up: 3 messages\n")
    states = [one["state"] for one in cli("operations", "--output", "json").json["operations"]]
    assert states == ["done", "cancelled"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            partial(operation.changed_to, state=OperationState.STOPPED, reason="3 of 5 came back"),
            "stopped by itself: 3 of 5 came",
        ),
        (
            partial(
                operation.changed_to, state=OperationState.PAUSED, actor="cli:ben", reason="lunch"
            ),
            "was paused by cli:ben: lunch",
        ),
        (
            partial(operation.changed_to, state=OperationState.CANCELLED, actor="cli:ben"),
            "was cancelled by cli:ben",
        ),
    ],
)
@pytest.mark.parametrize("pace", [[], ["--pace", "1000"]])
def test_a_command_whose_operation_ends_early_says_why_and_how_to_go_on(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    change: EndsEarly,
    why: str,
    pace: list[str],
) -> None:
    def ended(store: SqliteStore, number: int, *_arguments: Any, **_named: Any) -> Operation:
        return store.change_operation(number, lambda one: change(one, now_ms=1))

    monkeypatch.setattr(SqliteStore, "step_operation", ended)
    result = cli("retry", "--all", "--yes", *pace, "--output", "json")
    assert result.code == 69
    assert f"operation 1 {why}" in result.err
    assert "interrupted" not in result.err
    assert ("amqsidecar operation resume 1" in result.err) == ("cancelled" not in why)


def test_ctrl_c_when_all_is_done_already_is_no_fault(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service may have gone on where the command was slow."""
    monkeypatch.setattr(operation, "STEP_MAX", 2)

    def finished(store: SqliteStore, number: int, *_arguments: Any, **_named: Any) -> Operation:
        signal.raise_signal(signal.SIGINT)
        before = store.operation(number)
        assert before is not None
        store.change_operation(
            number,
            lambda one: operation.changed_to(replace(one, matched=5), OperationState.DONE, 1),
        )
        return before

    monkeypatch.setattr(SqliteStore, "step_operation", finished)
    result = cli("cancel", "--all", "--yes")
    assert (result.code, "interrupted" in result.err) == (0, False)


def test_a_second_ctrl_c_says_that_the_operation_is_not_over(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(*_arguments: Any, **_named: Any) -> Operation:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it ends the program")

    monkeypatch.setattr(SqliteStore, "step_operation", impatient)
    # Why: a shell that starts the tests in the background lets them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = cli("cancel", "--all", "--yes")
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.code == 130
    assert "operation 1 has not ended" in result.err
    assert "amqsidecar operation cancel 1" in result.err


def test_redirect_sends_elsewhere_and_needs_to_know_where(cli: Cli) -> None:
    assert cli("redirect", "1").code == 2
    assert cli("redirect", "1", "--to", "queue://").code == 2
    assert cli("redirect", "1", "4", "--to", "elsewhere").out == "redirect: 2 messages\n"
    rows = cli("list", "--destination", "elsewhere", "--output", "json").json["rows"]
    assert [(row["id"], row["state"], row["redelivery_count"]) for row in rows] == [
        (1, "waiting", 1),
        (4, "waiting", 1),
    ]
    history = cli("show", "1", "--output", "json").json["history"]
    assert (history[-1]["type"], history[-1]["destination"]) == ("redirected", "queue://elsewhere")


def test_discard_leaves_the_history_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as(monkeypatch, "ada")
    assert cli("discard", "--state", "parked", "--yes").out == "discard: 1 message\n"
    assert sorted(cli.states()) == [1, 2, 3, 5]
    last = cli("show", "test-000000000004", "--output", "json").json["history"][-1]
    assert (last["type"], last["actor"]) == ("discarded", "cli:ada")


def test_a_discard_is_undone_by_the_number_that_its_answer_tells(cli: Cli) -> None:
    before = cli("list", "--output", "json").json["rows"]
    result = cli("discard", "--all", "--yes")
    assert result.out == "discard: 5 messages\n"
    assert "for an hour `amqsidecar operation undo 1` puts 5 of them back" in result.err
    assert cli("list").code == 0
    assert "undoable   5: `amqsidecar operation undo 1`" in cli("operation", "show", "1").out
    undone = cli("operation", "undo", "1", "--reason", "wrong group", "--output", "json").json
    assert (undone["operation"]["state"], undone["operation"]["restored"]) == ("undone", 5)
    assert undone["undoable"] == 0
    assert cli("list", "--output", "json").json["rows"] == before
    last = cli("show", "4", "--output", "json").json["history"][-1]
    assert (last["type"], last["id"]) == ("restored", 4)
    again = cli("operation", "undo", "1")
    assert again.code == 2
    assert "no message that operation 1 discarded is kept" in again.err
    for step in ("undo", "show", "pause"):
        unknown = cli("operation", step, "9")
        assert unknown.code == main.EXIT_FAILED
        assert "there is no operation 9; the newest is 1" in unknown.err
    cli("hold", "1")
    assert "only discard can be undone" in cli("operation", "undo", "2").err


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--source", "DLQ"], 5),
        (["--source", "queue://other"], 0),
        (["--newer-than", "1h"], 1),
        (["--count-at-least", "1"], 5),
        (["--count-at-least", "2"], 0),
        (["--event", "invoice-4711"], 0),
        (["--attempt", "1"], 5),
        (["--attempt", "0"], 0),
        (["--property", "tenant=ACME"], 0),
        (["--contains", "TIMEOUT"], 1),
        (["--contains", "no such text"], 0),
        (["--destination", "orders", "--state", "held"], 1),
    ],
)
def test_looking_and_acting_take_the_same_filters(
    cli: Cli, arguments: list[str], count: int
) -> None:
    before = cli("list", "--output", "json").json
    assert len(cli("list", *arguments, "--output", "json").json["rows"]) == count
    if not {"--property", "--contains"} & {*arguments}:
        found = cli("status", *arguments, "--output", "json").json
        assert found["total"] == sum(part["count"] for part in found["waiting"]) == count
    found = cli("retry", *arguments, "--dry-run", "--output", "json").json
    assert (found["count"], found["is_whole"]) == (count, True)
    assert sum(part["count"] for part in found["parts"]) == count
    assert cli("list", "--output", "json").json == before
    assert cli("operations", "--output", "json").json["operations"] == []


def test_a_dry_run_names_skipped_and_unknown_messages(cli: Cli) -> None:
    cli("give-up", "1", "--yes")
    result = cli("give-up", "--all", "--dry-run")
    assert "give-up: 4 messages\n" in result.out
    assert "left as they are  1: already on the way to a final dead-letter queue" in result.out
    result = cli("retry", "--destination", "orders", "--dry-run")
    assert "such as           test-000000000004" in result.out
    assert "only the send shows" in result.err


def test_a_careful_retry_is_left_to_the_service_and_watched(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_as(monkeypatch, "ada")
    result = cli(
        *("retry", "--all", "--yes", "--careful", "--pace", "5", "--window", "30s"),
        *("--reason", "mended", "--detach", "--output", "json"),
    )
    assert result.code == 0
    begun = result.json
    assert begun["operation"]["pace"] == {
        "probe": 50,
        "per_second": 5.0,
        "ramp": True,
        "stop_share": 0.1,
        "window_ms": 30_000,
        "begin_at_ms": None,
    }
    assert begun["doing"] == "it waits for a running service"
    assert cli.states() == {1: "waiting", 2: "waiting", 3: "held", 4: "parked", 5: "waiting"}

    assert cli("operation", "pause", "1", "--reason", "lunch").code == 0
    assert "state      paused: lunch (by cli:ada)" in cli("operation", "show", "1").out
    again = cli("operation", "pause", "1")
    assert (again.code, "operation 1 is paused" in again.err) == (0, False)
    assert cli("operation", "resume", "1").code == 0
    assert cli("operation", "cancel", "1", "--output", "json").json["operation"]["state"] == (
        "cancelled"
    )
    over = cli("operation", "resume", "1")
    assert (over.code, "operation 1 is cancelled" in over.err) == (2, True)
    assert cli("operation", "show", "2").code == main.EXIT_FAILED
    assert "retry   cancelled  0" in cli("operations").out


def test_a_paced_retry_is_carried_out_by_the_command(cli: Cli) -> None:
    done = cli("retry", "--all", "--yes", "--pace", "1000", "--output", "json")
    assert (done.json["operation"]["state"], done.json["operation"]["changed"]) == ("done", 5)
    assert done.json["outcomes"]["not_sent"] == 5
    assert "operation 1" in done.err
    found = cli("operation", "show", "1", "--members", "all", "--output", "json").json
    assert [member["redelivery_id"] for member in found["members"]] == [
        f"test-{number:012d}" for number in range(1, 6)
    ]
    assert "not sent" in cli("operation", "show", "1", "--members", "all").out


@pytest.mark.parametrize(
    "arguments",
    [
        ["hold", "--all", "--probe", "3"],
        ["cancel", "--all", "--careful"],
        ["retry", "--all", "--pace", "0"],
        ["retry", "--all", "--stop-share", "2"],
        ["retry", "--all", "--window", "0s"],
        ["retry", "--property", "tenant"],
        ["retry", "--all", "--reason", "x" * 501],
    ],
)
def test_care_that_makes_no_sense_is_refused(cli: Cli, arguments: list[str]) -> None:
    assert cli(*arguments, "--yes").code == 2
    assert cli("operations", "--output", "json").json["operations"] == []


@pytest.mark.parametrize(
    "option",
    [["--careful"], ["--dry-run"], ["--cause-group", "x"], ["--cause", "x"], ["--property", "a=b"]],
)
def test_what_the_broker_can_not_do_is_refused(cli: Cli, option: list[str]) -> None:
    process = ("--set", "intake.backlog=process")
    if option[0] not in ("--careful", "--dry-run"):
        result = cli("list", *option, *process, url="broker:")
        assert (result.code, "the broker keeps waiting messages" in result.err) == (2, True)
    result = cli("retry", "--destination", "orders", *option, *process, url="broker:")
    assert (result.code, "the broker keeps waiting messages" in result.err) == (2, True)
    result = cli("discard", "--destination", "orders", *process, url="broker:")
    assert (result.code, "can't discard them: retry them" in result.err) == (2, True)
    result = cli("operations", *process, url="broker:")
    assert (result.code, "there are no operations" in result.err) == (69, True)


# --- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90_000), ("2h", 7_200_000), ("3d", 259_200_000)]
)
def test_an_age_has_a_unit(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


def test_a_time_that_is_too_short_is_refused() -> None:
    assert duration_ms("1s", "--horizon", least_ms=1) == 1000
    with pytest.raises(typer.BadParameter, match="at least 1 ms, found '0s'"):
        duration_ms("0s", "--horizon", least_ms=1)


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0, "0ms"), (999, "999ms"), (60_000, "1m"), (3_723_000, "1h 2m"), (90_061_000, "1d 1h")],
)
def test_a_span_has_two_units_at_most(milliseconds: int, expected: str) -> None:
    assert words.span(milliseconds) == expected


@pytest.mark.parametrize(("total", "shown"), [(2_000, "1500/2000"), (None, "1500/?")])
def test_progress_shows_how_much_is_done_and_how_fast(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    total: int | None,
    shown: str,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with printing.progress_bar("retry", total) as advance:
        advance(1_000)
        advance(500)
    told = capsys.readouterr().err
    assert shown in told
    assert re.search(r"[1-9][\d,]*/s", told)


def test_a_time_beyond_the_calendar_is_printed_as_it_is() -> None:
    assert words.clock_time(2**62) == f"{2**62} ms"


ROWS = [
    ("4711", "waiting", "in 3m", "queue://orders.of.customers", "java.lang.Exception: [db] down"),
    ("7", "held", "-", "queue://bills", "timeout"),
]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_rows_fit_the_terminal_in_two_lines_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    headers = ("number", "state", "due", "destination", "cause")
    monkeypatch.setenv("COLUMNS", str(width))

    def printed(**options: bool) -> list[str]:
        printing.print_rows(headers, ROWS, below=2, spare=("due",), **options)
        return capsys.readouterr().out.splitlines()

    plain = printed()
    assert len(plain) == 3
    assert plain[1].endswith("[db] down")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert printed(is_wide=True) == plain
    if width == 200:
        assert printed() == plain
        return
    lines = printed()
    assert max(map(len, lines)) <= width
    assert lines[0].split() == ["number", "state", "due"]
    assert lines[1] == "    cause  destination"
    below = ["    Exception: [db] down", "    queue://orders.of.customers"]
    assert lines[2:-2] == [
        "4711    waiting  in 3m",
        *([f"{below[0]}  {below[1].strip()}"] if width >= 60 else below),
    ]


def test_columns_that_can_be_spared_are_left_out_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "16")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    headers = ("number", "state", "due", "destination", "cause")
    printing.print_rows(headers, ROWS, below=2, spare=("due", "state"))
    assert capsys.readouterr().out.splitlines()[0] == "number  state"


ENVELOPE = (
    "java.lang.Throwable: Delivery[2] exceeds redelivery policy limit:RedeliveryPolicy "
    "{destination = queue://orders, " + "x = 1, " * 40 + "maximumRedeliveries = 1}, cause:"
)
INSIDE = "java.lang.IllegalStateException: order 7 has no customer " + "in this shop " * 20


@pytest.fixture
def enveloped(cli: Cli) -> Cli:
    """One more message, whose cause Classic's client wrote."""
    store = SqliteStore(cli.path, clock=SystemClock(), instance_name="test")
    [row] = [dead(6, ENVELOPE + INSIDE, SystemClock().now_ms(), destination="queue://shop")]
    keep(store, [row])
    store.close()
    return cli


@pytest.mark.parametrize(
    "command",
    [
        ("list", "--destination", "shop"),
        ("groups", "--destination", "shop"),
        ("retry", "--destination", "shop", "--dry-run"),
        ("show", "6"),
    ],
    ids=lambda command: command[0],
)
def test_the_root_cause_comes_first_and_show_prints_it_whole(
    enveloped: Cli, command: tuple[str, ...]
) -> None:
    result = enveloped(*command)
    assert result.code == 0
    assert "IllegalStateException: order " in result.out
    row_part = result.out.partition("\n\n")[0]
    assert "exceeds redelivery policy limit" not in row_part
    if command[0] == "show":
        assert INSIDE.strip() in " ".join(row_part.split())


@pytest.mark.parametrize("command", ["list", "groups"])
def test_at_80_columns_a_row_takes_two_lines_and_wide_makes_it_one(
    enveloped: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    def lines(*options: str) -> list[str]:
        return enveloped(command, "--destination", "shop", *options).out.splitlines()

    narrow, wide = lines(), lines("--wide")
    assert (len(narrow), len(wide)) == (4, 2)
    assert max(map(len, narrow)) <= 80
    assert max(map(len, wide)) > 80
    assert wide[0].split()[-2:] == ["destination", "cause"]


def test_old_exhausted_rows_hide_nothing_that_waits(cli: Cli) -> None:
    with cli.opened() as store:
        ended = {"state": RowState.EXHAUSTED, "final_queue": "queue://DLQ.exhausted"}
        rows = [taken_row(number, **ended) for number in (6, 7)] + [taken_row(8, due_at_ms=FAR_MS)]
        store.allocate_ids(3)
        take_rows(store, 2, rows)

    def page(*options: str) -> tuple[list[int], object]:
        found = cli("list", "--output", "json", *options).json
        return [row["id"] for row in found["rows"]], found["next_after"]

    assert page() == ([1, 2, 3, 4, 5, 8, 6, 7], None)
    assert page("--limit", "4") == ([1, 2, 3, 4], 4)
    assert page("--limit", "2", "--after", "4") == ([5, 8], "exhausted-0")
    assert page("--limit", "1", "--after", "exhausted-0") == ([6], "exhausted-6")
    assert page("--limit", "1", "--after", "exhausted-6") == ([7], None)
    assert page("--limit", "3", "--after", "4") == ([5, 8, 6], "exhausted-6")
    assert page("--state", "exhausted", "--limit", "1") == ([6], 6)
    assert "--after" in cli("list", "--after", "soon").err


def test_a_table_on_a_terminal_keeps_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    printing.print_table(("cause",), [("[db] down",)])
    assert "[db] down" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("count", "expected"), [(5, "5 B"), (1536, "1.5 KiB"), (5 * 1024**4, "5.0 TiB")]
)
def test_a_size_has_a_unit(count: int, expected: str) -> None:
    assert words.size(count) == expected


def test_a_job_without_its_libraries_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "amqsidecar.pipeline.causes.causes", None)
    job = ["pipeline", "causes", "--events", "journal", "--output-folder", "out"]
    assert main.run_command_line(job) == 78
    error = capsys.readouterr().err
    assert 'amqsidecar pipeline: needs more libraries: pip install "amqsidecar[pipeline]"' in error
    assert main.run_command_line(["pipeline", "causes", "--help"]) == 0


LEFT_IN_ARROW = """
import io, threading, time
import pyarrow, pyarrow.parquet
from amqsidecar.cli import main
from amqsidecar.runtime.worker import Worker

table, has_begun = pyarrow.table({"id": range(1000)}), threading.Event()

class Disk(io.BytesIO):
    def write(self, data):
        has_begun.set()
        time.sleep(0)
        return super().write(data)

def step():
    while True:
        pyarrow.parquet.write_table(table, Disk())

def run():
    worker = Worker("journal", step, first_pause_s=0.0)
    worker.stop_s = 0.0
    with worker:
        has_begun.wait()
    return 69

main.run_command_line = run
main.main()
"""


def test_a_journal_that_is_still_written_at_the_end_changes_no_exit_code() -> None:
    """Without care the process ended by SIGABRT, and left a core dump."""
    run_program([sys.executable, "-c", LEFT_IN_ARROW], code=69)


def test_what_a_command_makes_due_is_due_for_a_service_that_follows_a_step_ahead(cli: Cli) -> None:
    """By the wall clock it would wait for as long as the service's clock is behind."""
    behind_ms, before_ms = 3_600_000, SystemClock().now_ms()
    with closing(SqliteStore(cli.path, clock=SystemClock(), instance_name="test")) as store:
        store.open()
        keep_clock_gap(store, behind_ms)
    cli("retry", "3")
    cli("retry", "4")
    with closing(SqliteStore(cli.path, clock=SystemClock(), instance_name="test")) as store:
        store.open()
        rows = {row.id: row for row in store.list_rows(RowFilter(), 10)}
    for number in (3, 4):
        gap_ms = rows[number].due_at_ms - before_ms + behind_ms
        assert 0 <= gap_ms < behind_ms / 2
