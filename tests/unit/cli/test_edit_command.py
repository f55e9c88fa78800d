"""`edit` on the command line, on a real store."""

import io
import json
from pathlib import Path

import pytest
from proton import Message, int32

from amqsidecar.cli import main
from amqsidecar.clock import SystemClock
from amqsidecar.model.schedule import Recall, RowState
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import take_rows, taken_row
from support.wires.amqp_properties import properties_of

BYTES = bytes(Message(body="old", properties={"n": int32(5), "a:b": "x"}).encode())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "schedule.db"
    store = open_store(path)
    store.allocate_ids(1)
    take_rows(store, 1, [taken_row(1, message=BYTES, redelivery_id="r")])
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
    kept = store.message(1)
    assert kept is not None
    edited.decode(kept)
    store.close()
    assert edited.body == "né\r\nw\n"
    assert properties_of(edited) == {"n": 7, "m": 8}
    assert isinstance(properties_of(edited)["n"], int32)


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
        (["1", "--property", "n=7"], "add --yes"),
        (["1", "--yes"], "no change is given"),
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


def test_an_edit_whose_message_does_not_come_leaves_it_requested(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No service takes it out of its final queue; the command does not wait for ever."""
    row_id = lie(path)
    monkeypatch.setattr("amqsidecar.operations.fetch.FETCH_S", 0)
    assert edit(path, "lying", "--property", "n=7", "--yes") == 69
    told = " ".join(capsys.readouterr().err.split())
    assert f"message {row_id} is still being taken out of queue://DLQ.exhausted" in told
    assert f"`amqsidecar give-up {row_id}` leaves it in its queue" in told
    store = open_store(path)
    assert [row.id for row in store.recalled(Recall.KEEP, 9)] == [row_id]
    assert store.operations(1) == []
    store.close()


def test_a_message_is_taken_out_of_its_final_queue_for_no_edit_that_is_refused_before(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lie(path)
    assert edit(path, "lying", "--property", "n=7", "--yes", "--reason", "x" * 501) == 2
    assert "a reason has at most 500 characters" in " ".join(capsys.readouterr().err.split())
    store = open_store(path)
    assert store.recalled(Recall.KEEP, 9) == []
    store.close()


def lie(path: Path) -> int:
    """Keep a row whose message lies in its final queue; return its number."""
    store = open_store(path)
    row_id = store.allocate_ids(1)
    row = taken_row(
        row_id,
        redelivery_id="lying",
        state=RowState.EXHAUSTED,
        is_final=True,
        final_queue="queue://DLQ.exhausted",
    )
    take_rows(store, 2, [row])
    store.close()
    return row_id


@pytest.mark.parametrize(("wait", "code"), [((), 0), (("--wait", "0s"), 69)])
def test_a_done_operation_with_unsent_messages_says_so(
    path: Path, capsys: pytest.CaptureFixture[str], wait: tuple[str, ...], code: int
) -> None:
    store = f"store.url=sqlite://{path}"
    assert main.run_command_line(["retry", "1", "--yes", "--set", store]) == 0
    show = ["operation", "show", "1", *wait, "--set", store]
    assert main.run_command_line(show) == code
    told = capsys.readouterr().out
    assert "state      done, not all sent: every message was examined" in told
    assert "result     1 wait to be sent" in told
    assert main.run_command_line([*show, "--output", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["operation"]["state"], found["result"]) == ("done", "not_sent")
    assert main.run_command_line(["operations", "--set", store]) == 0
    assert "done, not all sent" in capsys.readouterr().out
