"""What an operator does on later days."""

from kubernetes import broker_pods
from kubernetes.broker_pods import CORE, POD
from kubernetes.namespace import API, NAME, RELEASE, Namespace
from kubernetes.values import values
from support.waiting import eventually


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
        lambda: namespace.objects() - before == {f"persistentvolumeclaim/amqsidecar-data-{NAME}-0"},
        every_s=1,
        what="nothing but the claim is left",
        last=lambda _: namespace.objects() - before,
    )
