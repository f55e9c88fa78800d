"""Taking chosen messages out of queues of Artemis, and leaving the others where they are."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from amqsidecar.broker import PROPERTY_REDELIVERY_ID, Delivery, IntakeQueue
from amqsidecar.brokers.artemis_management import ArtemisQuestions, Question
from amqsidecar.errors import BrokerRefused, QueueRefused
from amqsidecar.model.destination import Destination


class Chosen:
    """The ids that are waited for, each until its message arrives."""

    def __init__(self, redelivery_ids: Iterable[str]) -> None:
        self._awaited = set(redelivery_ids)

    def first_of_each(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Return those that are waited for; the others go back when their receiver is closed.

        Why: a message may have a double, and one that was taken may come to its queue again.
        """
        found = []
        for delivery in deliveries:
            redelivery_id = delivery.provenance.redelivery_id
            if redelivery_id in self._awaited:
                self._awaited.discard(redelivery_id)
                found.append(delivery)
        return found


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


def count_chosen(
    management: ArtemisQuestions, queue: Destination, redelivery_ids: Collection[str]
) -> int:
    """Return how many messages of these ids a queue holds that nobody has in hand.

    Raises:
        BrokerRefused: this user may not ask.
        LinkLost: the connection is gone.
    """
    if management.missing is not None:
        raise BrokerRefused(f"what {queue} holds can't be asked: {management.missing}")
    question = Question(f"queue.{queue.name}", "countMessages", (_selector(redelivery_ids),))
    answer = management.ask(question)
    return int(answer.value) if answer.is_ok else 0


def _selector(redelivery_ids: Collection[str]) -> str:
    quoted = ", ".join("'" + one.replace("'", "''") + "'" for one in redelivery_ids)
    return f"{PROPERTY_REDELIVERY_ID} IN ({quoted})"
