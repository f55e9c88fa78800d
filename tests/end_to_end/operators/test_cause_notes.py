"""Notes of consumers on real brokers: joined with their deaths, before and after, and obeyed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from amqsidecar.engine.crash_points import NAMES
from support.brokers.real import Broker
from support.jms.peer import JmsMessage, JmsPeer
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICIES = Path(__file__).parents[1] / "policies"

# The wire of the sidecar, and the client library and way to fail of the application.
WIRES = {
    "openwire": ("classic_6", "openwire", "rollback"),
    "stomp": ("classic_6", "openwire", "rollback"),
    "artemis": ("artemis", "qpid", "reject"),
    "core": ("artemis", "core", "rollback"),
    "amqp": ("artemis", "qpid", "reject"),
}


class Noted:
    """A queue whose consumers write notes."""

    def __init__(
        self,
        request: pytest.FixtureRequest,
        folder: Path,
        unique: str,
        wire: str,
        client: tuple[str, str, str] | None = None,
    ) -> None:
        name, provider, self._how = client or WIRES[wire]
        self._broker: Broker = request.getfixturevalue(name)
        self.peer = self._peer = JmsPeer.of(self._broker, provider)
        self.queue, self.notes = f"e2e.late.{unique}", f"amqsidecar.causes.{unique}"
        policy = POLICIES / ("artemis.yaml" if name == "artemis" else "redelivery.yaml")
        self.sidecar = SidecarProcess(
            folder,
            self._url(wire),
            policy=policy,
            sets=[
                f"intake.cause_notes={self.notes}",
                "intake.backlog=process",
                "policy.verdicts=obey",
                "redelivery.allowed_origins=[e2e.>]",
                *(["intake.allow_lossy=[body_type]"] if wire == "stomp" else []),
            ],
        )

    def _url(self, wire: str) -> str:
        name = {"artemis": "pair_url"}.get(wire, f"{wire}_url")
        return str(getattr(self._broker, name))

    def produce(self, count: int) -> list[JmsMessage]:
        return self._peer.produce(
            self.queue, "Text", count=count, group=None, sample_properties=False, text="an order"
        )

    def write(self, message: JmsMessage, **fields: Any) -> None:
        self.write_text(json.dumps({"message_id": message.message_id, **fields}))

    def write_text(self, text: str) -> None:
        self._peer.produce(self.notes, "Text", text=text, group=None, sample_properties=False)

    def fail(self, count: int) -> list[JmsMessage]:
        # Why ten: the broker gives up what is rolled back over Core then.
        deliveries = 10 if self._peer.provider == "core" else 1
        return list(self._peer.fail(self.queue, self._how, messages=count, deliveries=deliveries))

    def consume(self, queue: str) -> list[JmsMessage]:
        return list(self._peer.consume(queue, count=1))

    def rows(self) -> dict[str, dict[str, Any]]:
        found = self.sidecar.rows("--destination", self.queue)
        return {row["message_id"].removeprefix("ID:"): row for row in found}

    def wait_for_rows(self, count: int) -> None:
        eventually(lambda: len(self.rows()) == count, what=f"{count} have died")

    def row(self, message: JmsMessage) -> dict[str, Any]:
        return self.rows()[message.message_id.removeprefix("ID:")]

    def unread(self) -> int:
        """Return how many notes are in their queue."""
        return len(self._peer.browse(self.notes))

    def explained_of(self, message: JmsMessage) -> list[dict[str, Any]]:
        return self.explained(self.row(message))

    def explained(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        shown = self.sidecar.json_command("show", str(row["id"]))
        return [one for one in shown["history"] if one["type"] == "explained"]


@pytest.fixture(
    params=[
        "openwire",
        "artemis",
        *(pytest.param(one, marks=pytest.mark.proof) for one in ("stomp", "core", "amqp")),
    ]
)
def noted(request: pytest.FixtureRequest, tmp_path: Path, unique: str) -> Noted:
    return Noted(request, tmp_path, unique, request.param)


def test_notes_before_and_after_a_death_give_its_cause_once_and_bad_ones_do_no_harm(
    noted: Noted,
) -> None:
    early, late, silent = noted.produce(3)
    with noted.sidecar.running():
        noted.write_text("{")
        noted.write_text("x" * 300_000)
        noted.write_text(json.dumps({"message_id": "ID:forged", "exception": "x.Y"}))
        for _ in range(2):
            noted.write(early, exception="shop.NoStockException", text="item 7", stack_hash="a1")
        noted.fail(3)
        eventually(lambda: len(noted.rows()) == 3, what="all have died")
        # Why waited for: the note comes from another queue, and may be read after the death.
        eventually(lambda: noted.row(early)["cause"], what="the early note")
        assert noted.row(early)["cause"] == "shop.NoStockException: item 7"
        for _ in range(2):
            noted.write(
                late, exception="shop.TimeoutException", text="after 9 s", redelivery_count=0
            )
        eventually(
            lambda: "TimeoutException" in (noted.row(late)["cause"] or ""), what="the late note"
        )
        rows = {one: noted.row(message) for one, message in (("early", early), ("late", late))}
        groups = {one: row["cause_group"] for one, row in rows.items()}
        assert groups == {
            "early": "shop.NoStockException [stack=a1]",
            "late": "shop.TimeoutException: after * s",
        }
        assert [len(noted.explained(row)) for row in rows.values()] == [1, 1]
        assert noted.explained(noted.row(silent)) == []
        counted = noted.sidecar.json_command("groups", "--destination", noted.queue)
        told = {one["cause_group"]: one["total"] for one in counted}
        assert {group: told[group] for group in groups.values()} == dict.fromkeys(
            groups.values(), 1
        )
        assert sum(told.values()) == 3


@pytest.mark.parametrize(
    "wire", ["artemis", *(pytest.param(one, marks=pytest.mark.proof) for one in ("core", "amqp"))]
)
def test_an_openwire_client_of_artemis_is_joined_by_the_id_that_it_saw(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, wire: str
) -> None:
    """All other clients see another id of the same message: `list` shows theirs."""
    noted = Noted(request, tmp_path, unique, wire, ("artemis", "openwire", "rollback"))
    [message] = noted.produce(1)
    # Why first: the queue of notes must exist.
    noted.write(message, exception="shop.Early", queue=noted.queue, redelivery_count=0)
    with noted.sidecar.running():
        eventually(lambda: noted.unread() == 0, what="the note is read before the death")
        [seen] = noted.fail(1)
        assert seen.message_id == message.message_id
        noted.wait_for_rows(1)
        [first] = noted.rows().values()
        assert first["message_id"] != message.message_id
        assert first["cause"] == "shop.Early"
        noted.sidecar.json_command("retry", str(first["id"]))
        [again] = noted.fail(1)
        assert again.message_id == message.message_id
        noted.wait_for_rows(1)
        fields = {"exception": "shop.Late", "queue": noted.queue, "redelivery_count": 1}
        noted.write(again, **fields)
        eventually(lambda: noted.unread() == 0, what="the late note is read")
        eventually(lambda: "Late" in (_only(noted)["cause"] or ""), what="the late note")
        assert len(noted.explained(_only(noted))) == 2


def _only(noted: Noted) -> dict[str, Any]:
    [row] = noted.rows().values()
    return row


def test_verdicts_are_obeyed_before_and_after_the_death(noted: Noted) -> None:
    verdicts = {
        "never": {"action": "never"},
        "retry": {"action": "retry_after", "delay_ms": 7_200_000},
        "redirect": {"action": "redirect", "destination": f"queue://{noted.queue}.repair"},
        "outside": {"action": "redirect", "destination": "queue://elsewhere"},
    }
    early = dict(zip(verdicts, noted.produce(4), strict=True))
    late = dict(zip(verdicts, noted.produce(4), strict=True))
    with noted.sidecar.running():
        for name, verdict in verdicts.items():
            noted.write(early[name], exception="shop.Bug", consumer="shop", verdict=verdict)
        noted.fail(8)
        eventually(lambda: len(noted.rows()) == 7, what="all but the redirected one wait there")
        for name, verdict in verdicts.items():
            noted.write(late[name], exception="shop.Bug", consumer="shop", verdict=verdict)
        eventually(lambda: noted.row(late["never"])["state"] == "exhausted", what="the late notes")
        eventually(lambda: len(noted.rows()) == 6, what="the late redirect")
        for messages in (early, late):
            eventually(partial(noted.explained_of, messages["outside"]), what="the last note")
        for messages in (early, late):
            assert noted.row(messages["never"])["state"] == "exhausted"
            retried = noted.row(messages["retry"])
            assert retried["due_at_ms"] - retried["received_at_ms"] == 7_200_000
            outside = noted.row(messages["outside"])
            assert outside["due_at_ms"] - outside["received_at_ms"] == 3_600_000
            [explained] = noted.explained(outside)
            assert explained["answer"].startswith("not obeyed")
        assert "verdict of shop: never (shop.Bug)" in noted.row(early["never"])["rule"]


@pytest.mark.proof
def test_a_kill_costs_causes_and_doubles_none(noted: Noted) -> None:
    """What a cycle that is undone has read comes again; after a commit notes are forgotten."""
    died: dict[str, str] = {}
    for name in NAMES:
        early, late = noted.produce(2)
        for _ in range(2):
            noted.write(early, exception=f"shop.Early-{name}")
        noted.fail(2)
        died |= {early.message_id: f"shop.Early-{name}", late.message_id: f"shop.Late-{name}"}
        noted.sidecar.die_at(f"{name}:1")
        with noted.sidecar.running():
            noted.wait_for_rows(len(died))
            for _ in range(2):
                noted.write(late, exception=f"shop.Late-{name}")
            eventually(lambda: noted.unread() == 0, what="the notes are read")
        if name in ("gathered", "stored", "sent"):
            assert len(noted.explained(noted.row(early))) == 1, name
    for message_id, exception in died.items():
        row = noted.rows()[message_id.removeprefix("ID:")]
        shown = noted.sidecar.json_command("show", str(row["id"]))["history"]
        assert [one["type"] for one in shown].count("received") == 1
        assert [one["cause"] for one in shown if one["type"] == "explained"] in ([], [exception])


@pytest.mark.postgres
def test_a_note_outlives_the_death_of_the_sidecar_that_read_it(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, postgres_url: str
) -> None:
    """Two sidecars share a schedule: each may read the notes of any death."""
    noted = Noted(request, tmp_path, unique, "artemis")
    noted.sidecar.options.append(f"store.url={postgres_url}")
    (tmp_path / "victim").mkdir()
    victim = SidecarProcess(tmp_path / "victim", "")
    victim.options = noted.sidecar.options

    def handed_over() -> int:
        with psycopg.connect(postgres_url) as connection:
            return len(connection.execute("SELECT 1 FROM amqsidecar.shared_note").fetchall())

    # Why first: the queue of notes must exist.
    noted.write_text("{}")
    [message] = noted.produce(1)
    with noted.sidecar, victim:
        victim.start()
        noted.write(message, exception="shop.Bug")
        eventually(lambda: handed_over() == 1, what="the note is in the database")
        victim.kill()
        noted.sidecar.start()
        noted.fail(1)
        noted.wait_for_rows(1)
        eventually(lambda: noted.row(message)["cause"] == "shop.Bug", what="its cause")
        assert len(noted.explained_of(message)) == 1
