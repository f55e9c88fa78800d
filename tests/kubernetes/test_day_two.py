"""What an operator does on later days."""

from kubernetes import broker_pods
from kubernetes.broker_pods import CORE
from kubernetes.namespace import NAME, RELEASE, Namespace
from kubernetes.values import values
from support.waiting import eventually


def test_uninstalling_leaves_the_claim_and_nothing_else(namespace: Namespace) -> None:
    broker_pods.start(namespace, CORE)
    options = values(CORE, listener={"acceptor": "stomp://broker:5672"})
    before = namespace.objects()
    namespace.install(options | {"listener": {"enabled": True}})
    assert len(namespace.objects() - before) > 10
    namespace.helm("uninstall", RELEASE, "--wait")
    eventually(
        lambda: namespace.objects() - before == {f"persistentvolumeclaim/amqsidecar-data-{NAME}-0"},
        every_s=1,
        what="nothing but the claim is left",
        last=lambda _: namespace.objects() - before,
    )
