"""A volume for the listener's files that is full: who only accepts messages never notices it."""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.utils import BlockingConnection

from support.brokers.real import ArtemisBroker
from support.machine.ports import free_port
from support.sidecar.listener import ListenerProcess, metric_at
from support.sidecar.process import COMMAND
from support.waiting import PATIENCE_S
from support.wires.amqp_options import Anycast
from support.wires.stomp_peer import StompError, StompPeer

pytestmark = pytest.mark.broker

VOLUME_BYTES = 1 << 20
BODY = b"x" * 700_000
"""Of which the volume takes one, and not two."""
QUEUE = {"subscription-type": "ANYCAST", "consumer-window-size": "10000000"}
INTERCEPTED = "amqsidecar.intercepted"
UNKEPT = "amqsidecar_listener_unkept_messages_total"
REFUSED = 'amqsidecar_listener_given_up_total{how="nack",outcome="refused"}'


def on_small_volume(folder: Path) -> Sequence[str]:
    """Return what runs a command that sees a small volume at a folder.

    Where no user may mount one, files may not be larger than it: writing ends as on a full one.
    """
    mount = f"mount -t tmpfs -o size={VOLUME_BYTES} tmpfs '{folder}'"
    own = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    if not subprocess.run([*own, mount], check=False, capture_output=True).returncode:
        return [*own, f'{mount} && exec "$@"', "sh", *COMMAND]
    return ["prlimit", f"--fsize={len(BODY) // 2}", *COMMAND]


@pytest.fixture
def listener(artemis: ArtemisBroker, tmp_path: Path) -> Iterator[tuple[ListenerProcess, str]]:
    http = f"127.0.0.1:{free_port()}"
    (tmp_path / "spool").mkdir()
    sets = [f"listener.spool_path={tmp_path}/spool", f"listener.http_listen={http}"]
    program = on_small_volume(tmp_path / "spool")
    with ListenerProcess(tmp_path, artemis.ports["PORT"], sets, program) as running:
        yield running, http


def test_over_stomp_only_a_message_that_was_not_kept_comes_again(
    listener: tuple[ListenerProcess, str], unique: str
) -> None:
    running, http = listener
    with StompPeer(running.port) as consumer:
        for _ in range(3):
            consumer.send(unique, {"destination-type": "ANYCAST"}, BODY)
        consumer.subscribe(unique, headers=QUEUE)
        taken = [consumer.receive() for _ in range(3)]
        assert metric_at(http, UNKEPT) >= 2
        for message in taken[:2]:
            assert message.body == BODY
            consumer.ack(message)
        with pytest.raises((StompError, OSError)):
            consumer.nack(taken[2])
    assert metric_at(http, REFUSED) == 1
    log = running.log()
    assert log.count('"not_kept"') == 1
    assert "can't be written" in log
    assert "no room was left to keep it" in log
    with StompPeer(running.port) as consumer:
        consumer.subscribe(unique, headers=QUEUE)
        again = consumer.receive()
        assert again.headers["redelivered"] == "true"
        consumer.ack(again)
        consumer.unsubscribe()


def test_over_amqp_who_accepts_messages_is_not_cut(
    listener: tuple[ListenerProcess, str], unique: str
) -> None:
    running, http = listener
    consumer = BlockingConnection(
        f"amqp://127.0.0.1:{running.port}",
        PATIENCE_S,
        user="admin",
        password="admin",
        allowed_mechs="PLAIN",
    )
    sender = consumer.create_sender(unique, options=Anycast())
    for _ in range(3):
        sender.send(Message(body=BODY, durable=True))
    receiver = consumer.create_receiver(unique, credit=3, options=Anycast())
    received: list[Any] = [receiver.receive(PATIENCE_S) for _ in range(3)]
    assert [bytes(one.body) for one in received] == [BODY] * 3
    for _ in received:
        receiver.accept()
    consumer.close()
    assert metric_at(http, UNKEPT) >= 2
    assert "connection_ended" not in running.log()
