"""`groups --suggest` on a real store."""

import json
from pathlib import Path

import pytest

from amqsidecar.cli import main
from amqsidecar.clock import SystemClock
from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.stores.sqlite.store import SqliteStore
from support.web.console_store import dead, keep


def test_suggest_prints_fields_with_their_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schedule.db"
    store = SqliteStore(path, clock=SystemClock(), instance_name="test")
    keep(
        store,
        [
            dead(
                number,
                None,
                1_000,
                destination=f"queue://{'orders' if number < 9 else 'bills'}",
                encoding=ENCODING,
                message=kept([(b"code", b"\x1b[2J%d" % (number % 2))], b""),
            )
            for number in range(1, 10)
        ],
    )
    store.close()
    where = ("--set", f"store.url=sqlite://{path}")

    assert main.run_command_line(["groups", "--suggest", *where]) == 0
    printed = capsys.readouterr()
    assert "queue://orders: fields of 8 messages\n  property:code: " in printed.out
    assert "\x1b" not in printed.out
    assert "queue://bills: no field divides the 1 examined messages" in printed.err

    asked = ["groups", "--suggest", "--destination", "orders", "--output", "json", *where]
    assert main.run_command_line(asked) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert [one["field"] for one in found["fields"]] == ["property:code"]
