"""Brokers as pods, with their data on a volume, behind a Service of the name `broker`."""

from dataclasses import dataclass

from kubernetes.images import BROKERS
from kubernetes.namespace import Namespace
from support.brokers.broker_xml import (
    ARTEMIS_ACCEPTORS,
    ARTEMIS_LOGIN_CONFIG,
    ARTEMIS_MANAGEMENT_XML,
    PASSWORD,
    STOCK_ADDRESS_SETTINGS,
    USER,
    artemis_bootstrap_xml,
    artemis_xml,
    classic_xml,
)
from support.brokers.process import QUICK_START
from support.deployment.cluster import Manifest
from support.jms.peer import JmsPeer

NAME = "broker"
POD = "broker-0"
LOGIN = "broker-login"
"""Secret with the sidecar's password."""
USERS = "broker-users"
"""Secret with Artemis' file of users."""
SIDECAR_USER = "amqsidecar"
DATA = "/data"
# Why: a cluster asks nobody else to be root either.
USER_ID = 10002
RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
# As the README asks for: what is in hand when a sidecar dies counts as a failed delivery.
ARTEMIS_SETTINGS = """
<address-setting match="DLQ">
  <dead-letter-address>DLQ</dead-letter-address>
  <max-delivery-attempts>-1</max-delivery-attempts>
</address-setting>
"""


@dataclass(frozen=True)
class Kind:
    """A kind of broker.

    Attributes:
        url: where the sidecar finds it.
        port: its port, for the sidecar and for applications.
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
        "spec": {"selector": {"app": NAME}, "ports": [{"name": "broker", "port": kind.port}]},
    }


def container(kind: Kind) -> Manifest:
    """Return the broker's container."""
    mounts = {"config": "/etc/broker", "users": "/etc/users", "data": DATA, "tmp": "/tmp"}
    return {
        "name": NAME,
        "image": BROKERS,
        "imagePullPolicy": "Never",
        "command": ["java", *QUICK_START, *kind.java],
        "ports": [{"containerPort": kind.port}],
        "readinessProbe": {"tcpSocket": {"port": kind.port}, "periodSeconds": 1},
        "securityContext": RESTRICTED,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }


def volumes() -> list[Manifest]:
    """Return the volumes of the broker's pod, but for its data."""
    return [
        {"name": "config", "configMap": {"name": NAME}},
        {"name": "users", "secret": {"secretName": USERS}},
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
