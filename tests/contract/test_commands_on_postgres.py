"""Commands on a schedule in PostgreSQL; `unit/cli/test_cli.py` tests what they print."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from amqsidecar.cli import main
from amqsidecar.clock import SystemClock
from amqsidecar.model.schedule import RowState
from amqsidecar.stores.postgres.store import PostgresStore
from support.stores.postgres_server import PostgresServer
from support.stores.rows import scheduled, taken_row, took

FAR_MS = 4_000_000_000_000

Run = Callable[..., Any]


@pytest.fixture
def service(postgres_url: str) -> Iterator[PostgresStore]:
    """A service that is alive and has taken two messages; one is held."""
    store = PostgresStore(postgres_url, clock=SystemClock())
    store.lock_for_service()
    state = store.open()
    first = store.allocate_ids(2)
    rows = [
        taken_row(first, due_at_ms=FAR_MS, redelivery_id=f"{state.uid}-{first:012d}"),
        taken_row(first + 1, state=RowState.HELD),
    ]
    with store.transaction() as tx:
        tx.record_cycle(
            1, rows, [], [event for row in rows for event in (took(row), scheduled(row))]
        )
    with store.transaction() as tx:
        tx.finish_cycle(1)
    yield store
    store.close()


@pytest.fixture
def run(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: str) -> Any:
        options = ("--output", "json", "--set", f"store.url={postgres_url}")
        assert main.run_command_line([*arguments, *options]) == 0
        return json.loads(capsys.readouterr().out)

    return command


def test_people_see_and_change_it_beside_a_service(service: PostgresStore, run: Run) -> None:
    found = run("status")
    assert found["total"] == 2
    [instance] = found["instances"]
    assert instance["instance"] == service.open().instance
    assert (instance["is_held"], instance["cycle"]) == (True, 1)
    assert run("status", "--set", f"store.instance={instance['instance']}")["total"] == 2
    first, second = (row["id"] for row in run("list")["rows"])
    assert [event["type"] for event in run("show", str(first))["history"]][:1] == ["received"]
    run("retry", str(first))
    due_ms = service.next_due_ms()
    assert due_ms is not None
    assert due_ms < FAR_MS
    run("hold", str(first))
    assert service.next_due_ms() is None
    run("release", "--all", "--yes")
    run("give-up", str(second), "--yes")
    states = {row["id"]: (row["state"], row["is_final"]) for row in run("list")["rows"]}
    assert states == {first: ("waiting", False), second: ("waiting", True)}


def test_a_message_that_is_gone_is_found_by_its_number_whoever_took_it(
    service: PostgresStore, run: Run, postgres_url: str
) -> None:
    other = PostgresStore(postgres_url, clock=SystemClock())
    other.lock_for_service()
    state = other.open()
    row_id = other.allocate_ids(1)
    row = taken_row(row_id, redelivery_id=f"{state.uid}-{row_id:012d}")
    with other.transaction() as tx:
        tx.record([took(row)])
    other.close()
    assert run("show", str(row_id))["redelivery_id"] == row.redelivery_id


def test_a_password_comes_from_a_file_and_is_never_shown(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    postgres.execute(sql.SQL("create role clerk login password 'geheim'"))
    file = tmp_path / "password"
    try:
        command = ["status", "--set", f"store.url={postgres.url(user='clerk')}"]
        command += ["--set", f"store.password_file={file}"]
        for text, words in (("geheim", "is empty"), ("falsch", "the password is wrong")):
            file.write_text(f"{text}\n")
            assert main.run_command_line(command) == 69
            said = capsys.readouterr().err
            assert words in said
            assert text not in said
    finally:
        postgres.execute(sql.SQL("drop role clerk"))


def test_without_the_driver_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("amqsidecar.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert main.run_command_line(["status", "--set", "store.url=postgresql://h/db"]) == 78
    assert 'pip install "amqsidecar[postgres]"' in capsys.readouterr().err
