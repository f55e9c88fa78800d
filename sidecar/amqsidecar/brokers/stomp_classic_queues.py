"""Which queues a Classic broker has, told over STOMP by its advisories, which are JSON there.

Source: ActiveMQ Classic, AdvisoryBroker.addConsumer (destinations are told to a new consumer) and
JmsFrameTranslator.
"""

import json
import re
from collections.abc import Iterable

from amqsidecar.brokers.openwire_queues import is_ours, is_wildcard, pattern_of
from amqsidecar.brokers.stomp_classic_consumers import Consumers
from amqsidecar.brokers.stomp_connection import Refused, StompConnection
from amqsidecar.brokers.stomp_frame import Frame
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic

_ADVISORIES = topic("ActiveMQ.Advisory.Queue")
# Precedent: the Java client's prefetch for topics; the broker holds back what goes beyond.
_PREFETCH = 32_766
_KNOWN_TIMEOUT_S = 5.0
_QUIET_S = 0.25
_REMOVED = 1


class QueueWatch:
    """Expands wildcards, now and whenever a queue comes or goes.

    Attributes:
        has_changed: queues came or went; the caller resets it.
    """

    def __init__(
        self, connection: StompConnection, consumers: Consumers, clock: Clock, final_suffix: str
    ) -> None:
        self._connection = connection
        self._consumers = consumers
        self._clock = clock
        self._final_suffix = final_suffix
        self._names: set[str] = set()
        self._is_begun = False
        self.has_changed = False

    def expand(
        self, destinations: Iterable[Destination], known: Destination | None
    ) -> list[Destination]:
        """Return the queues that these names and wildcards stand for, without our own ones.

        Args:
            destinations: queues.
            known: a queue that exists: if the broker does not tell of it, it tells nothing.

        Raises:
            BrokerRefused: a name can't be read, or the broker tells us of no queue.
        """
        expanded: dict[Destination, None] = {}
        patterns: list[re.Pattern[str]] = []
        for destination in destinations:
            self._check(destination)
            if is_wildcard(destination.name):
                patterns.append(pattern_of(destination.name))
            else:
                expanded[destination] = None
        if patterns:
            self._begin(known)
        for name in sorted(self._names) if patterns else ():
            if not self._is_ours(name) and any(one.fullmatch(name) for one in patterns):
                expanded[queue(name)] = None
        self.has_changed = False
        return list(expanded)

    def existing(self, destination: Destination) -> list[Destination]:
        """Return the queues that a name or wildcard stands for and that exist, without ours.

        Of a broker that tells nothing a name is taken to exist, and a wildcard matches none.

        Raises:
            BrokerRefused: the name can't be read, or the broker doesn't let us read advisories.
        """
        expanded = self.expand([destination], None)
        self._begin(None)
        if not self._names:
            return expanded
        return [one for one in expanded if one.name in self._names]

    def _begin(self, known: Destination | None) -> None:
        if not self._is_begun:
            try:
                self._consumers.add(_ADVISORIES, _PREFETCH, self._take_in, acks=False)
            except Refused as cause:
                raise BrokerRefused(
                    f"can't find out which queues exist: {cause}; allow the user to read and admin "
                    "(create) topic ActiveMQ.Advisory.>, or name the dead-letter queues one by one"
                ) from cause
            self._is_begun = True
            self._await(known)
        if known is not None and known.name not in self._names:
            raise BrokerRefused(
                f"{self._connection.name} does not tell which queues it has"
                ' (advisorySupport="false"?), so that wildcards can\'t be used for the intake: name'
                " its dead-letter queues one by one"
            )

    def _await(self, known: Destination | None) -> None:
        """Wait until the broker has told of all queues; it says nowhere that it has.

        Quirk (Classic): what is told to a new consumer comes after the receipt.
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
        if told is None:
            return
        name, is_removed = told
        if is_removed:
            self._names.discard(name)
        else:
            self._names.add(name)
        self.has_changed = self.has_changed or not self._is_ours(name)

    def _is_ours(self, name: str) -> bool:
        return is_ours(name, self._final_suffix)

    def _check(self, destination: Destination) -> None:
        if destination.kind is not DestinationKind.QUEUE or "," in destination.name:
            raise BrokerRefused(
                f"can't read {destination}: dead letters are taken from single queues"
            )
        if self._is_ours(destination.name):
            raise BrokerRefused(f"won't read {destination}: the sidecar itself writes to it")


def read_destination_info(body: bytes) -> tuple[str, bool] | None:
    """Return the queue that an advisory tells of, and whether it was removed; None = none."""
    try:
        info = json.loads(body)["DestinationInfo"]
        destination = info["destination"]
        if destination["@class"] != "ActiveMQQueue":
            return None
        return str(destination["string"]), info["operationType"] == _REMOVED
    except (ValueError, KeyError, TypeError):
        return None
