"""Ids of a file select messages, each once; of copies one is enough."""

import json
from pathlib import Path

import pyarrow
import pytest
import typer
from pyarrow import parquet

from amqsidecar.cli import main
from amqsidecar.cli.opened import opened_view
from amqsidecar.cli.operate.commands import read_ids
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.operations.select import IDS_MAX
from amqsidecar.stores.sqlite.store import SqliteStore
from support.stores.rows import taken_row
from support.web.console_store import keep, open_store
from support.web.incident import keep_incident

FAR_MS = 4_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three rows that wait; the first two are copies of one publication."""
    path = tmp_path / "schedule.db"
    opened = SqliteStore(path, clock=SystemClock(), instance_name="test")
    copies = {1: "ID:1", 2: "ID:1", 3: "ID:2"}
    keep(opened, [taken_row(one, due_at_ms=FAR_MS, message_id=of) for one, of in copies.items()])
    opened.close()
    return path


def rows(path: Path) -> list[RowView]:
    with opened_view(load_config(None, [f"store.url=sqlite://{path}"], {})) as store:
        return sorted(store.list_rows(RowFilter(), 1_000), key=lambda row: row.id)


def left(path: Path) -> list[int]:
    return [row.id for row in rows(path)]


def ids(path: Path) -> list[str]:
    return [row.redelivery_id for row in rows(path)]


def discard(store: Path, *arguments: str) -> int:
    options = ["--set", f"store.url=sqlite://{store}", "--yes"]
    return main.run_command_line(["discard", *arguments, *options])


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder"])
def test_a_file_names_the_messages_of_an_action(kind: str, store: Path, tmp_path: Path) -> None:
    first, _, third = ids(store)
    path = tmp_path / f"ids.{kind}"
    if kind == "csv":
        path.write_text(f"destination,redelivery_id\na,{first}\nb,{third}\nb,{third}\n")
    else:
        table = pyarrow.table({"redelivery_id": [first, third, third], "n": [1, 2, 3]})
        if kind == "folder":
            path.mkdir()
        parquet.write_table(table, path / "part.parquet" if kind == "folder" else path)
    assert discard(store, "--ids-from", str(path)) == 0
    assert left(store) == [2]


def test_of_copies_with_one_message_id_the_first_is_taken(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("redelivery_id\n" + "\n".join(ids(store)) + "\n")
    assert discard(store, "--ids-from", str(path), "--one-per-message-id") == 0
    assert left(store) == [2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["--one-per-message-id", "--all"], [2], id="the first of copies"),
        pytest.param(["--limit", "2"], [3], id="exactly so many, the oldest first"),
        pytest.param(
            ["--limit", "2", "--one-per-message-id", "--older-than", "0s"],
            [2],
            id="a limit counts copies once",
        ),
    ],
)
def test_a_filter_selects(store: Path, options: list[str], expected: list[int]) -> None:
    assert discard(store, *options) == 0
    assert left(store) == expected


def test_a_limit_counts_what_the_action_changes(store: Path) -> None:
    url = ["--set", f"store.url=sqlite://{store}", "--yes"]
    assert main.run_command_line(["hold", "1", *url]) == 0
    assert main.run_command_line(["hold", "--limit", "1", *url]) == 0
    assert [row.state for row in rows(store)] == ["held", "held", "waiting"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("id\na\n", "names no column redelivery_id"),
        ("redelivery_id\n", "holds 0 ids"),
        ("redelivery_id\n" + "\n".join(map(str, range(IDS_MAX + 1))), "divide the file"),
    ],
    ids=["no column", "no id", "too many"],
)
def test_a_file_that_can_not_be_used_is_named(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text(content)
    with pytest.raises(typer.BadParameter, match=words):
        read_ids(path)


def test_ids_and_a_filter_are_not_given_together(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text("redelivery_id\nx\n")
    assert discard(store, "--ids-from", str(path), "--destination", "orders") == 2
    assert discard(store, "--ids-from", str(tmp_path / "none.csv")) == 2
    assert left(store) == [1, 2, 3]


def test_a_note_on_a_message_is_a_note_on_its_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "incident.db"
    opened = open_store(store)
    keep_incident(opened)
    opened.close()
    row = next(row for row in rows(store) if row.cause_group)
    options = ["--set", f"store.url=sqlite://{store}", "--output", "json"]
    assert main.run_command_line(["note", row.redelivery_id, "ask the bank", *options]) == 0
    [note] = json.loads(capsys.readouterr().out)
    found = note["destination"], note["cause_group"], note["text"]
    assert found == (row.destination, row.cause_group, "ask the bank")
