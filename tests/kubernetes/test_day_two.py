"""What an operator does on later days, with thousands of dead letters and little memory."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import CLASSIC, CORE, POD
from kubernetes.disruptions import (
    CLAIM,
    kill_container,
    lose_the_broker,
    move_the_volume,
    scale_through_0,
)
from kubernetes.load import Account, Load
from kubernetes.namespace import API, RELEASE, Namespace
from kubernetes.values import values
from support.deployment.cluster import Manifest
from support.waiting import eventually

SMALL_BACKLOG, BACKLOG = 200, 2_400
# Why: a broker hands out again after each failure all that a consumer holds ahead.
ONE_AHEAD = {"jms.prefetchPolicy.all": 1}
LIMITS = {"limits": {"memory": "128Mi"}}
"""The least that the chart permits."""


@pytest.fixture(params=["artemis", "classic"])
def load(request: pytest.FixtureRequest, namespace: Namespace) -> Iterator[Load]:
    """A broker, a sidecar beside it, and applications."""
    kind = {"artemis": CORE, "classic": CLASSIC}[request.param]
    peer = replace(broker_pods.start(namespace, kind), url_options=ONE_AHEAD)
    namespace.install(values(kind, cycle={"max_messages": 200}) | {"resources": LIMITS})
    with Load(peer, kind) as load:
        yield load


def was_out_of_memory(pod: Manifest) -> bool:
    """Say whether the container before this one was ended for its memory."""
    [status] = pod["status"]["containerStatuses"]
    return bool(status["lastState"].get("terminated", {}).get("reason") == "OOMKilled")


@pytest.mark.timeout(3600)
def test_a_backlog_lives_through_what_is_done_to_sidecar_volume_and_broker(
    load: Load, namespace: Namespace, account: Account
) -> None:
    load.send_hopeless()
    for change in (scale_through_0, lose_the_broker, move_the_volume):
        load.send_backlog(SMALL_BACKLOG, until=SMALL_BACKLOG // 2)
        change(namespace)
        load.go_on()
    load.send_backlog(BACKLOG, until=BACKLOG // 10)
    kill_container(namespace, namespace.pod())
    account(load.settle(namespace))
    assert not was_out_of_memory(namespace.get("pod", namespace.pod()))


def test_a_release_reaches_its_broker_alone_and_leaves_nothing_but_its_claim(
    namespace: Namespace,
) -> None:
    """The network policies hold; uninstalled, all is gone but the schedule."""
    broker_pods.start(namespace, CORE)
    options = values(CORE, listener={"acceptor": "stomp://broker:5672"})
    before = namespace.objects()
    namespace.install(options | {"listener": {"enabled": True}})
    assert len(namespace.objects() - before) > 10
    assert namespace.reaches(namespace.pod(), "amqsidecar", broker_pods.NAME, CORE.port)
    assert namespace.reaches(POD, broker_pods.NAME, *API)
    assert not namespace.reaches(namespace.pod(), "amqsidecar", *API)
    namespace.helm("uninstall", RELEASE, "--wait")
    eventually(
        lambda: namespace.objects() - before == {f"persistentvolumeclaim/{CLAIM}"},
        every_s=1,
        what="nothing but the claim is left",
        last=lambda _: namespace.objects() - before,
    )
