"""Tries the rights of the sidecar's user on Classic over STOMP; takes and leaves no message."""

from collections.abc import Sequence

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.classic.queues import EMPTIED
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, error_text
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.left_behind import Leftovers
from amqsidecar.brokers.stomp_classic.queues import StompQueueWatch
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats.stomp_classic_message import StompResendEncoder, read_cycle
from amqsidecar.formats.stomp_frame import Frame
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.trials import TrialFeatures

# Why one: no number of the link's own transactions begins like that.
_TRANSACTION = b"trial"
_OWN_MAX = 100
_TAKEN_TIMEOUT_S = 10.0


class StompClassicTrials:
    """Trials over one connection.

    Attributes:
        can_remove: no: STOMP has no word for it.
    """

    can_remove = False

    def __init__(
        self,
        connection: StompConnection,
        consumers: StompSubscriptions,
        queues: StompQueueWatch,
        left: Leftovers,
        clock: Clock,
        token_queue: Destination | None,
    ) -> None:
        self._connection = connection
        self._consumers = consumers
        self._queues = queues
        self._left = left
        self._clock = clock
        self._token_queue = token_queue

    @property
    def features(self) -> TrialFeatures:
        """The optional parts of these trials."""
        return TrialFeatures(expiration=self)

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The consumer selects no message. The broker makes the destination where it is missing.
        """
        try:
            name = self._consumers.add(destination, 1, _ignore, selector="1 = 0")
            self._consumers.remove(name)
        except FrameRefused as cause:
            return str(cause)
        return None

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        What is sent for it is rolled back. The broker makes the destination where it is missing.
        """
        connection = self._connection
        transaction = (b"transaction", _TRANSACTION)
        connection.send("BEGIN", [transaction])
        receipt, header = connection.receipt()
        connection.put(StompResendEncoder.token(destination, 0, _TRANSACTION, [header]))
        answer = connection.answers([receipt])[0]
        connection.call("ABORT", [transaction])
        return error_text(answer) if answer.command == "ERROR" else None

    def remove(self, destination: Destination) -> str | None:
        """Empty a queue of this sidecar; return why it can't be removed."""
        taken: list[Frame] = []
        try:
            count = len(self._consumers.browse(destination, _OWN_MAX))
            name = self._consumers.add(destination, _OWN_MAX, taken.append, acks=False)
            deadline_s = self._clock.monotonic_s() + _TAKEN_TIMEOUT_S
            # Why first: what came with the answer to SUBSCRIBE is here, and nothing follows it.
            self._consumers.route()
            while len(taken) < count and (left_s := deadline_s - self._clock.monotonic_s()) > 0:
                self._connection.wait(left_s)
                self._consumers.route()
            self._consumers.remove(name)
        except FrameRefused as cause:
            return str(cause)
        return EMPTIED

    def expand(self, queues: Sequence[Destination]) -> tuple[Destination, ...]:
        """Return the queues that these names and wildcards stand for now.

        Raises:
            BrokerRefused: the broker does not report which queues it has.
        """
        try:
            return tuple(self._queues.expand(queues, self._token_queue))
        except FrameRefused as cause:
            raise BrokerRefused(str(cause)) from cause

    def broker_ms(self) -> int | None:
        """Return the broker's clock when it stored our token; None = no token.

        Source: ActiveMQ Classic, ProtocolConverter.onStompSend, which writes the time itself.

        Raises:
            BrokerRefused: the token queue can't be browsed.
        """
        return self._of_token(b"timestamp") or None

    def token_expiration_ms(self) -> int | None:
        """Return when our token will expire; 0 = never, None = no token.

        It was sent without an expiration, so that the broker must have given it one.

        Raises:
            BrokerRefused: the token queue can't be browsed.
        """
        return self._of_token(b"expires")

    def _of_token(self, header: bytes) -> int | None:
        if self._token_queue is None:
            return None
        try:
            frames = self._consumers.browse(self._token_queue, _OWN_MAX)
        except FrameRefused as cause:
            raise BrokerRefused(str(cause)) from cause
        token = next((one for one in frames if read_cycle(one) is not None), None)
        return None if token is None else int(token.first(header) or 0)

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return the messages that a run would leave in a queue.

        Raises:
            BrokerRefused: the user may not read it.
        """
        try:
            return self._left.of_unread(self._queues.existing(queue))
        except FrameRefused as cause:
            raise BrokerRefused(
                f"can't find messages that would be left behind: {cause}"
            ) from cause


def _ignore(_frame: Frame) -> None:
    """Consume without taking: the selector matches no message."""
