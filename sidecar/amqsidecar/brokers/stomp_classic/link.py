"""The link to ActiveMQ Classic over STOMP.

What it rests on (measured on 5.18.3 and 6.3.1): acks and sends of one transaction are atomic; after
ABORT the messages stay in hand and can be acked again, after a COMMIT that fails they can't; a send
that fails without having asked for a receipt makes COMMIT fail, and its ERROR comes at any time;
the broker admits one connection per client id.

NACK is never sent: on a dead-letter queue it destroys the message.
"""

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from amqsidecar.broker import (
    FINAL_SUFFIX,
    BrokerDescription,
    BrokerKind,
    Delivery,
    Features,
    ForeignToken,
    IntakeQueue,
    LeftBehind,
    Loss,
    Resend,
)
from amqsidecar.brokers.classic.queues import MENDS_ADVISORIES, is_wildcard
from amqsidecar.brokers.classic.room import Rooms
from amqsidecar.brokers.classic.statistics import ClassicCounters
from amqsidecar.brokers.classic.wildcards import WildcardIntake
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, error_text
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.bad_message_proof import breaks_connections
from amqsidecar.brokers.stomp_classic.bad_message_search import note_breakers
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.foreign_tokens import foreign_tokens
from amqsidecar.brokers.stomp_classic.intake import (
    IntakeLimits,
    QueueReader,
    RefusedQueue,
    StompClassicIntake,
    in_hand,
)
from amqsidecar.brokers.stomp_classic.left_behind import Leftovers
from amqsidecar.brokers.stomp_classic.queues import StompQueueWatch
from amqsidecar.brokers.stomp_classic.room import takes
from amqsidecar.brokers.stomp_classic.statistics import StompStatistics
from amqsidecar.brokers.stomp_classic.token import StompTokenQueue
from amqsidecar.brokers.stomp_classic.trials import StompClassicTrials
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import (
    BrokerRefused,
    CommitRefused,
    LinkLost,
    QueueRefused,
    SendsRefused,
    UndecodableMessage,
)
from amqsidecar.formats.classic_persistence import KeepsNonPersistent, always_keeps
from amqsidecar.formats.stomp_classic_message import (
    StompResendEncoder,
    provenance,
    read_destination,
    shown,
)
from amqsidecar.formats.stomp_frame import ENCODING, Header, first
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.outcome import Counters

_TOKEN_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_COUNT_MAX = 400
_PRODUCT = "ActiveMQ/"
# Why: Classic pages 200 messages at a time.
_BATCH = 200


class StompClassicLink:
    """One connection to one Classic broker; the contract is `broker.Link`.

    `allowed_losses` is what may get lost by taking a message. `unreadable` are the ids of messages
    whose frames broke a connection, with their queues; it and `rooms` outlive links and are added
    to.
    """

    description: BrokerDescription

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        instance: str,
        final_suffix: str = FINAL_SUFFIX,
        allowed_losses: frozenset[Loss] = frozenset(),
        unreadable: dict[str, str] | None = None,
        keeps_non_persistent: KeepsNonPersistent = always_keeps,
        rooms: Rooms | None = None,
        crash_point: CrashPoint = no_crash,
    ) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._rooms = Rooms() if rooms is None else rooms
        self._sending: Sequence[Resend] = ()
        self._client_id = f"amqsidecar-{instance}"
        self._final_suffix = final_suffix
        self._allowed_losses = allowed_losses
        self._unreadable = {} if unreadable is None else unreadable
        self._crash_point = crash_point
        self._connection: StompConnection | None = None
        self._transaction_count = 0
        self._begun: _Begun | None = None
        self._token_queue: Destination | None = None
        self._token_or_none: StompTokenQueue | None = None
        self._counters: ClassicCounters | None = None
        self._encoder = StompResendEncoder(keeps_non_persistent)

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(preferred_batch=_BATCH, listing=self)

    def open(self, token_queue: str | None) -> None:
        """Connect, log in as the only connection of this instance, and ask for the token.

        Without a token queue the client id is another one each time, so that it keeps nobody out.

        Raises:
            LinkLost: the broker can't be reached, or another connection of this instance is open.
            BrokerRefused: credentials, permissions or another product.
        """
        self.close()
        is_looking = token_queue is None
        self._token_queue = None if token_queue is None else queue(token_queue)
        own_id = self._client_id
        connection = StompConnection(
            self._endpoint,
            self._clock,
            client_id=f"{own_id}-looks-{secrets.token_hex(6)}" if is_looking else own_id,
        )
        try:
            connection.open()
        except BrokerRefused as cause:
            if "already connected" in str(cause):
                raise LinkLost(
                    f"another connection of this instance is still open: {cause}"
                ) from cause
            raise
        self._connection = connection
        connection.silence.ask = self._find_full
        try:
            self._set_up(connection)
        except BaseException as cause:
            self.close()
            if isinstance(cause, FrameRefused):
                raise BrokerRefused(f"{connection.name} refused: {cause}") from cause
            raise

    def _set_up(self, connection: StompConnection) -> None:
        if not connection.server.startswith(_PRODUCT):
            raise BrokerRefused(
                f"{connection.name} is {connection.server or 'an unknown product'}, not ActiveMQ "
                "Classic"
            )
        version = connection.server.removeprefix(_PRODUCT)
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, ENCODING)
        self._consumers = StompSubscriptions(connection, self._clock)
        self._queues = StompQueueWatch(connection, self._consumers, self._clock, self._final_suffix)
        rules = IntakeLimits(
            self._allowed_losses, dict(self._unreadable), _writes_modified_utf8(version)
        )
        self._rules = rules
        self._intake = StompClassicIntake(
            lambda destination: QueueReader(destination, self._consumers, self._clock, rules)
        )
        self._wildcards = WildcardIntake(
            self._queues,
            self._token_queue,
            FrameRefused,
            read_from=self._intake.read_from,
            drop=self._intake.drop,
        )
        self._left = Leftovers(self._consumers, rules)
        self._token_or_none = self._counters = None
        if self._token_queue is not None:
            self._token_or_none = StompTokenQueue(
                self._token_queue,
                connection,
                self._consumers,
                self._clock,
                selectors.readable(rules.unreadable_in(self._token_queue)),
            )

    @property
    def _token(self) -> StompTokenQueue:
        if self._token_or_none is None:
            raise LinkLost("the link was opened only to look")
        return self._token_or_none

    def close(self) -> None:
        """Give everything back and disconnect; never raises, safe to call twice.

        Quirk (Classic): the broker counts each message as redelivered; no limit of its looks at
        the count of a STOMP consumer, and it starts anew with every send.
        """
        self._begun = None
        connection, self._connection = self._connection, None
        if connection is not None:
            was_ended = connection.was_ended
            # Why: a body that goes on for too long shows itself by swallowing this answer.
            with suppress(LinkLost):
                connection.ask("BEGIN", [(b"transaction", b"goodbye")])
            connection.disconnect(_CLOSE_TIMEOUT_S)
            if connection.suspect is not None:
                self._note_suspect(connection)
            elif was_ended:
                note_breakers(
                    self._endpoint,
                    self._clock,
                    self._consumers.queues,
                    self._rules,
                    self._unreadable,
                )

    def _note_suspect(self, connection: StompConnection) -> None:
        assert connection.suspect is not None  # noqa: S101 - who calls has asked
        suspect = shown(connection.suspect)
        name = suspect.message_id.decode(errors="replace")
        source = read_destination(first(suspect.headers, b"destination") or b"")
        if source is not None and breaks_connections(self._endpoint, self._clock, source, name):
            self._unreadable[name] = source.name

    def _live(self) -> StompConnection:
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
        with _named_refusals():
            self._wildcards.attach([intake.destination for intake in queues], prefetch)

    def _route(self) -> None:
        self._consumers.route()
        if self._token_queue is None:
            return
        with _named_refusals():
            self._intake.mend()
            self._wildcards.follow()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what STOMP can't take, or read at all, of the intake; asks the broker."""
        self._live()
        try:
            return (*self._wildcards.left_behind(), *self._left.of(self._intake.readers))
        except FrameRefused as cause:
            raise BrokerRefused(f"can't count the messages left behind: {cause}") from cause

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of these queues; for a link that only looks."""
        connection = self._live()
        if self._counters is None:
            statistics = StompStatistics(connection, self._consumers, self._clock)
            # Why no browse: an application's body with a NUL in it would end the connection.
            self._counters = ClassicCounters(statistics.ask, lambda _, at_most: at_most)
        return self._counters.of(destinations)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name.

        Raises:
            BrokerRefused: the user may not look at them.
            LinkLost: the connection is gone.
        """
        connection = self._live()
        try:
            return foreign_tokens(connection, self._consumers, self._clock, known)
        except FrameRefused as cause:
            raise BrokerRefused(f"can't look for other sidecars' tokens: {cause}") from cause

    def trials(self) -> StompClassicTrials:
        """Return what tries the user's rights over this connection."""
        return StompClassicTrials(
            self._live(),
            self._consumers,
            self._queues,
            self._left,
            self._clock,
            self._token_queue,
        )

    def queue_names(self) -> tuple[str, ...]:
        """Return the names of all queues of the broker but ours; a change is told from now on.

        Raises:
            DiscoveryRefused: the broker does not report them.
            LinkLost: the connection is gone.
        """
        self._live()
        return self._wildcards.names()

    def queues_changed(self) -> bool:
        """Return whether a look may find others than the last one; wildcards need none."""
        self._live()
        return self._wildcards.has_changed()

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""
        self._live()
        return tuple(reader.destination for reader in self._intake.readers)

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link listened, so that all in it is new."""
        return self._queues.is_newborn(destination.name)

    def receive(self, limit: int) -> list[Delivery]:
        """Return what has arrived and was not returned before; in order for each origin.

        Raises:
            LinkLost: the connection is gone.
        """
        self._live().poll()
        self._route()
        with _named_refusals():
            return self._intake.receive(limit)

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over.

        Raises:
            LinkLost: the connection is gone.
        """
        connection = self._live()
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._route()
            if self._intake.has_arrived or connection.is_woken:
                connection.is_woken = False
                return
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            connection.wait(left_s)

    def wake(self) -> None:
        """End a running or the next `wait` at once; for any thread."""
        connection = self._connection
        if connection is not None:
            connection.wake()

    def take_token(self, timeout_s: float) -> int | None:
        """Return the cycle number of the token once the broker hands it over; None = not in time.

        Raises:
            LinkLost: the connection is gone.
        """
        self._live()
        try:
            token = self._token.take(timeout_s)
        except FrameRefused as cause:
            raise LinkLost(f"a token can't be removed: {cause}") from cause
        return None if token is None else token[0]

    def token_exists(self) -> bool | None:
        """Return whether the token queue holds a token, even in delivery; as the OpenWire link."""
        self._live()
        return self._token.exists()

    def create_token(self, cycle: int) -> None:
        """Put a first token into the token queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.
        """
        self._live()
        try:
            self._token.create(cycle)
        except FrameRefused as cause:
            raise BrokerRefused(f"can't write to {self._token_queue}: {cause}") from cause

    def begin_sends(self, sends: Sequence[Resend]) -> None:
        """Start the sends of the next transaction; if the process dies, nothing of it happened.

        Raises:
            LinkLost: the connection is gone.
        """
        self.abandon_sends()
        connection = self._live()
        self._sending = sends
        transaction = self._begin()
        self._begun = _Begun(sends, transaction, *self._put_sends(transaction, sends))
        connection.flush()

    def abandon_sends(self) -> None:
        """Undo `begin_sends`; no matter whether anything was begun.

        Raises:
            LinkLost: the connection is gone, and with it what was begun.
        """
        begun, self._begun = self._begun, None
        if begun is not None and self._connection is not None:
            self._abort(begun.transaction)
            for receipt in begun.receipts.values():
                self._connection.answered(receipt)

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, and exchange the token in one transaction; durable when it returns.

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
        handles = in_hand(accepts)
        if self._begun is None or self._begun.sends is not sends:
            self.begin_sends(sends)
        assert self._begun is not None  # noqa: S101 - the line above has set it
        begun, self._begun = self._begun, None
        in_transaction = (b"transaction", begun.transaction)
        for handle in handles:
            connection.send("ACK", [(b"id", handle.ack), in_transaction])
        receipt = self._token.put_exchange(begun.transaction, held[1], token)
        self._check(begun, receipt)
        self._commit(begun.transaction)
        self._sending = ()
        self._token.exchanged()
        for handle in handles:
            handle.subscription.in_hand -= 1

    def _check(self, begun: "_Begun", last: str) -> None:
        """Make sure that the broker has taken all of a transaction, or abort it.

        Why not COMMIT at once: after one that fails nothing in hand can be acked any more; and a
        body that ended early shows itself before the last receipt.

        Raises:
            SendsRefused: it refuses some sends.
            CommitRefused: it refuses an ACK or the token.
            LinkLost: an ERROR came that is none of the broker's.
        """
        connection = self._live()
        answers = connection.answers([*begun.receipts.values(), last])
        errors = [*connection.errors, *(one for one in answers if one.command == "ERROR")]
        if not begun.refusals and not errors and connection.suspect is None:
            return
        self._abort(begun.transaction)
        refusals = begun.refusals | (self._refusals(begun.sends) if errors else {})
        words = "; ".join(map(error_text, errors))
        if refusals:
            # Why: an ERROR that came after some message was the broker's own.
            connection.suspect = None
            raise SendsRefused(refusals)
        if connection.suspect is not None:
            raise LinkLost(f"{connection.name} sent an error that belongs to nothing: {words}")
        raise CommitRefused(words)

    def _refusals(self, sends: Sequence[Resend]) -> dict[int, str]:
        """Find out which sends the broker refuses, by sending all again and aborting."""
        transaction = self._begin()
        receipts, _ = self._put_sends(transaction, sends, each=True)
        answers = self._live().answers([*receipts.values()])
        self._abort(transaction)
        return {
            index: error_text(answer)
            for index, answer in zip(receipts, answers, strict=True)
            if answer.command == "ERROR"
        }

    def _begin(self) -> bytes:
        self._transaction_count += 1
        transaction = b"%d" % self._transaction_count
        self._live().send("BEGIN", [(b"transaction", transaction)])
        return transaction

    def _commit(self, transaction: bytes) -> None:
        connection = self._live()
        self._crash_point("sent")
        receipt = connection.ask("COMMIT", [(b"transaction", transaction)])
        connection.flush()
        self._crash_point("committing")
        answer = connection.answers([receipt])[0]
        if answer.command == "ERROR":
            connection.close()
            raise LinkLost(f"{connection.name} refused to commit: {error_text(answer)}")

    def _abort(self, transaction: bytes) -> None:
        connection = self._live()
        try:
            connection.call("ABORT", [(b"transaction", transaction)])
        except FrameRefused as cause:
            connection.close()
            raise LinkLost(f"{connection.name} refused to abort: {cause}") from cause
        connection.errors.clear()

    def _put_sends(
        self, transaction: bytes, sends: Sequence[Resend], *, each: bool = False
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Put the sends; return receipts, and why some can't be sent at all, by index.

        Why a receipt of the first to each destination: it is destinations that refuse; and
        receipts of all would halve the speed.
        """
        connection = self._live()
        now_ms = self._clock.now_ms()
        receipts: dict[int, str] = {}
        refusals: dict[int, str] = {}
        asked: set[Destination] = set()
        for index, resend in enumerate(sends):
            asks: list[Header] = []
            if each or resend.destination not in asked:
                receipts[index], header = connection.receipt()
                asks.append(header)
            try:
                frame = self._encoder.resend(resend, transaction, now_ms, asks)
            except UndecodableMessage as cause:
                refusals[index] = str(cause)
                receipts.pop(index, None)
                continue
            asked.add(resend.destination)
            connection.put(frame)
        return receipts, refusals

    def _find_full(self) -> None:
        if self._connection is not None:  # else it is being closed
            self._rooms.give_up(self._connection, self._sending, self._takes, self._token_queue)

    def _takes(self, destination: Destination) -> bool:
        return takes(self._endpoint, self._clock, destination)

    def route_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost, or hold us up; Classic creates every lasting one."""
        if destination.is_temporary:
            return (
                f"{destination} is temporary: over STOMP to Classic the sidecar sends "
                "only to lasting destinations; redirect the message to one"
            )
        return self._rooms.problem(destination, self._takes)

    def ask_routes_ahead(self, destinations: Sequence[Destination]) -> None:
        """Do nothing: no answer of `route_problem` needs the broker's."""

    def resend_problem(self, destination: Destination) -> str | None:
        """Return None: what else Classic does follows from its rules."""
        return None

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return nothing: Classic does not report which queues are dead-letter queues."""
        return ()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default.

        What is known to break connections is not counted.
        """
        self._live()
        try:
            at_most = max(1, min(at_most, _COUNT_MAX))
            readable = selectors.readable(self._rules.unreadable_in(queue.destination))
            return len(self._consumers.browse(queue.destination, at_most, readable))
        except FrameRefused as cause:
            raise BrokerRefused(f"can't browse {queue.destination}: {cause}") from cause

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return what lies in a dead-letter queue; a browser ends at `maxBrowsePageSize`, or 400.

        Where each says that it died is not proven, unlike that of what is taken.

        Raises:
            BrokerRefused: the user may not read it.
            LinkLost: the connection is gone.
        """
        self._live()
        try:
            sources = self._queues.existing(queue.destination)
        except FrameRefused as cause:
            if is_wildcard(queue.destination.name):
                raise BrokerRefused(
                    f"can't find out which queues {queue.destination} stands for: {cause}; "
                    f"{MENDS_ADVISORIES}"
                ) from cause
            sources = [queue.destination]
        found = []
        for source in sources:
            try:
                readable = selectors.readable(self._rules.unreadable_in(source))
                frames = self._consumers.browse(source, at_most, readable)
            except FrameRefused as cause:
                raise BrokerRefused(f"can't browse {source}: {cause}") from cause
            now_ms = self._clock.now_ms()
            for message in map(shown, frames):
                told = provenance(message, source, message.origin, now_ms)
                found.append(Delivery(None, source, message.kept, told))
        return found

    def prepare_final(self, destination: Destination) -> str | None:
        """Return None: Classic creates a queue on the first send and keeps what is sent there."""
        return None


class _Begun(NamedTuple):
    """A transaction with its sends.

    Attributes:
        receipts: what the broker answers each with, by index.
        refusals: why some were not sent, by index.
    """

    sends: Sequence[Resend]
    transaction: bytes
    receipts: dict[int, str]
    refusals: dict[int, str]


@contextmanager
def _named_refusals() -> Iterator[None]:
    """Raise `QueueRefused` for a queue whose subscriptions can't be made anew."""
    try:
        yield
    except RefusedQueue as cause:
        raise QueueRefused(cause.name, str(cause)) from cause


def _writes_modified_utf8(version: str) -> bool:
    """Return whether the broker writes Text as it lies in its memory.

    Source: ActiveMQ Classic, AMQ-8398, mended in 6.2.0.
    """
    numbers = []
    for part in version.split(".")[:2]:
        with suppress(ValueError):
            numbers.append(int(part))
    return tuple(numbers) < (6, 2)
