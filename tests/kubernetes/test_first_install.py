"""The first installation: what is wrong ends it, and a Secret may come later."""

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import ARTEMIS, LOGIN
from kubernetes.load import Account, Load
from kubernetes.namespace import NAME, RELEASE, Namespace
from kubernetes.values import values, with_rules
from support.brokers.broker_xml import PASSWORD
from support.deployment.helm import CHART, Refused
from support.waiting import eventually

KIND = ARTEMIS
WRONG = "max_delivery_attemps"


def test_what_a_start_would_refuse_ends_the_installation(namespace: Namespace) -> None:
    """Nothing of the sidecar is there then, and the mended values are installed."""
    broker_pods.start(namespace, KIND)
    wrong = with_rules(values(KIND), {"address_settings": [{"match": "#", WRONG: 3}]})
    with pytest.raises(Refused, match=r"config.broker.url: tcp:// is written openwire://"):
        namespace.install(values(KIND, broker={"url": "tcp://broker:61616"}))
    gate = values(KIND, policy={"gates": [{"brake": {}}]})
    for words, chosen in {WRONG: wrong, "there is no gate named 'brake'": gate}.items():
        with pytest.raises(Refused, match=r"failed pre-install|pre-upgrade hooks") as refused:
            namespace.install(chosen)
        assert words in str(refused.value)
    assert namespace.get("statefulsets", f"--field-selector=metadata.name={NAME}")["items"] == []
    namespace.install(values(KIND))
    assert namespace.pod()


def test_a_secret_that_comes_later_is_waited_for(namespace: Namespace, account: Account) -> None:
    peer = broker_pods.start(namespace, KIND)
    namespace.kubectl("delete", "secret", LOGIN)
    namespace.helm("install", RELEASE, str(CHART), values=values(KIND))
    [pod] = eventually(namespace.pods, every_s=0.3, what="the pod is there")
    assert pod["status"]["phase"] == "Pending"
    namespace.secret(LOGIN, password=PASSWORD)
    with Load(peer, KIND) as load:
        assert namespace.pod() == pod["metadata"]["name"]
        load.go_on()
        account(load.settle(namespace))
