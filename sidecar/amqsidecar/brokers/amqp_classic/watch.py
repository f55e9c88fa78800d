"""The dead-letter queues of a wildcard, over AMQP, where Classic lists no queues.

Names come from three sources: the `to` of messages that a wildcard browser sees; the topic of the
advisory that the broker sends for each dead letter, which ends in the name of its origin; and the
rules, which go from the origin's name to that of its dead-letter queue. A queue in which lie only
messages without a `to`, made by AMQP clients other than JMS, and dead before we listened, is found
at its next dead letter.

Source: ActiveMQ Classic, AdvisorySupport.getMessageDLQdAdvisoryTopic.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from amqsidecar.brokers.amqp.browser import Browser
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.classic.queues import is_ours, pattern_of
from amqsidecar.brokers.selectors import quoted
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.errors import BrokerRefused, QueueRefused, UndecodableMessage
from amqsidecar.formats.amqp_classic_message import named_destination, take_apart
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.left_behind import LeftBehind

_TOPICS = "topic://ActiveMQ.Advisory.MessageDLQd.Queue."
_CREDIT = 1000

_log = logging.getLogger(__name__)


class DeathAdvisories:
    """Hears where messages die, once it has begun to listen and where the user may."""

    def __init__(
        self,
        connection: AmqpConnection,
        destination_of: Callable[[bytes], Destination | None],
    ) -> None:
        self._connection = connection
        self._destination_of = destination_of
        # The last receiver listens unless it was refused; those before it were refused and close.
        self._receivers: list[Receiver] = []
        self._numbers = count(1)
        connection.parts.append(self)

    def listen(self) -> None:
        """Begin to listen, unless that is done; asks again where it was refused before."""
        if any(receiver.refusal is None for receiver in self._receivers[-1:]):
            return
        number = next(self._numbers)
        for closed in [one for one in self._receivers if one.is_closed]:
            self._receivers.remove(closed)
            closed.forget()
        receiver = Receiver(self._connection, f"amqsidecar-advisories-{number}", f"{_TOPICS}>")
        self._receivers.append(receiver)
        self._connection.run_until(lambda: receiver.is_answered)
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
        for receiver in self._receivers:
            receiver.close()

    @property
    def is_closed(self) -> bool:
        return all(receiver.is_closed for receiver in self._receivers)


# Bound: each look finds a new queue, or is the last; more queues are found at the next scan.
_LOOKS_MAX = 100
_SEEN_AT_ONCE = 200
# Bound: for queues whose messages no selector leaves out, such as those with other origins.
_SEEN_MAX = 20_000
# Bound: a selector is in one frame, of which Classic takes 131,072 bytes unless configured.
_SELECTOR_BYTES_MAX = 64 * 1024
_NAME_BYTES_MAX = 1000
# Bound: names that messages claim and that hold none of them; each costs a look.
_VAIN_MAX = 100


class ClassicWatch:
    """Expands wildcards, now and whenever something dies.

    Attributes:
        members: the queues that the wildcards stand for, with their origins.
        newborn: those of them in which nothing lay when we had looked at all there were.
        has_changed: there are more than before; the caller resets it.
    """

    def __init__(
        self,
        browser: Browser,
        names: DeadLetterNames,
        final_suffix: str,
    ) -> None:
        self.members: dict[Destination, Destination] = {}
        self.newborn: set[Destination] = set()
        self.has_changed = False
        self._browser = browser
        self._names = names
        self._final_suffix = final_suffix
        self._patterns: dict[Destination, re.Pattern[str]] = {}
        self._without_origin: dict[Destination, None] = {}
        self._unnamed: dict[Destination, int] = {}
        self._seen_all: set[Destination] = set()
        self._advisories = DeathAdvisories(browser.connection, _destination_of)

    def follow(self, wildcards: Sequence[Destination]) -> None:
        """Watch these wildcards from now on, and find the queues that they match.

        Raises:
            QueueRefused: a wildcard is none of the broker's, or its queues can't be browsed.
        """
        self._patterns = {wildcard: pattern_of(wildcard.name) for wildcard in wildcards}
        self._seen_all.intersection_update(wildcards)
        for member in [one for one in self.members if not self._matching(one)]:
            del self.members[member]
            self.newborn.discard(member)
        self._without_origin.clear()
        self._unnamed.clear()
        if wildcards:
            self._advisories.listen()
        for wildcard in wildcards:
            if self._scan_or_refuse(wildcard):
                self._seen_all.add(wildcard)

    def _matching(self, destination: Destination) -> list[Destination]:
        """Return the wildcards that stand for a queue."""
        return [one for one, words in self._patterns.items() if words.fullmatch(destination.name)]

    def _scan_or_refuse(self, wildcard: Destination) -> bool:
        try:
            return self._scan(wildcard)
        except BrokerRefused as refused:
            raise QueueRefused(wildcard.name, str(refused)) from refused

    def _scan(self, wildcard: Destination) -> bool:
        """Learn from the messages in the queues of a wildcard; return whether all were seen."""
        told_of = _ToldNames(self._patterns[wildcard])
        # Why: queues that are read already add nothing.
        for member in self.members.items():
            told_of.exclude(*map(str, member), bytes_max=_SELECTOR_BYTES_MAX // 2)
        at_most = _SEEN_AT_ONCE
        unnamed_max = 0
        for _ in range(_LOOKS_MAX):
            known = len(told_of.excluded)
            others = _other_than(told_of.excluded, self._final_suffix)
            found = list(self._browser.look(str(wildcard), at_most, others))
            unnamed = sum(not self._learn(_destination_of(one), told_of) for one in found)
            unnamed_max = max(unnamed_max, unnamed)
            if len(told_of.excluded) > known:
                continue
            if len(found) < at_most:
                break
            if at_most == _SEEN_MAX:
                unnamed_max = max(unnamed_max, 1)
                break
            at_most = _SEEN_MAX
        else:
            unnamed_max = max(unnamed_max, 1)
        if unnamed_max:
            self._unnamed[wildcard] = unnamed_max
        return not unnamed_max

    def _learn(self, told: Destination | None, told_of: "_ToldNames") -> bool:
        """Take note of the queue that a message names; return whether it is known now.

        Args:
            told: the dead-letter queue itself, or the origin where a producer has written it.
            told_of: what other messages of this wildcard have named.
        """
        if told is None or told.is_temporary or told in told_of.vain:
            return False
        dead_letter_queue: Destination | None = told
        if not told.is_queue or not told_of.pattern.fullmatch(told.name):
            dead_letter_queue = self._names.queue_for(told)
        if dead_letter_queue is None or not told_of.pattern.fullmatch(dead_letter_queue.name):
            told_of.exclude(str(told))
            return False
        if dead_letter_queue in self.members or dead_letter_queue in self._without_origin:
            told_of.exclude(str(told), str(self.members.get(dead_letter_queue, told)))
            return True
        if is_ours(dead_letter_queue.name, self._final_suffix):
            return True
        origin = self._names.origin_of(dead_letter_queue)
        if origin is None:
            self._without_origin[dead_letter_queue] = None
        elif self._holds(dead_letter_queue, origin, told_of):
            told_of.exclude(str(dead_letter_queue), str(origin))
            self._add(dead_letter_queue, origin)
        else:
            told_of.vain.add(told)
            return False
        told_of.exclude(str(told))
        return True

    def _holds(
        self, dead_letter_queue: Destination, origin: Destination, told_of: "_ToldNames"
    ) -> bool:
        """Return whether a queue holds what it should: a producer may write anything into `to`.

        Reading a queue creates it, so a producer of many names could make it create many.
        """
        if len(told_of.vain) >= _VAIN_MAX:
            return False
        selector = f"JMSDestination IN ({quoted(str(dead_letter_queue))}, {quoted(str(origin))})"
        # Why: a wildcard makes no queue; this one matches the queue itself and those below it.
        return any(self._browser.look(f"{dead_letter_queue}.>", 1, selector))

    def _add(self, dead_letter_queue: Destination, origin: Destination) -> None:
        if dead_letter_queue not in self.members:
            self.members[dead_letter_queue] = origin
            self.has_changed = True
            if not self._seen_all.isdisjoint(self._matching(dead_letter_queue)):
                self.newborn.add(dead_letter_queue)

    def hear(self) -> None:
        """Record the deaths since the last call; never blocks."""
        for origin in self._advisories.take():
            self._hear_of(origin)

    def _hear_of(self, origin: Destination) -> None:
        dead_letter_queue = self._names.queue_for(origin)
        if (
            dead_letter_queue is not None
            and dead_letter_queue not in self.members
            and not is_ours(dead_letter_queue.name, self._final_suffix)
            and self._matching(dead_letter_queue)
        ):
            self._add(dead_letter_queue, origin)

    @property
    def has_arrived(self) -> bool:
        """Whether something waits to be heard."""
        return self._advisories.has_arrived

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


NO_ORIGIN = (
    "{} can't be read over AMQP, because neither its messages nor its name show where they died: "
    "give each queue a dead-letter queue of its own in activemq.xml (<policyEntry "
    'queue=">"><deadLetterStrategy><individualDeadLetterStrategy '
    'queuePrefix="DLQ."/></deadLetterStrategy></policyEntry>) and name that file in '
    "policy.source, or say where they died (intake.origin: {{{}: NAME-OF-THE-QUEUE}}), or attach "
    "by openwire://, which shows it"
)
_NO_NAME = (
    "the queues that hold them are unknown: Classic lists no queues over AMQP, and these messages "
    "name none; they are read from the next dead letter of their queue on, or name the queue in "
    "intake.queues"
)


class _ToldNames:
    """The names in the messages of one wildcard, over one scan.

    Attributes:
        excluded: destinations whose messages add nothing.
        vain: what messages claim, and what holds none of them.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.excluded: dict[str, None] = {}
        self.vain: set[Destination] = set()
        self._bytes = 0

    def exclude(self, *names: str, bytes_max: int = _SELECTOR_BYTES_MAX) -> None:
        """Leave the messages of these destinations out from now on, while the selector has room."""
        for name in names:
            size = len(quoted(name).encode()) + len(", ")
            if name not in self.excluded and self._bytes + size <= bytes_max:
                self.excluded[name] = None
                self._bytes += size


def _other_than(names: dict[str, None], final_suffix: str) -> str:
    """Return the selector of messages that died, or lie, elsewhere.

    Source: ActiveMQ Classic, PropertyExpression: `JMSDestination` of a dead letter is its origin.
    """
    parts = [f"JMSDestination NOT LIKE {quoted('queue://%' + final_suffix)}"]
    if names:
        parts.append(f"JMSDestination NOT IN ({', '.join(map(quoted, names))})")
    return " AND ".join(parts)


def _destination_of(message: bytes) -> Destination | None:
    try:
        told = named_destination(take_apart(message))
    except UndecodableMessage:
        return None
    is_name = told is not None and len(told.name.encode()) <= _NAME_BYTES_MAX
    return told if is_name else None
