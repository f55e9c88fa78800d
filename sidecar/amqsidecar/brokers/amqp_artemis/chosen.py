"""Taking chosen messages out of queues of Artemis, and leaving the others where they are."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from amqsidecar.broker import PROPERTY_REDELIVERY_ID, Delivery, IntakeQueue
from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion
from amqsidecar.errors import BrokerRefused, QueueRefused
from amqsidecar.model.destination import Destination


class AwaitedIds:
    """The ids that are waited for, each until its message arrives."""

    def __init__(self, redelivery_ids: Iterable[str]) -> None:
        self._awaited = set(redelivery_ids)

    def sort(self, deliveries: Sequence[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Return those that are waited for, and the others.

        Why there are others: a message may have a double, and one that was taken may come to its
        queue again.
        """
        wanted, others = [], []
        for delivery in deliveries:
            redelivery_id = delivery.provenance.redelivery_id
            if redelivery_id in self._awaited:
                self._awaited.discard(redelivery_id)
                wanted.append(delivery)
            else:
                others.append(delivery)
        return wanted, others


def choices(queues: Mapping[Destination, Collection[str]]) -> list[IntakeQueue]:
    """Return what to read so that only messages of these ids come.

    Raises:
        QueueRefused: a name is fully qualified; the broker takes no selector with it.
    """
    for queue in queues:
        if "::" in queue.name:
            what = "is a fully qualified name, with which the broker takes no selector"
            raise QueueRefused(queue.name, f"{queue} can't be read by ids: it {what}")
    return [IntakeQueue(queue, selector=_selector(ids)) for queue, ids in queues.items()]


def selected(queue: IntakeQueue) -> IntakeQueue:
    """Return a queue with the selector that its redelivery ids need."""
    if not queue.redelivery_ids:
        return queue
    return msgspec.structs.replace(queue, selector=_selector(queue.redelivery_ids))


def holds_chosen(
    management: ArtemisQuestions, queue: Destination, redelivery_ids: Collection[str]
) -> bool:
    """Return whether a queue holds a message of these ids that nobody has in hand.

    Quirk (Artemis 2.44): `countMessages` with a filter looks at the first 200 messages only; a
    browse by page looks at all.

    Raises:
        BrokerRefused: this user may not ask.
        LinkLost: the connection is gone.
    """
    if management.missing is not None:
        raise BrokerRefused(f"what {queue} holds can't be asked: {management.missing}")
    resource = f"queue.{queue.name}"
    _, answer = management.ask_all(
        [
            # Why: what is given back is in the queue a moment later, by another thread.
            ManagementQuestion(resource, "flushExecutor"),
            ManagementQuestion(resource, "browse", (1, 1, _selector(redelivery_ids))),
        ]
    )
    return answer.is_ok and any(answer.value.values())


def _selector(redelivery_ids: Collection[str]) -> str:
    quoted = ", ".join("'" + one.replace("'", "''") + "'" for one in redelivery_ids)
    return f"{PROPERTY_REDELIVERY_ID} IN ({quoted})"
