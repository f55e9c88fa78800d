"""The harness of the AMQP link to Artemis."""

import json
import uuid
from abc import ABC, abstractmethod

from proton import Message

from amqsidecar.broker import IntakeQueue, Link, LookSession
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender, is_answered, refusal_words
from amqsidecar.brokers.amqp_artemis.link import AmqpArtemisLink
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.amqp_artemis.take import AmqpArtemisTake
from amqsidecar.brokers.artemis.management import ManagementAnswer, ManagementQuestion
from amqsidecar.clock import SystemClock
from amqsidecar.model.destination import Destination, queue
from support.brokers.real import ArtemisBroker, Broker, spoken
from support.links.amqp_messages import copies_of, drained
from support.links.harness import Drained
from support.waiting import PATIENCE_S

_DRAIN_S = 15.0
_VAIN_DRAINS_MAX = 20


class ArtemisHarness(ABC):
    """Own dead-letter address per prefix; it asks and fills the broker over AMQP."""

    name: str

    def __init__(self, broker: Broker, prefix: str) -> None:
        assert isinstance(broker, ArtemisBroker)
        spoken(broker.release, "amqp")
        self.broker = broker
        self.prefix = prefix
        self.dead_letter_queue = f"{prefix}.DLQ"
        self._numbers = 0
        self.connect()
        self.set_address(f"{prefix}.#", deadLetterAddress=self.dead_letter_queue)
        self.management.create_queue(
            self.dead_letter_queue, self.dead_letter_queue, is_anycast=True
        )

    def connect(self) -> None:
        """Connect the harness itself."""
        self.connection = AmqpConnection(
            self.broker.endpoint("PORT"), SystemClock(), f"harness-{uuid.uuid4().hex}"
        )
        self.management = ArtemisManagement(self.connection, PATIENCE_S, PATIENCE_S)
        assert self.management.missing is None

    @abstractmethod
    def make_link(self, instance: str) -> Link:
        """Return a link that is not opened."""

    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        """Make `n` persistent text messages die in queue `origin`; return their ids in order."""
        ids = [f"{origin}-{number}" for number in range(n)]
        self.send(
            origin,
            [
                Message(
                    id=f"ID:{one}",
                    durable=True,
                    body=one.ljust(size_bytes, "."),
                    properties={"testId": one},
                )
                for one in ids
            ],
        )
        self.kill(origin)
        return ids

    def send(self, address: str, messages: list[Message], capability: str = "queue") -> None:
        """Send messages outside of any transaction."""
        sender = Sender(self.connection, self._name(), address, capability=capability)
        sent = []
        for message in messages:
            assert self.connection.run_until(lambda: sender.credit > 0, PATIENCE_S), sender.refusal
            sent.append(sender.send(bytes(message.encode())))
        assert self.connection.run_until(lambda: all(is_answered(one) for one in sent), PATIENCE_S)
        assert [refusal_words(one) for one in sent] == [None] * len(sent)
        self._close(sender)

    def kill(self, queue_name: str) -> int:
        """Make dead letters of all that a queue holds."""
        return int(self.ask(f"queue.{queue_name}", "sendMessagesToDeadLetterAddress", "").value)

    def forward(self, queue_name: str, to: str) -> None:
        """Send on all that a queue holds, as an application does that copies the properties."""
        self.send(to, copies_of(self.drain_raw(queue_name)))

    def intake(self) -> IntakeQueue:
        """Return the dead-letter queue in which they are."""
        return IntakeQueue(queue(self.dead_letter_queue))

    def drain(self, queue_name: str) -> list[Drained]:
        """Consume and return all that a queue holds."""
        return [drained(encoded) for encoded in self.drain_raw(queue_name)]

    def drain_raw(self, queue_name: str) -> list[bytes]:
        """Consume all that a queue holds and return it as it is encoded."""
        capability = None if "::" in queue_name else "queue"
        receiver = Receiver(self.connection, self._name(), queue_name, capability=capability)
        found: list[bytes] = []
        vain = 0
        # Why more than once: a busy broker drains the credit before it has looked into the queue.
        while vain < _VAIN_DRAINS_MAX:
            receiver.drain(500)
            # Quirk (Artemis 2.44): a busy broker rarely never answers (once in a whole run).
            is_answered = self.connection.run_until(lambda: receiver.is_drained, _DRAIN_S)
            assert not receiver.refusal, receiver.refusal
            arrived = receiver.take_arrived(500)
            for in_hand, message in arrived:
                receiver.accept(in_hand)
                found.append(message)
            if not arrived:
                if is_answered and not self.depth(queue_name):
                    break
                vain += 1
        self._close(receiver)
        return found

    def depth(self, queue_name: str) -> int:
        """Return how many messages a queue holds, handed out ones too; 0 = there is no queue."""
        name = queue_name.rpartition("::")[2]
        # Quirk (Artemis 2.44): what is committed is counted a moment later, by another thread.
        self.ask(f"queue.{name}", "flushExecutor")
        return self.management.message_count(name) or 0

    def exists(self, queue_name: str) -> bool:
        """Return whether the broker has a queue of that name."""
        return self.management.message_count(queue_name) is not None

    def refusing_destination(self) -> Destination:
        """Return a destination to which the broker refuses sends."""
        match = f"{self.prefix}.closed"
        self.set_address(match, autoCreateQueues=False, autoCreateAddresses=False)
        return queue(match)

    @abstractmethod
    def drop(self, link: LookSession) -> None:
        """Cut the link's connection without a word, as a crash does."""

    def close(self) -> None:
        """Close the harness's own connections."""
        self.connection.close()

    def set_address(self, match: str, **settings: object) -> None:
        """Change the settings of addresses, by the broker's JSON names."""
        answer = self.ask("broker", "addAddressSettings", match, json.dumps(settings))
        assert answer.is_ok, answer

    def ask(self, resource: str, operation: str, *arguments: object) -> ManagementAnswer:
        """Ask the broker's management."""
        return self.management.ask(ManagementQuestion(resource, operation, arguments))

    def _name(self) -> str:
        self._numbers += 1
        return f"harness-link-{self._numbers}"

    def _close(self, end: Sender | Receiver) -> None:
        end.close()
        assert self.connection.run_until(lambda: end.is_closed, PATIENCE_S)
        end.forget()


class AmqpArtemisHarness(ArtemisHarness):
    """Dead letters come from AMQP and die by the broker's own management."""

    name = "amqp-artemis"

    def make_link(self, instance: str) -> AmqpArtemisLink:
        """Return a link that is not opened."""
        return AmqpArtemisLink(self.broker.endpoint("PORT"), clock=SystemClock(), instance=instance)

    def drop(self, link: LookSession) -> None:
        """Cut the link's connection without a word, as a crash does."""
        assert isinstance(link, AmqpArtemisTake)
        peer = link._connection._socket
        assert peer is not None
        peer.shutdown(2)
