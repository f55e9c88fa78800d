"""Which schedule a release has: a changed one, a full one, two of them, none."""

from typing import Any

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import ARTEMIS, LOGIN
from kubernetes.disruptions import delete
from kubernetes.load import Account, Load
from kubernetes.namespace import NAME, Namespace, other_release
from kubernetes.values import values
from support.deployment.helm import CHART, Refused
from support.jms.peer import ALL_TYPES
from support.machine.small_volume import small_volume
from support.waiting import eventually

KIND = ARTEMIS
OTHER_FILE = "sqlite:///var/lib/amqsidecar/other.db"
SMALL, SMALL_MIB = "small", 24
"""A storage class, and the size of its only volume."""
STOPPED = "amqsidecar_taking_stopped"
CHANGES: dict[str, dict[str, Any]] = {
    "config.store.url was": {"config": {"store": {"url": OTHER_FILE}}},
    "shape was beside and becomes shared": {
        "shape": "shared",
        "config": {"store": {"url": "postgresql://a@db/r"}},
    },
    "the name was": {"fullnameOverride": "other"},
    "persistence.existingClaim was": {"persistence": {"existingClaim": "mine"}},
}


def test_an_upgrade_that_would_strand_the_schedule_is_refused(namespace: Namespace) -> None:
    """By what the API server says runs; said to be right, another file is begun."""
    broker_pods.start(namespace, KIND)
    before = values(KIND)
    namespace.install(before)
    uid = namespace.uid()
    for sentence, change in CHANGES.items():
        config = before["config"] | change.get("config", {})
        with pytest.raises(Refused, match=sentence) as refused:
            namespace.install(before | change | {"config": config})
        assert "upgradeCheck.acceptNewSchedule" in str(refused.value)
    assert namespace.uid() == uid

    store = {"url": OTHER_FILE, "accept_orphans": True}
    accepted = {"upgradeCheck": {"acceptNewSchedule": True}}
    namespace.install(before | {"config": before["config"] | {"store": store}} | accepted)
    assert namespace.uid() != uid


def test_observing_touches_nothing_until_the_switch_to_run(namespace: Namespace) -> None:
    peer = broker_pods.start(namespace, KIND)
    namespace.install(values(KIND) | {"observe": True})
    sent = peer.produce("orders")
    peer.fail("orders", messages=len(sent))
    eventually(
        lambda: (
            sum(one["count"] for one in namespace.status(namespace.pod())["exhausted"]) == len(sent)
        ),
        every_s=0.5,
        what="it is shown in place",
    )
    assert len(peer.browse(KIND.dead_letter_queue)) == len(ALL_TYPES)
    namespace.install(values(KIND))
    back = peer.consume("orders", len(sent))
    assert {one.test_id for one in back} == {one.test_id for one in sent}


def test_a_full_volume_stops_taking_and_loses_nothing(
    namespace: Namespace, account: Account
) -> None:
    peer = broker_pods.start(namespace, KIND)
    place = namespace.cluster.folder / "small"
    with small_volume(place, SMALL_MIB) as volume:
        namespace.cluster.offer(place, SMALL)
        namespace.install(values(KIND) | {"persistence": {"storageClass": SMALL, "size": "1Mi"}})
        with Load(peer, KIND) as load:
            load.go_on()
            volume.fill()
            eventually(
                lambda: namespace.metric(namespace.pod(), STOPPED) == 1,
                within_s=60,
                every_s=0.3,
                what="taking stops",
            )
            eventually(
                lambda: peer.browse(KIND.dead_letter_queue),
                within_s=60,
                every_s=0.3,
                what="dead letters stay with the broker",
            )
            volume.free()
            load.go_on()
            account(load.settle(namespace))


def test_a_second_release_beside_the_same_broker(namespace: Namespace, account: Account) -> None:
    """Each has a schedule of its own; the pod of either is deleted; none is lost, none twice."""
    peer = broker_pods.start(namespace, KIND)
    namespace.install(values(KIND))
    second = other_release(namespace, "second")
    second.helm("install", "second", str(CHART), "--wait", values=values(KIND))
    assert namespace.get("secret", LOGIN)
    # Why no group: the broker gives all dead letters of one to one of the releases.
    with Load(peer, KIND, group=None) as load:
        load.send_hopeless()
        load.go_on()
        for each in (namespace, second):
            delete(each, each.pod())
            each.pod()
            load.go_on()
        tally = load.settle(namespace)
        eventually(
            lambda: second.unsent(second.pod()) == 0, within_s=60, every_s=0.5, what="both end"
        )
        account(tally)
    assert second.pod() != f"{NAME}-0"
