"""The harness of the STOMP link to Artemis: its producers speak STOMP."""

import json
import socket
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from amqsidecar.broker import LookSession
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.stomp_artemis.link import StompArtemisLink
from amqsidecar.brokers.stomp_artemis.take import StompArtemisTake
from amqsidecar.clock import SystemClock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.model.left_behind import Loss
from support.jms.peer import JmsPeer
from support.links.artemis import ArtemisHarness
from support.links.harness import Drained, LinkHarness
from support.wires.stomp_peer import StompPeer

T = TypeVar("T")


class StompArtemisHarness(ArtemisHarness):
    """Own dead-letter address per prefix; dead letters made by STOMP and killed by management."""

    name = "stomp-artemis"

    def connect(self) -> None:
        """Connect the harness itself."""
        super().connect()
        self._dropped: list[LookSession] = []
        port, user, password = self.broker.ports["PORT"], self.broker.user, self.broker.password
        # Why: without a heart-beat the broker ends a connection that is silent for a minute.
        self.peer = StompPeer(port, user, password, silent_s=3_600)

    def make_link(
        self,
        instance: str,
        *,
        crash_point: CrashPoint = no_crash,
        allowed_losses: Collection[Loss] = (),
    ) -> StompArtemisLink:
        return StompArtemisLink(
            ArtemisLinkSettings(
                self.broker.endpoint("PORT"),
                clock=SystemClock(),
                instance=instance,
                crash_point=crash_point,
                allowed_losses=frozenset(allowed_losses),
            )
        )

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        ids = [f"{origin}-{number}" for number in range(n)]
        for one in ids:
            self.put(origin, one.ljust(size_bytes, ".").encode(), testId=one)
        self.kill(origin)
        return ids

    def put(self, origin: str, body: bytes, **headers: str) -> None:
        """Send one persistent message to a queue."""
        self.peer.send(origin, {"destination-type": "ANYCAST", **headers}, body)

    def drain(self, queue_name: str) -> list[Drained]:
        """Consume and return all that a queue holds; STOMP has turned numbers into text."""
        depth = self.depth(queue_name)
        found = JmsPeer.of(self.broker, "core").consume(queue_name, count=depth) if depth else []
        return [
            Drained(
                one.test_id,
                str(one.body),
                {name: _number(one.value(name)) for name in one.properties},
            )
            for one in found
        ]

    def forward(self, queue_name: str, to: str) -> None:
        peer = JmsPeer.of(self.broker, "core")
        peer.forward(queue_name, to, self.depth(queue_name), copies=True)

    def depth(self, queue_name: str) -> int:
        """Return how many messages a queue holds, without guards of the token."""
        super().depth(queue_name)
        return self.management.durable_count(queue_name.rpartition("::")[2]) or 0

    def drop(self, link: LookSession) -> None:
        """Cut the link's connections without a word, as a crash does."""
        assert isinstance(link, StompArtemisTake)
        for connection in (
            link._token_wire.connection,
            link._connection,
            link._management._connection,
        ):
            assert connection is not None
            connection._transport.socket.shutdown(socket.SHUT_RDWR)
        self._dropped.append(link)

    def frees(self) -> bool:
        """Restart the broker if it keeps dead letters that no consumer has in hand.

        Quirk (Artemis 2.44): of what a STOMP connection had in hand that died, it may count the
        first message as handed out until it is restarted (`brokers/artemis/left_behind.py`).
        This is its own word: it has handed out more than all consumers have.
        """
        resource = f"queue.{self.dead_letter_queue}"
        handed_out = self.management.ask(ManagementQuestion(resource, attribute="DeliveringCount"))
        consumers = json.loads(self.ask(resource, "listConsumersAsJSON").value)
        held = ("messagesInTransit", "messagesAcknowledgedAwaitingCommit")
        if int(handed_out.value) <= sum(one[name] for one in consumers for name in held):
            return False
        self.close()
        self.broker.restart()
        self.connect()
        return True

    def close(self) -> None:
        for link in self._dropped:
            link.close()
        self.peer.close()
        super().close()


def after_a_death(harness: LinkHarness, inherit: Callable[[], T]) -> T:
    """Return what the heir of a dead link does, at once or after the broker is freed."""
    try:
        return inherit()
    except (AssertionError, TimeoutError):
        if not isinstance(harness, StompArtemisHarness) or not harness.frees():
            raise
    return inherit()


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value
