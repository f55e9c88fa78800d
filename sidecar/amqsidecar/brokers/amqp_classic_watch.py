"""Which dead-letter queues a wildcard stands for, over AMQP, where Classic lists no queues.

Three things tell a name: the `to` of messages that a wildcard browser sees; the topic of the
advisory that the broker sends for each dead letter, which ends in the name of its origin; and the
rules, which go from the origin's name to that of its dead-letter queue. A queue in which lie only
messages without a `to`, made by AMQP clients other than JMS, and dead before we listened, is found
at its next dead letter.

Source: ActiveMQ Classic, AdvisorySupport.getMessageDLQdAdvisoryTopic.
"""

import logging
from collections.abc import Sequence
from itertools import count
from typing import Protocol

import cproton

from amqsidecar.broker import LeftBehind
from amqsidecar.brokers.amqp_classic_browse import Browser
from amqsidecar.brokers.amqp_classic_message import named_destination, take_apart
from amqsidecar.brokers.amqp_connection import AmqpConnection
from amqsidecar.brokers.amqp_links import Receiver
from amqsidecar.brokers.classic_queues import is_ours, pattern_of
from amqsidecar.errors import BrokerRefused, QueueRefused, UndecodableMessage
from amqsidecar.model.destination import Destination, queue

_ADVISORIES = "topic://ActiveMQ.Advisory.MessageDLQd.Queue."
_CREDIT = 1000
# Bound: each look finds a new queue, or is the last; more queues are found at the next scan.
_LOOKS_MAX = 100
_SEEN_AT_ONCE = 200

_log = logging.getLogger(__name__)


class OriginNames(Protocol):
    """Goes from dead-letter queue to origin and back; see `engine/dead_letter_names.py`."""

    @property
    def explains_patterns(self) -> bool:
        """Whether the origin of queues that a wildcard finds may be told at all."""
        ...

    def origin_of(self, dead_letter_queue: Destination) -> Destination | None:
        """Return where all messages of a dead-letter queue died; None = it can't be told."""
        ...

    def queue_for(self, origin: Destination) -> Destination | None:
        """Return the dead-letter queue of an origin; None = it can't be told."""
        ...


class ClassicWatch:
    """Expands wildcards, now and whenever something dies.

    Attributes:
        members: the queues that the wildcards stand for, with their origins.
        newborn: those of them in which nothing lay when we had looked at all there were.
        has_changed: there are more than before; the caller resets it.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        browser: Browser,
        names: OriginNames,
        final_suffix: str,
        timeout_s: float,
    ) -> None:
        self.members: dict[Destination, Destination] = {}
        self.newborn: set[Destination] = set()
        self.has_changed = False
        self._connection = connection
        self._browser = browser
        self._names = names
        self._final_suffix = final_suffix
        self._timeout_s = timeout_s
        self._wildcards: tuple[Destination, ...] = ()
        self._without_origin: dict[Destination, None] = {}
        self._unnamed: dict[Destination, int] = {}
        self._has_seen_all = False
        self._receiver: Receiver | None = None
        self._closing: list[Receiver] = []
        self._numbers = count(1)

    def follow(self, wildcards: Sequence[Destination]) -> None:
        """Stand for these wildcards from now on, and look which queues they match.

        Raises:
            QueueRefused: a wildcard is none of the broker's, or its queues can't be browsed.
        """
        if tuple(wildcards) != self._wildcards:
            self._wildcards = tuple(wildcards)
            self.members.clear()
            self.newborn.clear()
            self._has_seen_all = False
        self._without_origin.clear()
        self._unnamed.clear()
        if wildcards:
            self._listen()
            has_seen_all = [self._scan_or_refuse(wildcard) for wildcard in wildcards]
            self._has_seen_all = self._has_seen_all or all(has_seen_all)

    def _listen(self) -> None:
        """Hear of deaths from now on, where the broker lets us."""
        if self._receiver is not None and self._receiver.refusal is None:
            return
        is_first = self._receiver is None
        receiver = self._receiver = Receiver(
            self._connection, f"amqsidecar-advisories-{next(self._numbers)}", f"{_ADVISORIES}>"
        )
        self._closing.append(receiver)
        self._connection.run_until(lambda: receiver.is_answered, self._timeout_s)
        if receiver.refusal is None:
            receiver.flow(_CREDIT)
        elif is_first:
            _log.warning(
                "new dead-letter queues are found only at each look for queues (discovery."
                "interval_s), and not at their first dead letter: %s; give the sidecar's user read "
                "and admin on ActiveMQ.Advisory.> in activemq.xml",
                receiver.refusal,
            )

    def _scan_or_refuse(self, wildcard: Destination) -> bool:
        try:
            return self._scan(wildcard)
        except BrokerRefused as refused:
            raise QueueRefused(wildcard.name, str(refused)) from refused

    def _scan(self, wildcard: Destination) -> bool:
        """Learn what the messages in the queues of a wildcard tell; return whether it is all."""
        # Why: what is read already tells nothing new.
        excluded = {str(one): None for member in self.members.items() for one in member}
        for _ in range(_LOOKS_MAX):
            found = self._browser.look(
                wildcard.name, _SEEN_AT_ONCE, _other_than(excluded, self._final_suffix)
            )
            known = len(excluded)
            unnamed = 0
            for message in found:
                told = _destination_of(message)
                if told is None or told.is_temporary:
                    unnamed += 1
                    continue
                excluded |= self._learn(told, wildcard)
            if len(excluded) == known:
                if unnamed:
                    self._unnamed[wildcard] = unnamed
                return not unnamed
        return False

    def _learn(self, told: Destination, wildcard: Destination) -> dict[str, None]:
        """Take note of the queue that a message tells of, and return what its kind is known by.

        Args:
            told: the dead-letter queue itself, or the origin where a producer has written it.
            wildcard: that showed the message.
        """
        pattern = pattern_of(wildcard.name)
        known = {str(told): None}
        dead_letter_queue: Destination | None = told
        if not told.is_queue or not pattern.fullmatch(told.name):
            dead_letter_queue = self._names.queue_for(told)
        if dead_letter_queue is None or not pattern.fullmatch(dead_letter_queue.name):
            return known
        if is_ours(dead_letter_queue.name, self._final_suffix):
            return known
        origin = self._names.origin_of(dead_letter_queue)
        if origin is None:
            self._without_origin[dead_letter_queue] = None
            return known
        self._add(dead_letter_queue, origin)
        known[str(origin)] = None
        return known

    def _add(self, dead_letter_queue: Destination, origin: Destination) -> None:
        if dead_letter_queue not in self.members:
            self.members[dead_letter_queue] = origin
            self.has_changed = True
            if self._has_seen_all:
                self.newborn.add(dead_letter_queue)

    def hear(self) -> None:
        """Take note of what has died since the last call; never blocks."""
        receiver = self._receiver
        if receiver is None or not receiver.arrived:
            return
        for in_hand, message in receiver.take_arrived(_CREDIT):
            told = _destination_of(message)
            if told is not None and str(told).startswith(_ADVISORIES):
                self._hear_of(queue(str(told)[len(_ADVISORIES) :]))
            receiver.settle(in_hand, cproton.PN_ACCEPTED)
        if receiver.is_open and receiver.credit < _CREDIT // 2:
            receiver.flow(_CREDIT - receiver.credit)

    def _hear_of(self, origin: Destination) -> None:
        dead_letter_queue = self._names.queue_for(origin)
        if (
            dead_letter_queue is not None
            and dead_letter_queue not in self.members
            and not is_ours(dead_letter_queue.name, self._final_suffix)
            and any(
                pattern_of(one.name).fullmatch(dead_letter_queue.name) for one in self._wildcards
            )
        ):
            self._add(dead_letter_queue, origin)

    @property
    def has_arrived(self) -> bool:
        """Whether something waits to be heard."""
        return self._receiver is not None and bool(self._receiver.arrived)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the queues that the wildcards match and that are not read, and why."""
        without = [
            LeftBehind(one, "no_origin", 1, NO_ORIGIN.format(one, one.name), at_least=True)
            for one in self._without_origin
        ]
        return (
            *without,
            *(
                LeftBehind(wildcard, "no_name", unnamed, _NO_NAME, at_least=True)
                for wildcard, unnamed in self._unnamed.items()
            ),
        )

    def close(self) -> None:
        """Begin to close the link."""
        for receiver in self._closing:
            receiver.close()

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed the link."""
        return all(receiver.is_closed for receiver in self._closing)


NO_ORIGIN = (
    "{} can't be read over AMQP, because neither its messages nor its name tell where they died: "
    'give each queue a dead-letter queue of its own in activemq.xml (<policyEntry queue=">">'
    '<deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ."/></deadLetterStrategy>'
    "</policyEntry>) and name that file in policy.source, or say where they died (intake.origin: "
    "{{{}: NAME-OF-THE-QUEUE}}), or attach by openwire://, which shows it"
)
_NO_NAME = (
    "in which queues they are can't be told: Classic lists no queues over AMQP, and these messages "
    "name none; they are read from the next dead letter of their queue on, or name the queue in "
    "intake.queues"
)


def _other_than(names: dict[str, None], final_suffix: str) -> str:
    """Return the selector of messages that died, or lie, elsewhere.

    Source: ActiveMQ Classic, PropertyExpression: `JMSDestination` of a dead letter is its origin.
    """
    parts = [f"JMSDestination NOT LIKE {_quoted('queue://%' + final_suffix)}"]
    if names:
        parts.append(f"JMSDestination NOT IN ({', '.join(map(_quoted, names))})")
    return " AND ".join(parts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _destination_of(message: bytes) -> Destination | None:
    try:
        return named_destination(take_apart(message))
    except UndecodableMessage:
        return None
