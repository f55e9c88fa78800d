"""Deaths that the kill tests don't reach: none lost, none doubled, none altered.

The sidecar or the broker is killed with SIGKILL while messages are on their way. Over `artemis://`
the messages are those of Core clients, over `amqp://` those of AMQP clients.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from end_to_end.crashes.test_kills import CORE_SETTINGS
from support.brokers.real import ArtemisBroker
from support.jms.ledger import CONVERSION
from support.jms.message import NOT_COMPARED, JmsMessage
from support.jms.peer import JmsPeer
from support.sidecar.policy import FOUR_ATTEMPTS, write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

MESSAGES = 40
FULL_BYTES = 20_000
SETTINGS = (
    CORE_SETTINGS
    + f"""<address-setting match="blocked.#">
  <dead-letter-address>DLQ</dead-letter-address>
  <address-full-policy>BLOCK</address-full-policy>
  <max-size-bytes>{FULL_BYTES}</max-size-bytes>
</address-setting>
"""
)
OPTIONS = ("cycle.max_messages=10", "intake.backlog=process", "broker.idle_timeout_s=2")
# Why: the broker writes them on a large message, with a sidecar or without.
COMPRESSION = ("_AMQ_LARGE_COMPRESSED", "_AMQ_LARGE_SIZE")


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    """A broker of our own, for it is killed."""
    with ArtemisBroker(address_settings=SETTINGS) as running:
        yield running


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path, FOUR_ATTEMPTS)


@pytest.fixture(params=["artemis", pytest.param("amqp", marks=pytest.mark.proof)])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(broker: ArtemisBroker, wire: str) -> str:
    return broker.pair_url if wire == "artemis" else broker.amqp_url


@pytest.fixture
def peer(broker: ArtemisBroker, wire: str) -> JmsPeer:
    return JmsPeer.of(broker, "core" if wire == "artemis" else "qpid")


@pytest.fixture
def sidecar(url: str, policy: Path, tmp_path: Path) -> Iterator[SidecarProcess]:
    with SidecarProcess(tmp_path, url, policy=policy, sets=OPTIONS) as made:
        yield made


def ids(messages: list[JmsMessage]) -> Counter[str]:
    """Return how often each message is there."""
    return Counter(str(one.test_id) for one in messages)


def test_compressed_bodies_come_back_as_they_were_or_stay(
    broker: ArtemisBroker, sidecar: SidecarProcess, wire: str, unique: str
) -> None:
    """The broker decompresses a Text, and cuts a Bytes, when it converts them to AMQP."""
    options = {"compressLargeMessage": "true", "minLargeMessageSize": "1000"}
    core = JmsPeer.of(broker, "core", url_options=options)
    sent = core.produce(unique, ("Text", "Map"), body_size=200_000, group=None)
    [cut] = core.produce(unique, "Bytes", body_size=200_000, group=None)
    core.fail(unique, messages=3)
    sidecar.start()
    if wire == "artemis":
        sent.append(cut)
        received = core.consume(unique, count=len(sent))
    else:
        received = core.consume(unique, count=len(sent))
        eventually(lambda: sidecar.left_behind() == 1, what="one is reported")
        sidecar.kill()
        [left] = core.consume("DLQ", count=1)
        assert left.body == cut.body
    added = {name for one in received for name in one.properties if name.startswith("amqsidecar")}
    differences = [
        theirs.differences(
            ours,
            without_headers=NOT_COMPARED,
            without_properties=(
                *(CONVERSION if wire == "amqp" else COMPRESSION),
                *added,
                "redeliveryDelay",
            ),
        )
        for theirs, ours in zip(
            sorted(sent, key=lambda one: one.test_id),
            sorted(received, key=lambda one: one.test_id),
            strict=True,
        )
    ]
    assert differences == [[]] * len(sent)


def test_a_full_address_that_blocks_loses_nothing_while_sidecars_are_killed(
    sidecar: SidecarProcess, peer: JmsPeer, unique: str
) -> None:
    """More waits for it than it takes; the consumer comes only when it is full."""
    name = f"blocked.{unique}"
    sent: list[JmsMessage] = []
    for _ in range(MESSAGES // 4):
        sent += peer.produce(name, "Bytes", count=4, body_size=2_000)
        peer.fail(name, messages=4)
    sidecar.start()
    for _ in range(3):
        eventually(lambda: peer.browse(name), what="it fills up")
        sidecar.kill()
        sidecar.start()
    received = peer.consume(name, count=len(sent), wait_ms=60_000)
    received += peer.consume(name)
    assert ids(received) == ids(sent)


@pytest.mark.parametrize("commits", [True, False], ids=("commits", "rolls-back"))
def test_what_an_xa_branch_has_is_one_message_when_the_sidecar_is_killed(
    broker: ArtemisBroker, sidecar: SidecarProcess, unique: str, *, commits: bool
) -> None:
    """A prepared branch holds redeliveries while the sidecar dies; then it ends."""
    core = JmsPeer.of(broker, "core")
    sent = core.produce(unique, "Text", count=MESSAGES, group=None)
    core.fail(unique, messages=MESSAGES)
    sidecar.start()
    held = core.prepare_xa(unique, unique, MESSAGES // 2)
    assert len(held) == MESSAGES // 2
    sidecar.kill()
    sidecar.start()
    core.finish_xa(unique, commits=commits)
    left = MESSAGES - (len(held) if commits else 0)
    received = core.consume(unique, count=left, wait_ms=60_000)
    received += core.consume(unique)
    assert ids(received + (held if commits else [])) == ids(sent)


def test_messages_that_expire_while_no_sidecar_lives_end_once(
    sidecar: SidecarProcess, peer: JmsPeer, unique: str
) -> None:
    """They expire in their queue after the kill; each is in one place, and the others come."""
    dead = peer.produce(unique, "Text", count=MESSAGES)
    peer.fail(unique, messages=MESSAGES)
    sidecar.start()
    sidecar.kill()
    expiring = peer.produce(unique, "Text", count=MESSAGES, ttl_ms=1)
    eventually(
        lambda: len(peer.browse("ExpiryQueue")) == MESSAGES or not peer.browse(unique),
        what="they expire",
    )
    sidecar.start()
    received = peer.consume(unique, count=MESSAGES, wait_ms=60_000)
    received += peer.consume(unique)
    expired = ids(expiring)
    found = ids([one for one in received if one.test_id not in expired])
    assert found == ids(dead)
    assert all(count == 1 for count in ids(received).values())


def test_a_renamed_sidecar_beside_the_old_one_sends_nothing_twice(
    url: str, peer: JmsPeer, policy: Path, unique: str, tmp_path: Path
) -> None:
    """Two schedules on the same dead-letter queue, each killed while both run."""
    sent = peer.produce(unique, "Text", count=2 * MESSAGES)
    peer.fail(unique, messages=2 * MESSAGES)
    folders = [tmp_path / "old", tmp_path / "new"]
    for folder in folders:
        folder.mkdir()
    old, new = (
        SidecarProcess(
            folder,
            url,
            policy=policy,
            sets=(*OPTIONS, f"store.instance={folder.name}-{unique[-8:]}"),
        )
        for folder in folders
    )
    with old, new:
        old.start()
        new.start()
        old.kill()
        new.kill()
        new.start()
        old.start()
        received = peer.consume(unique, count=len(sent), wait_ms=60_000)
        received += peer.consume(unique)
    assert ids(received) == ids(sent)


def test_a_killed_broker_with_non_persistent_messages_doubles_none(
    broker: ArtemisBroker, sidecar: SidecarProcess, peer: JmsPeer, unique: str
) -> None:
    """Persistent ones come all; of the others those that the schedule has, none of them twice."""
    kept = peer.produce(unique, "Text", count=MESSAGES)
    fleeting = peer.produce(unique, "Text", count=MESSAGES, persistent=False)
    peer.fail(unique, messages=2 * MESSAGES)
    sidecar.start()
    eventually(lambda: sidecar.metric("amqsidecar_scheduled_total") >= MESSAGES)
    broker.kill()
    broker.start()
    received = peer.consume(unique, count=MESSAGES, wait_ms=60_000)
    eventually(lambda: sidecar.finished_status().total == 0, what="all is sent")

    def are_kept_there() -> bool:
        received.extend(peer.consume(unique))
        return not ids(kept) - ids(received)

    eventually(are_kept_there, what="all persistent ones are received")
    received += peer.consume(unique)
    found, all_sent = ids(received), ids(kept) + ids(fleeting)
    assert not found - all_sent
