"""Tries the rights of the sidecar's user on Classic over STOMP; takes and leaves no message."""

from typing_extensions import override

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.classic.queues import EMPTIED, ClassicQueues
from amqsidecar.brokers.classic.trials import ListingTrials
from amqsidecar.brokers.connection.refusal import raised_as, refusal_of
from amqsidecar.brokers.stomp.connection import error_text
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.left_behind import Leftovers
from amqsidecar.formats.stomp_classic_message import StompResendEncoder, read_cycle
from amqsidecar.formats.stomp_frame import Frame
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind

# Why one: no number of the link's own transactions begins like that.
_TRANSACTION = b"trial"
_OWN_MAX = 100
_TAKEN_TIMEOUT_S = 10.0


class StompClassicTrials(ListingTrials):
    """Trials over one connection.

    Attributes:
        can_remove: no: STOMP has no word for it.
    """

    can_remove = False

    def __init__(
        self,
        consumers: StompSubscriptions,
        left: Leftovers,
        queues: ClassicQueues,
        token_queue: Destination | None,
    ) -> None:
        super().__init__(queues, token_queue)
        self._consumers = consumers
        self._left = left

    @override
    def _consume_nothing(self, destination: Destination) -> None:
        self._consumers.remove(self._consumers.add(destination, 1, _ignore, selector="1 = 0"))

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        The trial send is rolled back. The broker creates a missing destination.
        """
        connection = self._consumers.connection
        transaction = (b"transaction", _TRANSACTION)
        connection.send("BEGIN", [transaction])
        receipt, header = connection.receipt()
        connection.put(StompResendEncoder.token(destination, 0, _TRANSACTION, [header]))
        answer = connection.answers([receipt])[0]
        connection.call("ABORT", [transaction])
        return error_text(answer) if answer.command == "ERROR" else None

    def remove(self, destination: Destination) -> str | None:
        """Empty a queue of this sidecar; return why it can't be removed."""
        return refusal_of(lambda: self._empty(destination)) or EMPTIED

    def _empty(self, destination: Destination) -> None:
        taken: list[Frame] = []
        count = len(self._consumers.browse(destination, _OWN_MAX))
        name = self._consumers.add(destination, _OWN_MAX, taken.append, acks=False)
        self._consumers.run_until(lambda: len(taken) >= count, _TAKEN_TIMEOUT_S)
        self._consumers.remove(name)

    @override
    def _times_of_token(self, token_queue: Destination) -> tuple[int, int] | None:
        # Source: ActiveMQ Classic, ProtocolConverter.onStompSend, which writes the time itself.
        frames = self._consumers.browse(token_queue, _OWN_MAX)
        token = next((one for one in frames if read_cycle(one) is not None), None)
        if token is None:
            return None
        return int(token.first(b"timestamp") or 0), int(token.first(b"expires") or 0)

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        with raised_as("can't find messages that would be left behind: {}"):
            return self._left.of_unread(self._queues.existing(queue))


def _ignore(_frame: Frame) -> None:
    """Consume without taking: the selector matches no message."""
