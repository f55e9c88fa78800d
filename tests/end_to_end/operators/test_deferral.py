"""Messages wait for events outside on real brokers: over kills, and with what they meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.engine.crash_points import NAMES
from amqsidecar.model.schedule import RowState
from end_to_end.operators.test_cause_notes import Noted
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS
from support.brokers.purge import manage_artemis
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.sidecar.process import SidecarProcess
from support.tier import at_length
from support.waiting import eventually
from support.web.client import web_client
from support.wires.stomp_peer import StompPeer

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(5400, otherwise=900))]

COUNT: Final = 3
TOKENS: Final = at_length(100_000, otherwise=400)
PART: Final = at_length(1_000, otherwise=20)
KILLS: Final = at_length(40, otherwise=6)
POLICIES: Final = Path(__file__).parents[1] / "policies"
RULE: Final = """\
policy:
  plugins:
    - rules:
        rules:
          - queue: "{queue}"
            properties: {{{name}: {{matches: ".+"}}}}
            redeliver: {{maximum_redeliveries: 3, redelivery_delay_ms: 2000, until: "t-{{{name}}}"}}
"""


def write_rule(folder: Path, queue: str, name: str) -> dict[str, str]:
    config = folder / "sidecar.yaml"
    config.write_text(RULE.format(queue=queue, name=name))
    return {"AMQSIDECAR_CONFIG": str(config)}


def report(peer: JmsPeer, queue: str, names: Sequence[str]) -> None:
    """Report events, as a program does that knows the broker only."""
    for at in range(0, len(names), 1_000):
        # Why no others: a number among its properties would keep a report from STOMP.
        text = {"destination": queue, "type": "Text", "sampleProperties": False}
        peer.produce_each([{**text, "text": one} for one in names[at : at + 1_000]])


ALONE: Final = (
    ("stomp", None),
    ("amqp_jms", ("classic_6", "openwire", "rollback")),
    ("amqp", None),
    ("core", None),
)
"""The other wires, each with the broker's and the application's if not those of `Noted`.

STOMP on Artemis has a test of its own: it brings only what STOMP clients report.
"""


@pytest.mark.parametrize(
    ("wire", "client"),
    [
        ("openwire", None),
        ("artemis", None),
        *(pytest.param(*one, marks=pytest.mark.proof) for one in ALONE),
    ],
)
def test_messages_wait_for_their_events_over_kills(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    unique: str,
    wire: str,
    client: tuple[str, str, str] | None,
) -> None:
    noted = Noted(request, tmp_path, unique, wire, client)
    events = f"amqsidecar.events.{unique}"
    noted.sidecar.options.append(f"intake.events={events}")
    if wire == "amqp_jms":
        noted.sidecar.options.append(f"intake.origin={{ActiveMQ.DLQ: {noted.queue}}}")
    sidecar, messages = noted.sidecar, noted.produce(COUNT)

    def states() -> list[str]:
        return sorted(row["state"] for row in noted.rows().values())

    with sidecar.start():
        for number, message in enumerate(messages):
            verdict: dict[str, Any] = {"action": "wait_for", "event": f"invoice/{number}"}
            noted.write(message, exception="shop.NoInvoice", consumer="shop", verdict=verdict)
        noted.fail(COUNT)
        eventually(lambda: states() == ["held"] * COUNT, what="all wait")
        row = noted.row(messages[0])
        assert row["reason"].startswith("waits for invoice/0, at the latest until ")
        assert "waits for invoice/0" in sidecar.run_command("show", str(row["id"]))
        found = sidecar.json_command("list", "--event", "invoice/0")["rows"]
        assert [one["id"] for one in found] == [row["id"]]
        # The service is killed; the event is reported while it is away.
        sidecar.kill()
        sidecar.run_command("event", "invoice/0")
    with sidecar.start():
        [first] = noted.consume(noted.queue)
        assert first.test_id == messages[0].test_id
        # Its row leaves the schedule when the broker has confirmed the message, after its consumer.
        eventually(lambda: states() == ["held"] * (COUNT - 1), what="the first has left")
        sidecar.kill()
    report(noted.peer, events, ["invoice/\x07", "invoice/1"])
    sidecar.die_at("stored:1")
    sidecar.die_at("sent:1")
    with sidecar.start():
        [second] = noted.consume(noted.queue)
        assert second.test_id == messages[1].test_id
        eventually(lambda: states() == ["held"], what="the second has left")
        row = noted.row(messages[2])
        shown = sidecar.json_command("show", str(row["id"]))
        with web_client(f"http://{sidecar._http}/api/v1") as api:
            for name, ids in (("invoice/1", []), ("invoice/2", [row["id"]])):
                found = api.get("/messages", params={"event": name}).json()["rows"]
                assert [one["id"] for one in found] == ids
            headers = {"X-CSRF-Token": api.get("/session").json()["csrf"]}
            answer = api.post("/events/invoice%2F2", headers=headers)
            assert (answer.status_code, answer.json()["name"]) == (200, "invoice/2")
        [third] = noted.consume(noted.queue)
        assert third.test_id == messages[2].test_id
        eventually(lambda: states() == [], what="the third has left")
        assert sidecar.stop() == 0
    assert [one["type"] for one in shown["history"]].count("held") == 1
    assert noted.peer.browse(events) == []
    assert "event_unreadable" in sidecar.log()


@pytest.mark.proof
def test_stomp_clients_report_events_to_a_sidecar_on_stomp(
    request: pytest.FixtureRequest, artemis: ArtemisBroker, tmp_path: Path, unique: str
) -> None:
    noted = Noted(request, tmp_path, unique, "stomp", ("artemis", "core", "rollback"))
    events = f"amqsidecar.events.{unique}"
    noted.sidecar.options.append(f"intake.events={events}")
    [message] = noted.produce(1)
    with noted.sidecar.start() as sidecar, StompPeer(artemis.ports["PORT"]) as stomp:
        noted.fail(1)
        noted.wait_for_rows(1)
        row = str(noted.row(message)["id"])
        sidecar.run_command("hold", row, "--yes", "--until", "invoice-1")
        stomp.send(events, {}, b"invoice-1")
        [back] = noted.consume(noted.queue)
        assert back.test_id == message.test_id
        eventually(lambda: noted.rows() == {}, what="it has left")
        assert sidecar.stop() == 0


def test_a_wait_ends_at_its_longest_time_also_after_a_move_and_in_manual_mode(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str
) -> None:
    """A person holds; then meet a schedule that moves, manual mode, and `wait_ends: exhaust`."""
    noted = Noted(request, tmp_path, unique, "artemis")
    sidecar, [first, second, third] = noted.sidecar, noted.produce(3)

    def hold(message: Any, name: str, at_most: str) -> dict[str, Any]:
        row = noted.row(message)
        arguments = (str(row["id"]), "--yes", "--until", name, "--at-most", at_most)
        sidecar.run_command("hold", *arguments)
        return row

    def states_of(message: Any) -> list[str]:
        found = noted.rows().items()
        return [row["state"] for name, row in found if message.message_id.endswith(name)]

    def history(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        return list(sidecar.json_command("show", str(row["redelivery_id"]))["history"])

    with sidecar.start():
        noted.fail(3)
        noted.wait_for_rows(3)
        row = hold(first, "never-1", "3s")
        [back] = noted.consume(noted.queue)
        assert back.test_id == first.test_id
        held, released = (
            next(one for one in history(row) if one["type"] == kind)
            for kind in ("held", "released")
        )
        assert released["actor"] == "the longest wait for never-1 has passed"
        assert released["at_ms"] - held["at_ms"] >= 3_000
        hold(second, "invoice-1", "1h")
        longer = ("--until", "invoice-2", "--at-most", "1d")
        sidecar.run_command("hold", "--event", "invoice-1", "--yes", *longer)
        ended = hold(third, "never-3", "1h")
        assert sidecar.stop() == 0
    moved = f"sqlite:///{tmp_path / 'moved.db'}"
    sidecar.run_command("schedule move", "--to", moved)
    sidecar.options += [f"store.url={moved}", "redelivery.mode=manual", "policy.wait_ends=exhaust"]
    with sidecar.start():
        assert noted.row(second)["reason"].startswith("waits for invoice-2, at the latest until ")
        sidecar.run_command("event", "invoice-2")
        # It was sent again, and dies where only a person takes it: no rule lets it wait once more.
        assert [one.test_id for one in noted.fail(1)] == [second.test_id]
        eventually(lambda: "exhausted" in states_of(second), what="it lies in its queue")
        sidecar.run_command("release", str(ended["id"]), "--yes")
        hold(third, "never-3", "1s")
        eventually(lambda: "exhausted" in states_of(third), what="its wait has ended")
        assert sidecar.stop() == 0
    last = [one for one in history(ended) if one["type"] == "exhausted"][-1]
    assert last["rule"] == "the longest wait for never-3 has passed"


class Invoices:
    """Messages of one group, the first of which waits for an event by a rule."""

    def __init__(self, artemis: ArtemisBroker, folder: Path, unique: str) -> None:
        self.queue, self.events = f"e2e.back.{unique}", f"amqsidecar.events.{unique}"
        self.peer = JmsPeer.of(artemis, "qpid")
        self._url, self._folder = artemis.pair_url, folder
        self._environ = write_rule(folder, self.queue, "invoice")

    def sidecar(self, name: str, *sets: str) -> SidecarProcess:
        folder = self._folder / name
        folder.mkdir()
        return SidecarProcess(
            folder,
            self._url,
            policy=POLICIES / "artemis.yaml",
            sets=[f"intake.events={self.events}", "intake.backlog=process", *sets],
            environ=self._environ,
        )

    def rows(self, sidecar: SidecarProcess) -> list[dict[str, Any]]:
        found = sidecar.json_command("list", "--destination", self.queue)["rows"]
        return sorted(found, key=lambda row: row["id"])

    def die_again(self, sidecar: SidecarProcess) -> str:
        """Report the event of the first, let that die again, and return its redelivery id."""
        report(self.peer, self.events, ["t-8", "t-7"])
        [again] = self.peer.fail(self.queue, "reject", messages=1)
        assert again.value("invoice") == "7"
        assert sidecar.is_running()
        return str(again.value("amqsidecarRedeliveryId"))

    @staticmethod
    def check(history: Sequence[Mapping[str, Any]]) -> None:
        """See that the event of before ended the second wait no earlier than the rule's delay."""
        kinds = [one["type"] for one in history]
        assert [kinds.count(one) for one in ("held", "released", "resent")] == [2, 2, 2]
        resent = [one["at_ms"] for one in history if one["type"] == "resent"]
        died = next(one["at_ms"] for one in history if one["type"] == "returned")
        assert resent[1] - died >= 2_000


def test_a_group_behind_one_that_waits_keeps_its_order_over_a_kill_and_a_second_death(
    artemis: ArtemisBroker, tmp_path: Path, unique: str
) -> None:
    invoices = Invoices(artemis, tmp_path, unique)
    sidecar = invoices.sidecar(
        "one", 'policy.gates=[{"order": {"default_entry": {"verdict_ms": 4000}}}]'
    )

    def are_behind() -> bool:
        rows = invoices.rows(sidecar)
        states = [row["state"] for row in rows] == ["held", "waiting"]
        return states and "of its group goes first" in (rows[1]["reason"] or "")

    with sidecar.start():
        invoices.peer.produce(
            invoices.queue, "Text", test_id="a", group="g", properties={"invoice": "7"}
        )
        invoices.peer.produce(invoices.queue, "Text", test_id="b", group="g")
        invoices.peer.fail(invoices.queue, "reject", messages=2)
        eventually(are_behind, what="the second waits for the first")
        sidecar.kill()
        sidecar.start()
        redelivery_id = invoices.die_again(sidecar)
        arrived = invoices.peer.consume(invoices.queue, count=2)
        assert [str(one.test_id)[0] for one in arrived] == ["a", "b"]
        shown = sidecar.json_command("show", redelivery_id)
        assert sidecar.stop() == 0
    invoices.check(shown["history"])


class Tokens:
    """Messages that died, each of which waits for an event of its own."""

    def __init__(self, broker: ArtemisBroker, folder: Path, unique: str) -> None:
        self.orders, self.events = f"{unique}.orders", f"amqsidecar.events.{unique}"
        self.peer, self._broker = JmsPeer.of(broker, "qpid"), broker
        self.sidecar = SidecarProcess(
            folder,
            broker.pair_url,
            sets=[
                f"intake.events={self.events}",
                "intake.backlog=process",
                f"cycle.max_messages={PART}",
            ],
            environ=write_rule(folder, self.orders, "n"),
        )

    def kill_all(self) -> None:
        self.peer.fill(self.orders, TOKENS, size=100, batch=2_000)
        ask = ManagementQuestion(
            f"queue.{self.orders}", "sendMessagesToDeadLetterAddress", ("",), ""
        )
        while int(str(manage_artemis(self._broker, ask))):
            pass

    def held(self) -> int:
        found = self.sidecar.finished_status().waiting
        return sum(one.count for one in found if one.state is RowState.HELD)

    def wait_until(self, held: int) -> None:
        eventually(
            lambda: self.held() == held,
            within_s=1_800,
            what=f"{held} wait for their events",
            last=lambda _: f"{self.held()}\n{self.sidecar.log()[-2000:]}",
        )

    def wait_until_fewer(self, than: int) -> None:
        eventually(lambda: self.held() < than, within_s=1_800, what=f"less than {than} wait")

    def arrived(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            some = self.peer.consume(self.orders, count=min(1_000, count - len(found)))
            found += [int(str(one.test_id).removeprefix("n")) for one in some]
        return found + [
            int(str(one.test_id).removeprefix("n"))
            for one in self.peer.consume(self.orders, wait_ms=300)
        ]


@contextmanager
def waiting(folder: Path, unique: str) -> Iterator[Tokens]:
    settings = STOCK_ADDRESS_SETTINGS + (
        '<address-setting match="DLQ"><max-delivery-attempts>-1</max-delivery-attempts>'
        "</address-setting>"
        '<address-setting match="amqsidecar.#"><max-delivery-attempts>-1</max-delivery-attempts>'
        "</address-setting>"
    )
    with ArtemisBroker(address_settings=settings) as broker:
        tokens = Tokens(broker, folder, unique)
        with tokens.sidecar:
            yield tokens


# Why in proof: above, each of a few is released over kills.
@pytest.mark.proof
def test_each_token_is_released_once_by_its_event_while_the_sidecar_is_killed(
    tmp_path: Path, unique: str
) -> None:
    with waiting(tmp_path, unique) as tokens:
        sidecar = tokens.sidecar
        tokens.kill_all()
        sidecar.start()
        tokens.wait_until(TOKENS)
        sidecar.kill()
        even = range(0, TOKENS, 2)
        report(tokens.peer, tokens.events, [f"t-{n}" for n in even])
        for kill in range(KILLS):
            sidecar.die_at(f"{NAMES[1 + kill % (len(NAMES) - 1)]}:1")
        # Between two steps of the releases, wherever that is.
        for left in (TOKENS, TOKENS * 3 // 4, TOKENS // 2 + 1):
            sidecar.start(ready=False)
            tokens.wait_until_fewer(left)
            sidecar.kill()
        sidecar.start()
        tokens.wait_until(TOKENS // 2)
        assert sorted(tokens.arrived(len(even))) == [*even]
        report(tokens.peer, tokens.events, [f"t-{n}" for n in range(1, TOKENS, 2)])
        assert sorted(tokens.arrived(TOKENS // 2)) == [*range(1, TOKENS, 2)]
        eventually(lambda: sidecar.finished_status().total == 0, what="nothing waits any more")
        assert sidecar.stop() == 0
