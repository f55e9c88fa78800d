"""Where rules and people come from; the objects for browsers."""

import json
import sys
from collections.abc import Iterator

import pytest

from kubernetes import broker_pods
from kubernetes.broker_pods import ARTEMIS
from kubernetes.load import Account, Load
from kubernetes.namespace import NAME, RELEASE, Namespace
from kubernetes.values import (
    DELAY_MS,
    REDELIVERIES,
    values,
    with_rules_as_a_file,
    with_rules_of,
)
from support.deployment.helm import Refused
from support.jms.peer import JmsPeer
from support.machine.processes import run_program

KIND = ARTEMIS
SECOND_DELAY_MS, THIRD_DELAY_MS = 500, 700
WRONG = "max_delivery_attemps"


@pytest.fixture
def peer(namespace: Namespace) -> JmsPeer:
    return broker_pods.start(namespace, KIND)


@pytest.fixture
def load(peer: JmsPeer) -> Iterator[Load]:
    with Load(peer, KIND) as load:
        yield load


def test_rules_come_from_a_file_of_the_release_and_from_a_config_map(
    load: Load, namespace: Namespace, account: Account
) -> None:
    """Changed ones roll the pod, wrong ones are refused before, a rollback brings the old ones."""
    first = with_rules_as_a_file(values(KIND), KIND.rules(DELAY_MS, REDELIVERIES))
    namespace.install(first)
    assert load.newest_delays() == {DELAY_MS}
    uid = namespace.uid()

    wrong = {"address_settings": [{"match": "#", WRONG: 3}]}
    with pytest.raises(Refused, match="pre-upgrade hooks failed") as refused:
        namespace.install(with_rules_as_a_file(first, wrong))
    assert WRONG in str(refused.value)
    namespace.config_map("wrong", rules__yaml=json.dumps(wrong))
    with pytest.raises(Refused, match="pre-upgrade hooks failed") as refused:
        namespace.install(with_rules_of(first, "wrong"))
    assert WRONG in str(refused.value)
    assert namespace.uid() == uid

    for delay_ms in (SECOND_DELAY_MS, THIRD_DELAY_MS):
        rules = KIND.rules(delay_ms, REDELIVERIES)
        namespace.config_map("rules", rules__yaml=json.dumps(rules))
        namespace.install(with_rules_of(first, "rules"))
        load.go_on()
        assert load.newest_delays() == {delay_ms}

    namespace.helm("rollback", RELEASE, "1", "--wait", "--timeout=3m")
    load.go_on()
    assert load.newest_delays() == {DELAY_MS}
    account(load.settle(namespace))


def test_people_come_by_secrets_and_browsers_by_an_ingress(
    load: Load, namespace: Namespace, account: Account
) -> None:
    made = run_program(
        [sys.executable, "-m", "amqsidecar", "access", "token", "ci", "--role", "viewer"], code=0
    )
    [token] = [word for word in made.stderr.split() if word.startswith("amqs_")]
    namespace.secret("tokens", tokens=made.stdout)
    namespace.secret("session-key", **{"session-key": "k" * 40})
    ingress = {"enabled": True, "host": "redelivery.example.com", "className": "none"}
    access = {"tokensSecret": "tokens", "sessionKeySecret": "session-key"}
    namespace.install(values(KIND) | {"access": access, "ingress": ingress})

    pod = namespace.pod()
    assert namespace.api(pod, "/api/v1/groups", token) == 200
    assert namespace.api(pod, "/api/v1/groups", "") == 401
    assert namespace.api(pod, "/api/v1/groups", "amqs_other") == 401
    found = namespace.get("ingress", NAME)["spec"]
    assert found["ingressClassName"] == "none"
    [rule] = found["rules"]
    [path] = rule["http"]["paths"]
    assert (rule["host"], path["backend"]["service"]["name"]) == (ingress["host"], NAME)
    load.go_on()
    account(load.settle(namespace))
