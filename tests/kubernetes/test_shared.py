"""Shape `shared`: three sidecars with one schedule in PostgreSQL, which is on the node."""

import json
from collections.abc import Iterator

import pytest
from psycopg import sql

from kubernetes import broker_pods
from kubernetes.broker_pods import ARTEMIS, CORE, KINDS
from kubernetes.disruptions import (
    CLAIM,
    STATEFUL_SET,
    delete_by_force,
    drain_the_node,
    kill_container,
    scale,
)
from kubernetes.load import Account, Load
from kubernetes.namespace import NAME, Namespace
from kubernetes.values import DELAY, SLOW, SLOW_DELAY_MS, shared, with_a_slow_queue
from support.deployment.cluster import ADDRESS, PODS, KubectlError
from support.jms.peer import ALL_TYPES
from support.stores.postgres_server import ACCESS, PostgresServer
from support.waiting import eventually

REPLICAS = 3
SECRET = "database-login"
ROLE = "amqsidecar"
PASSWORD = "of the database"
BACKLOG = 200


def server(primary: PostgresServer | None = None) -> PostgresServer:
    """Return a server that pods reach at the node's address."""
    settings = {"listen_addresses": f"127.0.0.1,{ADDRESS}"}
    access = f"{ACCESS}host all all {PODS} scram-sha-256\n"
    return PostgresServer(fsync=True, settings=settings, primary=primary, access=access)


def store_url(primary: PostgresServer, *standbys: PostgresServer) -> str:
    """Make a user with a password and a database of his; return its URL for pods."""
    role, password = sql.Identifier(ROLE), sql.Literal(PASSWORD)
    primary.execute(sql.SQL("create role {} login password {}").format(role, password))
    primary.execute(sql.SQL("create database {} owner {}").format(role, role))
    hosts = ",".join(f"{ADDRESS}:{one.port}" for one in (primary, *standbys))
    return f"postgresql://{ROLE}@{hosts}/{ROLE}?target_session_attrs=read-write"


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with server() as started:
        yield started


@pytest.fixture(params=KINDS)
def load(
    request: pytest.FixtureRequest, namespace: Namespace, database: PostgresServer
) -> Iterator[Load]:
    """A broker, three sidecars, and applications."""
    kind = KINDS[request.param]
    peer = broker_pods.start(namespace, kind)
    namespace.secret(SECRET, password=PASSWORD)
    namespace.install(shared(kind, store_url(database), SECRET, REPLICAS))
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


def test_scaling_a_lost_database_and_a_drain_lose_nothing(
    database: PostgresServer, namespace: Namespace, account: Account
) -> None:
    """One, three and one sidecar; a standby is promoted; listeners don't hold up the drain."""
    peer = broker_pods.start(namespace, CORE)
    namespace.secret(SECRET, password=PASSWORD)
    with server(database) as standby, Load(peer, CORE) as load:
        database.wait_for_standby()
        chosen = shared(CORE, store_url(database, standby), SECRET, REPLICAS)
        chosen["config"]["listener"] = {"acceptor": f"stomp://broker:{CORE.port}"}
        namespace.install(chosen | {"listener": {"enabled": True}})
        for count in (1, REPLICAS):
            load.send_hopeless()
            scale(namespace, f"deployment/{NAME}", count)
            load.go_on()
        database.kill()
        load.send_backlog(BACKLOG)
        standby.promote()
        load.go_on()
        drain_the_node(namespace)
        namespace.ready_pods(REPLICAS)
        load.go_on()
        account(load.settle(namespace))


def test_the_schedule_of_a_claim_moves_into_the_database(
    database: PostgresServer, namespace: Namespace, account: Account
) -> None:
    """By the guide's two commands; messages that wait in the file keep their time."""
    peer = broker_pods.start(namespace, ARTEMIS)
    namespace.secret(SECRET, password=PASSWORD)
    before = with_a_slow_queue()
    namespace.install(before)
    with Load(peer, ARTEMIS) as load:
        load.send_hopeless()
        load.go_on()
        peer.produce(SLOW)
        peer.fail(SLOW, messages=len(ALL_TYPES))
        waits = f'amqsidecar_waiting{{destination="queue://{SLOW}",state="waiting"}}'
        eventually(
            lambda: namespace.metric(namespace.pod(), waits) == len(ALL_TYPES),
            what="the slow ones wait in the file",
        )
        scale(namespace, STATEFUL_SET, 0)
        load.send_backlog(BACKLOG, until=BACKLOG // 2)
        after = shared(ARTEMIS, store_url(database), SECRET, REPLICAS)
        config = after["config"] | {"policy": before["config"]["policy"]}
        store = after["store"] | {"moveFrom": CLAIM}
        namespace.install(after | {"config": config, "store": store})
        slow = peer.consume(SLOW, len(ALL_TYPES), wait_ms=SLOW_DELAY_MS)
        assert [one.value(DELAY) for one in slow] == [SLOW_DELAY_MS] * len(ALL_TYPES)
        namespace.ready_pods(REPLICAS)
        load.go_on()
        account(load.settle(namespace))
