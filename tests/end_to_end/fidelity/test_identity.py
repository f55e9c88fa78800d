"""Logins: SCRAM without the password on the wire, several logins, passwords in files."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.errors import BrokerRefused
from amqsidecar.wiring.links import LinkMaker
from support.brokers.tls import PLAIN, SCRAM, TlsArtemis
from support.jms.peer import JmsPeer
from support.machine.certificates import Pki
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S, eventually

PASSWORD = "ein geheimes=Wort,"
PERCENT_ENCODED = "ein%20geheimes%3DWort%2C"
POLICY = """\
address_settings:
  - {match: "#", dead_letter_address: DLQ, max_delivery_attempts: 3, redelivery_delay_ms: 100}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsArtemis]:
    made = TlsArtemis(Pki(tmp_path_factory.mktemp("pki")))
    made.password = PASSWORD
    with made:
        yield made


@contextmanager
def recorder(port: int) -> Iterator[tuple[int, bytearray]]:
    """Forward one connection to a port; gives the port to use, and what the client has sent."""
    sent = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def forward(source: socket.socket, target: socket.socket, record: bytearray) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    record += data
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        def serve() -> None:
            client, _ = server.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as peer:
                back = threading.Thread(target=forward, args=(peer, client, bytearray()))
                back.start()
                forward(client, peer, sent)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], sent
        thread.join(PATIENCE_S)


def log_in(port: int, *sets: str, password: str = PERCENT_ENCODED) -> None:
    url = f"amqp://admin:{password}@127.0.0.1:{port}"
    config = load_config(None, [f"broker.url={url}", "broker.kind=artemis", *sets], {})
    link = LinkMaker(config, SystemClock()).make("identity")
    link.take("amqsidecar.token.identity").close()


@pytest.mark.broker
@pytest.mark.parametrize(
    ("restriction", "mechanism"),
    [
        ((), b"SCRAM-SHA-512"),
        (("broker.sasl_mechanisms=[PLAIN, SCRAM-SHA-256]",), b"SCRAM-SHA-256"),
    ],
)
def test_scram_logs_in_without_sending_the_password(
    broker: TlsArtemis, restriction: tuple[str, ...], mechanism: bytes
) -> None:
    """The strongest of what the broker offers and the operator allows."""
    with recorder(broker.port("amqp", SCRAM)) as (port, sent):
        log_in(port, *restriction)
    assert mechanism in sent
    assert b"n,,n=admin,r=" in sent
    assert PASSWORD.encode() not in sent


@pytest.mark.broker
def test_a_refused_log_in_says_why(broker: TlsArtemis) -> None:
    with pytest.raises(BrokerRefused, match=r"user admin \(SASL SCRAM-SHA-512\): check"):
        log_in(broker.port("amqp", SCRAM), password="wrong")
    with pytest.raises(BrokerRefused, match=r"user admin \(SASL PLAIN\): check"):
        log_in(broker.port("amqp", PLAIN), password="wrong")
    only_scram = "broker.sasl_mechanisms=[SCRAM-SHA-512]"
    with pytest.raises(BrokerRefused, match=r"offers .*PLAIN.*saslMechanisms"):
        log_in(broker.port("amqp", PLAIN), only_scram)


def sidecar_of(folder: Path, url: str, *sets: str) -> SidecarProcess:
    policy = write_policy(folder, POLICY)
    return SidecarProcess(folder, url, policy=policy, sets=("intake.backlog=process", *sets))


@pytest.mark.broker
def test_each_url_has_its_own_login(broker: TlsArtemis, tmp_path: Path) -> None:
    """A login that one broker refuses is tried at the next; where all refuse it, the start ends."""
    place = f"127.0.0.1:{broker.port('amqp', PLAIN)}"
    wrong, right = f"amqp://wrong:geheim@{place}", f"amqp://admin:{PERCENT_ENCODED}@{place}"
    with sidecar_of(tmp_path, f"[{wrong}, {right}]").start() as started:
        lines = started.log_lines()
        [down] = [line["reason"] for line in lines if line["event"] == "link_down"]
        [up] = [line["url"] for line in lines if line["event"] == "link_up"]
    assert down.startswith(f"amqp://{place} refuses: ")
    assert "does not accept user wrong" in down
    assert up == f"amqp://{place}"
    refused = sidecar_of(tmp_path, f"[{wrong}, {wrong}]").run_refused(expect=69)
    assert "does not accept user wrong" in refused
    assert "geheim" not in started.log() + refused


@pytest.mark.broker
def test_a_password_file_is_read_at_each_connect(
    broker: TlsArtemis, tmp_path: Path, unique: str
) -> None:
    """Also when it is away for a moment: the service says so, tries again, and goes on."""
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n", encoding="utf-8")
    place = f"127.0.0.1:{broker.port('amqp', PLAIN)}"
    sidecar = sidecar_of(tmp_path, f"amqp://admin@{place}", f"broker.password_file={secret}")
    with sidecar.start():
        secret.unlink()
        broker.kill()
        words = f"broker.password_file: {secret} can't be read"
        eventually(lambda: words in sidecar.get("/readyz")[1], what="health says what is missing")
        broker.set_password("rotated")
        secret.write_text("rotated", encoding="utf-8")
        broker.start()
        sidecar.wait_ready()
        peer = JmsPeer.of(broker, "qpid")
        with peer.start_flaky_consumer(unique, failures=1, how="reject") as consumer:
            peer.produce(unique, "Text")
            consumer.wait_for_successes(1)
    broker.set_password(PASSWORD)
    assert "rotated" not in sidecar.log()
