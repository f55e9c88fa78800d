"""Takes chosen messages out of queues of Artemis and leaves the others there."""

from collections.abc import Collection

import msgspec

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion
from amqsidecar.brokers.selectors import of_redelivery_ids
from amqsidecar.model.destination import Destination


class ChosenMessages:
    """Takes chosen messages out of queues; see `broker.TakesChosen`."""

    def __init__(self, management: ArtemisQuestions) -> None:
        """Ask over this management."""
        self._management = management

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool:
        """Return whether a queue holds a message of these ids that is not handed out.

        Quirk (Artemis 2.44): `countMessages` with a filter looks at the first 200 messages only; a
        browse by page looks at all.

        Raises:
            BrokerRefused: this user may not ask.
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
