"""The link to ActiveMQ Classic over OpenWire.

What it rests on (measured on 5.18.3 and 6.3.1): acks and sends of one local transaction are atomic;
after a rollback the messages stay dispatched and can be acked again; a command that fails without
having asked for an answer marks its transaction as rollback-only; the broker admits one connection
per client id, and releases the id only after it has rolled back what that connection left open.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from amqsidecar.broker import (
    FINAL_SUFFIX,
    BrokerDescription,
    BrokerKind,
    Delivery,
    Features,
    ForeignToken,
    IntakeQueue,
    LeftBehind,
    Resend,
)
from amqsidecar.brokers.classic.room import Rooms
from amqsidecar.brokers.classic.statistics import ClassicCounters
from amqsidecar.brokers.classic.wildcards import WildcardIntake
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.waker import Waker
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.brokers.openwire.consumers import OpenWireConsumers, ack_fields, runs
from amqsidecar.brokers.openwire.deaths import Deaths
from amqsidecar.brokers.openwire.foreign_tokens import foreign_tokens
from amqsidecar.brokers.openwire.queues import OpenWireQueueWatch, is_wildcard
from amqsidecar.brokers.openwire.room import takes
from amqsidecar.brokers.openwire.statistics import OpenWireStatistics
from amqsidecar.brokers.openwire.token import OpenWireTokenQueue
from amqsidecar.brokers.openwire.trials import OpenWireTrials
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import (
    BrokerRefused,
    CommitRefused,
    LinkLost,
    SendsRefused,
    UndecodableMessage,
)
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.classic_persistence import KeepsNonPersistent, always_keeps
from amqsidecar.formats.openwire_dead_letter import read_dead_letter
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.outcome import Counters

_TOKEN_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_BROWSED_BYTES_MAX = 128 * 1024 * 1024
_COUNT_MAX = 400
# Why: room for what the broker adds around a message when it hands it on.
_FRAME_BYTES_SPARE = 4096


class OpenWireLink:
    """One connection to one Classic broker; the contract is `broker.Link`.

    `rooms` outlives links.
    """

    description: BrokerDescription

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        final_suffix: str = FINAL_SUFFIX,
        keeps_non_persistent: KeepsNonPersistent = always_keeps,
        rooms: Rooms | None = None,
        crash_point: CrashPoint = no_crash,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._rooms = Rooms() if rooms is None else rooms
        self._sending: Sequence[Resend] = ()
        self._client_id = f"amqsidecar-{instance}"
        self._crash_point = crash_point
        self._final_suffix = final_suffix
        self._keeps_non_persistent = keeps_non_persistent
        self._waker: Waker | None = None
        self._connection: OpenWireConnection | None = None
        self._transaction_count = 0
        self._is_committing = False
        self._begin_next: Callable[[], None] = lambda: None
        self._begun: tuple[Sequence[Resend], bytes, dict[int, str]] | None = None
        self._token_queue: Destination | None = None
        self._token_or_none: OpenWireTokenQueue | None = None
        self._deaths: Deaths | None = None
        self._counters: ClassicCounters | None = None

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(background=self, deaths=self, listing=self)

    def open(self, token_queue: str | None) -> None:
        """Connect, log in as the only connection of this instance, and ask for the token.

        Without a token queue the client id is another one each time, so that it keeps nobody out.

        Raises:
            LinkLost: the broker can't be reached, or another connection of this instance is open.
            BrokerRefused: credentials, permissions or the OpenWire version.
        """
        self.close()
        self._waker = Waker()
        self._token_queue = None if token_queue is None else queue(token_queue)
        connection = OpenWireConnection(self._endpoint, self._clock, self._waker)
        self._connection = connection
        connection.silence.ask = self._find_full
        try:
            connection.open()
            self._log_in(connection)
        except CommandRefused as cause:
            self.close()
            raise BrokerRefused(f"{connection.name} refused: {cause}") from cause
        except (LinkLost, BrokerRefused):
            self.close()
            raise
        if connection.is_artemis:
            self.close()
            raise BrokerRefused(
                f"{connection.name} is Apache Artemis, and openwire:// is for Classic: write "
                "amqp:// into broker.url"
            )
        version = connection.wire_format.provider_version
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, codec.ENCODING)

    def _log_in(self, connection: OpenWireConnection) -> None:
        name = connection.connection
        try:
            info = codec.connection_info(
                name, self._own_id(), self._endpoint.user, self._endpoint.password
            )
            connection.call(codec.CONNECTION_INFO, info)
        except CommandRefused as cause:
            if cause.reason.kind.endswith("InvalidClientIDException"):
                raise LinkLost(
                    f"another connection of this instance is still open: {cause}"
                ) from cause
            raise
        self._connection_field = codec.connection_id(name)
        connection.call(codec.SESSION_INFO, codec.session_id(name, 1))
        self._encoder = OpenWireResendEncoder(name, self._keeps_non_persistent)
        self._consumers = OpenWireConsumers(connection, self._clock)
        self._queues = OpenWireQueueWatch(connection, self._consumers, self._final_suffix)
        self._intake = WildcardIntake(
            self._queues,
            self._token_queue,
            CommandRefused,
            read_from=self._consumers.read_from,
            drop=self._consumers.drop,
        )
        self._token_or_none = self._deaths = self._counters = None
        if self._token_queue is None:
            return
        connection.call(codec.PRODUCER_INFO, codec.producer_info(codec.producer_id(name, 1, 1)))
        self._token_or_none = OpenWireTokenQueue(
            self._token_queue, connection, self._consumers, self._encoder, self._clock
        )

    def _own_id(self) -> str:
        if self._token_queue is not None:
            return self._client_id
        return f"{self._client_id}-looks-{secrets.token_hex(6)}"

    @property
    def _token(self) -> OpenWireTokenQueue:
        if self._token_or_none is None:
            raise LinkLost("the link was opened only to look")
        return self._token_or_none

    def close(self) -> None:
        """Give everything back uncounted and disconnect; never raises, safe to call twice."""
        self._begun = None
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(LinkLost):
                # Why: it removes session and consumers as well, none of whose messages count as
                # delivered; with its answer the client id is free again.
                info = codec.remove_info(codec.connection_id(connection.connection))
                connection.answers([connection.ask(codec.REMOVE_INFO, info)], _CLOSE_TIMEOUT_S)
                connection.send(codec.SHUTDOWN_INFO, b"")
                connection.flush()
            connection.close()
        if self._waker is not None:
            self._waker.close()

    def _live(self) -> OpenWireConnection:
        if self._connection is None:
            raise LinkLost("the link is not open")
        return self._connection

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues and no others; what was returned from others stays valid.

        A wildcard stands for all queues that it matches, now and later, but for those that the
        sidecar itself writes to, and those that can't be read: `left_behind` tells these.

        Raises:
            QueueRefused: a named one can't be read, or a wildcard can't be expanded.
        """
        self._live()
        assert self._token_queue is not None, "a link that only looks takes nothing"  # noqa: S101
        finals = frozenset(intake.destination for intake in queues if intake.is_final)
        self._queues.taken_back = finals
        self._intake.attach([intake.destination for intake in queues], prefetch)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return queues that a wildcard stands for and that can't be read."""
        self._live()
        return self._intake.left_behind()

    def _route(self) -> None:
        self._consumers.route()
        self._intake.follow()

    def queue_names(self) -> tuple[str, ...]:
        """Return the names of all queues of the broker but ours; a change is told from now on.

        Raises:
            DiscoveryRefused: the broker does not report them.
            LinkLost: the connection is gone.
        """
        self._live()
        return self._intake.names()

    def queues_changed(self) -> bool:
        """Return whether a look may find others than the last one; wildcards need none."""
        self._live()
        return self._intake.has_changed()

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        self._live()
        return self._consumers.read

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link listened, so that all in it is new."""
        return self._queues.is_newborn(destination.name)

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before, in order; never blocks.

        Raises:
            LinkLost: the connection is gone.
        """
        self._live().poll()
        self._route()
        return self._consumers.receive(limit)

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over.

        Raises:
            LinkLost: the connection is gone.
        """
        connection = self._live()
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._route()
            if self._consumers.has_arrived or connection.is_woken:
                connection.is_woken = False
                return
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            connection.wait(left_s)

    def wake(self) -> None:
        """End a running or the next `wait` at once; for any thread."""
        if self._waker is not None:
            self._waker.wake()

    def take_token(self, timeout_s: float) -> int | None:
        """Return the cycle number of the token once the broker hands it over; None = not in time.

        Raises:
            LinkLost: the connection is gone.
        """
        self._live()
        token = self._token.take(timeout_s)
        return None if token is None else token[0]

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not.

        It is certain: the client id keeps every other connection of the instance out, and whatever
        an earlier one left open was rolled back before the broker let us in.
        """
        self._live()
        return self._token.exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.
        """
        self._live()
        try:
            self._token.create(cycle)
        except CommandRefused as cause:
            raise BrokerRefused(f"can't write to {self._token_queue}: {cause}") from cause

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened.

        Raises:
            LinkLost: the connection is gone.
        """
        self.abandon_sends()
        connection = self._live()
        if self._is_committing:
            self._sending = [*self._sending, *sends]
        else:
            self._sending = sends
            connection.last_error = None
        refusals: dict[int, str] = {}
        transaction = self._begin()
        self._put_sends(transaction, sends, refusals)
        self._begun = (sends, transaction, refusals)
        connection.flush()

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun.

        Raises:
            LinkLost: the connection is gone, and with it what was begun.
        """
        begun, self._begun = self._begun, None
        if begun is not None and self._connection is not None:
            self._end(begun[1], codec.ROLLBACK)

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        """Call this in each `commit_cycle`, once the broker was asked to commit."""
        self._begin_next = begin_next

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, and exchange the token in one local transaction; durable when it returns.

        If the process dies inside, either all of it happened and the token is `token`, or none.

        Raises:
            SendsRefused: nothing happened; the deliveries are still in hand.
            CommitRefused: as above.
            LinkLost: unknown whether it happened; the token will tell.
        """
        connection = self._live()
        held = self._token.take(_TOKEN_TIMEOUT_S)
        if held is None:
            raise LinkLost(f"{connection.name} did not hand over the token of the last cycle")
        handles = self._consumers.in_hand(accepts)
        if self._begun is None or self._begun[0] is not sends:
            self.begin_sends(sends)
        assert self._begun is not None  # noqa: S101 - the line above has set it
        _, transaction, refusals = self._begun
        self._begun = None
        for first, last in runs(handles):
            connection.send(codec.MESSAGE_ACK, ack_fields(transaction, first, last))
        self._token.put_exchange(transaction, held[1], token)
        if refusals:
            self._end(transaction, codec.ROLLBACK)
            raise SendsRefused(refusals)
        reason = self._commit(transaction)
        if reason is not None:
            # Why: the broker has rolled back already, or does so now.
            self._end(transaction, codec.ROLLBACK)
            raise self._refusal(sends, connection.last_error or reason)
        self._sending = () if self._begun is None else self._begun[0]
        self._token.exchanged()
        self._consumers.settled(handles)

    def _begin(self) -> bytes:
        connection = self._live()
        self._transaction_count += 1
        transaction = codec.transaction_id(connection.connection, self._transaction_count)
        info = codec.transaction_info(self._connection_field, transaction, codec.BEGIN)
        connection.send(codec.TRANSACTION_INFO, info)
        return transaction

    def _commit(self, transaction: bytes) -> codec.Throwable | None:
        connection = self._live()
        connection.flush()
        self._crash_point("sent")
        number = self._ask_to_end(transaction, codec.COMMIT_ONE_PHASE)
        connection.flush()
        self._crash_point("committing")
        self._is_committing = True
        try:
            self._begin_next()
        finally:
            self._is_committing = False
        return connection.answers([number])[0]

    def _end(self, transaction: bytes, operation: int) -> codec.Throwable | None:
        number = self._ask_to_end(transaction, operation)
        return self._live().answers([number])[0]

    def _ask_to_end(self, transaction: bytes, operation: int) -> int:
        info = codec.transaction_info(self._connection_field, transaction, operation)
        return self._live().ask(codec.TRANSACTION_INFO, info)

    def _put_sends(
        self,
        transaction: bytes,
        sends: Sequence[Resend],
        refusals: dict[int, str],
        *,
        answer: bool = False,
    ) -> list[int]:
        """Put the sends, note those that can't be sent at all, and return their command ids."""
        connection = self._live()
        frame_bytes_max = connection.wire_format.frame_bytes_max - _FRAME_BYTES_SPARE
        now_ms = self._clock.now_ms()
        numbers = []
        for index, resend in enumerate(sends):
            number = connection.next_number()
            try:
                frame = self._encoder.resend(resend, transaction, now_ms, number, answer=answer)
            except UndecodableMessage as cause:
                refusals[index] = str(cause)
                continue
            if len(frame) > frame_bytes_max:
                refusals[index] = (
                    f"a frame of {len(frame)} bytes is more than the {frame_bytes_max} bytes that"
                    " the broker takes (wireFormat.maxFrameSize of its OpenWire connector)"
                )
                continue
            if answer:
                connection.expect(number)
                numbers.append(number)
            connection.put(frame)
        return numbers

    def _refusal(
        self, sends: Sequence[Resend], reason: codec.Throwable
    ) -> SendsRefused | CommitRefused:
        """Find out which sends the broker refuses, by sending them again and rolling back."""
        transaction = self._begin()
        numbers = self._put_sends(transaction, sends, {}, answer=True)
        answers = self._live().answers(numbers)
        self._end(transaction, codec.ROLLBACK)
        refusals = {index: str(answer) for index, answer in enumerate(answers) if answer}
        return SendsRefused(refusals) if refusals else CommitRefused(str(reason))

    def _find_full(self) -> None:
        if self._connection is not None:  # else it is being closed
            self._rooms.give_up(self._connection, self._sending, self._takes, self._token_queue)

    def _takes(self, destination: Destination) -> bool:
        return takes(self._endpoint, self._clock, destination)

    def route_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost, or hold us up; Classic creates every lasting one.

        Classic refuses what is sent to a temporary one whose owner is gone.

        Source: AbstractRegion.addDestination, DestinationDoesNotExistException.
        """
        return self._rooms.problem(destination, self._takes)

    def ask_routes_ahead(self, destinations: Sequence[Destination]) -> None:
        """Do nothing: no answer of `route_problem` needs the broker's."""

    def resend_problem(self, destination: Destination) -> str | None:
        """Return None: what else Classic does follows from its rules."""
        return None

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return nothing: OpenWire does not report which queues are dead-letter queues."""
        return ()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        self._live()
        try:
            return self._consumers.count(queue.destination, max(1, min(at_most, _COUNT_MAX)))
        except CommandRefused as cause:
            raise BrokerRefused(f"can't browse {queue.destination}: {cause}") from cause

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return what lies in a dead-letter queue; a browser ends at `maxBrowsePageSize`, or 400.

        Raises:
            BrokerRefused: the user may not read it.
            LinkLost: the connection is gone.
        """
        self._live()
        try:
            sources = self._queues.existing(queue.destination)
        except CommandRefused as cause:
            if is_wildcard(queue.destination.name):
                raise BrokerRefused(
                    f"can't find out which queues {queue.destination} stands for: {cause}; allow "
                    "the user to read and admin (create) topic ActiveMQ.Advisory.>"
                ) from cause
            sources = [queue.destination]
        found = []
        held_bytes = 0
        for source in sources:
            try:
                messages = self._consumers.browse(source, at_most)
            except CommandRefused as cause:
                raise BrokerRefused(f"can't browse {source}: {cause}") from cause
            now_ms = self._clock.now_ms()
            for message in messages:
                held_bytes += len(message)
                # Why: each queue of a wildcard shows as many bytes as one alone may.
                kept = message if held_bytes <= _BROWSED_BYTES_MAX else b""
                provenance = read_dead_letter(message, source, now_ms)[0]
                found.append(Delivery(None, source, kept, provenance))
        return found

    def listen(self) -> None:
        """Begin to hear of deaths by the broker's advisories; safe to call twice.

        Raises:
            BrokerRefused: the user may not read them.
            LinkLost: the connection is gone.
        """
        connection = self._live()
        if self._deaths is not None:
            return
        try:
            self._deaths = Deaths(connection, self._consumers, self._clock)
        except CommandRefused as cause:
            raise BrokerRefused(
                f"can't hear of deaths: {cause}; allow the user to read and admin (create) topic "
                "ActiveMQ.Advisory.>"
            ) from cause

    def heard(self) -> list[Delivery]:
        """Return what died since the last call, in order; never blocks.

        Raises:
            LinkLost: the connection is gone.
        """
        self._live().poll()
        self._consumers.route()
        return [] if self._deaths is None else self._deaths.take()

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of these queues; for a link that only looks."""
        connection = self._live()
        if self._counters is None:
            statistics = OpenWireStatistics(connection, self._consumers, self._encoder, self._clock)
            self._counters = ClassicCounters(
                statistics.ask, lambda one, at_most: self.count(IntakeQueue(one), at_most)
            )
        return self._counters.of(destinations)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name.

        Raises:
            BrokerRefused: the user may not look at them.
            LinkLost: the connection is gone.
        """
        self._live()
        try:
            return foreign_tokens(self._consumers, known)
        except CommandRefused as cause:
            raise BrokerRefused(f"can't look for other sidecars' tokens: {cause}") from cause

    def trials(self) -> OpenWireTrials:
        """Return what tries the user's rights over this connection."""
        return OpenWireTrials(
            self._live(),
            self._consumers,
            self._encoder,
            self._queues,
            self._clock,
            self._token_queue,
        )

    def prepare_final(self, destination: Destination) -> str | None:
        """Return None: Classic creates a queue on the first send and keeps what is sent there."""
        return None
