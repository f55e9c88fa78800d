"""The queues of a Classic broker, known from its advisories over STOMP, which are JSON there.

Source: ActiveMQ Classic, JmsFrameTranslator.
"""

import json

from amqsidecar.brokers.classic.queues import ADVISORY_PREFETCH, QUEUE_ADVISORIES, ClassicQueues
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import Clock
from amqsidecar.formats.stomp_frame import Frame
from amqsidecar.model.destination import Destination

_KNOWN_TIMEOUT_S = 5.0
_QUIET_S = 0.25
_REMOVED = 1


class StompQueueWatch(ClassicQueues):
    """Expands wildcards, now and whenever a queue is created or deleted.

    What reading advisories is refused with is the connection's `Refused`.
    """

    def __init__(
        self,
        connection: StompConnection,
        consumers: StompSubscriptions,
        clock: Clock,
        final_suffix: str,
    ) -> None:
        super().__init__(connection.name, final_suffix)
        self._connection = connection
        self._consumers = consumers
        self._clock = clock

    def _listen(self, known: Destination | None) -> None:
        self._consumers.add(QUEUE_ADVISORIES, ADVISORY_PREFETCH, self._take_in, acks=False)
        self._await(known)

    def _await(self, known: Destination | None) -> None:
        """Wait until the broker has named all queues; it does not mark the last one.

        Quirk (Classic): a new consumer gets the existing queues after the receipt.
        """
        deadline_s = self._clock.monotonic_s() + _KNOWN_TIMEOUT_S
        quiet_s = self._clock.monotonic_s() + _QUIET_S
        count = 0
        while (now_s := self._clock.monotonic_s()) < deadline_s:
            self._connection.wait(min(_QUIET_S, deadline_s - now_s))
            self._consumers.route()
            if len(self._names) != count:
                count, quiet_s = len(self._names), self._clock.monotonic_s() + _QUIET_S
            is_known = known is None or known.name in self._names
            if is_known and self._clock.monotonic_s() >= quiet_s:
                return

    def _take_in(self, frame: Frame) -> None:
        told = read_destination_info(frame.body)
        if told is not None:
            self.told(told[0], is_removed=told[1])


def read_destination_info(body: bytes) -> tuple[str, bool] | None:
    """Return the queue of an advisory, and whether it was removed; None = none."""
    try:
        info = json.loads(body)["DestinationInfo"]
        destination = info["destination"]
        if destination["@class"] != "ActiveMQQueue":
            return None
        return str(destination["string"]), info["operationType"] == _REMOVED
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
