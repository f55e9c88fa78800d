"""Gates before a real broker: paced, probed, outside its window; nothing is lost or doubled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.messages.kept_message import group_of
from amqsidecar.model.destination import queue
from amqsidecar.model.event import Resent
from amqsidecar.model.sidecar_names import PROPERTY_REDELIVERY_ID
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.wiring.links import LinkMaker
from support.brokers.real import ArtemisBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.links.stomp_artemis import StompArtemisHarness
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

POLICY = Path(__file__).parents[1] / "policies" / "artemis.yaml"


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with ArtemisBroker() as started:
        yield started


def sidecar_with(folder: Path, broker: ArtemisBroker, gates: str) -> SidecarProcess:
    return sidecar_at(folder, broker.pair_url, POLICY, gates)


def sidecar_at(folder: Path, url: str, policy: Path, gates: str) -> SidecarProcess:
    sets = ["intake.backlog=process", f"policy.gates={gates}"]
    return SidecarProcess(folder, url, policy=policy, sets=sets)


def stage(
    request: pytest.FixtureRequest, folder: Path, name: str, gates: str
) -> tuple[JmsPeer, str, SidecarProcess]:
    """Return a consumer at a broker, how it fails for good, and a sidecar with gates."""
    broker = request.getfixturevalue("broker" if name == "artemis" else name)
    if name == "artemis":
        return JmsPeer.of(broker, "qpid"), "reject", sidecar_with(folder, broker, gates)
    url, policy = broker.openwire_url, POLICY.with_name("redelivery.yaml")
    return JmsPeer.of(broker, "openwire"), "rollback", sidecar_at(folder, url, policy, gates)


def die(peer: JmsPeer, queue: str, count: int, how: str = "reject") -> None:
    peer.produce(queue, ["Text"], count=count)
    fail(peer, queue, count, how)


def fail(peer: JmsPeer, queue: str, count: int, how: str = "reject") -> None:
    peer.fail(queue, how, messages=count, deliveries=1, quiet_ms=0)


def waiting_for(sidecar: SidecarProcess, queue: str, reason: str, count: int) -> None:
    """Wait until so many rows are all that a queue has, and each has a reason (an expression)."""

    def is_so() -> bool:
        reasons = [row["reason"] or "" for row in sidecar.rows("--destination", queue)]
        return len(reasons) == count and all(re.search(reason, one) for one in reasons)

    eventually(is_so, what=f"{count} rows of {queue} wait: {reason}")


def resent_ms(folder: Path, messages: Sequence[JmsMessage]) -> list[list[int]]:
    """Return when each message was re-sent, by the history; the sidecar has ended."""
    store = SqliteStore(folder / "schedule.db", clock=SystemClock())
    store.open()
    names = [str(message.value(PROPERTY_REDELIVERY_ID)) for message in messages]
    told = [[e.at_ms for e in store.history(one) if isinstance(e, Resent)] for one in names]
    store.close()
    assert len(set(names)) == len(messages)
    return told


@pytest.mark.parametrize(
    "name",
    [
        "artemis",
        *(pytest.param(one, marks=pytest.mark.proof) for one in ("classic_5", "classic_6")),
    ],
)
def test_a_group_goes_in_order_also_past_a_restart_while_others_do_not_wait(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, name: str
) -> None:
    """The first one dies three times before it gets through."""
    queue, verdict_ms = f"e2e.back.{unique}", 8_000
    gates = f'[{{"order": {{"default_entry": {{"verdict_ms": {verdict_ms}}}}}}}]'
    peer, how, sidecar = stage(request, tmp_path, name, gates)
    with sidecar.running():
        kinds: list[dict[str, Any]] = [{"kind": "grouped"}, {"kind": "single"}]
        peer.produce(queue, ["Text"], count=5, test_id="g", group="g", properties=kinds[0])
        peer.produce(queue, ["Text"], count=3, test_id="s", group=None, properties=kinds[1])
        fail(peer, queue, 8, how)
        peer.consume(queue, count=3, selector="kind = 'single'")

        def is_named() -> bool:
            reasons = [row["reason"] or "" for row in sidecar.rows("--destination", queue)]
            return sum("of its group goes first" in one for one in reasons) == 4

        # Why before: what takes longer than the verdict to fail lets the next one go.
        with ThreadPoolExecutor(1) as pool:
            failing = pool.submit(peer.fail, queue, how, messages=1, deliveries=2, quiet_ms=0)
            eventually(is_named, what="four wait for the first")
            failing.result()
        assert sidecar.stop() == 0
        sidecar.start()
        arrived = peer.consume(queue, count=5, wait_ms=90_000)
    assert [str(message.test_id)[-1] for message in arrived] == list("01234")
    (*_, last), *others = resent_ms(tmp_path, arrived)
    assert len(_) == 2
    for [at_ms] in others:
        assert at_ms - last >= verdict_ms
        last = at_ms


@pytest.mark.parametrize(
    ("name", "url", "provider"),
    [
        ("artemis", "amqp_url", "core"),
        ("artemis", "amqp_url", "openwire"),
        ("artemis", "amqp_url", "qpid"),
        ("classic_5", "openwire_url", "openwire"),
        ("classic_5", "openwire_url", "qpid-jms"),
        ("classic_5", "amqp_jms_url", "openwire"),
        ("classic_5", "amqp_url", "qpid"),
    ],
)
def test_the_group_is_read_over_openwire_and_amqp(
    request: pytest.FixtureRequest, unique: str, name: str, url: str, provider: str
) -> None:
    stock = request.getfixturevalue(name)
    JmsPeer.of(stock, provider).produce(unique, "Text", sample_properties=False, group="grün")
    sets = [f"broker.url={getattr(stock, url)}", f"intake.queues=[{unique}]"]
    if url == "amqp_url" and name == "classic_5":
        sets.append("intake.producers=amqp")
    made = LinkMaker(load_config(None, sets, {}), SystemClock()).make(unique)
    with closing(made.take(f"amqsidecar.token.{unique}")) as link:
        link.attach([IntakeQueue(queue(unique), origin=queue("orders"))], 10)
        found: list[Delivery] = []

        def is_there() -> bool:
            link.wait(0.1)
            found.extend(link.receive(10))
            return len(found) == 1

        eventually(is_there, what="the message")
        assert group_of(link.description.encodings[0], found[0].message) == "grün"


def test_the_group_is_read_over_stomp_on_artemis(broker: ArtemisBroker, unique: str) -> None:
    harness = StompArtemisHarness(broker, unique)
    with closing(harness), ExitStack() as stack:
        core, name = JmsPeer.of(broker, "core"), f"{harness.prefix}.orders"
        harness.put(name, b"of STOMP", JMSXGroupID="grün")
        # Why not by name: the client would number it, and a number is what STOMP loses.
        in_group = {"JMSXGroupID": "grün"}
        plain: dict[str, Any] = {"sample_properties": False, "group": None, "text": "of core"}
        core.produce(name, "Text", properties=in_group, **plain)
        harness.kill(name)
        link = stack.enter_context(closing(harness.make_link(unique).take(f"{unique}.token")))
        link.token.create(1)
        assert link.token.take(PATIENCE_S) == 1
        link.attach([harness.intake()], 10)
        found: list[Delivery] = []

        def are_there() -> bool:
            link.wait(0.1)
            arrived = link.receive(10)
            if arrived:
                # Why: what is in hand keeps what STOMP did not make from being asked for.
                link.commit_cycle(arrived, [], 2 + len(found))
            found.extend(arrived)
            return len(found) == 2

        eventually(are_there, what="the messages")
        groups = [group_of(link.description.encodings[0], one.message) for one in found]
        assert groups == ["grün", "grün"]


@pytest.mark.parametrize("name", ["artemis", pytest.param("classic_5", marks=pytest.mark.proof)])
def test_what_a_person_retries_goes_past_a_closed_window_and_an_open_breaker(
    request: pytest.FixtureRequest, tmp_path: Path, unique: str, name: str
) -> None:
    """And waits for them again when it dies again."""
    queue, closed = f"e2e.back.{unique}", "outside its window until"
    # Why either: a message that dies again before the breaker opens waits for its window.
    either = f"{closed}|breaker: open"
    gates = (
        '[{"breaker": {"default_entry": {"least": 3, "wait_ms": 86400000}}},'
        ' {"windows": {"default_entry": {"windows": [{"opens": "0 0 29 2 *"}]}}}]'
    )
    peer, how, sidecar = stage(request, tmp_path, name, gates)

    def retry(*chosen: str) -> None:
        sidecar.run_command("retry", *chosen, "--yes")

    with sidecar.running():
        die(peer, queue, 3, how)
        waiting_for(sidecar, queue, closed, 3)
        retry("--destination", queue)
        fail(peer, queue, 3, how)
        waiting_for(sidecar, queue, either, 3)
        # Why of it: what other tests have left in this broker waits as well.
        gates = sidecar.json_command("status")["gates"]
        told = [one for one in gates if one["destination"] == f"queue://{queue}"]
        assert "breaker" in [one["gate"] for one in told]
        assert sum(one["count"] for one in told) == 3
        retry(str(sidecar.rows("--destination", queue)[0]["id"]))
        arrived = peer.consume(queue, count=1)
        waiting_for(sidecar, queue, either, 2)
        retry("--destination", queue)
        arrived += peer.consume(queue, count=2)
    assert len({message.test_id for message in arrived}) == 3
