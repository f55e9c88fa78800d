"""What Artemis would lose, copy or misread stays in the schedule, whoever asks for its send."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.brokers.real import Broker
from support.jms.peer import JmsPeer
from support.links.origins import Origins
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

COUNT = 3
RED = "color = 'red'"
POLICY = """
address_settings:
  - match: "#"
    dead_letter_address: {dlq}
    max_delivery_attempts: {attempts}
    redelivery_delay_ms: {delay_ms}
"""
RULES = """
policy:
  plugins:
    - rules:
        rules:
          - queue: "{queue}"
            {action}
intake:
  backlog: process
"""
FINAL_ACTS = {
    "full": ("address-full-policy is DROP", "PAGE</address-full-policy>"),
    "filter": ("does not match the filter", "updateQueue"),
    "ring": ("ring queue of 2 messages", 'ring-size="-1"'),
    "divert": ("exclusive divert", "amqsidecarRedeliveryCount IS NULL"),
}


@pytest.fixture(
    params=[
        "core",
        *(pytest.param(name, marks=pytest.mark.proof) for name in ("amqp", "stomp", "artemis")),
    ]
)
def origins(artemis: Broker, unique: str, request: pytest.FixtureRequest) -> Iterator[Origins]:
    made = Origins(artemis, unique, request.param)
    yield made
    made.close()


@contextmanager
def running(
    origins: Origins,
    folder: Path,
    action: str = "",
    *sets: str,
    attempts: int = 9,
    delay_ms: int = 0,
) -> Iterator[SidecarProcess]:
    """Run a sidecar by a policy and, if one is given, a rule about queue `a`."""
    dlq = f"{origins.prefix}.DLQ"
    policy = write_policy(folder, POLICY.format(dlq=dlq, attempts=attempts, delay_ms=delay_ms))
    environ = {}
    if action:
        config = folder / "sidecar.yaml"
        config.write_text(RULES.format(queue=f"{origins.prefix}.a", action=action))
        environ["AMQSIDECAR_CONFIG"] = str(config)
    given = ["intake.backlog=process", f"intake.queues={dlq}", *sets]
    with SidecarProcess(
        folder, origins.url, policy=policy, sets=given, environ=environ
    ).running() as sidecar:
        yield sidecar


def listed(sidecar: SidecarProcess, state: str, count: int = COUNT) -> list[dict[str, Any]]:
    """Return the messages of a state, once there are so many."""

    def rows() -> list[dict[str, Any]] | None:
        found = sidecar.rows("--state", state)
        return found if len(found) == count else None

    return eventually(rows, what=f"{count} messages are {state}")


def die(origins: Origins, name: str = "a", **headers: str) -> None:
    """Let messages die in a queue."""
    origins.put(name, COUNT, to_topic=False, **headers)
    assert origins.harness.kill(f"{origins.prefix}.{name}") == COUNT


def refuses(
    sidecar: SidecarProcess, origins: Origins, words: str, *queues: str, state: str = "parked"
) -> None:
    """Check that all messages are kept, with the reason, and that none of these queues has any."""
    eventually(
        lambda: all(words in (row["reason"] or "") for row in listed(sidecar, state)),
        what=f"each is {state} because {words}",
    )
    assert set(origins.depths(*queues).values()) == {0}


def delivers(origins: Origins, queue: str) -> None:
    """Wait until all messages are in a queue."""
    eventually(lambda: origins.depths(queue)[queue] == COUNT, what=f"all are in {queue}")


# ------------------------------------------------------------------ filters


def test_a_rule_that_changes_what_the_filter_of_the_queue_asks_for(
    origins: Origins, tmp_path: Path
) -> None:
    """The broker would accept the message, and put it nowhere; a mended filter lets it pass."""
    origins.queue("a", filter_string=RED)
    die(origins, color="red")
    action = "redeliver: {maximum_redeliveries: 9}\n            set_properties: {color: blue}"
    with running(origins, tmp_path, action) as sidecar:
        refuses(sidecar, origins, RED, "a")
        origins.update_filter("a", "color = 'blue'")
        sidecar.run_command("retry", "--state", "parked", "--yes")
        delivers(origins, "a")


def test_a_rule_that_changes_what_no_filter_asks_for(origins: Origins, tmp_path: Path) -> None:
    origins.queue("a", filter_string=RED)
    die(origins, color="red")
    action = "redeliver: {maximum_redeliveries: 9}\n            set_properties: {site: b}"
    with running(origins, tmp_path, action):
        delivers(origins, "a")


def test_an_edit_that_changes_what_the_filter_asks_for(origins: Origins, tmp_path: Path) -> None:
    origins.queue("a", filter_string=RED)
    die(origins, color="red")
    with running(origins, tmp_path, delay_ms=3_600_000) as sidecar:
        rows = listed(sidecar, "waiting")
        for row in rows:
            sidecar.run_command("edit", str(row["id"]), "--property", "color=blue", "--yes")
        refuses(sidecar, origins, RED, "a")


@pytest.mark.parametrize("by", ["rule", "person"])
def test_a_redirect_to_a_queue_whose_filter_does_not_match(
    origins: Origins, tmp_path: Path, by: str
) -> None:
    origins.queue("a")
    origins.queue("b", filter_string=RED)
    die(origins, color="blue")
    to = f"queue://{origins.prefix}.b"
    what = [f'redirect: {{to: "{to}"}}'] if by == "rule" else []
    with running(origins, tmp_path, *what, delay_ms=0 if what else 3_600_000) as sidecar:
        if by == "person":
            listed(sidecar, "waiting")
            sidecar.run_command("redirect", "--state", "waiting", "--to", to, "--yes")
        refuses(sidecar, origins, RED, "a", "b")


def test_a_filter_that_changes_while_messages_wait(origins: Origins, tmp_path: Path) -> None:
    origins.queue("a", filter_string=RED)
    die(origins, color="red")
    with running(origins, tmp_path, delay_ms=2_000) as sidecar:
        listed(sidecar, "waiting")
        origins.update_filter("a", "color = 'blue'")
        refuses(sidecar, origins, "color = 'blue'", "a")
        origins.update_filter("a", RED)
        sidecar.run_command("retry", "--state", "parked", "--yes")
        delivers(origins, "a")


def test_a_filter_that_can_not_be_evaluated_is_trusted_only_if_the_operator_says_so(
    origins: Origins, tmp_path: Path
) -> None:
    origins.queue("a", filter_string="AMQSize > 1")
    die(origins)
    with running(origins, tmp_path) as sidecar:
        refuses(sidecar, origins, "allow: [filter]", "a")
    with running(origins, tmp_path, "", "redelivery.allow=[filter]") as sidecar:
        sidecar.run_command("retry", "--state", "parked", "--yes")
        delivers(origins, "a")


# ------------------------------------------------------------------ verdicts


@pytest.mark.parametrize("to", ["b", "notes"])
def test_a_verdict_sends_nothing_where_it_would_be_lost(
    origins: Origins, tmp_path: Path, to: str
) -> None:
    """A queue whose filter does not match parks it; the sidecar's own queue is no answer at all."""
    origins.queue("a")
    origins.queue("b", filter_string=RED)
    # Why this name: a prefix of the sidecar's own would protect it, too.
    notes = f"{origins.prefix}.notes"
    target = f"{origins.prefix}.b" if to == "b" else notes
    peer = JmsPeer.of(origins.broker, "core")
    plain: dict[str, Any] = {"sample_properties": False, "group": None}
    [message] = peer.produce(f"{origins.prefix}.a", "Text", text="x", **plain)
    sets = (f"intake.cause_notes={notes}", "policy.verdicts=obey")
    delay_ms = 0 if to == "b" else 3_600_000
    with running(origins, tmp_path, "", *sets, delay_ms=delay_ms) as sidecar:
        verdict = {"action": "redirect", "destination": f"queue://{target}"}
        note = {"message_id": message.message_id, "exception": "shop.Bug", "verdict": verdict}
        peer.produce(notes, "Text", text=json.dumps(note), **plain)
        # Why ten: the broker gives up what is rolled back over Core then.
        peer.fail(f"{origins.prefix}.a", "rollback", messages=1, deliveries=10)
        [row] = listed(sidecar, "parked" if to == "b" else "waiting", 1)
        assert row["destination"] == f"queue://{origins.prefix}.{'b' if to == 'b' else 'a'}"
        if to == "b":
            assert RED in row["reason"]
    assert set(origins.depths("a", "b").values()) == {0}


# ------------------------------------------------------------------ final queues


@pytest.mark.parametrize("act", FINAL_ACTS)
def test_a_final_queue_that_would_lose_what_is_sent_there(
    origins: Origins, tmp_path: Path, act: str
) -> None:
    """They stay in the schedule with the line to write, and go once it is written."""
    origins.queue("a")
    final = "DLQ.exhausted"
    match act:
        case "full":
            origins.settings(
                final, addressFullMessagePolicy="DROP", pageSizeBytes=1_000, maxSizeBytes=2_000
            )
            origins.queue(final)
        case "filter":
            origins.queue(final, filter_string=RED)
        case "ring":
            origins.queue(final, ring_size=2)
        case "divert":
            origins.queue(final)
            origins.divert("d", final, "elsewhere", exclusive=True)
    die(origins)
    words, cure = FINAL_ACTS[act]
    with running(origins, tmp_path, attempts=1) as sidecar:
        # Why one state: what one message alone is refused for needs a person.
        state = "parked" if act == "filter" else "waiting"
        refuses(sidecar, origins, words, final, "elsewhere", state=state)
        assert cure in listed(sidecar, state)[0]["reason"]
        assert sidecar.exhausted() == 0


def test_a_copying_divert_of_the_final_queue_is_no_second_send(
    origins: Origins, tmp_path: Path
) -> None:
    origins.queue("a")
    origins.queue("DLQ.exhausted")
    origins.divert("d", "DLQ.exhausted", "copy")
    origins.queue("copy")
    die(origins)
    with running(origins, tmp_path, attempts=1):
        delivers(origins, "DLQ.exhausted")
        delivers(origins, "copy")


# ------------------------------------------------------------------ without a store


@pytest.mark.parametrize("destination", ["redirect", "final"])
def test_the_broker_held_mode_asks_the_same(
    origins: Origins, tmp_path: Path, destination: str
) -> None:
    """What can't be sent is in the queue of those that need a person."""
    if origins.wire == "stomp":
        pytest.skip("over STOMP the broker can't keep the schedule")
    origins.queue("a")
    origins.queue("b", filter_string=RED)
    origins.queue("DLQ.exhausted", filter_string=RED)
    before = origins.harness.depth("amqsidecar.parked")
    die(origins, color="blue")
    is_final = destination == "final"
    action = "" if is_final else f'redirect: {{to: "queue://{origins.prefix}.b"}}'
    attempts = 1 if is_final else 9
    with running(origins, tmp_path, action, "store.url=broker:", attempts=attempts):
        eventually(
            lambda: origins.harness.depth("amqsidecar.parked") == before + COUNT,
            what="all are parked",
        )
    assert origins.depths("a", "b", "DLQ.exhausted") == {"a": 0, "b": 0, "DLQ.exhausted": 0}


# ------------------------------------------------------------------ names


def test_a_queue_of_an_application_may_end_like_a_final_one(
    origins: Origins, tmp_path: Path
) -> None:
    origins.queue("orders.exhausted")
    die(origins, "orders.exhausted")
    with running(origins, tmp_path):
        delivers(origins, "orders.exhausted")


def test_a_dead_letter_of_the_brokers_own_queue_is_parked(
    origins: Origins, tmp_path: Path, unique: str
) -> None:
    """A re-send to a store-and-forward queue would go to another broker."""
    name = f"$.artemis.internal.sf.{unique}"
    origins.harness.management.create_queue(name, name, is_anycast=True)
    origins.harness.set_address(name, deadLetterAddress=origins.harness.dead_letter_queue)
    for _ in range(COUNT):
        origins.harness.put(name, b"x")
    assert origins.harness.kill(name) == COUNT
    with running(origins, tmp_path) as sidecar:
        for row in listed(sidecar, "parked"):
            assert "the broker's own" in row["rule"]
    assert origins.harness.depth(name) == 0


@pytest.mark.parametrize(
    "to",
    [
        "queue://amqsidecar.causes",
        "queue://amqsidecar.intercepted",
        "queue://activemq.management",
        "temp-queue://x",
        "topic://news.#",
    ],
)
def test_no_rule_redirects_to_what_is_no_applications(
    origins: Origins, tmp_path: Path, to: str
) -> None:
    origins.queue("a")
    die(origins)
    with running(origins, tmp_path, f'redirect: {{to: "{to}"}}') as sidecar:
        for row in listed(sidecar, "parked"):
            assert to in row["rule"]
    assert origins.harness.depth(to.partition("://")[2]) == 0
