"""`edit` on the command line, on a real store."""

import io
import json
from pathlib import Path

import pytest
from proton import Message, int32

from amqsidecar.cli import main
from amqsidecar.clock import SystemClock
from amqsidecar.stores.sqlite.store import SqliteStore
from support.schedule_rows import taken_row

BYTES = bytes(Message(body="old", properties={"n": int32(5), "a:b": "x"}).encode())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "schedule.db"
    store = open_store(path)
    store.allocate_ids(1)
    with store.transaction() as tx:
        tx.record_cycle(1, [taken_row(1, message=BYTES, redelivery_id="r")], [], [])
        tx.finish_cycle(1)
    store.close()
    return path


def open_store(path: Path) -> SqliteStore:
    store = SqliteStore(path, clock=SystemClock())
    store.open()
    return store


def edit(path: Path, *arguments: str) -> int:
    return main.run_command_line(["edit", *arguments, "--set", f"store.url=sqlite://{path}"])


def test_a_message_is_edited_and_its_re_send_begun(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO("né\r\nw\n".encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    change = ("--text", "-", "--property", "n=7", "--property", "m:long=8", "--without", "a:b")
    assert edit(path, "r", *change, "--yes", "--output", "json", "--reason", "T-1") == 0
    operation = json.loads(capsys.readouterr().out)
    assert (operation["action"], operation["reason"], operation["expected"]) == ("retry", "T-1", 1)
    store = open_store(path)
    edited = Message()
    edited.decode(store.message(1))
    store.close()
    assert edited.body == "né\r\nw\n"
    assert edited.properties == {"n": 7, "m": 8}
    assert isinstance(edited.properties["n"], int32)


def test_a_dry_run_shows_and_changes_nothing(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = path.with_name("text")
    text.write_text("\x1b[31mred")
    assert edit(path, "1", "--property", "n=7", "--text", str(text), "--dry-run") == 0
    told = capsys.readouterr().out
    assert "body: text, 8 B\n‹U+001B›[31mred" in told
    assert ["n", "int", "7"] in [line.split() for line in told.splitlines()]
    store = open_store(path)
    assert (store.message(1), store.operations(1)) == (BYTES, [])
    store.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["1", "--property", "n=x", "--yes"], "'x' is no int"),
        (["1", "--property", "n", "--yes"], "expected NAME[:TYPE]=VALUE"),
        (["1", "--property", "a:b=x", "--yes"], "the edit changes nothing"),
        (["1", "--property", "n=7"], "say --yes"),
        (["2", "--property", "n=7", "--yes"], "2 waits no longer"),
        (["1", "--text", "/no/such/file"], "No such file"),
    ],
)
def test_what_can_t_be_is_refused(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert edit(path, *arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    store = open_store(path)
    assert (store.message(1), store.operations(1)) == (BYTES, [])
    store.close()
