"""Dead letters in hand over STOMP on Artemis: subscriptions, window, and what is left behind.

- Never NACK: it is an ACK here. What is not accepted stays in hand until its subscription ends,
  and UNSUBSCRIBE gives it back without counting a failed delivery, at its old place.
- Of a connection that is lost only the first message in hand of each subscription is counted.
- The broker bounds what it hands over by bytes (`consumer-window-size`), not by number; what comes
  beyond the prefetch is kept here and not returned.
- A queue that is read for the first time is tried on a connection of its own: whom the broker
  refuses, it disconnects.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import count

from amqsidecar.broker import Delivery, IntakeQueue, LeftBehind, Loss
from amqsidecar.brokers.amqp_message import OriginReader
from amqsidecar.brokers.artemis_management import ArtemisQuestions, Question
from amqsidecar.brokers.stomp_artemis_ask import call
from amqsidecar.brokers.stomp_artemis_message import (
    Arrived,
    has_odd_names,
    read_frame,
    read_provenance,
)
from amqsidecar.brokers.stomp_artemis_selection import (
    MADE_BY_OTHERS,
    MADE_BY_STOMP,
    MEANINGS,
    UNSEEN,
    Listed,
    only,
    read_list,
    without,
)
from amqsidecar.brokers.stomp_artemis_token import Accepted
from amqsidecar.brokers.stomp_connection import Refused, StompConnection, error_text
from amqsidecar.brokers.stomp_frame import Frame, Header
from amqsidecar.clock import Clock
from amqsidecar.errors import LinkLost, QueueRefused

_LOOK_EVERY_S = 1.0
_LOOK_PAUSES = 20
_FETCH_MAX = 100
_FETCH_LOOKS_MAX = 3
_LEFT_MAX = 2000
_BYTES_EACH = 1024
_WINDOW_BYTES_MIN = 4 << 10
_WINDOW_BYTES_MAX = 4 << 20
_CARRIED_MAX = 4000
_NAME = "in-"


class InHand:
    """A dead letter in hand."""

    __slots__ = ("arrived", "reading")

    def __init__(self, arrived: Arrived, reading: "Reading") -> None:
        self.arrived = arrived
        self.reading = reading


class Reading:
    """One subscription.

    Attributes:
        id: of the subscription.
        queue: that it reads.
        wanted: the messages that it fetches by number; None = all that STOMP made.
        in_hand: how many were returned and are not accepted yet.
        looks: how often it was found idle without a break.
        is_retired: it ends once nothing of it is in hand.
    """

    def __init__(
        self, name: str, queue: IntakeQueue, wanted: dict[int, Listed] | None = None
    ) -> None:
        self.id = name
        self.queue = queue
        self.wanted = wanted
        self.in_hand = 0
        self.looks = 0
        self.is_retired = False


class Intake:
    """All subscriptions of dead-letter queues of one connection."""

    def __init__(
        self,
        connection: StompConnection,
        connect: Callable[[], StompConnection],
        management: ArtemisQuestions,
        clock: Clock,
        allowed: Collection[Loss],
    ) -> None:
        self._connection = connection
        self._connect = connect
        self._management = management
        self._clock = clock
        self._allowed = allowed
        self._numbers = count(1)
        self._readings: dict[str, Reading] = {}
        self._buffer: deque[InHand] = deque()
        self._returned: set[InHand] = set()
        self._prefetch = 0
        self._share = 0
        self._look_at_s = 0.0
        self._left: dict[str, dict[int, str]] = {}
        self._unseen: dict[str, int] = {}
        self._excluded: dict[str, list[int]] = {}
        self._suspects: dict[str, set[int]] = {}
        self._silenced: list[tuple[str, int]] = []
        connection.is_ours = self._is_ours

    def _is_ours(self, frame: Frame) -> bool:
        # Why those of ended ones too: what was under way when a subscription ended comes late. The
        # broker has it back then, and `_sort` drops it.
        return frame.text(b"subscription").startswith(_NAME)

    # Which queues

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these.

        Raises:
            QueueRefused: one can't be read; it is named.
            LinkLost: the connection is gone.
        """
        self._connection.poll()
        known = {one.queue for one in self._live() if one.wanted is None}
        self._prefetch = prefetch
        self._share = max(1, prefetch // max(1, len(queues)))
        for queue in queues:
            if queue not in known:
                self._try(queue)
        for reading in self._live():
            if reading.queue not in queues:
                self._retire(reading)
        for queue in queues:
            if queue not in known:
                self._read(queue)
        self._connection.flush()

    def _live(self) -> list[Reading]:
        return [one for one in self._readings.values() if not one.is_retired]

    def _try(self, queue: IntakeQueue) -> None:
        trial = self._connect()
        try:
            call(trial, "SUBSCRIBE", self._headers(queue, "trial", "1 = 0"))
            trial.send("UNSUBSCRIBE", [(b"id", b"trial")])
            trial.disconnect(2.0)
        except (Refused, LinkLost) as refused:
            # Why: the ERROR that refuses a subscription does not always name its receipt.
            if isinstance(refused, LinkLost) and not trial.errors:
                raise
            words = error_text(trial.errors[-1]) if trial.errors else str(refused)
            name = queue.destination.name
            raise QueueRefused(name, f"queue {name} can't be read: {words}") from refused
        finally:
            trial.close()

    def _headers(self, queue: IntakeQueue, name: str, selector: str) -> list[Header]:
        window = min(max(self._share * _BYTES_EACH, _WINDOW_BYTES_MIN), _WINDOW_BYTES_MAX)
        kind: list[Header] = [(b"subscription-type", b"ANYCAST")]
        if "::" in queue.destination.name:
            # Why: another type than that of the queue would be added to its address.
            address, _, own = queue.destination.name.partition("::")
            rows = [row for row in self._management.queues(address=address) if row.name == own]
            is_anycast = any(row.is_anycast for row in rows)
            kind = kind if is_anycast else [(b"subscription-type", b"MULTICAST")]
        return [
            (b"destination", queue.destination.name.encode()),
            *kind,
            (b"id", name.encode()),
            (b"ack", b"client-individual"),
            (b"selector", selector.encode()),
            (b"consumer-window-size", b"%d" % window),
        ]

    def _read(self, queue: IntakeQueue) -> None:
        selector, _ = without(MADE_BY_STOMP, self._excluded.get(queue.destination.name, ()))
        self._subscribe(Reading(f"{_NAME}{next(self._numbers)}", queue), selector)

    def _subscribe(self, reading: Reading, selector: str) -> None:
        self._readings[reading.id] = reading
        headers = self._headers(reading.queue, reading.id, selector)
        self._connection.send("SUBSCRIBE", headers)

    def _retire(self, reading: Reading) -> None:
        reading.is_retired = True
        self._buffer = deque(one for one in self._buffer if one.reading is not reading)
        self._end_if_empty(reading)

    def _end_if_empty(self, reading: Reading) -> None:
        if reading.is_retired and not reading.in_hand and reading.id in self._readings:
            del self._readings[reading.id]
            self._connection.send("UNSUBSCRIBE", [(b"id", reading.id.encode())])

    # What arrives

    @property
    def has_arrived(self) -> bool:
        """Whether `receive` would return something."""
        self._sort()
        return bool(self._buffer) and len(self._returned) < self._prefetch

    def receive(self, limit: int, read_origin: OriginReader) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks.

        Raises:
            LinkLost: the connection is gone.
        """
        self._connection.poll()
        self._sort()
        self._connection.flush()
        deliveries: list[Delivery] = []
        room = min(limit, self._prefetch - len(self._returned))
        while self._buffer and len(deliveries) < room:
            in_hand = self._buffer.popleft()
            self._returned.add(in_hand)
            in_hand.reading.in_hand += 1
            queue = in_hand.reading.queue
            arrived = in_hand.arrived
            provenance = read_provenance(
                arrived.headers, arrived.number, expires=queue.expires, read_origin=read_origin
            )
            deliveries.append(Delivery(in_hand, queue.destination, arrived.message, provenance))
        return deliveries

    def _sort(self) -> None:
        connection = self._connection
        if connection.errors:
            words = error_text(connection.errors.popleft())
            connection.close()
            raise LinkLost(f"the broker ended the connection of the dead letters: {words}")
        while connection.messages:
            frame = connection.messages.popleft()
            reading = self._readings.get(frame.text(b"subscription"))
            if reading is None or reading.is_retired:
                continue
            arrived = read_frame(frame)
            name = reading.queue.destination.name
            if arrived.number in self._suspects.get(name, ()):
                # A cycle before a crash has accepted it, and could not say so any more.
                connection.send("ACK", [(b"id", arrived.ack)])
                self._silenced.append((name, arrived.number))
                if reading.wanted is not None:
                    reading.wanted.pop(arrived.number, None)
            elif self._is_whole(reading, arrived):
                self._buffer.append(InHand(self._named(reading, arrived), reading))

    def _is_whole(self, reading: Reading, arrived: Arrived) -> bool:
        """Tell whether a message can be returned; else it waits until its subscription ends."""
        if reading.wanted is None:
            if not any(name == b"NATIVE_MESSAGE_ID" for name, _ in arrived.headers):
                return True
            # Why: an AMQP client named a property `destination`, which a selector takes for ours.
            self._exclude(reading, arrived)
            return False
        listed = reading.wanted.get(arrived.number)
        if listed is None:
            return False
        is_whole = not has_odd_names(arrived.headers) and (
            arrived.is_bytes
            or (b"\0" not in arrived.body and (arrived.body or Loss.BODY_TYPE in self._allowed))
        )
        if is_whole:
            return True
        del reading.wanted[arrived.number]
        self._leave(reading.queue.destination.name, listed, Loss.BODY_TYPE.value)
        return False

    def _exclude(self, reading: Reading, arrived: Arrived) -> None:
        original = dict(arrived.headers).get(b"_AMQ_ORIG_MESSAGE_ID", b"")
        if original.isdigit():
            excluded = self._excluded.setdefault(reading.queue.destination.name, [])
            excluded.append(int(original))
            self._retire(reading)
            self._read(reading.queue)

    @staticmethod
    def _named(reading: Reading, arrived: Arrived) -> Arrived:
        """Add the JMSMessageID, which only the management shows, to what it was fetched for."""
        listed = None if reading.wanted is None else reading.wanted.get(arrived.number)
        name = b"amqsidecarOriginalMessageId"
        if listed is None or not listed.message_id or name in dict(arrived.headers):
            return arrived
        headers = [*arrived.headers, (name, listed.message_id.encode())]
        return arrived._replace(headers=headers)

    # What is accepted

    def in_hand(self, deliveries: Sequence[Delivery]) -> list[InHand]:
        """Return what is in hand of these.

        Raises:
            LinkLost: one is not.
        """
        held = [one.handle for one in deliveries if isinstance(one.handle, InHand)]
        if len(held) < len(deliveries) or not all(one in self._returned for one in held):
            raise LinkLost("a delivery is not in hand any more")
        return held

    def accept(self, held: Sequence[InHand]) -> None:
        """Acknowledge these; durable when this returns.

        If the process dies inside, the broker has lost none, some or all of them; the token of the
        cycle names them all.

        Raises:
            LinkLost: the connection is gone.
        """
        self._acknowledge([one.arrived.ack for one in held])
        for one in held:
            self._returned.discard(one)
            one.reading.in_hand -= 1
            if one.reading.wanted is not None:
                one.reading.wanted.pop(one.arrived.number, None)
        for reading in {one.reading for one in held}:
            if reading.wanted is not None and not reading.wanted and not reading.is_retired:
                self._retire(reading)
                self._look_at_s = 0.0
            self._end_if_empty(reading)
        self._connection.flush()

    def _acknowledge(self, acks: Sequence[bytes]) -> None:
        if not acks:
            return
        for ack in acks[:-1]:
            self._connection.send("ACK", [(b"id", ack)])
        try:
            self._connection.call("ACK", [(b"id", acks[-1])])
        except Refused as refused:
            raise LinkLost(f"the broker lets us accept no dead letter: {refused}") from refused
        self._sort()

    # What a predecessor accepted

    def suspect(self, accepted: Accepted) -> None:
        """Acknowledge these when they come, instead of returning them."""
        self._suspects = {name: set(numbers) for name, numbers in accepted.items()}

    def accepted_with(self, held: Sequence[InHand]) -> Accepted:
        """Return what the next token names: these, and what may still come of earlier cycles."""
        if self._silenced:
            # Why a question: once it is answered, the broker has done what was sent before.
            self._connection.answers([self._connection.ask("BEGIN", [(b"transaction", b"sync")])])
            self._connection.send("ABORT", [(b"transaction", b"sync")])
            for name, number in self._silenced:
                self._suspects.get(name, set()).discard(number)
            self._silenced.clear()
        accepted: dict[str, set[int]] = {}
        room = _CARRIED_MAX
        for name, numbers in self._suspects.items():
            newest = sorted(numbers)[-room:] if room else []
            accepted[name] = set(newest)
            room -= len(newest)
        for one in held:
            name = one.reading.queue.destination.name
            accepted.setdefault(name, set()).add(one.arrived.number)
        return {name: frozenset(numbers) for name, numbers in accepted.items() if numbers}

    # What STOMP did not make

    def look(self) -> None:
        """Fetch what others made and is whole; asks the broker now and then only.

        Raises:
            LinkLost: the connection is gone.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._look_at_s or self._management.missing is not None:
            return
        fetching = {one.queue for one in self._live() if one.wanted}
        for reading in self._live():
            if reading.wanted is not None:
                self._age(reading)
            elif reading.wanted is None and reading.queue not in fetching:
                self._look_into(reading.queue)
        self._connection.flush()
        # Why: the broker goes through whole queues for it.
        ended_s = self._clock.monotonic_s()
        self._look_at_s = ended_s + max(_LOOK_EVERY_S, (ended_s - now_s) * _LOOK_PAUSES)

    def _age(self, reading: Reading) -> None:
        """End a fetch that has all, or whose rest does not come: others have taken it."""
        is_idle = not reading.in_hand and all(one.reading is not reading for one in self._buffer)
        reading.looks = reading.looks + 1 if is_idle else 0
        if not reading.wanted or reading.looks > _FETCH_LOOKS_MAX:
            self._retire(reading)

    def _look_into(self, queue: IntakeQueue) -> None:
        name = queue.destination.name
        left = self._left.setdefault(name, {})
        resource = f"queue.{name.rpartition('::')[2]}"
        counted = self._management.ask(Question(resource, "countMessages", (MADE_BY_OTHERS,)))
        if not counted.is_ok:
            return
        if not int(counted.value):
            self._clear_suspects(queue, 0, ())
            left.clear()
            self._unseen.pop(name, None)
            return
        if int(counted.value) < len(left):
            left.clear()
        selector, _ = without(MADE_BY_OTHERS, [original for original in left if original >= 0])
        answer = self._management.ask(Question(resource, "listMessagesAsJSON", (selector,)))
        if not answer.is_ok or not answer.value:
            return
        wanted: dict[int, Listed] = {}
        all_listed = read_list(answer.value, self._allowed)
        if len(all_listed) + len(left) == int(counted.value):
            numbers = [listed.number for listed in all_listed]
            self._clear_suspects(queue, int(counted.value), numbers)
        for listed in all_listed:
            if listed.loss:
                self._leave(name, listed, listed.loss)
            elif len(wanted) < min(_FETCH_MAX, self._share):
                wanted[listed.number] = listed
        self._unseen[name] = 0 if wanted else self._count_unseen(queue, int(counted.value))
        if wanted:
            originals = [one.original for one in wanted.values() if one.original is not None]
            self._subscribe(
                Reading(f"{_NAME}{next(self._numbers)}", queue, wanted), only(originals)
            )

    def _count_unseen(self, queue: IntakeQueue, counted: int) -> int:
        """Return how many messages the management does not look at.

        Quirk (Artemis): it counts and lists by a selector among the first 200 of a queue only,
        unless management-browse-page-size says otherwise.
        """
        name = queue.destination.name
        own = [one for one in (*self._returned, *self._buffer) if one.reading.queue == queue]
        if not self._left.get(name) or len(own) >= self._share:
            return 0
        total = self._management.message_count(name.rpartition("::")[2]) or 0
        return max(0, total - len(own) - counted)

    def _clear_suspects(
        self, queue: IntakeQueue, made_by_others: int, listed: Collection[int]
    ) -> None:
        """Forget what a predecessor accepted once all else of the queue is in our hand.

        Args:
            queue: to look at.
            made_by_others: how many of its messages STOMP did not make.
            listed: the numbers of these, but for what is left behind.
        """
        name = queue.destination.name
        if not self._suspects.get(name):
            return
        own = [one for one in (*self._returned, *self._buffer) if one.reading.queue == queue]
        known = sum(one.reading.wanted is None for one in own) + made_by_others
        if self._management.message_count(name.rpartition("::")[2]) == known:
            self._suspects[name].intersection_update(listed)

    def _leave(self, name: str, listed: Listed, loss: str) -> None:
        left = self._left.setdefault(name, {})
        if len(left) < _LEFT_MAX:
            left[-listed.number if listed.original is None else listed.original] = loss

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what is not taken of the attached queues, and why."""
        found: list[LeftBehind] = []
        for queue in [one.queue for one in self._live() if one.wanted is None]:
            if self._management.missing is not None:
                meaning = f"what other clients than STOMP made is not taken: {MEANINGS['unknown']}"
                missing = f"{meaning} ({self._management.missing})"
                found.append(LeftBehind(queue.destination, "body_type", 0, missing, at_least=True))
                continue
            reasons = list(self._left.get(queue.destination.name, {}).values())
            unseen = self._unseen.get(queue.destination.name, 0)
            if unseen:
                found.append(LeftBehind(queue.destination, UNSEEN, unseen, MEANINGS[UNSEEN]))
            found += [
                LeftBehind(
                    queue.destination,
                    reason,
                    reasons.count(reason),
                    MEANINGS[reason],
                    at_least=len(reasons) >= _LEFT_MAX,
                )
                for reason in sorted(set(reasons))
            ]
        return tuple(found)

    def close(self) -> None:
        """Give all in hand back and disconnect; never raises."""
        try:
            for reading in self._readings.values():
                self._connection.send("UNSUBSCRIBE", [(b"id", reading.id.encode())])
            self._connection.disconnect(2.0)
        except LinkLost:
            self._connection.close()
        self._readings.clear()
        self._buffer.clear()
