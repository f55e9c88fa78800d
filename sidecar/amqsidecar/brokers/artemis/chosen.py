"""Takes chosen messages out of queues of Artemis and leaves the others there."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion
from amqsidecar.brokers.selectors import of_redelivery_ids
from amqsidecar.model.destination import Destination


class ChoosingIntake(Protocol):
    """What reads the dead-letter queues of a session."""

    def detach(self) -> None:
        """Stop reading; unreceived messages go back."""
        ...

    def leave(self, deliveries: Sequence[Delivery], /) -> None:
        """Give deliveries back when their consumer is closed."""
        ...


class EveryMessage:
    """No choice: every message is wanted."""

    def takes(self, _delivery: Delivery) -> bool:
        """Return True."""
        return True


class ChosenOnce:
    """Choose the messages of these redelivery ids, of each id the first to arrive."""

    def __init__(self, queues: Mapping[Destination, Collection[str]]) -> None:
        self._awaited = {one for ids in queues.values() for one in ids}

    def takes(self, delivery: Delivery) -> bool:
        """Return whether a message is wanted; no other of its id is from now on."""
        redelivery_id = delivery.provenance.redelivery_id
        if redelivery_id not in self._awaited:
            return False
        self._awaited.discard(redelivery_id)
        return True


class ChosenMessages:
    """Takes chosen messages out of queues; see `broker.TakesChosen`."""

    def __init__(
        self,
        management: ArtemisQuestions,
        intake: ChoosingIntake,
        attach: Callable[[Sequence[IntakeQueue], int], None],
    ) -> None:
        """Prepare; nothing is chosen yet.

        Args:
            management: of the broker.
            intake: of the session.
            attach: of the session.
        """
        self._management = management
        self._intake = intake
        self._attach = attach
        self._wanted: EveryMessage | ChosenOnce = EveryMessage()

    def choose(self, queues: Mapping[Destination, Collection[str]]) -> None:
        """Read from now on only messages of these redelivery ids; in place of `attach`."""
        chosen = [
            IntakeQueue(queue, selector=of_redelivery_ids(ids)) for queue, ids in queues.items()
        ]
        self._wanted = ChosenOnce(queues)
        self._intake.detach()
        self._attach(chosen, sum(map(len, queues.values())))

    def sort_out(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return chosen deliveries and give back the others; without a choice, return all.

        Why there are others: a message may have a duplicate, and one that was taken may return to
        its queue.
        """
        if isinstance(self._wanted, EveryMessage):
            return deliveries
        wanted: list[Delivery] = []
        others: list[Delivery] = []
        for delivery in deliveries:
            (wanted if self._wanted.takes(delivery) else others).append(delivery)
        self._intake.leave(others)
        return wanted

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool:
        """Return whether a queue holds a message of these ids that is not handed out.

        Quirk (Artemis 2.44): `countMessages` with a filter looks at the first 200 messages only; a
        browse by page looks at all.

        Raises:
            BrokerRefused: this user may not ask.
            LinkLost: the connection is gone.
        """
        management = self._management
        management.demand(f"what {queue} holds can't be asked: {{}}")
        resource = f"queue.{queue.name.rpartition('::')[2]}"
        _, answer = management.ask_all(
            [
                # Why: the broker requeues what is given back in another thread.
                ManagementQuestion(resource, "flushExecutor"),
                ManagementQuestion(resource, "browse", (1, 1, of_redelivery_ids(redelivery_ids))),
            ]
        )
        return answer.is_ok and any(answer.value.values())


def selected(queue: IntakeQueue) -> IntakeQueue:
    """Return a queue with the selector that its redelivery ids need."""
    if not queue.redelivery_ids:
        return queue
    return msgspec.structs.replace(queue, selector=of_redelivery_ids(queue.redelivery_ids))
