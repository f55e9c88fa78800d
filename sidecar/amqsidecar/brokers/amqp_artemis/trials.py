"""What a doctor tries on an Artemis over AMQP."""

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_artemis.core_messages import LISTED_MAX, Listed, list_of_others
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.artemis.trials import EMPTIED, ArtemisAnswers
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.trials import TrialFeatures


class ArtemisTrials(ArtemisAnswers):
    """Trials over one AMQP connection."""

    def __init__(self, tried: AmqpTrials, management: ArtemisManagement) -> None:
        super().__init__(management)
        self._tried = tried
        self._refusals = management.refusals

    @property
    def features(self) -> TrialFeatures:
        """What these trials can find out beyond the contract."""
        return TrialFeatures(roles=self, effects=self, disk=self, acceptors=self)

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The link gives no credit. The broker makes a queue that is missing where it may.
        """
        capability = None if "::" in destination.name else "queue"
        return self._tried.read(destination.name, capability)

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        Nothing is sent. The broker makes a queue that is missing where it may.
        """
        return self._tried.write(destination.name, "queue" if destination.is_queue else "topic")

    def remove(self, destination: Destination) -> str | None:
        """Remove or empty a queue of ours; return why it may stay."""
        if self.can_remove:
            return self.destroyed(destination)
        return self._tried.empty(destination.name, "queue") or EMPTIED

    def refusals(self) -> tuple[str, ...]:
        """Return the broker's words why it can't be asked; () = it can."""
        return self._refusals

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return messages that the broker may be unable to convert; see `core_messages.py`.

        Raises:
            BrokerRefused: it does not answer, or the list shows a part of the queue, and none.
        """
        management, name = self._management, queue.destination.name.rpartition("::")[2]
        management.demand(
            "only users with the manage permission can see which messages the broker may be "
            "unable to convert to AMQP"
        )
        count = management.message_count(name)
        if count is None:
            return ()
        listed = Listed()
        listed.read(management.ask(list_of_others(queue)), 0)
        if listed.refusal:
            raise BrokerRefused(f"the broker does not list it: {listed.refusal}")
        has_more = count > LISTED_MAX
        left = tuple(listed.left_behind(queue.destination, at_least=has_more))
        if has_more and not left:
            raise BrokerRefused(f"the broker lists the first {LISTED_MAX} of its {count} messages")
        return left
