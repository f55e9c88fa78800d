"""What the harnesses of all links to Artemis share: they ask and arrange over Core."""

import json
from abc import ABC, abstractmethod

from amqsidecar.broker import IntakeQueue, Link, LookSession
from amqsidecar.brokers.artemis.management import ManagementAnswer, ManagementQuestion
from amqsidecar.model.destination import Destination, queue
from support.brokers.artemis_manager import ArtemisManager
from support.brokers.real import ArtemisBroker, Broker
from support.links.harness import Drained


class ArtemisHarness(ABC):
    """Own dead-letter address per prefix."""

    name: str

    def __init__(self, broker: Broker, prefix: str) -> None:
        assert isinstance(broker, ArtemisBroker)
        self.broker = broker
        self.prefix = prefix
        self.dead_letter_queue = f"{prefix}.DLQ"
        self.connect()
        self.set_address(f"{prefix}.#", deadLetterAddress=self.dead_letter_queue)
        self.management.create_queue(
            self.dead_letter_queue, self.dead_letter_queue, is_anycast=True
        )

    def connect(self) -> None:
        """Connect the harness itself."""
        self.management = ArtemisManager(self.broker)

    @abstractmethod
    def make_link(self, instance: str) -> Link:
        """Return a link that is not opened."""

    @abstractmethod
    def put_dead_letters(self, origin: str, n: int, *, size_bytes: int = 100) -> list[str]:
        """Make `n` persistent text messages die in queue `origin`; return their ids in order."""

    def kill(self, queue_name: str) -> int:
        """Make dead letters of all that a queue holds."""
        return int(self.ask(f"queue.{queue_name}", "sendMessagesToDeadLetterAddress", "").value)

    @abstractmethod
    def forward(self, queue_name: str, to: str) -> None:
        """Send on all that a queue holds, as an application does that copies the properties."""

    def intake(self) -> IntakeQueue:
        """Return the dead-letter queue in which they are."""
        return IntakeQueue(queue(self.dead_letter_queue))

    @abstractmethod
    def drain(self, queue_name: str) -> list[Drained]:
        """Consume and return all that a queue holds."""

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
        self.management.close()

    def set_address(self, match: str, **settings: object) -> None:
        """Change the settings of addresses, by the broker's JSON names."""
        answer = self.ask("broker", "addAddressSettings", match, json.dumps(settings))
        assert answer.is_ok, answer

    def ask(self, resource: str, operation: str, *arguments: object) -> ManagementAnswer:
        """Ask the broker's management."""
        return self.management.ask(ManagementQuestion(resource, operation, arguments))
