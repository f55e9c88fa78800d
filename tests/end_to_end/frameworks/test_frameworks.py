"""What becomes of a message that fails in a real application of a framework.

Each application fails until a message carries a property of the sidecar. The page for operators is
`deploy/guides/frameworks.md`.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.brokers.real import ArtemisBroker, Broker, ClassicBroker
from support.jms.peer import JmsPeer
from support.machine.applications import (
    CAMEL_TRANSACTED,
    WILDFLY_READY,
    Application,
    camel,
    node,
    php,
    python,
    quarkus,
    quarkus_jms,
    spring,
    spring_managed,
    wildfly,
)
from support.sidecar.listener import ListenerProcess, copy_keys
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.versions import newest
from support.waiting import eventually

pytestmark = [
    pytest.mark.broker,
    pytest.mark.proof,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]

CLASSIC_POLICY = """\
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 3, initial_redelivery_delay_ms: 100}
"""
ARTEMIS_POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 4, redelivery_delay_ms: 100}
"""
AT_ONCE = "jms.redeliveryPolicy.maximumRedeliveries=0"


@pytest.fixture(scope="module")
def classic() -> Iterator[ClassicBroker]:
    with ClassicBroker(newest("classic_6", "stomp").version) as broker:
        yield broker


@pytest.fixture(scope="module")
def artemis() -> Iterator[ArtemisBroker]:
    with ArtemisBroker() as broker:
        yield broker


@contextmanager
def sidecar_of(broker: Broker, folder: Path) -> Iterator[SidecarProcess]:
    is_classic = isinstance(broker, ClassicBroker)
    policy = write_policy(folder, CLASSIC_POLICY if is_classic else ARTEMIS_POLICY)
    url = broker.openwire_url if isinstance(broker, ClassicBroker) else broker.amqp_url
    made = SidecarProcess(folder, url, policy=policy, sets=["intake.backlog=process"])
    with made.start():
        yield made


def peer_of(broker: Broker) -> JmsPeer:
    return JmsPeer.of(broker, "openwire" if isinstance(broker, ClassicBroker) else "qpid")


def returns(
    broker: Broker,
    name: str,
    command: list[str],
    folder: Path,
    body: str = "Text",
    ready: str = "^ready$",
) -> int:
    """Let an application fail a message, and return how often until the sidecar brought it back."""
    with sidecar_of(broker, folder), Application(command, folder, ready=ready) as application:
        peer_of(broker).produce(name, body)
        application.wait_for("succeeded")
        return application.said("failed")


def is_lost(broker: Broker, name: str, command: list[str], folder: Path) -> bool:
    """Return whether a message that fails is gone, though a later one of another queue returns."""
    peer = peer_of(broker)
    with sidecar_of(broker, folder) as sidecar, Application(command, folder) as application:
        peer.produce(name, "Text")
        application.wait_for("failed")
        eventually(lambda: peer.browse(name) == [], what="the queue is empty")
        later = f"{name}.later"
        how = "rollback" if isinstance(broker, ClassicBroker) else "reject"
        with peer.start_flaky_consumer(later, failures=1, how=how) as consumer:
            peer.produce(later, "Text")
            consumer.wait_for_successes(1)
        dlq = "ActiveMQ.DLQ" if isinstance(broker, ClassicBroker) else "DLQ"
        assert peer.browse(dlq) == []
        return sidecar.unsent() == 0 and application.said("succeeded") == 0


def spring_on(classic: ClassicBroker, name: str, parameters: str, *options: str) -> list[str]:
    return spring(
        "activemq",
        f"queue={name}",
        f"spring.activemq.broker-url={classic.jms_url('openwire')}{parameters}",
        "spring.activemq.user=admin",
        "spring.activemq.password=admin",
        *options,
    )


@pytest.mark.parametrize(("parameters", "failures"), [("", 7), (f"?{AT_ONCE}", 1)])
def test_spring_boot_on_classic(
    classic: ClassicBroker, unique: str, tmp_path: Path, parameters: str, failures: int
) -> None:
    """Its listener is transacted. The client itself tries six times more, a second apart."""
    assert returns(classic, unique, spring_on(classic, unique, parameters), tmp_path) == failures


def test_spring_without_boot_loses_what_fails_unless_it_is_transacted(
    classic: ClassicBroker, unique: str, tmp_path: Path
) -> None:
    plain, transacted = tmp_path / "plain", tmp_path / "transacted"
    plain.mkdir()
    transacted.mkdir()
    bare = spring_on(classic, unique, f"?{AT_ONCE}", "bare=true")
    assert is_lost(classic, unique, bare, plain)
    assert returns(classic, unique, [*bare, "--transacted=true"], transacted) == 1


def test_spring_boot_on_artemis(artemis: ArtemisBroker, unique: str, tmp_path: Path) -> None:
    """The broker counts, up to its max-delivery-attempts."""
    command = spring(
        "artemis",
        f"queue={unique}",
        f"spring.artemis.broker-url={artemis.jms_url('core')}",
        "spring.artemis.mode=native",
        "spring.artemis.user=admin",
        "spring.artemis.password=admin",
    )
    assert returns(artemis, unique, command, tmp_path) == 10


@pytest.mark.parametrize("how", ["jms", "jta", "flow"])
@pytest.mark.parametrize(("parameters", "failures"), [("", 7), (f"?{AT_ONCE}", 1)])
def test_spring_with_a_transaction_manager_and_spring_integration_on_classic(
    classic: ClassicBroker, unique: str, tmp_path: Path, how: str, parameters: str, failures: int
) -> None:
    """By JmsTransactionManager, by Narayana's XA, and as Spring Integration's adapter has it."""
    url = f"{classic.jms_url('openwire')}{parameters}"
    command = spring_managed("openwire", url, unique, how)
    assert returns(classic, unique, command, tmp_path) == failures


@pytest.mark.parametrize("how", ["jms", "jta", "flow"])
def test_spring_with_a_transaction_manager_and_spring_integration_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path, how: str
) -> None:
    command = spring_managed("core", artemis.jms_url("core"), unique, how)
    assert returns(artemis, unique, command, tmp_path) == 10


@pytest.mark.parametrize("how", ["cached", "channel"])
def test_spring_loses_what_fails_in_a_cached_consumer_or_goes_to_an_error_channel(
    classic: ClassicBroker, unique: str, tmp_path: Path, how: str
) -> None:
    """A cached consumer's session is not the transaction's; the channel's handler succeeds."""
    url = f"{classic.jms_url('openwire')}?{AT_ONCE}"
    assert is_lost(classic, unique, spring_managed("openwire", url, unique, how), tmp_path)


def test_a_message_driven_bean_of_wildfly_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    """The container's XA transaction is rolled back; the broker counts."""
    command = wildfly(tmp_path, artemis.ports["PORT"], unique)
    assert returns(artemis, unique, command, tmp_path, ready=WILDFLY_READY) == 10


def test_camel_loses_what_fails_unless_it_is_transacted(
    classic: ClassicBroker, unique: str, tmp_path: Path
) -> None:
    url = f"{classic.jms_url('openwire')}?{AT_ONCE}"
    plain, transacted = tmp_path / "plain", tmp_path / "transacted"
    plain.mkdir()
    transacted.mkdir()
    assert is_lost(classic, unique, camel(url, f"jms:queue:{unique}"), plain)
    command = camel(url, f"jms:queue:{unique}{CAMEL_TRANSACTED}")
    assert returns(classic, unique, command, transacted) == 1


@pytest.mark.parametrize(("answer", "failures"), [("reject", 1), ("modify", 10)])
def test_rhea_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path, answer: str, failures: int
) -> None:
    command = node("rhea", str(artemis.ports["PORT"]), unique, answer)
    assert returns(artemis, unique, command, tmp_path) == failures


def test_rhea_that_throws_leaves_the_message_in_its_queue(
    artemis: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    """The process ends: rhea catches nothing, and acknowledges after the handler only."""
    peer = peer_of(artemis)
    with Application(node("rhea", str(artemis.ports["PORT"]), unique, "throw"), tmp_path) as one:
        peer.produce(unique, "Text")
        one.wait_for("failed")
        eventually(lambda: len(peer.browse(unique)) == 1, what="the message is there again")


def quarkus_of(artemis: ArtemisBroker, name: str, strategy: str) -> list[str]:
    return quarkus(
        host="127.0.0.1",
        port=str(artemis.ports["PORT"]),
        username="admin",
        password="admin",
        address=name,
        failure_strategy=strategy,
    )


@pytest.mark.parametrize(("strategy", "failures"), [("reject", 1), ("modified-failed", 10)])
def test_quarkus_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path, strategy: str, failures: int
) -> None:
    assert returns(artemis, unique, quarkus_of(artemis, unique, strategy), tmp_path) == failures


def test_quarkus_stops_reading_by_default_and_leaves_the_message_in_its_queue(
    artemis: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    peer = peer_of(artemis)
    with Application(quarkus_of(artemis, unique, "fail"), tmp_path) as application:
        peer.produce(unique, "Text")
        application.wait_for("failed")
        eventually(lambda: len(peer.browse(unique)) == 1, what="the message is there again")
        assert application.said("failed") == 1


REJECTED = "jms.redeliveryPolicy.maxRedeliveries=0&jms.redeliveryPolicy.outcome=REJECTED"


@pytest.mark.parametrize(("parameters", "failures"), [("", 10), (f"?{REJECTED}", 1)])
def test_a_rollback_of_quarkus_jms_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path, parameters: str, failures: int
) -> None:
    url = f"{artemis.jms_url('qpid')}{parameters}"
    command = quarkus_jms(url, unique, is_channel=False)
    assert returns(artemis, unique, command, tmp_path) == failures


def test_a_nack_of_smallrye_jms_is_lost_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    """The session has acknowledged it."""
    peer = peer_of(artemis)
    command = quarkus_jms(artemis.jms_url("qpid"), unique, is_channel=True)
    with Application(command, tmp_path) as application:
        # Why without a JMSType: the connector takes it for the name of a Java class.
        peer.fill(unique, 1, size=20)
        application.wait_for("failed")
        eventually(lambda: peer.browse(unique) == [], what="the queue is empty")
    assert peer.browse(unique) == []
    assert peer.browse("DLQ") == []


@pytest.mark.skipif(shutil.which("php") is None, reason="PHP is not installed")
@pytest.mark.parametrize("answer", ["auto", "nack"])
def test_php_on_classic(classic: ClassicBroker, unique: str, tmp_path: Path, answer: str) -> None:
    """Of a persistent message: the extension acknowledges as it subscribes."""
    command = php(str(classic.ports["STOMP_PORT"]), f"/queue/{unique}", answer)
    if answer == "auto":
        assert is_lost(classic, unique, command, tmp_path)
    else:
        assert returns(classic, unique, command, tmp_path, body="Bytes") == 1


def stomp_client(name: str, *arguments: str) -> list[str]:
    return (python if name == "stomp_py" else node)(name, *arguments, "nack")


STOMP_CLIENTS = ("stompit", "stompjs", "stomp_py")


@pytest.mark.parametrize("client", STOMP_CLIENTS)
def test_a_nack_over_stomp_destroys_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path, client: str
) -> None:
    """The broker never shows it to anybody again."""
    peer_of(artemis).produce(unique, "Text")
    peer_of(artemis).consume(unique, 1)
    command = stomp_client(client, str(artemis.ports["PORT"]), unique)
    assert is_lost(artemis, unique, command, tmp_path)


@pytest.mark.parametrize(
    ("client", "answer", "cause"),
    [
        *((one, "nack", "intercepted at the NACK of admin") for one in STOMP_CLIENTS),
        ("rhea", "reject", "intercepted at the reject of admin: app:no-stock"),
        ("rhea", "postpone", "intercepted at the modified of admin"),
    ],
)
def test_what_is_given_up_through_the_listener_comes_back(
    artemis: ArtemisBroker, unique: str, tmp_path: Path, client: str, answer: str, cause: str
) -> None:
    peer_of(artemis).produce(unique, "Text")
    peer_of(artemis).consume(unique, 1)
    policy = write_policy(tmp_path, ARTEMIS_POLICY)
    run = python if client == "stomp_py" else node
    sets = [
        f"intake.cause_notes=amqsidecar.causes.{unique}",
        "policy.verdicts=obey",
        copy_keys(tmp_path),
    ]
    with (
        ListenerProcess(tmp_path, artemis.ports["PORT"], sets) as listener,
        SidecarProcess(tmp_path, artemis.pair_url, policy=policy, sets=sets) as sidecar,
        Application(run(client, str(listener.port), unique, answer), tmp_path) as application,
    ):
        sidecar.start()
        peer_of(artemis).produce(unique, "Text")
        application.wait_for("succeeded")
        assert application.said("failed") == 1
        eventually(
            lambda: cause in str(sidecar.json_command("groups")), what="the group names the cause"
        )


@pytest.mark.parametrize("client", STOMP_CLIENTS)
def test_a_nack_over_stomp_is_a_death_at_once_on_classic(
    classic: ClassicBroker, unique: str, tmp_path: Path, client: str
) -> None:
    """Of bytes: Classic sends text without its length, and a NUL in ours would end the frame."""
    command = stomp_client(client, str(classic.ports["STOMP_PORT"]), f"/queue/{unique}")
    assert returns(classic, unique, command, tmp_path, body="Bytes") == 1


def test_stomp_py_that_disconnects_loses_nothing_on_artemis(
    artemis: ArtemisBroker, unique: str, tmp_path: Path
) -> None:
    """The broker counts, up to its max-delivery-attempts."""
    peer_of(artemis).produce(unique, "Text")
    peer_of(artemis).consume(unique, 1)
    command = python("stomp_py", str(artemis.ports["PORT"]), unique, "disconnect")
    assert returns(artemis, unique, command, tmp_path) == 10
