"""TLS through the listener on a real broker that requires certificates: ended there, or passed."""

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from proton import Condition, ConnectionException, Delivery, Message, SSLDomain
from proton.utils import BlockingConnection

from support.brokers.broker_xml import artemis_xml
from support.brokers.real import ArtemisBroker
from support.machine.certificates import PemFiles, Pki
from support.machine.ports import free_port
from support.sidecar.listener import ListenerProcess
from support.waiting import PATIENCE_S
from support.wires.amqp_options import Anycast

pytestmark = pytest.mark.broker

INTERCEPTED = "amqsidecar.intercepted"


def tls_broker(pki: Pki, port: int) -> ArtemisBroker:
    """Return a broker with an acceptor that requires certificates."""
    options = f"protocols=AMQP,STOMP;needClientAuth=true;{pki.broker_stores().acceptor_options}"
    acceptors = {
        "artemis": "tcp://127.0.0.1:@PORT@",
        "secure": f"tcp://127.0.0.1:{port}?{options}",
    }
    return ArtemisBroker(artemis_xml(acceptors=acceptors))


def connect(port: int, pki: Pki, client: PemFiles | None) -> BlockingConnection:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(pki.ca_file))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if client is not None:
        domain.set_credentials(str(client.certificate), str(client.key), None)
    return BlockingConnection(
        f"amqps://localhost:{port}",
        PATIENCE_S,
        ssl_domain=domain,
        user="admin",
        password="admin",
        allowed_mechs="PLAIN",
    )


def test_with_tls_on_both_sides_what_is_rejected_is_saved(tmp_path: Path) -> None:
    """Each side needs a certificate; the broker sees the listener's."""
    pki, of_clients = Pki(tmp_path / "pki"), Pki(tmp_path / "clients")
    ours = pki.client("listener", hosts=["localhost"])
    port = free_port()
    with tls_broker(pki, port):
        sets = [
            f"listener.acceptor=amqps://localhost:{port}",
            f"listener.acceptor_tls.ca_file={pki.ca_file}",
            f"listener.acceptor_tls.cert_file={ours.certificate}",
            f"listener.acceptor_tls.key_file={ours.key}",
            f"listener.cert_file={ours.certificate}",
            f"listener.key_file={ours.key}",
            f"listener.client_ca_file={of_clients.ca_file}",
        ]
        with ListenerProcess(tmp_path, port, sets) as listener:
            with pytest.raises(ConnectionException):
                connect(listener.port, pki, None)
            consumer = connect(listener.port, pki, of_clients.client("orders"))
            consumer.create_sender("orders", options=Anycast()).send(
                Message(body="precious", durable=True)
            )
            receiver: Any = consumer.create_receiver("orders", credit=1, options=Anycast())
            receiver.receive(PATIENCE_S)
            receiver.fetcher.unsettled[-1].local.condition = Condition("app:bad", "no stock")
            receiver.settle(Delivery.REJECTED)
            saved = consumer.create_receiver(INTERCEPTED, credit=1, options=Anycast())
            message: Any = saved.receive(PATIENCE_S)
            assert message.body == "precious"
            assert "no stock" in message.properties["amqsidecarCause"]
            consumer.close()


def test_a_replaced_certificate_is_shown_to_the_next_client(tmp_path: Path) -> None:
    """As cert-manager replaces it; a certificate without its key leaves the former in use."""
    pki = Pki(tmp_path / "pki")
    ours = pki.client("listener", hosts=["localhost"])
    sets = [f"listener.cert_file={ours.certificate}", f"listener.key_file={ours.key}"]
    trusting = ssl.create_default_context(cafile=pki.ca_file)

    def shown(port: int) -> object:
        with (
            socket.create_connection(("localhost", port), PATIENCE_S) as plain,
            trusting.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            return (client.getpeercert() or {})["serialNumber"]

    with ListenerProcess(tmp_path, free_port(), sets) as listener:
        first, key = shown(listener.port), ours.key.read_bytes()
        pki.client("listener", hosts=["localhost"])
        new_key = ours.key.read_bytes()
        ours.key.write_bytes(key)
        assert shown(listener.port) == first
        assert "files_not_read" in listener.log()
        ours.key.write_bytes(new_key)
        assert shown(listener.port) != first


@pytest.mark.proof
def test_without_a_certificate_of_its_own_the_listener_passes_tls_through(tmp_path: Path) -> None:
    """The broker sees the client's certificate; nothing can be saved."""
    pki = Pki(tmp_path / "pki")
    port = free_port()
    with tls_broker(pki, port), ListenerProcess(tmp_path, port) as listener:
        with pytest.raises(ConnectionException):
            connect(listener.port, pki, None)
        client = connect(listener.port, pki, pki.client("orders"))
        client.create_sender("orders", options=Anycast()).send(Message(body="x", durable=True))
        receiver = client.create_receiver("orders", credit=1, options=Anycast())
        assert receiver.receive(PATIENCE_S).body == "x"
        receiver.reject()
        client.close()
