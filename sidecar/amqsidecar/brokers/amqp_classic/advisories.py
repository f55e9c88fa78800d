"""Classic's advisories of deaths, over AMQP.

Source: ActiveMQ Classic, AdvisorySupport.getMessageDLQdAdvisoryTopic.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import count

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.model.destination import Destination, queue

_TOPICS = "topic://ActiveMQ.Advisory.MessageDLQd.Queue."
_CREDIT = 1000

_log = logging.getLogger(__name__)


class DeathAdvisories:
    """Hears where messages die, once it has begun to listen and where the user may."""

    def __init__(
        self,
        connection: AmqpConnection,
        destination_of: Callable[[bytes], Destination | None],
        timeout_s: float,
    ) -> None:
        """Do not listen yet.

        Args:
            connection: to listen over.
            destination_of: reads the topic to which an advisory was sent; None = none.
            timeout_s: maximum wait for the broker's answer.
        """
        self._connection = connection
        self._destination_of = destination_of
        self._timeout_s = timeout_s
        # The last one listens, unless it is refused; the others were, and are closing.
        self._receivers: list[Receiver] = []
        self._numbers = count(1)

    def listen(self) -> None:
        """Begin to listen, unless that is done; asks again where it was refused before.

        Raises:
            LinkLost: the connection is gone.
        """
        if any(receiver.refusal is None for receiver in self._receivers[-1:]):
            return
        number = next(self._numbers)
        for closed in [one for one in self._receivers if one.is_closed]:
            self._receivers.remove(closed)
            closed.forget()
        receiver = Receiver(self._connection, f"amqsidecar-advisories-{number}", f"{_TOPICS}>")
        self._receivers.append(receiver)
        self._connection.run_until(lambda: receiver.is_answered, self._timeout_s)
        if receiver.refusal is None:
            receiver.flow(_CREDIT)
        elif number == 1:
            _log.warning(
                "new dead-letter queues are found only at each look for queues (discovery."
                "interval_s), and not at their first dead letter: %s; give the sidecar's user read "
                "and admin on ActiveMQ.Advisory.> in activemq.xml",
                receiver.refusal,
            )

    def take(self) -> Iterator[Destination]:
        """Return the origin of each death since the last call; never blocks."""
        for receiver in self._receivers[-1:]:
            if not receiver.arrived:
                return
            for in_hand, message in receiver.take_arrived(_CREDIT):
                topic = self._destination_of(message)
                if topic is not None and str(topic).startswith(_TOPICS):
                    yield queue(str(topic)[len(_TOPICS) :])
                receiver.accept(in_hand)
            if receiver.is_open and receiver.credit < _CREDIT // 2:
                receiver.flow(_CREDIT - receiver.credit)

    @property
    def has_arrived(self) -> bool:
        """Whether `take` would look at something."""
        return any(receiver.arrived for receiver in self._receivers[-1:])

    def close(self) -> None:
        """Begin to close the links."""
        for receiver in self._receivers:
            receiver.close()

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed the links."""
        return all(receiver.is_closed for receiver in self._receivers)
