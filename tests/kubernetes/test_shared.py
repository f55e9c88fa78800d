"""Shape `shared`: three sidecars with one schedule in PostgreSQL, which is on the node."""

import json
from collections.abc import Iterator

import pytest
from psycopg import sql

from kubernetes import broker_pods
from kubernetes.broker_pods import KINDS
from kubernetes.disruptions import delete_by_force, kill_container
from kubernetes.load import Account, Load
from kubernetes.namespace import NAME, Namespace
from kubernetes.values import shared
from support.deployment.cluster import ADDRESS, PODS, KubectlError
from support.stores.postgres_server import ACCESS, PostgresServer

REPLICAS = 3
SECRET = "database-login"
ROLE = "amqsidecar"
PASSWORD = "of the database"


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    """A server that pods reach at the node's address, with a password."""
    settings = {"listen_addresses": f"127.0.0.1,{ADDRESS}"}
    access = f"{ACCESS}host all all {PODS} scram-sha-256\n"
    with PostgresServer(fsync=True, settings=settings, access=access) as server:
        role, password = sql.Identifier(ROLE), sql.Literal(PASSWORD)
        server.execute(sql.SQL("create role {} login password {}").format(role, password))
        yield server


@pytest.fixture
def store_url(database: PostgresServer) -> Iterator[str]:
    """A database of one test's own, which belongs to the sidecars' user."""
    name = database.make_database()
    role = sql.Identifier(ROLE)
    database.execute(sql.SQL("alter database {} owner to {}").format(sql.Identifier(name), role))
    yield f"postgresql://{ROLE}@{ADDRESS}:{database.port}/{name}"
    database.drop_database(name)


@pytest.fixture(params=KINDS)
def load(request: pytest.FixtureRequest, namespace: Namespace, store_url: str) -> Iterator[Load]:
    """A broker, three sidecars, and applications."""
    kind = KINDS[request.param]
    peer = broker_pods.start(namespace, kind)
    namespace.secret(SECRET, password=PASSWORD)
    namespace.install(shared(kind, store_url, SECRET, REPLICAS))
    with Load(peer, kind) as load:
        yield load


def evict(namespace: Namespace, pod: str) -> None:
    """Ask for the eviction of a pod, as `kubectl drain` does."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace.name},
    }
    place = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/eviction"
    namespace.kubectl("create", "--raw", place, "-f", "-", given=json.dumps(eviction))


def test_three_share_a_schedule(load: Load, namespace: Namespace, account: Account) -> None:
    """A rolling update, a pod forgotten, a container killed, an eviction: none lost, none twice."""
    load.send_hopeless()
    load.go_on()

    namespace.kubectl("rollout", "restart", f"deployment/{NAME}")
    namespace.kubectl("rollout", "status", f"deployment/{NAME}", "--timeout=180s")
    namespace.ready_pods(REPLICAS)
    load.go_on()

    for disrupt in (delete_by_force, kill_container):
        disrupt(namespace, namespace.ready_pods(REPLICAS)[0])
        namespace.ready_pods(REPLICAS)
        load.send_hopeless()
        load.go_on()

    first, second, _ = namespace.ready_pods(REPLICAS)
    evict(namespace, first)
    with pytest.raises(KubectlError, match="violate the pod's disruption budget"):
        evict(namespace, second)
    namespace.ready_pods(REPLICAS)
    load.go_on()
    account(load.settle(namespace))
