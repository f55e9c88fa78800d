"""Brokers as pods, with their data on a volume, behind a Service of the name `broker`."""

from dataclasses import dataclass, replace
from pathlib import Path

from kubernetes.images import BROKERS
from kubernetes.namespace import Namespace
from support.brokers.broker_xml import (
    ARTEMIS_ACCEPTORS,
    ARTEMIS_LOGIN_CONFIG,
    ARTEMIS_MANAGEMENT_XML,
    PASSWORD,
    STOCK_ADDRESS_SETTINGS,
    STOCK_ADDRESSES,
    USER,
    artemis_bootstrap_xml,
    artemis_xml,
    attempts_without_limit,
    classic_xml,
)
from support.brokers.process import QUICK_START
from support.deployment.cluster import Manifest
from support.jms.peer import JmsPeer
from support.machine.certificates import Stores
from support.waiting import eventually

NAME = "broker"
POD = "broker-0"
LOGIN = "broker-login"
"""Secret with the sidecar's password."""
USERS = "broker-users"
"""Secret with Artemis' file of users."""
STORES = "broker-stores"
"""Secret with the broker's certificate and the authorities that it trusts, for `SECURE`."""
SIDECAR_USER = "amqsidecar"
DATA = "/data"
# Why: a cluster asks nobody else to be root either.
USER_ID = 10002
BY_FORCE = ("--force", "--grace-period=0")
RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
# As the README asks for: what is in hand when a sidecar dies counts as a failed delivery.
ARTEMIS_SETTINGS = attempts_without_limit("DLQ", "amqsidecar.intercepted")
INTERCEPTED = """
<address name="amqsidecar.intercepted">
  <anycast><queue name="amqsidecar.intercepted"/></anycast>
</address>
"""


@dataclass(frozen=True)
class Kind:
    """A kind of broker.

    Attributes:
        url: where the sidecar finds it.
        port: its port, for the sidecar and for applications.
        secure_port: the one with TLS, for the sidecar alone; 0: none.
        provider: the JMS provider of applications.
        scheme: of its URL.
        dead_letter_queue: where those go.
        files: of its folder of configuration.
        java: what follows the memory's flags.
    """

    name: str
    url: str
    port: int
    provider: str
    scheme: str
    dead_letter_queue: str
    files: dict[str, str]
    java: list[str]
    secure_port: int = 0

    def rules(self, delay_ms: int, redeliveries: int) -> Manifest:
        """Return a policy in our format, in which all messages have one delay."""
        if self.name == "artemis":
            everything = {
                "match": "#",
                "dead_letter_address": self.dead_letter_queue,
                "max_delivery_attempts": redeliveries + 1,
                "redelivery_delay_ms": delay_ms,
            }
            return {"address_settings": [everything]}
        entry = {
            "maximum_redeliveries": redeliveries,
            "initial_redelivery_delay_ms": delay_ms,
            "redelivery_delay_ms": delay_ms,
        }
        return {"plugins": [{"redelivery": {"default_entry": entry}}]}


def users(sidecar_password: str) -> dict[str, str]:
    """Return Artemis' file of users, as a Secret has it: applications, and the sidecar."""
    lines = f"{USER} = {PASSWORD}\n{SIDECAR_USER} = {sidecar_password}\n"
    return {"artemis-users.properties": lines}


ARTEMIS = Kind(
    name="artemis",
    url=f"amqp://{SIDECAR_USER}@{NAME}:5672",
    port=5672,
    provider="qpid",
    scheme="amqp",
    dead_letter_queue="DLQ",
    files={
        "broker.xml": artemis_xml(
            address_settings=STOCK_ADDRESS_SETTINGS + ARTEMIS_SETTINGS,
            addresses=STOCK_ADDRESSES + INTERCEPTED,
            acceptors={"artemis": ARTEMIS_ACCEPTORS["artemis"].replace("127.0.0.1", "0.0.0.0")},
        )
        .replace("@PORT@", "5672")
        .replace("@DATA@", DATA)
        .replace("@SYNC@", "true"),
        "bootstrap.xml": artemis_bootstrap_xml("file:/etc/broker/broker.xml"),
        "management.xml": ARTEMIS_MANAGEMENT_XML,
        # Why: the password is in a Secret, which is mounted beside.
        "login.config": ARTEMIS_LOGIN_CONFIG.replace('"artemis-users', '"../users/artemis-users'),
        "artemis-roles.properties": f"amq = {USER},{SIDECAR_USER}\n",
    },
    java=[
        "-Dartemis.home=/opt/artemis",
        f"-Dartemis.instance={DATA}",
        "-Dartemis.instance.etc=/etc/broker",
        f"-Ddata.dir={DATA}",
        "-Djava.security.auth.login.config=/etc/broker/login.config",
        "-Dlog4j2.disableJmx=true",
        "--add-opens",
        "java.base/jdk.internal.misc=ALL-UNNAMED",
        "-cp",
        "/opt/artemis/lib/artemis-boot.jar",
        "org.apache.activemq.artemis.boot.Artemis",
        "run",
    ],
)
CLASSIC = Kind(
    name="classic",
    url=f"openwire://{USER}@{NAME}:61616",
    port=61616,
    provider="openwire",
    scheme="tcp",
    dead_letter_queue="ActiveMQ.DLQ",
    files={
        "activemq.xml": classic_xml(
            connectors={"openwire": "tcp://0.0.0.0:61616?maximumConnections=1000"},
            authentication=True,
        )
        .replace("@DATA@", DATA)
        .replace("@SYNC@", "true"),
    },
    java=[
        f"-Dactivemq.data={DATA}",
        "-Dactivemq.conf=/etc/broker",
        "-cp",
        "/opt/classic/*:/opt/classic",
        "ClassicLauncher",
        "file:/etc/broker/activemq.xml",
    ],
)
KINDS = {kind.name: kind for kind in (ARTEMIS, CLASSIC)}
CORE = replace(ARTEMIS, url=f"artemis://{SIDECAR_USER}@{NAME}:5672")
_SECURE_ACCEPTOR = (
    "<acceptors><acceptor name='secure'>tcp://0.0.0.0:61617?protocols=CORE,AMQP;needClientAuth=true;"
    + Stores(Path("/etc/stores/key.p12"), Path("/etc/stores/trust.p12")).acceptor_options
    + "</acceptor>"
)
SECURE = replace(
    CORE,
    url=f"artemis+ssl://{SIDECAR_USER}@{NAME}:61617",
    secure_port=61617,
    files=ARTEMIS.files
    | {"broker.xml": ARTEMIS.files["broker.xml"].replace("<acceptors>", _SECURE_ACCEPTOR)},
)
"""Its clients show a certificate, too."""


def start(namespace: Namespace, kind: Kind) -> JmsPeer:
    """Start a broker in a pod of its own; return a JMS application at it."""
    secrets(namespace)
    namespace.apply(config_map(kind), service(kind), _stateful_set(kind))
    wait_ready(namespace)
    return peer(namespace, kind)


def secrets(namespace: Namespace) -> None:
    """Make the sidecar's password and the broker's users."""
    namespace.secret(LOGIN, password=PASSWORD)
    namespace.secret(USERS, **users(PASSWORD))


def restart(namespace: Namespace, *how: str) -> None:
    """Delete the broker's pod, and wait until its heir takes connections.

    Args:
        how: options of `kubectl delete`, such as `--force`.
    """
    before = namespace.get("pod", POD)["metadata"]["uid"]
    namespace.kubectl("delete", "pod", POD, *how)
    eventually(
        lambda: before not in namespace.kubectl("get", "pods", "--output=jsonpath={..uid}"),
        every_s=0.3,
        what="the broker's pod is gone",
    )
    wait_ready(namespace)


def wait_ready(namespace: Namespace) -> None:
    """Wait until the broker takes connections."""
    namespace.kubectl("rollout", "status", f"statefulset/{NAME}", "--timeout=180s")


def peer(namespace: Namespace, kind: Kind) -> JmsPeer:
    """Return a JMS application, which finds the broker by the address of its Service."""
    address = namespace.get("service", NAME)["spec"]["clusterIP"]
    url = f"{kind.scheme}://{address}:{kind.port}"
    return JmsPeer(kind.provider, url, user=USER, password=PASSWORD)


def config_map(kind: Kind) -> Manifest:
    """Return the broker's files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "data": kind.files,
    }


def service(kind: Kind) -> Manifest:
    """Return the Service in front of the broker."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {
            "selector": {"app": NAME},
            "ports": [{"name": f"port-{port}", "port": port} for port in ports(kind)],
        },
    }


def ports(kind: Kind) -> list[int]:
    """Return the ports that it listens on."""
    return [kind.port, *([kind.secure_port] if kind.secure_port else [])]


def container(kind: Kind) -> Manifest:
    """Return the broker's container."""
    mounts = {name: f"/etc/{name}" for name in ("users", "stores")}
    mounts |= {"config": "/etc/broker", "data": DATA, "tmp": "/tmp"}
    return {
        "name": NAME,
        "image": BROKERS,
        "imagePullPolicy": "Never",
        "command": ["java", *QUICK_START, *kind.java],
        "ports": [{"containerPort": port} for port in ports(kind)],
        "readinessProbe": {"tcpSocket": {"port": kind.port}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }


def volumes() -> list[Manifest]:
    """Return the volumes of the broker's pod, but for its data."""
    return [
        {"name": "config", "configMap": {"name": NAME}},
        {"name": "users", "secret": {"secretName": USERS}},
        {"name": "stores", "secret": {"secretName": STORES, "optional": True}},
        {"name": "tmp", "emptyDir": {}},
    ]


def claim() -> Manifest:
    """Return the claim of the broker's data."""
    size = {"requests": {"storage": "1Gi"}}
    return {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": size},
    }


def _stateful_set(kind: Kind) -> Manifest:
    labels = {"app": NAME}
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": RESTRICTED_POD,
        "containers": [container(kind)],
        "volumes": volumes(),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": NAME},
        "spec": {
            "serviceName": NAME,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            "volumeClaimTemplates": [claim()],
        },
    }
