"""What strangers wrote acts on no terminal: each command that prints it, on a terminal and as JSON.

Origins, causes, reasons, ids, rules, names of gates, notes and owners are all hostile.
"""

import json
import os
import pty
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from amqsidecar.cli import doctor_command, main
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.diagnosis.finding import Check, Finding, Severity
from amqsidecar.journals.folder import LocalFolder
from amqsidecar.journals.writer import JournalWriter
from amqsidecar.model import row_changes
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.schedule import RowFilter, RowState
from support.histories.journal_rows import KINDS, filled
from support.sidecar.terminal import answered
from support.stores.rows import taken_row
from support.web.console_store import dead, keep, open_store

# A title, a cleared screen, C1, a bell, backspaces, marks of direction, a tag, and a forged line.
HOSTILE = (
    "x\x1b]0;title\x07\x1b[2J\x9b31m\x9d\x08\x08\x7f\u202egnp.exe\u2066\u200f\U000e0041\r\n"
    "forged line"
)
PLACE = f"queue://{HOSTILE}"
NESTED = (
    "org.springframework.jms.listener.adapter.ListenerExecutionFailedException: Listener method "
    "'public void shop.orders.OrderListener.receive(jakarta.jms.Message)' threw exception\n"
    "\tat org.springframework.jms.Adapter.run(Adapter.java:7)\n"
    "Caused by: com.acme.shop.orders.NoCustomerException: no customer for the order of shop.A: 7"
)
UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e01ef]"
)
STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Of the library that draws tables; the hostile text has none of these."""

PRINT_NO_STRANGERS = {
    *("demo", "run", "listen", "fleet", "mcp"),  # They print their logs (`telemetry/`).
    *("init", "import", "explain", "access", "backup", "schedule"),  # What the operator gave.
    *("pipeline", "edit", "take-back"),  # By `printing`, too; need Spark or a broker.
}
COMMANDS: dict[str, Sequence[Sequence[str]]] = {
    "status": [["status"], ["status", "--destination", PLACE]],
    "groups": [["groups"], ["groups", "--suggest"]],
    "list": [["list"], ["list", "--wide"], ["list", "--destination", HOSTILE]],
    "show": [["show", "1"], ["show", "2"], ["show", "3"], ["show", f"none {HOSTILE}"]],
    "note": [
        ["note", HOSTILE, "--destination", PLACE, "--cause-group", "1", "--owner", HOSTILE],
        ["note", "--destination", PLACE, "--cause-group", HOSTILE],
    ],
    "mark": [["mark", HOSTILE], ["mark"], ["mark", "x", "--destination", HOSTILE]],
    "retry": [["retry", "--all", "--dry-run"], ["retry", "--destination", HOSTILE, "--dry-run"]],
    "give-up": [["give-up", "--all", "--dry-run"]],
    "hold": [
        ["hold", "--all", "--dry-run"],
        ["hold", "--destination", PLACE, "--yes"],
        ["hold", "--all", "--yes", "--until", HOSTILE],
    ],
    "release": [["release", "--all", "--dry-run"], ["release", f"1{HOSTILE}"]],
    "event": [["event", HOSTILE], ["event", "x"]],
    "redirect": [["redirect", "--all", "--to", "queue://there", "--dry-run"]],
    "discard": [["discard", "--all", "--dry-run", "--reason", HOSTILE]],
    "operations": [["operations"]],
    "operation": [["operation", "show", "1"], ["operation", "show", f"1{HOSTILE}"]],
    "journal": [["journal", "verify"], ["journal", "export"], ["journal", "compact"]],
}


@pytest.fixture
def options(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """A store and a journal whose texts are all hostile."""
    url, journal = f"store.url=sqlite://{tmp_path / 'schedule.db'}", tmp_path / "journal"
    store = open_store(tmp_path / "schedule.db")
    now_ms = SystemClock().now_ms()
    texts = {"source": PLACE, "rule": HOSTILE, "message_id": HOSTILE}
    rows = [
        dead(1, HOSTILE, now_ms, destination=PLACE, **texts),
        dead(2, HOSTILE, now_ms, destination=PLACE, state=RowState.HELD, **texts),
        taken_row(3, state=RowState.PARKED, destination=PLACE, cause=None, **texts),
        taken_row(4, redelivery_id=f"id {HOSTILE}", destination=PLACE, cause=HOSTILE, **texts),
        dead(5, NESTED, now_ms, destination="queue://orders.of.customers.of.the.north"),
    ]
    events = [
        replace(
            event,
            **{
                name: HOSTILE
                for name in event.__struct_fields__
                if isinstance(getattr(event, name), str) and name != "redelivery_id"
            },
            redelivery_id=rows[0].redelivery_id,
        )
        for event in map(filled, KINDS)
    ]
    keep(store, rows, events)
    store.change(RowFilter(ids=(2,)), row_changes.hold(now_ms, HOSTILE))
    group = rows[0].cause_group
    store.add_note(
        GroupNote(
            destination=PLACE,
            cause_group=group,
            at_ms=now_ms,
            author=HOSTILE,
            text=HOSTILE,
            owner=HOSTILE,
            snoozed_until_ms=0,
        )
    )
    writer = JournalWriter(LocalFolder(journal, "t", lambda: None), sidecar="t", cause_text=True)
    segment = store.plan_segment(1)
    assert segment is not None
    writer.write(segment, store.segment_events(segment))
    store.segment_written(segment)
    store.close()
    (journal / f"foreign {HOSTILE.replace('/', '')}").touch()
    found = ["--set", url, "--set", f"journal.path={journal}"]
    held = ["hold", "--destination", PLACE, "--reason", HOSTILE, "--yes"]
    assert main.run_command_line([*held, *found]) == main.EXIT_DONE
    capfd.readouterr()
    return found


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Give standard output and error a terminal, and a function of what it has shown in the end."""
    outer, inner = pty.openpty()
    got = bytearray()

    def read() -> None:
        try:
            while piece := os.read(outer, 65_536):
                got.extend(piece)
        except OSError:
            pass  # All ends of the terminal are closed.

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(inner, "w", encoding="utf-8") as file, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", file)
        patched.setattr("sys.stderr", file)
        yield got.decode
    reader.join()
    os.close(outer)


def check(shown: str) -> None:
    plain = STYLE.sub("", shown)
    assert UNSEEN.findall(plain) == []
    assert not re.search(r"^forged", plain, re.MULTILINE)


def test_each_command_is_covered_or_named() -> None:
    assert {*COMMANDS, "doctor"} | PRINT_NO_STRANGERS == {*main.COMMANDS}


def test_only_the_module_for_printing_writes_what_strangers_wrote() -> None:
    """`main` says what failed; the others write a policy, or JSON and CSV that are made for it."""
    folder = Path(main.__file__).parent
    writers = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(
            r"sys\.std(out|err)\.(write|buffer)|\bprint\(|typer\.(echo|confirm)", path.read_text()
        )
    }
    assert writers == {
        *("printing.py", "main.py", "import_command.py"),
        *("explain_command.py", "journal_command.py"),
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_nothing_that_acts_on_a_terminal(
    name: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in COMMANDS[name]:
        with terminal(monkeypatch) as shown:
            code = main.run_command_line([*command, *options])
        assert code != main.EXIT_SOFTWARE, shown()
        check(shown())


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", ["status", "groups", "list"])
def test_lines_fit_a_real_terminal_and_begin_with_the_root_cause(
    name: str, columns: int, options: list[str], tmp_path: Path
) -> None:
    code, text = answered(
        [sys.executable, "-m", "amqsidecar", name, *options],
        [],
        folder=tmp_path,
        environment={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"},
        columns=columns,
    )
    assert code == main.EXIT_DONE, text
    check(text)
    lines = STYLE.sub("", text).splitlines()
    assert [one for one in lines if len(one) > columns] == []
    if name != "status":
        assert "\n    NoCustomerException: no cust" in text
        assert "com.acme" not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_json_says_the_same_in_characters_that_can_be_seen(
    name: str, options: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for command in COMMANDS[name]:
        output = [] if name == "journal" else ["--output", "json"]
        main.run_command_line([*command, *options, *output])
        found = capfd.readouterr()
        assert UNSEEN.findall(found.out + found.err) == []
        if command == ["list"]:
            assert json.loads(found.out)["rows"][0]["cause"] == HOSTILE


def test_doctor_prints_no_name_that_acts_on_a_terminal(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(None, options[1::2], {})
    finding = Finding(
        check=Check.POLICY, severity=Severity.PROBLEM, subject=HOSTILE, what=HOSTILE, mend=HOSTILE
    )
    with terminal(monkeypatch) as shown:
        doctor_command._print([finding], HOSTILE, config, with_notes=True)
    check(shown())


def test_a_fault_of_ours_prints_no_text_that_acts_on_a_terminal(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError(HOSTILE)

    monkeypatch.setattr("amqsidecar.cli.status_command.read_status", fail)
    with terminal(monkeypatch) as shown:
        assert main.run_command_line(["status", *options]) == main.EXIT_SOFTWARE
    assert UNSEEN.findall(shown()) == []
