"""Wrong values: Helm renders nothing and says in a sentence what is wrong."""

from typing import Any

import pytest

from amqsidecar.config.broker_url import DEFAULT_PORTS, parse_broker_url
from helm.cases import BROKER, MINIMAL, POSTGRES, SHARED
from support.deployment.helm import Refused, render

pytestmark = pytest.mark.helm


def configured(**sections: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"broker": BROKER, **sections}}


BY_THE_SCHEMA: dict[str, tuple[dict[str, Any], str]] = {
    "a shape that is none": (MINIMAL | {"shape": "besides"}, "shape"),
    "a value that is none": (MINIMAL | {"replica": 3}, "replica"),
    "a misspelled option": (configured(log={"levle": "info"}), "levle"),
    "a choice that is none": (configured(log={"level": "loud"}), "/config/log/level"),
    "text for a number": (configured(cycle={"max_wait_ms": "soon"}), "/config/cycle/max_wait_ms"),
    "beyond a limit": (configured(store={"lease_s": 1}), "/config/store/lease_s"),
    "a name that does not fit": (configured(store={"instance": "a b"}), "/config/store/instance"),
    "rules of no known kind": (MINIMAL | {"policy": {"key": "rules.json"}}, "/policy/key"),
    "no digest": (MINIMAL | {"image": {"digest": "latest"}}, "/image/digest"),
    "a volume of no size": (MINIMAL | {"persistence": {"size": "8G1"}}, "/persistence/size"),
    "half a sidecar": (SHARED | {"replicas": 0}, "/replicas"),
}

BY_THE_CHART: dict[str, tuple[dict[str, Any], str]] = {
    "no image": (
        MINIMAL | {"image": {"repository": ""}},
        "run `make image REGISTRY=registry.example.com/team`, which pushes it and writes "
        "image.yaml, then `helm install ... -f image.yaml`",
    ),
    "no broker": ({}, "config.broker.url is not set: set the broker's address"),
    "the broker's password": (
        {"config": {"broker": {"url": ["amqps://a@one", "amqps://a:geheim@two"]}}},
        "config.broker.url contains a password and would be stored in a ConfigMap",
    ),
    "the database's password": (
        SHARED | {"config": {"broker": BROKER, "store": {"url": "postgresql://a:geheim@db/r"}}},
        "config.store.url contains a password",
    ),
    "the database's password as a parameter": (
        SHARED | {"config": {"broker": BROKER, "store": {"url": "postgresql://a@db/r?password=x"}}},
        "config.store.url contains a password",
    ),
    "a password without TLS": (
        {"config": {"broker": {"url": "openwire://a@broker"}}, "broker": {"passwordSecret": "s"}},
        "the password would cross the network unencrypted; use openwire+ssl://",
    ),
    "a password that Core sends": (
        {
            "config": {"broker": {"url": "artemis://a@broker", "sasl_mechanisms": ["EXTERNAL"]}},
            "broker": {"passwordSecret": "s"},
        },
        "the password would cross the network unencrypted; use artemis+ssl://",
    ),
    "a password of nobody": (
        {"config": {"broker": {"url": "amqps://broker"}}, "broker": {"passwordSecret": "s"}},
        "config.broker.url has no user for the password of broker.passwordSecret",
    ),
    "authorities of a wire without TLS": (
        {"config": {"broker": {"url": "openwire://broker"}}, "broker": {"caSecret": "ca"}},
        "config.broker.url is without TLS, so that broker.caSecret",
    ),
    "a backlog that nobody holds": (
        configured(store={"url": "broker:"}),
        "config.intake.backlog: with config.store.url broker: there is no place to hold",
    ),
    "several beside one broker": (
        MINIMAL | {"replicas": 3},
        "replicas is 3, and shape beside has one sidecar",
    ),
    "root that may not be root": (
        MINIMAL | {"podSecurityContext": {"runAsUser": 0}},
        "podSecurityContext.runAsUser is 0, and runAsNonRoot is true",
    ),
    "a container of root that may not be root": (
        MINIMAL
        | {"podSecurityContext": {"runAsNonRoot": None}, "securityContext": {"runAsUser": 0}},
        "podSecurityContext.runAsUser is 0, and runAsNonRoot is true",
    ),
    "memory of no quantity": (
        MINIMAL | {"resources": {"limits": {"memory": "8G1"}}},
        "resources.limits.memory: 8G1 is no quantity; write it as 512Mi",
    ),
    "memory for no message": (
        MINIMAL | {"resources": {"limits": {"memory": "64Mi"}}},
        "resources.limits.memory: 64Mi is too little",
    ),
    "memory in bytes for no message": (
        MINIMAL | {"resources": {"limits": {"memory": 100_000_000}}},
        "at least 128Mi (64Mi + 3.5 x the largest message)",
    ),
    "a listener with too little memory": (
        configured(listener={"acceptor": "stomp://broker:61613", "memory_mib": 512})
        | {"listener": {"enabled": True, "resources": {"limits": {"memory": "384Mi"}}}},
        "listener.resources.limits.memory: 384Mi is too little, and Kubernetes would end the "
        "container again and again: at least 608Mi (96Mi + config.listener.memory_mib)",
    ),
    "several with a file": (MINIMAL | {"shape": "shared"}, "share a schedule in PostgreSQL"),
    "several of one name": (
        SHARED | configured(store={**POSTGRES, "instance": "a"}),
        "config.store.instance: all sidecars of shape shared would have the same",
    ),
    "a file that is on no volume": (
        configured(store={"url": "sqlite:///data/schedule.db"}),
        "config.store.url: the volume is at /var/lib/amqsidecar",
    ),
    "an address that no probe reaches": (
        configured(http={"listen": "127.0.0.1:9464"}),
        "config.http.listen: probes come from outside of the pod",
    ),
    "no address": (configured(http={"listen": ""}), "config.http.listen: probes come"),
    "a password twice": (
        {"config": {"broker": BROKER | {"password_file": "/x"}}, "broker": {"passwordSecret": "s"}},
        "config.broker.password_file is set, and the chart sets it, too",
    ),
    "rules twice": (
        MINIMAL | {"policy": {"content": "<a/>", "existingConfigMap": "rules"}},
        "policy.existingConfigMap and policy.content are both set",
    ),
    "rules as a file and as values": (
        configured(policy={"rules": {"plugins": []}}) | {"policy": {"content": "<a/>"}},
        "config.policy.rules is set, and a file with rules is named below policy",
    ),
    "authorities twice": (
        MINIMAL | {"broker": {"caSecret": "a", "caConfigMap": "b"}},
        "broker.caSecret and broker.caConfigMap are both set",
    ),
    "a console that is open to all": (
        configured(http={"console": True}),
        "config.http.console is true, and strangers could read and act",
    ),
    "sessions that end each other": (
        SHARED | {"access": {"usersSecret": "users"}},
        "access.sessionKeySecret is not set",
    ),
    "scraped twice": (
        MINIMAL | {"monitoring": {"podMonitor": True, "serviceMonitor": True}},
        "Prometheus would ask twice",
    ),
    "a variable that the chart can't follow": (
        SHARED | {"extraEnv": [{"name": "AMQSIDECAR_STORE__URL", "value": "sqlite:///x.db"}]},
        "extraEnv: AMQSIDECAR_STORE__URL decides what else is made; set config.store.url",
    ),
    "a broker that no rule lets out to": (
        {"extraEnv": [{"name": "AMQSIDECAR_BROKER__URL", "value": "amqps://a@broker"}]},
        "networkPolicy.extraEgress is empty, and the port of the broker",
    ),
    "a journal on the read-only root": (
        configured(journal={"path": "/journal"}),
        "config.journal.path: /journal is on no volume; put it below /var/lib/amqsidecar",
    ),
    "a journal beside a mount": (
        configured(journal={"path": "/journals"})
        | {"extraVolumeMounts": [{"name": "journal", "mountPath": "/journal"}]},
        "config.journal.path: /journals is on no volume",
    ),
    "a journal without a volume": (
        SHARED | configured(store=POSTGRES, journal={"path": "/var/lib/amqsidecar/journal"}),
        "mount one by extraVolumes and extraVolumeMounts that all pods may write to",
    ),
    "a variable twice": (
        MINIMAL | {"extraEnv": [{"name": "TZ", "value": "UTC"}, {"name": "TZ", "value": "CET"}]},
        "extraEnv: TZ is set twice",
    ),
    "a variable of the chart": (
        MINIMAL | {"extraEnv": [{"name": "SQLITE_TMPDIR", "value": "/tmp"}]},
        "extraEnv: SQLITE_TMPDIR is set twice",
    ),
    "the database's authorities twice": (
        SHARED
        | {"store": {"caSecret": "ca"}, "extraEnv": [{"name": "PGSSLROOTCERT", "value": "/x"}]},
        "extraEnv: PGSSLROOTCERT is set twice",
    ),
    "a journal in an object store, and no way to it": (
        configured(journal={"path": "s3://bucket/journal"}),
        "networkPolicy.to.objectStore is empty, and config.journal.path is an object store",
    ),
    "a broker that is in no variable that can be seen": (
        {"envFrom": [{"secretRef": {"name": "broker"}}]},
        "networkPolicy.extraEgress is empty, and the port of the broker",
    ),
    "a route without a Gateway": (
        MINIMAL
        | {"access": {"usersSecret": "u"}, "httpRoute": {"enabled": True, "hostnames": ["a"]}},
        "httpRoute.parentRefs is empty",
    ),
    "a route without a name": (
        MINIMAL
        | {
            "access": {"usersSecret": "u"},
            "httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]},
        },
        "httpRoute.hostnames is empty",
    ),
    "a route for strangers": (
        MINIMAL
        | {"httpRoute": {"enabled": True, "hostnames": ["a"], "parentRefs": [{"name": "g"}]}},
        "httpRoute.enabled is true, and there is no console",
    ),
    "an ingress without a name": (
        MINIMAL | {"access": {"usersSecret": "users"}, "ingress": {"enabled": True}},
        "ingress.host is not set",
    ),
    "an ingress for strangers": (
        MINIMAL | {"ingress": {"enabled": True, "host": "redelivery.example.com"}},
        "ingress.enabled is true, and there is no console: configure an authentication method",
    ),
    "an ingress to no Service": (
        MINIMAL
        | {
            "shape": "inPod",
            "access": {"usersSecret": "users"},
            "ingress": {"enabled": True, "host": "redelivery.example.com"},
        },
        "ingress.enabled: with shape inPod there is no Service",
    ),
    "a ServiceMonitor without a Service": (
        MINIMAL | {"shape": "inPod", "monitoring": {"serviceMonitor": True}},
        "with shape inPod there is no Service",
    ),
}

TAKEN: dict[str, dict[str, Any]] = {
    "a password on loopback": {
        "shape": "inPod",
        "config": {"broker": {"url": "amqp://a@localhost:5672"}},
        "broker": {"passwordSecret": "s"},
    },
    "a password without TLS, on purpose": {
        "config": {"broker": {"url": "amqp://a@broker", "allow_plain_password": True}},
        "broker": {"passwordSecret": "s"},
    },
    "a password that is never sent": {
        "config": {"broker": {"url": "amqp://a@broker", "sasl_mechanisms": ["SCRAM-SHA-512"]}},
        "broker": {"passwordSecret": "s"},
    },
    "the broker in a variable": {
        "extraEnv": [
            {
                "name": "AMQSIDECAR_BROKER__URL",
                "valueFrom": {"secretKeyRef": {"name": "broker", "key": "url"}},
            }
        ],
        "networkPolicy": {"extraEgress": [{"ports": [{"port": 5671}]}]},
    },
    "a journal in an object store": configured(journal={"path": "s3://bucket/journal"})
    | {"networkPolicy": {"extraEgress": [{"ports": [{"port": 443}]}]}},
    "a journal in an object store with peers": configured(journal={"path": "s3://bucket/journal"})
    | {"networkPolicy": {"to": {"objectStore": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}}},
    "a journal in an object store, and no policy": configured(
        journal={"path": "s3://bucket/journal"}
    )
    | {"networkPolicy": {"enabled": False}},
    "the broker in variables that can't be seen": {
        "envFrom": [{"secretRef": {"name": "broker"}}],
        "networkPolicy": {"extraEgress": [{"ports": [{"port": 5671}]}]},
    },
    "tokens for several": SHARED | {"access": {"tokensSecret": "tokens"}},
}


@pytest.mark.parametrize("name", BY_THE_SCHEMA)
def test_what_the_schema_knows(name: str) -> None:
    values, place = BY_THE_SCHEMA[name]
    with pytest.raises(Refused, match="schema") as refused:
        render(values)
    assert place in str(refused.value)


@pytest.mark.parametrize("name", BY_THE_CHART)
def test_what_only_the_chart_knows(name: str) -> None:
    values, sentence = BY_THE_CHART[name]
    with pytest.raises(Refused) as refused:
        render(values)
    assert sentence in str(refused.value)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("name", TAKEN)
def test_what_looks_wrong_and_is_right(name: str) -> None:
    assert render(TAKEN[name])


def test_all_problems_are_said_at_once() -> None:
    values = {"monitoring": {"podMonitor": True, "serviceMonitor": True}}
    with pytest.raises(Refused) as refused:
        render(values)
    assert "config.broker.url is not set" in str(refused.value)
    assert "ask twice" in str(refused.value)


URLS = {
    "tcp://broker:61616": "tcp:// is written openwire:// here; for Artemis write artemis://",
    "nio://broker": "nio:// is written openwire:// here",
    "ssl://broker:61617": "ssl:// is written openwire+ssl:// here; for Artemis write artemis+ssl://",
    "nio+ssl://broker": "nio+ssl:// is written openwire+ssl:// here",
    "amqp+ssl://broker": "amqp+ssl:// is written amqps:// here",
    "amqp+nio://broker": "amqp+nio:// is written amqp:// here",
    "stomps://broker": "stomps:// is written stomp+ssl:// here",
    "failover:(tcp://a:61616,tcp://b:61616)": "write a list of URLs instead",
    "failover://(tcp://a:61616)": "write a list of URLs instead",
    "broker:61616": "config.broker.url has no wire: write the wire before it",
    "broker": "config.broker.url has no wire",
    "http://broker": "unknown wire http://; known: amqp, amqps, artemis",
    "openwire://broker:61616?wireFormat.maxInactivityDuration=0": "and nothing behind it",
    "amqp://broker:5672/orders": "and nothing behind it",
    "amqp://broker:port": "expected amqp://user@host:port",
    "amqp://": "expected amqp://user@host:port",
}


@pytest.mark.parametrize("url", URLS)
def test_what_is_no_url_of_a_broker_is_refused_with_what_to_write_instead(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the program has words of its own
        parse_broker_url(url)
    for given in (url, ["amqps://one", url]):
        with pytest.raises(Refused) as refused:
            render({"config": {"broker": {"url": given}}})
        assert URLS[url] in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        *(f"{scheme}://a@broker.mq.svc.cluster.local" for scheme in DEFAULT_PORTS),
        "amqps://a%40b@broker:5671/",
        "AMQPS://broker",
        "amqps://[::1]:5671",
        "openwire+ssl://a@10.0.0.1:61617",
    ],
)
def test_every_url_that_the_sidecar_takes_is_taken(url: str) -> None:
    parse_broker_url(url)
    assert render({"config": {"broker": {"url": url}}})
