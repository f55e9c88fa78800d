"""The applications: one producer and one failing consumer per queue, at a steady load."""

import random
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from chaos.pairs import QUEUES, Pair
from support.brokers.real import Broker
from support.jms.message import Delivery, JmsMessage
from support.jms.peer import FlakyConsumer, JmsPeer, PeerError
from support.jms.process import PeerProcess
from support.machine.ports import is_open

BATCH = 6
PAUSE_S = 0.5
# Why: a machine that is too busy for the load would need long to come to the end.
MOST_UNSEEN = 60
MADE_BY = "madeBy"
# How many deliveries of a message fail; two are one death, -1: all.
FAILURES = (1, 2, 2, 3, 4, -1)
MAX_REDELIVERIES = 1


@dataclass
class Sent:
    """What the producer knows.

    Attributes:
        messages: as its consumer must see each, by id.
        unknown: ids of those that it lost the broker over, so that they were sent or not.
    """

    messages: dict[str, JmsMessage] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


class Applications:
    """JMS producers and consumers of a pair; a context manager that stops them."""

    def __init__(self, pair: Pair, broker: Broker, chance: random.Random) -> None:
        self._pair = pair
        self._broker = broker
        self._chance = chance
        self._process = PeerProcess()
        self._peers = {
            queue: self._peer(broker, provider) for queue, provider in pair.providers.items()
        }
        self.sent = Sent()
        self._samples: dict[tuple[str, str], JmsMessage] = {}
        self._past: dict[str, list[Delivery]] = {queue: [] for queue in QUEUES}
        self._consumers: dict[str, FlakyConsumer] = {}
        self._stopped = threading.Event()
        self._producer = threading.Thread(target=self._produce, name="producer", daemon=True)

    def _peer(self, broker: Broker, provider: str) -> JmsPeer:
        # Why: else a Core client says that it succeeded before the broker knows.
        sure = {"blockOnAcknowledge": "true"} if provider == "core" else {}
        return JmsPeer.of(broker, provider, process=self._process, url_options=sure)

    @property
    def peer(self) -> JmsPeer:
        """What reads queues to see whether they are empty."""
        return self._peers[QUEUES[0]]

    def consume_final(self, queue: str) -> list[JmsMessage]:
        """Return what a final dead-letter queue holds, as its producer's own kind of client."""
        providers = self._pair.providers
        if len(set(providers.values())) == 1:
            return self.peer.consume(queue, wait_ms=300)
        return [
            message
            for of_queue, provider in providers.items()
            for message in self._peers[of_queue].consume(
                queue, wait_ms=300, selector=f"{MADE_BY} = '{provider}'"
            )
        ]

    def start(self) -> None:
        """Learn how messages look that never fail, then produce and consume."""
        for queue in QUEUES:
            peer = self._peers[queue]
            sent = peer.produce_each([self._message(queue, one) for one in self._pair.types])
            peer.consume(queue, len(sent))
            names = zip(self._pair.types, sent, strict=True)
            self._samples.update({(queue, name): message for name, message in names})
        self.start_consumers()
        self._producer.start()

    def start_consumers(self) -> None:
        """Consume, and fail; those that run go on."""
        for queue, how in zip(QUEUES, self._pair.ways, strict=True):
            if queue in self._consumers:
                continue
            # Why: a rejected message is dead at once, and qpid-jms gives up what it counts itself.
            limit = 0 if how == "reject" else MAX_REDELIVERIES
            self._consumers[queue] = self._peers[queue].start_flaky_consumer(
                queue, failures_property="failures", how=how, max_redeliveries=limit, full=True
            )

    def stop_consumers(self, *, only_unconfirmed: bool = False) -> None:
        """Let each finish the delivery in hand.

        Args:
            only_unconfirmed: leave those that wait until the broker has confirmed a success.
        """
        ways = dict(zip(QUEUES, self._pair.ways, strict=True))
        for queue, consumer in list(self._consumers.items()):
            if only_unconfirmed and ways[queue] == "rollback":
                continue
            consumer.stop()
            self._past[queue] += consumer.events()
            del self._consumers[queue]

    def stop_producer(self) -> None:
        """Send no more."""
        self._stopped.set()
        self._producer.join(60)

    def events(self) -> dict[str, list[Delivery]]:
        """Return what the consumers of each queue have reported, in order."""
        return {
            queue: past + (self._consumers[queue].events() if queue in self._consumers else [])
            for queue, past in self._past.items()
        }

    def __enter__(self) -> "Applications":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._process.close()

    def _produce(self) -> None:
        port = next(iter(self._broker.ports.values()))
        number = 0
        while not self._stopped.wait(PAUSE_S):
            unseen = number - self._seen() - len(self.sent.unknown)
            if not is_open(port) or unseen > MOST_UNSEEN:
                continue
            batches: dict[str, list[Mapping[str, Any]]] = {queue: [] for queue in QUEUES}
            for _ in range(BATCH):
                number += 1
                queue = self._chance.choice(QUEUES)
                name = self._chance.choice(self._pair.types)
                message = self._message(queue, name, f"m{number}", self._chance.choice(FAILURES))
                batches[queue].append(message)
                expected = _like(self._samples[queue, name], message)
                self.sent.messages[f"m{number}"] = expected
            for queue, batch in batches.items():
                if not batch:
                    continue
                try:
                    self._peers[queue].produce_each(batch)
                except PeerError:
                    self.sent.unknown.update(one["correlationId"] for one in batch)

    def _seen(self) -> int:
        """Return how many messages were handed to a consumer at least once."""
        return len({one.id for events in self.events().values() for one in events if one.id})

    def _message(
        self, queue: str, name: str, test_id: str = "sample", failures: int = 0
    ) -> dict[str, Any]:
        java_type = "String" if self._pair.only_texts else "Long"
        return {
            "destination": queue,
            "type": name,
            "properties": {
                "testId": ["String", test_id],
                "failures": [java_type, str(failures) if self._pair.only_texts else failures],
                MADE_BY: ["String", self._pair.providers[queue]],
            },
            "sampleProperties": not self._pair.only_texts,
            "correlationId": test_id,
            "replyTo": "replies",
            "jmsType": "my.type",
            "priority": 5,
            "text": f"the body of {test_id}: €uro, \U0001f600",
            # Why: a body of its own for each message; of zeros, as many as no other one near has.
            "bodySize": zlib.crc32(test_id.encode()) % 4093 + 1 if name == "Bytes" else 0,
        }


def _like(sample: JmsMessage, message: Mapping[str, Any]) -> JmsMessage:
    """Return how a message looks that differs from the sample in what each has of its own."""
    bodies = {"Text": message["text"], "Bytes": "00" * message["bodySize"]}
    return replace(
        sample,
        body=bodies.get(message["type"], sample.body),
        headers={**sample.headers, "JMSCorrelationID": message["correlationId"]},
        properties={**sample.properties, **message["properties"]},
    )
