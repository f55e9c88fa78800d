"""STOMP to Artemis with the least rights, and without the right to manage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.stomp_artemis.link import StompArtemisLink
from amqsidecar.clock import SystemClock
from amqsidecar.errors import BrokerRefused, DiscoveryRefused, QueueRefused
from amqsidecar.model.destination import queue
from support.brokers.broker_xml import artemis_xml
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import PATIENCE_S
from support.wires.stomp_peer import StompPeer

pytestmark = pytest.mark.broker

CREATE = "createAddress createDurableQueue"
# What deploy/guides/broker-side.md says: rights by match and user.
RIGHTS = {
    "orders.#": {"sidecar": "send", "unmanaged": "send"},
    "DLQ": {"sidecar": "consume", "unmanaged": "consume"},
    "DLQ.exhausted": {"sidecar": "send", "unmanaged": f"send {CREATE}"},
    "amqsidecar.token.#": {"sidecar": "send consume", "unmanaged": f"send consume {CREATE}"},
    "activemq.management": {"sidecar": "send manage createAddress"},
    "amqsidecar.replies.#": {
        "sidecar": "send consume createAddress deleteAddress "
        "createNonDurableQueue deleteNonDurableQueue"
    },
}
KINDS = (
    *("createNonDurableQueue", "deleteNonDurableQueue", "createDurableQueue"),
    *("deleteDurableQueue", "createAddress", "deleteAddress"),
    *("consume", "browse", "send", "manage"),
)
POLICY = """
address_settings:
  - match: "#"
    dead_letter_address: "DLQ"
    max_delivery_attempts: 2
    redelivery_delay_ms: 100
"""


class SecuredBroker(ArtemisBroker):
    """Artemis with two users that have few rights besides the administrator."""

    def __init__(self) -> None:
        lines = []
        for match, held in RIGHTS.items():
            lines.append(f'<security-setting match="{match}">')
            for kind in KINDS:
                roles = ["amq", *(user for user, kinds in held.items() if kind in kinds.split())]
                lines.append(f'<permission type="{kind}" roles="{",".join(roles)}"/>')
            lines.append("</security-setting>")
        end = "</security-settings>"
        super().__init__(artemis_xml().replace(end, "".join(lines) + end))

    def _prepare(self) -> None:
        super()._prepare()
        for kind in ("users", "roles"):
            path = self.config_path.parent / f"artemis-{kind}.properties"
            with path.open("a", encoding="utf-8") as file:
                file.write("sidecar = sidecar\nunmanaged = unmanaged\n")


@pytest.fixture(scope="module")
def broker() -> Iterator[ArtemisBroker]:
    with SecuredBroker() as started:
        yield started


@pytest.mark.parametrize(
    ("user", "sets"),
    [("sidecar", ()), ("unmanaged", ("intake.queues=DLQ",))],
    ids=["with-manage", "without-manage"],
)
def test_the_least_rights_are_enough(
    broker: ArtemisBroker, tmp_path: Path, unique: str, user: str, sets: tuple[str, ...]
) -> None:
    """A message of a STOMP application comes back, and ends in the final queue."""
    name = f"orders.{unique}"
    policy = write_policy(tmp_path, POLICY)
    url = f"stomp://{user}:{user}@127.0.0.1:{broker.ports['PORT']}"
    service = SidecarProcess(tmp_path, url, policy=policy, sets=["intake.backlog=process", *sets])
    jms = JmsPeer.of(broker, "qpid")
    with StompPeer(broker.ports["PORT"]) as stomp, service.start():
        stomp.send(name, {"destination-type": "ANYCAST", "testId": unique}, b"body")
        seen = jms.fail(name, "reject", messages=1, deliveries=2, max_redeliveries=9)
        [dead] = jms.consume("DLQ.exhausted", count=1, selector=f"testId = '{unique}'")
    assert [one.value("amqsidecarRedeliveryCount") for one in seen] == [None, "1"]
    assert dead.value("amqsidecarRedeliveryCount") == "1"


def test_what_is_missing_is_reported(broker: ArtemisBroker, unique: str) -> None:
    """Without the right to manage no queue is found; a queue closed to the user is named."""
    link = StompArtemisLink(
        ArtemisLinkSettings(
            broker.endpoint("PORT", user="unmanaged", password="unmanaged"),
            clock=SystemClock(),
            instance=unique,
        )
    ).take(f"amqsidecar.token.{unique}")
    link.token.create(0)
    assert link.token.take(PATIENCE_S) == 0
    assert link.token.exists()
    with pytest.raises(DiscoveryRefused, match=r"manage and createAddress on activemq\.management"):
        link.discover()
    asked = link.features.settings
    assert asked is not None
    with pytest.raises(BrokerRefused, match=r"policy\.source"):
        asked.address_settings(["#"])
    assert link.count(IntakeQueue(queue("DLQ")), 7) == 7
    with pytest.raises(QueueRefused, match="ExpiryQueue"):
        link.attach([IntakeQueue(queue("ExpiryQueue"))], 10)
    link.attach([IntakeQueue(queue("DLQ"))], 10)
    [left] = link.left_behind()
    assert (left.reason, left.at_least) == ("body_type", True)
    link.commit_cycle([], [], 1)
    link.close()
