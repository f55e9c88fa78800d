"""What the harnesses of all links to Artemis share: they ask and arrange over Core."""

import json

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.management import ManagementAnswer, ManagementQuestion
from amqsidecar.model.destination import Destination, queue
from support.brokers.artemis_manager import ArtemisManager
from support.brokers.real import ArtemisBroker, Broker
from support.links.harness import LinkHarness


class ArtemisHarness(LinkHarness):
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

    def kill(self, queue_name: str) -> int:
        return int(self.ask(f"queue.{queue_name}", "sendMessagesToDeadLetterAddress", "").value)

    def intake(self) -> IntakeQueue:
        return IntakeQueue(queue(self.dead_letter_queue))

    def depth(self, queue_name: str) -> int:
        name = queue_name.rpartition("::")[2]
        # Quirk (Artemis 2.44): what is committed is counted a moment later, by another thread.
        self.ask(f"queue.{name}", "flushExecutor")
        return self.management.message_count(name) or 0

    def exists(self, queue_name: str) -> bool:
        return self.management.message_count(queue_name) is not None

    def refusing_destination(self) -> Destination:
        """Return a destination to which the broker refuses sends."""
        match = f"{self.prefix}.closed"
        self.set_address(match, autoCreateQueues=False, autoCreateAddresses=False)
        return queue(match)

    def close(self) -> None:
        self.management.close()

    def set_address(self, match: str, **settings: object) -> None:
        """Change the settings of addresses, by the broker's JSON names."""
        answer = self.ask("broker", "addAddressSettings", match, json.dumps(settings))
        assert answer.is_ok, answer

    def kill_at_first_failure(self, place: str) -> str:
        """Limit the messages of a place to one delivery; return their dead-letter queue."""
        dead = f"{place}.DLQ"
        self.set_address(f"{place}.#", deadLetterAddress=dead, maxDeliveryAttempts=1)
        # Why: where a sidecar is killed, each dead letter in its hand was delivered once.
        self.set_address(dead, maxDeliveryAttempts=-1)
        return dead

    def ask(self, resource: str, operation: str, *arguments: object) -> ManagementAnswer:
        """Ask the broker's management."""
        return self.management.ask(ManagementQuestion(resource, operation, arguments))
