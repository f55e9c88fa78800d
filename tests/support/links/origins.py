"""Origins on a real Artemis whose messages die, and the wires over which they are re-sent."""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from uuid import uuid4

from proton import Message

from amqsidecar.broker import Delivery, Link
from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis_pair.link import PairTake
from amqsidecar.brokers.core_artemis.link import CoreArtemisLink
from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from amqsidecar.brokers.stomp_artemis.link import StompArtemisLink
from amqsidecar.brokers.stomp_artemis.take import StompArtemisTake
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.send_terms import ResendEffect
from support.brokers.real import Broker
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.artemis_pair import pair_link
from support.links.cycles import receive, resend
from support.links.stomp_artemis import StompArtemisHarness
from support.links.terms import effects_of, refusal_of
from support.waiting import PATIENCE_S

DEATHS = 3
_LINKS: dict[str, Callable[[ArtemisLinkSettings], Link]] = {
    "amqp": AmqpArtemisLink,
    "core": CoreArtemisLink,
    "stomp": StompArtemisLink,
}
Take = AmqpArtemisTake | CoreArtemisTake | StompArtemisTake | PairTake


class AmqpProducer(StompArtemisHarness):
    """The same harness with a producer that speaks AMQP, or STOMP after all."""

    speaks_amqp = True

    def connect(self) -> None:
        """Connect the harness itself."""
        super().connect()
        self.amqp = AmqpArtemisHarness(self.broker, self.prefix)

    def put(self, origin: str, body: bytes, **headers: str) -> None:
        """Send one persistent message to a queue or topic."""
        if not self.speaks_amqp:
            super().put(origin, body, **headers)
            return
        kind = headers.pop("destination-type", "ANYCAST")
        message = Message(id=f"ID:{uuid4()}", durable=True, body=body, properties=headers)
        self.amqp.send(origin, [message], "topic" if kind == "MULTICAST" else "queue")

    def close(self) -> None:
        """Close the harness's own connections."""
        self.amqp.close()
        super().close()


class Origins:
    """Makes origins, lets messages die there and re-sends them over one wire.

    The producers speak STOMP, whose messages each wire carries whole; over `artemis://` AMQP,
    since it takes those of STOMP as `core://` does.
    """

    def __init__(self, broker: Broker, prefix: str, wire: str) -> None:
        self.wire = wire
        self.broker = broker
        self.harness = (AmqpProducer if wire == "artemis" else StompArtemisHarness)(broker, prefix)
        self.prefix = prefix
        self.cycle = 0

    def close(self) -> None:
        self.harness.close()

    @property
    def speaks_amqp(self) -> bool:
        """Whether the producers do."""
        return isinstance(self.harness, AmqpProducer) and self.harness.speaks_amqp

    @property
    def url(self) -> str:
        """The sidecar's URL of the broker."""
        return self.broker.amqp_url.replace("amqp", self.wire, 1)

    def queue(
        self, name: str, address: str = "", *, is_anycast: bool = True, **more: object
    ) -> str:
        """Make a durable queue and return its name."""
        configuration = {
            "name": f"{self.prefix}.{name}",
            "address": f"{self.prefix}.{address or name}",
            "routing-type": "ANYCAST" if is_anycast else "MULTICAST",
            "durable": True,
            "auto-create-address": True,
            "auto-delete": False,
        } | {key.replace("_", "-"): value for key, value in more.items()}
        answer = self.harness.ask("broker", "createQueue", json.dumps(configuration))
        assert answer.is_ok, answer
        return f"{self.prefix}.{name}"

    def queues(self, *names: str) -> None:
        """Make anycast queues, each of its own address."""
        for name in names:
            self.queue(name)

    def update_filter(self, name: str, filter_text: str) -> None:
        """Change the filter of an anycast queue of the broker."""
        changed = {
            "name": f"{self.prefix}.{name}",
            "address": f"{self.prefix}.{name}",
            "routing-type": "ANYCAST",
            "filter-string": filter_text,
        }
        assert self.harness.ask("broker", "updateQueue", json.dumps(changed)).is_ok

    def divert(self, name: str, address: str, to: str, **more: object) -> None:
        """Make a divert."""
        configuration = {
            "name": f"{self.prefix}.{name}",
            "routing-name": f"{self.prefix}.{name}",
            "address": f"{self.prefix}.{address}",
            "forwarding-address": f"{self.prefix}.{to}",
            "exclusive": False,
            "routing-type": "ANYCAST",
        } | {key.replace("_", "-"): value for key, value in more.items()}
        answer = self.harness.ask("broker", "createDivert", json.dumps(configuration))
        assert answer.is_ok, answer

    def settings(self, address: str, **settings: object) -> None:
        """Replace the settings of an address, but for its dead-letter address."""
        given = {"deadLetterAddress": self.harness.dead_letter_queue} | settings
        self.harness.set_address(f"{self.prefix}.{address}", **given)

    def auto_create_dead_letter_queues(self) -> None:
        """Let the broker make a dead-letter queue for each address, as of now."""
        name = f"{self.prefix}.DLA"
        self.settings("#", deadLetterAddress=name, autoCreateDeadLetterResources=True)
        if isinstance(self.harness, AmqpProducer):
            # Why: over `artemis://` what AMQP clients have made stays in such queues.
            self.harness.speaks_amqp = False

    def put(self, target: str, count: int = 1, *, to_topic: bool = False, **headers: str) -> None:
        """Send persistent messages to an address or to `address::queue`."""
        kind = {"destination-type": "MULTICAST"} if to_topic else {}
        for _ in range(count):
            self.harness.put(f"{self.prefix}.{target}", b"x" * 100, **(headers | kind))

    def depths(self, *names: str) -> dict[str, int]:
        """Return how many messages each queue holds, in queues that are not durable, too."""
        # Why: the harness of STOMP counts durable messages, which such a queue has none of.
        count = super(StompArtemisHarness, self.harness).depth
        return {name: count(f"{self.prefix}.{name}") for name in names}

    def _make_link(self, allowed: Collection[ResendEffect]) -> Link:
        if self.wire == "artemis":
            return pair_link(self.broker, self.prefix, allowed_effects=allowed)
        settings = ArtemisLinkSettings(
            self.broker.endpoint("PORT"),
            clock=SystemClock(),
            instance=self.prefix,
            allowed_effects=allowed,
        )
        return _LINKS[self.wire](settings)

    @contextmanager
    def link(self, *allowed: ResendEffect) -> Iterator[Take]:
        """Open a link that allows these side effects."""
        self.cycle = 0
        made = self._make_link(allowed).take(f"{self.prefix}.token")
        assert isinstance(made, Take)
        try:
            if not made.token.exists():
                made.token.create(0)
            taken = made.token.take(PATIENCE_S)
            assert taken is not None
            self.cycle = taken
            yield made
        finally:
            made.close()

    def take(self, link: Take, count: int) -> list[Delivery]:
        """Receive this many dead letters."""
        link.attach([one for one in link.discover() if self.prefix in one.destination.name], 100)
        return receive(link, count)

    def send(self, link: Take, deliveries: list[Delivery]) -> None:
        """Re-send dead letters to their origins, in one transaction."""
        sends = [resend(one) for one in deliveries]
        self.cycle += 1
        link.commit_cycle(deliveries, sends, self.cycle)

    def live(self, link: Take, died_in: str, count: int, origin: Destination) -> None:
        """Let all messages of a queue die and come back, three times.

        Each time the route is free, the origin as expected and no side effect reported.
        """
        for death in range(1, DEATHS + 1):
            assert self.harness.kill(f"{self.prefix}.{died_in}") == count, f"death {death}"
            deliveries = self.take(link, count)
            assert {one.provenance.origin for one in deliveries} == {origin}
            assert {one.provenance.redelivery_count for one in deliveries} == {death - 1}
            assert {refusal_of(link, resend(one)) for one in deliveries} == {None}
            self.send(link, deliveries)

    def come_back(self, died_in: str, count: int, origin: Destination | None = None) -> None:
        """Let messages die and come back as `live` does; None = the origin is the queue itself."""
        with self.link() as link:
            self.live(link, died_in, count, origin or queue(f"{self.prefix}.{died_in}"))

    def send_against(
        self, origin: Destination, words: str, effect: ResendEffect, count: int
    ) -> None:
        """Re-send what a side effect keeps from its origin, where that effect is allowed.

        Without the permission the effect is reported by these words.
        """
        with self.link() as link:
            assert words in str(effects_of(link.send_terms(origin)))
        with self.link(effect) as link:
            deliveries = self.take(link, count)
            assert effects_of(link.send_terms(origin)) is None
            self.send(link, deliveries)
