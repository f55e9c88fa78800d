"""Where a redelivery goes on a real Artemis, by what is at its origin; rows of `origins.md`."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.broker import Delivery
from amqsidecar.brokers.artemis.session import ArtemisSession
from amqsidecar.brokers.artemis_pair.link import PairTake
from amqsidecar.engine.judging.one_queue import OneQueue
from amqsidecar.errors import SendsRefused
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.send_terms import ResendEffect
from support.brokers.real import ArtemisBroker, Broker
from support.jms.peer import FlakyConsumer, JmsPeer
from support.links.cycles import resend
from support.links.origins import DEATHS, Origins, Take
from support.links.terms import effects_of, refusal_of
from support.sidecar.doctor import run_doctor
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = """
address_settings:
  - match: "#"
    dead_letter_address: "DLQ"
    max_delivery_attempts: 5
"""
# Why: STOMP takes only what is text of JMS clients.
PLAIN: Mapping[str, Any] = {"sample_properties": False, "group": None, "text": "x"}
EXCLUDING = "amqsidecarRedeliveryCount IS NULL"


# Why in proof: the pair asks over Core and reads over Core and AMQP, as those alone do.
ALONE = [pytest.param(name, marks=pytest.mark.proof) for name in ("amqp", "core")]


@pytest.fixture(params=[*ALONE, pytest.param("stomp", marks=pytest.mark.proof), "artemis"])
def origins(artemis: Broker, unique: str, request: pytest.FixtureRequest) -> Iterator[Origins]:
    made = Origins(artemis, unique, request.param)
    yield made
    made.close()


RED = "color = 'red'"
on_every_wire = pytest.mark.parametrize("origins", [*ALONE, "stomp", "artemis"], indirect=True)
"""For what a wire may do in another way; the rest is so in `make proof` alone."""


# ------------------------------------------------------------------ queues of an address


@pytest.mark.parametrize("has_resources", [False, True], ids=("one-dlq", "auto-created-dlqs"))
@pytest.mark.parametrize("died_in", ["a", "b"], ids=("own-name", "other-name"))
@pytest.mark.parametrize(
    "others",
    [(), pytest.param(("b",), marks=pytest.mark.proof), ("b", "c")],
    ids=("one", "two", "three"),
)
def test_a_message_comes_back_to_the_anycast_queue_it_died_in(
    origins: Origins, others: tuple[str, ...], died_in: str, *, has_resources: bool
) -> None:
    """Also at the third death, and where the broker makes a dead-letter queue per address."""
    names = ("a", *others) if died_in == "a" else (died_in, *set(others) - {died_in})
    if has_resources:
        origins.auto_create_dead_letter_queues()
    origins.queue(died_in, "a")
    is_shared_out = died_in != "a" and not origins.speaks_amqp
    origins.put("a", 12 if is_shared_out else 6)
    if is_shared_out:
        # Why: for STOMP the broker has made the queue that is named like the address.
        origins.harness.ask("broker", "destroyQueue", f"{origins.prefix}.a", True)
    for name in names[1:]:
        origins.queue(name, "a")
    origin = queue(f"{origins.prefix}.a")
    if died_in != "a":
        origin = queue(f"{origin.name}::{origins.prefix}.{died_in}")
    origins.come_back(died_in, 6, origin)
    assert origins.depths(*names) == dict.fromkeys(names, 0) | {died_in: 6}


def test_a_second_queue_is_noticed_while_the_link_is_open(origins: Origins) -> None:
    """The name that redeliveries are sent to changes with the bindings."""
    origins.queue("a")
    origins.put("a", 4)
    origin = queue(f"{origins.prefix}.a")
    with origins.link() as link:
        origins.live(link, "a", 4, origin)
        origins.queue("b", "a")
        eventually(lambda: has_noticed(link, origin), what="the new binding is known")
        assert origins.harness.kill(origin.name) == 4
        origins.send(link, origins.take(link, 4))
    assert origins.depths("a", "b") == {"a": 4, "b": 0}


def has_noticed(link: Take, origin: Destination) -> bool:
    """Pass the link the changes; return whether it would send to the queue by name."""
    link.queues_changed()
    assert link.send_terms(origin).problem is None
    sending = link.wires[1] if isinstance(link, PairTake) else link
    assert isinstance(sending, ArtemisSession)
    return sending._target_of(origin) == f"{origin.name}::{origin.name}"


def test_a_queue_has_no_copies_while_it_is_alone_at_its_address(origins: Origins) -> None:
    """So that a note without a queue is about it; a qualified name always has others beside it."""
    for name, address in (("a", "a"), ("b", "b"), ("c", "b"), ("d", "d")):
        origins.queue(name, address)
    origins.queue("s", "d", is_anycast=False)
    origins.queue("e")
    origins.divert("to-a", "e", "a")
    with origins.link() as link:
        holds = OneQueue(link, lambda _origin: False).holds
        found = {name: holds(queue(f"{origins.prefix}.{name}")) for name in "abde"}
        assert found == {"a": True, "b": False, "d": False, "e": False}
        assert not holds(topic(f"{origins.prefix}.d::{origins.prefix}.s"))


# ------------------------------------------------------------------ subscriptions


@on_every_wire
@pytest.mark.parametrize("has_resources", [False, True], ids=("one-dlq", "auto-created-dlqs"))
@pytest.mark.parametrize("is_durable", [True, False], ids=("durable", "non-durable"))
def test_a_message_comes_back_to_its_subscription_alone(
    origins: Origins, *, is_durable: bool, has_resources: bool
) -> None:
    """Two subscriptions, shared or not, and an anycast queue of the same address get nothing."""
    if has_resources:
        origins.auto_create_dead_letter_queues()
    origins.queue("one", "t", is_anycast=False, durable=is_durable)
    origins.put("t", 3, to_topic=True)
    origins.queue("two", "t", is_anycast=False, durable=is_durable)
    origins.queue("t")
    origins.come_back("one", 3, topic(f"{origins.prefix}.t::{origins.prefix}.one"))
    assert origins.depths("one", "two", "t") == {"one": 3, "two": 0, "t": 0}


@pytest.mark.parametrize("shared", ["durable", "non-durable"])
def test_a_shared_subscription_of_jms_gets_its_messages_back_alone(
    origins: Origins, shared: str
) -> None:
    """Two consumers share one subscription and fail; the other subscription sees nothing of it."""
    origins.settings("#", maxDeliveryAttempts=1)
    name, other = f"{origins.prefix}.s", f"{origins.prefix}.other"
    address = f"{origins.prefix}.t"
    # Why the backslash: so the client writes a dot in the name of a subscription.
    died_in, others = (
        ("" if shared == "durable" else "nonDurable.") + one.replace(".", "\\.")
        for one in (name, other)
    )
    peer = JmsPeer.of(origins.broker, "core")
    with ExitStack() as stack, origins.link() as link:

        def start(subscription: str, failures: int) -> FlakyConsumer:
            return stack.enter_context(
                peer.start_flaky_consumer(
                    f"topic://{address}",
                    failures=failures,
                    subscription=subscription,
                    shared=shared,
                )
            )

        failing, healthy = [start(name, -1), start(name, -1)], start(other, 0)
        for one in (died_in, others):
            eventually(partial(origins.harness.exists, one), what=f"{one} is subscribed")
        sent = peer.produce(f"topic://{address}", "Text", count=4, **PLAIN)
        for death in range(1, DEATHS + 1):
            deliveries = origins.take(link, len(sent))
            origin = topic(f"{address}::{died_in}")
            assert {one.provenance.origin for one in deliveries} == {origin}
            assert {one.provenance.redelivery_count for one in deliveries} == {death - 1}
            assert link.send_terms(origin).problem is None
            assert effects_of(link.send_terms(origin)) is None
            origins.send(link, deliveries)
        eventually(
            lambda: sum(len(one.events("failed")) for one in failing) == 4 * (1 + DEATHS),
            what="all come back to the subscription",
        )
        [last] = peer.produce(f"topic://{address}", "Text", **PLAIN)
        healthy.wait_for(lambda events: any(one.id == last.test_id for one in events))
        seen = [one.id for one in healthy.events("succeeding")]
        assert seen == [one.test_id for one in (*sent, last)]


# ------------------------------------------------------------------ diverts

TRANSFORMER = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"
COPYING: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "filter": {"filter-string": "colour = 'red'"},
    "filter-with-or": {"filter-string": f"colour = 'red' OR {EXCLUDING}"},
    "routing-name-of-the-queue": {"routing-name": "@PREFIX@.a"},
    "transformer": {
        "transformer-configuration": {"class-name": TRANSFORMER, "properties": {"extra": "1"}}
    },
}


def make_divert(origins: Origins, case: Mapping[str, object]) -> None:
    """Make a queue `a` whose messages a divert copies to a queue `copy`."""
    text = json.dumps(case).replace("@PREFIX@", origins.prefix)
    origins.queues("a", "copy")
    origins.divert("d", "a", "copy", **json.loads(text))


@pytest.mark.parametrize("case", COPYING.values(), ids=COPYING)
def test_a_divert_that_would_copy_a_redelivery_is_reported(
    origins: Origins, case: Mapping[str, object]
) -> None:
    """With the line that takes redeliveries out of the copies, the present filter in it."""
    make_divert(origins, case)
    origin = queue(f"{origins.prefix}.a")
    had = case.get("filter-string")
    wanted = f"({had}) AND {EXCLUDING}" if had else EXCLUDING
    with origins.link() as link:
        assert link.send_terms(origin).problem is None
        assert effects_of(link.send_terms(origin)) == (
            f"the divert {origins.prefix}.d would copy the message again; write "
            f'<divert name="{origins.prefix}.d"><filter string="{wanted}"/></divert>, '
            "or allow it by redelivery: {allow: [divert]}"
        )


@pytest.mark.parametrize("has_second_queue", [False, True], ids=("one", "two"))
def test_an_allowed_divert_copies_eachresend(origins: Origins, *, has_second_queue: bool) -> None:
    """Measured: by plain name and by qualified name."""
    make_divert(origins, {})
    if has_second_queue:
        origins.queue("b", "a")
    origins.put(f"a::{origins.prefix}.a", 2)
    with origins.link(ResendEffect.DIVERT) as link:
        origins.live(link, "a", 2, queue(f"{origins.prefix}.a"))
    assert origins.depths("a", "copy") == {"a": 2, "copy": 2 + 2 * DEATHS}


@pytest.mark.parametrize(
    "selector",
    [EXCLUDING, f"colour = 'red' AND {EXCLUDING}", f"({EXCLUDING}) and (colour = 'red' or a = 1)"],
)
@pytest.mark.parametrize("is_exclusive", [False, True], ids=("copies", "exclusive"))
def test_a_divert_whose_filter_excludes_redeliveries_is_left_alone(
    origins: Origins, selector: str, *, is_exclusive: bool
) -> None:
    """The messages come back, and the divert gets none of them."""
    origins.queues("a", "copy")
    origins.put("a", 2, colour="red", a="1")
    origins.divert("d", "a", "copy", exclusive=is_exclusive, filter_string=selector)
    origins.come_back("a", 2)
    assert origins.depths("a", "copy") == {"a": 2, "copy": 0}


def test_an_exclusive_divert_would_take_a_redelivery_away(origins: Origins) -> None:
    """The message was in the queue before the divert was made; measured where it is allowed."""
    origins.queues("a", "copy")
    origins.put("a", 2)
    origins.divert("d", "a", "copy", exclusive=True)
    origin = queue(f"{origins.prefix}.a")
    with origins.link() as link:
        reason = effects_of(link.send_terms(origin))
    assert reason is not None
    assert "exclusive" in reason
    assert EXCLUDING in reason
    with origins.link(ResendEffect.DIVERT) as link:
        assert origins.harness.kill(origin.name) == 2
        deliveries = origins.take(link, 2)
        assert effects_of(link.send_terms(origin)) is None
        origins.send(link, deliveries)
    assert origins.depths("a", "copy") == {"a": 0, "copy": 2}


def test_an_exclusive_divert_with_a_filter_leaves_what_got_past_it(origins: Origins) -> None:
    """A message that the filter did not match comes back to its queue."""
    origins.queues("a", "copy")
    origins.divert("d", "a", "copy", exclusive=True, filter_string="colour = 'red'")
    origins.put("a", 2, colour="blue")
    origins.come_back("a", 2)
    assert origins.depths("a", "copy") == {"a": 2, "copy": 0}


@on_every_wire
@pytest.mark.parametrize("is_exclusive", [False, True], ids=("copies", "exclusive"))
def test_what_died_in_the_target_of_a_divert_goes_back_there_only(
    origins: Origins, *, is_exclusive: bool
) -> None:
    """The copy has an origin of its own; the divert does not see it again."""
    origins.queues("a", "copy")
    origins.divert("d", "a", "copy", exclusive=is_exclusive)
    origins.put("a", 2)
    origins.come_back("copy", 2)
    assert origins.depths("a", "copy") == {"a": 0 if is_exclusive else 2, "copy": 2}


def test_a_divert_with_a_wildcard_is_found(origins: Origins) -> None:
    """Its address covers that of the origin."""
    origins.queue("w.eu")
    origins.queue("copy")
    origins.divert("d", "w.#", "copy")
    with origins.link() as link:
        assert "d would copy" in str(effects_of(link.send_terms(queue(f"{origins.prefix}.w.eu"))))
        assert effects_of(link.send_terms(queue(f"{origins.prefix}.copy"))) is None


def test_a_divert_of_a_topic_is_found(origins: Origins) -> None:
    """A redelivery to one subscription is copied as well."""
    origins.queue("one", "t", is_anycast=False)
    origins.queue("copy")
    origins.divert("d", "t", "copy")
    with origins.link() as link:
        origin = topic(f"{origins.prefix}.t::{origins.prefix}.one")
        assert "d would copy" in str(effects_of(link.send_terms(origin)))


def test_a_mended_divert_is_noticed_while_the_link_is_open(origins: Origins) -> None:
    """The broker does not report a changed filter; it is asked again."""
    make_divert(origins, {})
    origin = queue(f"{origins.prefix}.a")
    with origins.link() as link:
        assert effects_of(link.send_terms(origin)) is not None
        mend_divert(origins)
        eventually(
            lambda: effects_of(link.send_terms(origin)) is None, what="the mended filter is known"
        )


def mend_divert(origins: Origins) -> None:
    """Write the filter that takes redeliveries out of the copies."""
    mended = {
        "name": f"{origins.prefix}.d",
        "forwarding-address": f"{origins.prefix}.copy",
        "filter-string": EXCLUDING,
    }
    assert origins.harness.ask("broker", "updateDivert", json.dumps(mended)).is_ok


def test_a_message_is_parked_until_its_divert_is_mended(origins: Origins, tmp_path: Path) -> None:
    """Nothing is sent; log, list and show have the line; a retry is checked again."""
    make_divert(origins, {})
    origins.put("a")
    assert origins.harness.kill(f"{origins.prefix}.a") == 1
    url = origins.url
    sets = ["intake.backlog=process", f"intake.queues={origins.prefix}.DLQ"]
    line = f'<filter string="{EXCLUDING}"/>'
    policy = write_policy(tmp_path, POLICY)
    with SidecarProcess(tmp_path, url, policy=policy, sets=sets).running() as sidecar:
        [parked] = eventually(lambda: sidecar.rows("--state", "parked"), what="it is parked")
        assert line in parked["reason"]
        assert line in sidecar.run_command("show", str(parked["id"]))
        eventually(
            lambda: any(one["event"] == "parked" for one in sidecar.log_lines()),
            what="the log says so",
        )

        sidecar.run_command("retry", str(parked["id"]))
        parkings = eventually(
            lambda: [one for one in sidecar.log_lines() if one["event"] == "parked"][1:],
            what="it is parked again",
        )
        assert len(parkings) == 1
        assert origins.depths("a", "copy") == {"a": 0, "copy": 1}

        mend_divert(origins)
        # Why again and again: what the broker said of the divert is kept for some seconds.
        eventually(lambda: retried(sidecar, origins), what="it is back in its queue")
    assert origins.depths("a", "copy") == {"a": 1, "copy": 1}


def retried(sidecar: SidecarProcess, origins: Origins) -> bool:
    """Retry the parked message; return whether it has come back."""
    for one in sidecar.rows("--state", "parked"):
        sidecar.run_command("retry", str(one["id"]))
    return origins.depths("a") == {"a": 1}


# ------------------------------------------------------------------ special queues


def test_a_last_value_queue_would_lose_the_newer_message(origins: Origins) -> None:
    """Measured where it is allowed: the redelivery takes the place of the newer one."""
    origins.queue("a", last_value=True)
    origins.put("a", _AMQ_LVQ_NAME="k", age="old")
    assert origins.harness.kill(f"{origins.prefix}.a") == 1
    origins.put("a", _AMQ_LVQ_NAME="k", age="new")
    origin = queue(f"{origins.prefix}.a")
    origins.send_against(origin, "replace a newer message", ResendEffect.LAST_VALUE, 1)
    eventually(lambda: origins.depths("a") == {"a": 1})
    [left] = origins.harness.drain(origin.name)
    assert left.properties["age"] == "old"


def test_a_ring_queue_would_lose_the_oldest_message(origins: Origins) -> None:
    """Measured where it is allowed: one in, one out."""
    origins.queue("a", ring_size=2)
    origins.put("a", 1)
    assert origins.harness.kill(f"{origins.prefix}.a") == 1
    origins.put("a", number="1")
    origins.put("a", number="2")
    origin = queue(f"{origins.prefix}.a")
    origins.send_against(origin, "ring queue of 2 messages", ResendEffect.RING, 1)
    eventually(lambda: origins.depths("a") == {"a": 2})
    left = [one.properties.get("number") for one in origins.harness.drain(origin.name)]
    assert left == [2, None]


def test_a_non_destructive_queue_would_show_a_message_again(origins: Origins) -> None:
    """Measured where it is allowed: a consumer that had processed the message gets it again."""
    origins.settings("a", defaultNonDestructive=True)
    origins.put("a", testId="x")
    origin = queue(f"{origins.prefix}.a")
    reader = JmsPeer.of(origins.broker, "core")
    assert [one.test_id for one in reader.consume(origin.name, count=1)] == ["x"]
    assert origins.harness.kill(origin.name) == 1
    origins.send_against(origin, "the queue is non-destructive", ResendEffect.NON_DESTRUCTIVE, 1)
    assert [one.test_id for one in reader.consume(origin.name, count=1)] == ["x"]
    assert origins.depths("a") == {"a": 1}


def test_a_queue_that_is_declared_non_destructive_is_not_shown(origins: Origins) -> None:
    """The management shows the setting only, not `<queue non-destructive="true">`."""
    origins.queue("a", non_destructive=True)
    with origins.link() as link:
        assert effects_of(link.send_terms(queue(f"{origins.prefix}.a"))) is None


def test_a_queue_that_is_purged_would_drop_aresend(origins: Origins) -> None:
    """Measured where it is allowed: without a consumer nothing is kept."""
    origins.put("a", 2)
    origin = queue(f"{origins.prefix}.a")
    assert origins.harness.kill(origin.name) == 2
    origins.harness.ask("broker", "destroyQueue", origin.name, True)
    origins.queue("a", purge_on_no_consumers=True)
    origins.send_against(origin, "purge-on-no-consumers", ResendEffect.DROP, 2)
    assert origins.depths("a") == {"a": 0}


def test_a_disabled_queue_is_waited_for(origins: Origins) -> None:
    """The broker drops what is sent to it; once it is enabled the messages come back."""
    origins.put("a", 2)
    origin = queue(f"{origins.prefix}.a")
    assert origins.harness.kill(origin.name) == 2
    assert origins.harness.ask(f"queue.{origin.name}", "disable").is_ok
    origins.put("a")
    assert origins.depths("a") == {"a": 0}
    with origins.link() as link:
        deliveries = origins.take(link, 2)
        assert "disabled" in str(link.send_terms(origin).problem)
        assert origins.harness.ask(f"queue.{origin.name}", "enable").is_ok
        eventually(
            lambda: link.send_terms(origin).problem is None, what="it is known to be enabled"
        )
        origins.send(link, deliveries)
    assert origins.depths("a") == {"a": 2}


@on_every_wire
def test_a_queue_with_a_filter_accepts_its_messages_again(origins: Origins) -> None:
    """Also where another queue of the address takes what the filter leaves out."""
    origins.queue("a", filter_string="colour = 'red'")
    origins.queue("rest", "a", filter_string="colour <> 'red'")
    origins.put("a", 2, colour="red")
    origins.come_back("a", 2)
    assert origins.depths("a", "rest") == {"a": 2, "rest": 0}


def test_a_message_that_its_queues_filter_excludes_is_parked(origins: Origins) -> None:
    """The broker would drop them, or give them to another queue."""
    origins.queue("a", filter_string=EXCLUDING)
    origins.put("a")
    origin = queue(f"{origins.prefix}.a")
    assert origins.harness.kill(origin.name) == 1
    with origins.link() as link:
        [delivery] = origins.take(link, 1)
        assert "park: it does not match the filter" in str(refusal_of(link, resend(delivery)))
        origins.send(link, [delivery])
    assert origins.depths("a") == {"a": 0}


def test_the_settings_show_a_queue_that_the_broker_would_make(origins: Origins) -> None:
    """A last-value or ring queue that is gone would be made again."""
    origins.settings("v", defaultLastValueQueue=True)
    origins.settings("r", defaultRingSize=1)
    with origins.link() as link:
        assert "last-value" in str(effects_of(link.send_terms(queue(f"{origins.prefix}.v"))))
        assert "ring queue" in str(effects_of(link.send_terms(queue(f"{origins.prefix}.r"))))
        assert effects_of(link.send_terms(queue(f"{origins.prefix}.plain"))) is None
    with origins.link(ResendEffect.LAST_VALUE, ResendEffect.RING) as link:
        for name in "vr":
            assert effects_of(link.send_terms(queue(f"{origins.prefix}.{name}"))) is None


# ------------------------------------------------------------------ full addresses

FULL_BYTES = 3_000


def fill(origins: Origins, policy: str) -> Destination:
    """Let two messages die in a queue and fill its address; return the queue."""
    origins.settings(
        "a", addressFullMessagePolicy=policy, maxSizeBytes=FULL_BYTES, pageSizeBytes=FULL_BYTES // 2
    )
    origins.queue("a")
    origins.put("a", 2)
    assert origins.harness.kill(f"{origins.prefix}.a") == 2
    body = b"y" * FULL_BYTES
    origins.harness.put(f"{origins.prefix}.a", body)
    return queue(f"{origins.prefix}.a")


def test_a_paged_address_takes_redeliveries(origins: Origins) -> None:
    """They come behind what is in the pages, and are again in pages at their next deaths."""
    origin = fill(origins, "PAGE")
    origins.put("a", 3)
    with origins.link() as link:
        origins.send(link, origins.take(link, 2))
        for redelivered in (1, 2):
            assert origins.harness.kill(origin.name) == 6
            deliveries = origins.take(link, 6)
            counts = sorted(one.provenance.redelivery_count for one in deliveries)
            assert counts == sorted([redelivered] * 2 + [redelivered - 1] * 4)
            assert link.send_terms(origin).problem is None
            assert effects_of(link.send_terms(origin)) is None
            origins.send(link, deliveries)
            paged = origins.harness.ask(f"address.{origin.name}", "isPaging")
            assert paged.value is True
    assert origins.depths("a") == {"a": 6}


def test_an_address_that_drops_when_full_is_reported(origins: Origins) -> None:
    """Measured where it is allowed: the broker commits, and both redeliveries are gone."""
    origin = fill(origins, "DROP")
    origins.send_against(origin, "address-full-policy is DROP", ResendEffect.DROP, 2)
    assert origins.depths("a") == {"a": 1}


def test_an_address_without_a_limit_drops_when_the_whole_broker_is_full(unique: str) -> None:
    """`global-max-size` counts, which every broker has: by default half of its heap."""
    with ArtemisBroker(core="<global-max-size>50000</global-max-size>") as broker:
        origins = Origins(broker, unique, "amqp")
        try:
            origins.settings("a", addressFullMessagePolicy="DROP")
            origins.queue("a")
            for _ in range(60):
                origins.harness.put(f"{unique}.a", b"y" * 5_000)
            assert 0 < origins.depths("a")["a"] < 60
        finally:
            origins.close()


@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_a_full_address_refuses_and_the_messages_stay(origins: Origins, policy: str) -> None:
    """Once there is room they come back. Over STOMP the broker does not block, but takes them."""
    origin = fill(origins, policy)
    with origins.link() as link:
        deliveries = origins.take(link, 2)
        assert effects_of(link.send_terms(origin)) is None
        if (origins.wire, policy) == ("stomp", "BLOCK"):
            assert sends(origins, link, deliveries)
            assert origins.depths("a") == {"a": 3}
            return
        assert not sends(origins, link, deliveries)
        assert len(origins.harness.drain(origin.name)) == 1
        eventually(lambda: sends(origins, link, deliveries), what="room")
    assert origins.depths("a") == {"a": 2}


def sends(origins: Origins, link: Take, deliveries: list[Delivery]) -> bool:
    """Try to re-send; return whether the broker took it."""
    try:
        origins.send(link, deliveries)
    except SendsRefused:
        origins.cycle -= 1
        return False
    return True


@on_every_wire
@pytest.mark.parametrize("change", ["another filter", "a first filter", "disabled"])
def test_a_queue_that_changes_after_the_question_costs_no_message(
    origins: Origins, change: str
) -> None:
    """The broker routes at the send, so what it says of its queues after all sends is the truth."""
    name = origins.queue("a", filter_string=RED if change == "another filter" else "")
    origins.put("a", 2, to_topic=False, color="red")
    assert origins.harness.kill(name) == 2

    def make(*, fit: bool) -> None:
        if change == "disabled":
            assert origins.harness.ask(f"queue.{name}", "enable" if fit else "disable").is_ok
        else:
            origins.update_filter("a", RED if fit else "color = 'blue'")

    with origins.link() as link:
        deliveries = origins.take(link, 2)

        def refusals() -> set[str | None]:
            return {refusal_of(link, resend(one)) for one in deliveries}

        assert refusals() == {None}
        make(fit=False)
        assert not sends(origins, link, deliveries)
        make(fit=True)
        eventually(lambda: refusals() == {None}, what="the queue takes them")
        eventually(lambda: sends(origins, link, deliveries), what="they are sent")
    assert origins.depths("a") == {"a": 2}


# ------------------------------------------------------------------ doctor


@on_every_wire
def test_doctor_names_what_a_run_would_park(origins: Origins, tmp_path: Path) -> None:
    """At all addresses, without any dead letter; what is allowed is a note."""
    make_divert(origins, {})
    origins.divert("w", "none.#", "copy")
    origins.queue("last", last_value=True)
    origins.divert("f", "last", "copy", **{"filter-string": "size > 3"})
    origins.queue("red", filter_string="color = 'red'")
    prefix = origins.prefix
    origins.put("red", 1, to_topic=False, color="red")
    assert origins.harness.kill(f"{prefix}.red") == 1
    url = origins.url

    sets = [f"intake.queues={prefix}.DLQ", "redelivery.allow=[last-value]"]
    verdict = run_doctor(url, tmp_path, *sets)

    found = {
        one["what"].partition(":")[0]: (one["severity"], one["subject"], one["mend"])
        for one in verdict.of("origins")
        if prefix in f"{one['subject']} {one['what']}"
    }
    assert found == {
        f"the divert {prefix}.d would copy the message again": (
            "warning",
            f"{prefix}.a",
            f'<divert name="{prefix}.d"><filter string="{EXCLUDING}"/></divert>',
        ),
        f"the divert {prefix}.f would copy the message again if it matches size > 3": (
            "warning",
            f"{prefix}.last",
            f'<divert name="{prefix}.f"><filter string="(size &gt; 3) AND {EXCLUDING}"/></divert>',
        ),
        f"{prefix}.last is a last-value queue": ("note", f"{prefix}.last", ""),
        "only redeliveries that match (color = 'red') get there; others are parked": (
            "note",
            f"queue://{prefix}.red",
            "",
        ),
    }
    assert not [one for one in verdict.problems if prefix in one["subject"]]
