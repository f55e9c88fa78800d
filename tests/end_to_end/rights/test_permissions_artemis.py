"""On Artemis the sidecar's user is no administrator, with the right to manage or without."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, artemis_xml
from support.brokers.real import ArtemisBroker
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

CREATE = "createAddress createDurableQueue"
# What deploy/guides/broker-side.md says: rights by match and role. Settings do not merge.
RIGHTS = {
    "orders.#": {
        "producers": f"send {CREATE}",
        "consumers": "consume",
        "movers": "send",
        "manuals": "send",
    },
    "DLQ": {"movers": "consume", "manuals": "consume browse"},
    "DLQ.exhausted": {"movers": "send", "unmanaged": CREATE, "recallers": "consume"},
    "amqsidecar.token.#": {
        "movers": "send consume",
        "unmanaged": CREATE,
        "manuals": "send consume",
    },
    # What deploy/reference/schedules.md says.
    "amqsidecar.waiting": {"movers": "send consume"},
    "amqsidecar.parked": {"movers": "send"},
    "activemq.management": {"managers": "send manage"},
    "uuid.#": {"managers": "createNonDurableQueue createAddress consume send"},
}
ROLES = {
    "producer": ["producers"],
    "consumer": ["consumers"],
    "sidecar": ["movers", "managers"],
    "unmanaged": ["movers", "unmanaged"],
    "manager": ["managers"],
    "recaller": ["movers", "managers", "recallers"],
    # What deploy/guides/hardened-classic.md says.
    "manual": ["manuals", "managers"],
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
    redelivery_delay_ms: 200
"""


def security_setting(match: str) -> str:
    """Return a setting that gives the administrators everything and the roles their rights."""
    lines = []
    for kind in KINDS:
        roles = ["amq", *(role for role, held in RIGHTS[match].items() if kind in held.split())]
        lines.append(f'<permission type="{kind}" roles="{",".join(roles)}"/>')
    return f'<security-setting match="{match}">{"".join(lines)}</security-setting>'


# Why: a Core client can't reject.
ONE_ATTEMPT = """
<address-setting match="orders.#">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>1</max-delivery-attempts>
</address-setting>
"""


class SecuredBroker(ArtemisBroker):
    """Artemis with users and roles besides the administrator."""

    def __init__(self, wire: str) -> None:
        settings = "".join(security_setting(match) for match in RIGHTS)
        # Why the namespace: a temporary queue's name is random, so that no match would find it.
        namespace = "<uuid-namespace>uuid</uuid-namespace>"
        addresses = STOCK_ADDRESS_SETTINGS + (ONE_ATTEMPT if wire != "amqp" else "")
        text = artemis_xml(core=namespace, address_settings=addresses)
        self.wire = wire
        super().__init__(text.replace("</security-settings>", f"{settings}</security-settings>"))

    def _prepare(self) -> None:
        super()._prepare()
        members: dict[str, list[str]] = {}
        for user, roles in ROLES.items():
            for role in roles:
                members.setdefault(role, []).append(user)
        for name, lines in {
            "artemis-users.properties": [f"{user} = {user}" for user in ROLES],
            "artemis-roles.properties": [
                f"{role} = {','.join(of)}" for role, of in members.items()
            ],
        }.items():
            path = self.config_path.parent / name
            path.write_text(path.read_text(encoding="utf-8") + "\n".join(lines), encoding="utf-8")


@pytest.fixture(
    scope="module",
    params=["artemis", *(pytest.param(one, marks=pytest.mark.proof) for one in ("amqp", "core"))],
)
def broker(request: pytest.FixtureRequest) -> Iterator[SecuredBroker]:
    with SecuredBroker(request.param) as started:
        yield started


def peer(broker: SecuredBroker, user: str) -> JmsPeer:
    provider = "core" if broker.wire != "amqp" else "qpid"
    return JmsPeer(provider, broker.jms_url(provider), user=user, password=user)


def how(broker: SecuredBroker) -> str:
    """Return how a consumer makes a message die at once."""
    return "rollback" if broker.wire != "amqp" else "reject"


def sidecar(broker: SecuredBroker, folder: Path, user: str, *sets: str) -> SidecarProcess:
    policy = write_policy(folder, POLICY)
    return SidecarProcess(
        folder,
        f"{broker.wire}://{user}:{user}@127.0.0.1:{broker.ports['PORT']}",
        policy=policy,
        sets=["intake.backlog=process", *sets],
    )


@pytest.mark.parametrize(
    ("user", "sets"),
    [
        ("sidecar", ()),
        ("unmanaged", ("intake.queues=DLQ",)),
        ("sidecar", ("store.url=broker:",)),
    ],
    ids=["with-manage", "without-manage", "broker-held"],
)
def test_the_least_rights_are_enough(
    broker: SecuredBroker, tmp_path: Path, unique: str, user: str, sets: tuple[str, ...]
) -> None:
    """A message of users that may only send or only consume comes back, and ends.

    Without the right to manage, the dead-letter queues have to be named, and the rules given.
    """
    queue = f"orders.{unique}"
    with sidecar(broker, tmp_path, user, *sets).start():
        peer(broker, "producer").produce(queue, "Text", test_id=unique)
        seen = peer(broker, "consumer").fail(
            queue, how(broker), messages=1, deliveries=2, max_redeliveries=9
        )
        [dead] = peer(broker, "admin").consume(
            "DLQ.exhausted", count=1, selector=f"testId = '{unique}-0'"
        )

    assert [one.value("amqsidecarRedeliveryCount") for one in seen] == [None, 1]
    assert dead.value("amqsidecarRedeliveryCount") == 1


def test_the_least_rights_of_manual_mode_are_enough(
    broker: SecuredBroker, tmp_path: Path, unique: str
) -> None:
    """A message is seen in its queue and retried; there is no final queue to write to."""
    queue = f"orders.{unique}"
    consumer = peer(broker, "consumer")
    peer(broker, "producer").produce(queue, "Text", test_id=unique)
    consumer.fail(queue, how(broker), messages=1, deliveries=1, max_redeliveries=9)
    sets = ["redelivery.mode=manual", "intake.queues=DLQ", "observe.interval_s=1"]
    with sidecar(broker, tmp_path, "manual", *sets).start() as started:
        eventually(lambda: started.exhausted() == 1, what="it is seen where it lies")
        started.run_command("retry", "--state", "exhausted", "--yes")
        [again] = consumer.consume(queue, count=1)
    assert again.test_id == f"{unique}-0"


def test_exhausted_messages_stay_until_the_right_to_consume_them_is_granted(
    broker: SecuredBroker, tmp_path: Path, unique: str
) -> None:
    """A person retries one: it is neither lost nor forgotten, and the service does all else."""
    queue, other = f"orders.{unique}", f"orders.{unique}_other"
    consumer = peer(broker, "consumer")
    peer(broker, "producer").produce(queue, "Text", test_id=unique)
    with sidecar(broker, tmp_path, "sidecar").running() as refused:
        consumer.fail(queue, how(broker), messages=1, deliveries=2, max_redeliveries=9)
        eventually(lambda: refused.exhausted() == 1, what="the message is in its final queue")
        refused.run_command("retry", "--state", "exhausted", "--yes")
        eventually(
            lambda: "does not have permission='CONSUME'" in refused.log(),
            what="the broker refuses to hand it out",
        )
        peer(broker, "producer").produce(other, "Text", test_id=f"{unique}-other")
        seen = consumer.fail(other, how(broker), messages=1, deliveries=2, max_redeliveries=9)
        assert len(seen) == 2
        selector = f"testId = '{unique}-0'"
        assert len(peer(broker, "admin").browse("DLQ.exhausted", selector=selector)) == 1
    with sidecar(broker, tmp_path, "recaller").start():
        [again] = consumer.consume(queue, count=1)
    assert again.test_id == f"{unique}-0"
    assert peer(broker, "admin").browse("DLQ.exhausted", selector=selector) == []


def test_without_the_token_queue_the_service_ends_with_the_brokers_words(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    """Exit code 69, and what is missing: the token queue comes first."""
    said = sidecar(broker, tmp_path, "manager").run_refused(expect=69)
    assert "the token queue amqsidecar.token." in said
    assert "User: manager does not have permission=" in said


def test_without_a_right_to_manage_the_broker_keeps_no_schedule(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    """It could not find out where messages may wait."""
    said = sidecar(broker, tmp_path, "unmanaged", "store.url=broker:").run_refused(expect=69)
    assert "grant it send and manage on activemq.management" in said


def unready(sidecar: SidecarProcess) -> str:
    """Return why it is not ready; empty while it is."""
    status, text = sidecar.get("/readyz")
    return text if status == 503 else ""


def test_without_a_right_to_manage_nothing_is_found_and_the_log_says_so(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    """Dead letters stay where they are until somebody names their queue."""
    with sidecar(broker, tmp_path, "unmanaged").start(ready=False) as started:
        said = eventually(
            lambda: [one for one in started.log_lines() if one["event"] == "intake_empty"],
            what="the log says that nothing is read",
        )
        ready = eventually(
            lambda: unready(started),
            what="who can read nothing is not ready",
        )
    [meaning] = [one["meaning"] for one in said]
    assert "intake.queues" in meaning
    assert "grant it send and manage on activemq.management" in meaning
    assert meaning in json.loads(ready)["intake"]["reason"]
