"""Consumers that give messages up through listeners, which are restarted meanwhile."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256

from kubernetes import broker_pods
from kubernetes.broker_pods import CORE
from kubernetes.load import Account, Tally
from kubernetes.namespace import NAME, Namespace
from kubernetes.values import values
from support.waiting import eventually
from support.wires.stomp_peer import StompError, StompPeer

QUEUE, INTERCEPTED = "nacked", "amqsidecar.intercepted"
MESSAGES = 900
CONSUMERS = 3
LISTENER = f"{NAME}-listener"
SEALS = "seals"


class Consumer(threading.Thread):
    """Gives each message up at its first sight, takes it later, and comes back whenever cut off.

    Attributes:
        given_up, taken: how often, by message, each confirmed by the broker.
        taking: the same before the broker's answer, which a cut connection does not bring.
        bodies: digests of what came.
    """

    def __init__(self, host: str, port: int) -> None:
        super().__init__(daemon=True)
        self.given_up: Counter[str] = Counter()
        self.taking: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.bodies: set[tuple[str, str]] = set()
        self.over = threading.Event()
        self._where = host, port

    def run(self) -> None:
        host, port = self._where
        while not self.over.is_set():
            with suppress(OSError, StompError), StompPeer(port, host=host, timeout_s=3) as peer:
                peer.subscribe(QUEUE, headers={"subscription-type": "ANYCAST"})
                while not self.over.is_set():
                    self._consume(peer)

    def _consume(self, peer: StompPeer) -> None:
        message = peer.receive()
        name = message.headers["app-id"]
        self.bodies.add((name, sha256(message.body).hexdigest()))
        # Why this header: any consumer may have given it up, and the broker may bring it again.
        if "amqsidecarRedeliveryCount" in message.headers:
            self.taking[name] += 1
            peer.ack(message)
            self.taken[name] += 1
        else:
            peer.nack(message, reason="no stock")
            self.given_up[name] += 1


@contextmanager
def consumers(host: str, port: int) -> Iterator[list[Consumer]]:
    """Run some, and end them."""
    made = [Consumer(host, port) for _ in range(CONSUMERS)]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.over.set()
        for one in made:
            one.join(30)


def test_each_nack_is_saved_and_comes_back_though_listeners_restart(
    namespace: Namespace, account: Account
) -> None:
    """A rolling restart, all of their pods deleted by force, and the broker's pod deleted."""
    peer = broker_pods.start(namespace, CORE)
    namespace.secret(SEALS, keys="5e" * 32)
    options = values(CORE, listener={"acceptor": f"stomp://broker:{CORE.port}"})
    namespace.install(options | {"listener": {"enabled": True, "copyKeysSecret": SEALS}})
    broker = namespace.get("service", broker_pods.NAME)["spec"]["clusterIP"]
    front = namespace.get("service", LISTENER)["spec"]
    bodies = {str(number): b"%d " % number * 40 for number in range(MESSAGES)}
    with consumers(front["clusterIP"], front["ports"][0]["port"]) as running:

        def total(what: str) -> Counter[str]:
            return sum((getattr(one, what) for one in running), Counter[str]())

        def are_taken(count: int) -> bool:
            return len(total("taking")) >= count

        names = iter(bodies)
        for number, change in enumerate((roll, forget, broker_pods.restart)):
            with StompPeer(CORE.port, host=broker) as producer:
                for _ in range(MESSAGES // 3):
                    name = next(names)
                    headers = {"destination-type": "ANYCAST", "app-id": name}
                    producer.send(QUEUE, headers, bodies[name])
            enough = partial(are_taken, number * MESSAGES // 3 + 50)
            eventually(enough, every_s=0.1, what="some are taken")
            change(namespace)
        # Why once more: Artemis 2.44 may keep until then what a cut connection had in hand.
        broker_pods.restart(namespace)
        enough = partial(are_taken, MESSAGES)
        eventually(enough, within_s=180, every_s=0.5, what="all are taken")
        # Why after that: what was taken without an answer may come again.
        eventually(
            lambda: not any(peer.browse(one) for one in (QUEUE, INTERCEPTED)),
            every_s=1,
            what="no queue has a message",
        )
        eventually(lambda: namespace.unsent(namespace.pod()) == 0, every_s=0.5, what="none waits")
    taken, taking = total("taken"), total("taking")
    right = {(name, sha256(body).hexdigest()) for name, body in bodies.items()}
    account(
        Tally(
            sent=MESSAGES,
            deaths=total("given_up").total(),
            recovered=len(taking),
            exhausted=0,
            lost=sorted(bodies.keys() - taking.keys()),
            doubled=sorted(name for name, times in taken.items() if times > 1),
            altered=sorted(name for one in running for name, _ in one.bodies - right),
        )
    )


def roll(namespace: Namespace) -> None:
    """Restart the listeners one after the other."""
    namespace.kubectl("rollout", "restart", f"deployment/{LISTENER}")
    namespace.kubectl("rollout", "status", f"deployment/{LISTENER}", "--timeout=180s")


def forget(namespace: Namespace) -> None:
    """Delete all listeners at once by force."""
    chosen = "--selector=app.kubernetes.io/name=amqsidecar-listener"
    namespace.kubectl("delete", "pods", chosen, "--force", "--grace-period=0")
    namespace.kubectl("rollout", "status", f"deployment/{LISTENER}", "--timeout=180s")
