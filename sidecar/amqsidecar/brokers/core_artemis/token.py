"""The token of an instance over Core: commit record and fence in one message.

The queue is exclusive where it could be made so: then the broker hands tokens to one consumer only,
until that is gone. A token that was handed out before without being exchanged is replaced by a
fresh one with the same number, because the broker gives up on one that was delivered too often.

It is a text message, which AMQP shows as a text: each wire reads the tokens of the others. A token
of STOMP may name dead letters that still have to be acknowledged; it is left to STOMP.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from amqsidecar.brokers.artemis import token as artemis_token
from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import QUEUE_EXISTS, CoreRefused
from amqsidecar.brokers.core.session import CoreAcknowledgement, CoreSession, is_forced
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import (
    BYTES_MESSAGE,
    TEXT_MESSAGE,
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    new_message,
)
from amqsidecar.formats.core.primitives import (
    NULLABLE_SIMPLE_STRING,
    CoreProtocolError,
    CoreReader,
)
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST

_WINDOW_BYTES = 64 * 1024
_TIMEOUT_S = 15.0
# Tokens of AMQP carry their number in the same property.
_CYCLE = "amqsidecarCycle"


class _Released(NamedTuple):
    """The queue is not read."""


class _Awaited(NamedTuple):
    """The queue is read, and no token was in hand since."""

    consumer: int


class _Held(NamedTuple):
    """The token is in hand."""

    consumer: int
    delivery: CoreDelivery
    number: int


class _Sent(NamedTuple):
    """A token of this number is on its way, after the one in hand was exchanged or given back."""

    consumer: int
    number: int


class CoreTokenQueue:
    """The token queue of this instance, and the token when it is in our hand."""

    def __init__(
        self,
        connection: CoreConnection,
        session: CoreSession,
        management: ArtemisQuestions,
        queue: str,
        clock: Clock,
        route: Callable[[], None],
        rules_digest: str = "",
    ) -> None:
        """Make the queue where it can be made, and begin to wait for the token.

        Args:
            connection: of the session.
            session: transacted and started.
            management: makes the queue.
            queue: its name.
            clock: of the timestamp of a token.
            route: brings what has arrived to `arrived`.
            rules_digest: shown by each token that is sent.

        Raises:
            BrokerRefused: the queue can't be used; the message names it.
            LinkLost: the connection is gone.
        """
        self._connection = connection
        self._session = session
        self._management = management
        self._queue = queue
        self._clock = clock
        self._route = route
        self._rules_digest = rules_digest
        self._arrived: deque[CoreDelivery] = deque()
        self._strays: list[CoreDelivery] = []
        self._make()
        self._state: _Released | _Awaited | _Held | _Sent = self._await()

    def _await(self) -> _Awaited:
        """Begin to read the queue."""
        try:
            consumer = self._session.create_consumer(self._queue, window_bytes=_WINDOW_BYTES)
        except CoreRefused as refused:
            raise BrokerRefused(
                f"the token queue {self._queue} can't be used: {refused}"
            ) from refused
        return _Awaited(consumer)

    def release(self) -> None:
        """Give the token back without counting a failure, and stop reading until `take`.

        Raises:
            LinkLost: the connection is gone.
        """
        released, self._state = self._state, _Released()
        self._arrived.clear()
        self._strays.clear()
        if not isinstance(released, _Released):
            self._session.close_consumer(released.consumer)

    def reads(self, delivery: CoreDelivery) -> bool:
        """Return whether a delivery was handed out of the token queue."""
        state = self._state
        return not isinstance(state, _Released) and delivery.consumer == state.consumer

    def _make(self) -> None:
        name = self._queue
        if self._management.is_usable:
            self._management.make_token_queue(name)
            return
        if self._session.ask_queue(name).exists:
            return
        try:
            self._session.create_queue(
                name, address=name, routing_type=packets.ANYCAST, exclusive=True
            )
        except CoreRefused as refused:
            if refused.kind != QUEUE_EXISTS:
                raise BrokerRefused(f"the token queue {name} can't be used: {refused}") from refused

    def arrived(self, delivery: CoreDelivery) -> None:
        """Accept a message from the token queue."""
        self._session.give_back(delivery)
        if delivery.large_body is not None:
            delivery.large_body.close()
        self._arrived.append(delivery)

    # Waiting for it

    def take(self, timeout_s: float) -> int | None:
        """Return the number of the token once it is in hand; None = not in time.

        Raises:
            LinkLost: the connection is gone, or the token was left by STOMP.
        """
        self._connection.poll()
        if isinstance(self._state, _Released):
            self._state = self._await()
        # Why: with no time to wait nothing else writes the credit, and the token would not come.
        self._connection.flush()
        if not isinstance(self._state, _Held):
            self._collect(self._state.consumer, timeout_s)
        return self._state.number if isinstance(self._state, _Held) else None

    def _wait(self, consumer: int, timeout_s: float) -> bool:
        """Wait until something has arrived; return whether it has."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        # Why first: a commit that was waited for may have read the token, and then nothing comes.
        self._route()
        while not self._arrived:
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or consumer in self._session.ended_consumers:
                return False
            self._connection.wait(left_s)
            self._route()
        return True

    def _collect(self, consumer: int, timeout_s: float) -> None:
        if not self._wait(consumer, timeout_s):
            return
        found: list[CoreDelivery] = []
        self._session.force_delivery(consumer)
        while self._wait(consumer, _TIMEOUT_S):
            delivery = self._arrived.popleft()
            if is_forced(delivery.message):
                break
            found.append(delivery)
        tokens = [
            (token.cycle, not token.accepted, at, one)
            for at, one in enumerate(found)
            if (token := _decoded(one.message)) is not None
        ]
        highest = max(tokens, key=lambda one: one[:3], default=None)
        if highest is not None and not highest[1]:
            raise LinkLost(
                f"the token in {self._queue} was left by a sidecar over stomp:// that died, and "
                "names dead letters that may not be acknowledged yet: start it once more over "
                "stomp://, and stop it, before it goes on over core://"
            )
        others = [one for one in found if highest is None or one is not highest[3]]
        # Why not if it is begun: its sends would be committed without the token of their cycle.
        is_own_transaction = not self._session.is_begun
        if not is_own_transaction:
            self._strays += others
        elif others:
            self._session.acknowledge_all([self._acknowledgement(one) for one in others])
            self._session.commit()
        if highest is None:
            return
        number, _, _, held = highest
        self._state = _Held(consumer, held, number)
        if held.delivery_count > 1 and is_own_transaction:
            self._renew(number)

    def _renew(self, number: int) -> None:
        """Replace the token by a fresh one of the same number, in one transaction."""
        session = self._session
        if session.answers([session.ask_send(self.encode(number))])[0] is None:
            session.acknowledge_all(self.acknowledgements())
            session.commit()
            self.committed(number)
            self.take_for_commit()

    # Exchanging it

    def take_for_commit(self) -> None:
        """Ensure that the token in hand is the one that we sent last.

        Raises:
            LinkLost: it is not; another instance has it.
        """
        match self._state:
            case _Held():
                return
            case _Sent(consumer, number):
                self._state = _Held(consumer, self._await_sent(consumer, number), number)
            case _Released() | _Awaited():
                raise LinkLost("the token was never taken")

    def _await_sent(self, consumer: int, expected: int) -> CoreDelivery:
        """Return the token that is on its way, once it is handed over."""
        while True:
            if not self._wait(consumer, _TIMEOUT_S):
                raise LinkLost(
                    f"token {expected} is not in hand (not handed over in {_TIMEOUT_S:g} s); "
                    "another instance has it"
                )
            delivery = self._arrived.popleft()
            token = _decoded(delivery.message)
            if token is None:
                # The guard of a link over STOMP that waits for the token.
                self._strays.append(delivery)
            elif token.cycle != expected:
                raise LinkLost(
                    f"found token {token.cycle}, not {expected}: another one runs this instance"
                )
            else:
                return delivery

    def acknowledgements(self) -> list[CoreAcknowledgement]:
        """Return the acknowledgements that take the token in hand out of its queue."""
        held = [self._state.delivery] if isinstance(self._state, _Held) else []
        return [self._acknowledgement(one) for one in (*self._strays, *held)]

    def _acknowledgement(self, delivery: CoreDelivery) -> CoreAcknowledgement:
        return CoreAcknowledgement(
            delivery.consumer, delivery.message.message_id, is_up_to_it=False
        )

    def committed(self, number: int) -> None:
        """Note that the token was exchanged; the new one is on its way."""
        self._strays.clear()
        if not isinstance(self._state, _Released):
            self._state = _Sent(self._state.consumer, number)

    def undo(self) -> None:
        """Expect the token in hand once more; call before a rollback."""
        if isinstance(self._state, _Held):
            self._state = _Sent(self._state.consumer, self._state.number)
        self._strays.clear()
        self._arrived.clear()

    def exists(self) -> bool | None:
        """Return whether the queue holds a token, handed out or not; None = unknown."""
        self._connection.poll()
        self._route()
        if isinstance(self._state, _Held) or self._arrived:
            return True
        has_token = self._management.has_token(self._queue)
        if has_token is None:
            return self._session.ask_queue(self._queue).message_count > 0
        return has_token

    def create(self, number: int) -> None:
        """Put a token into the queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.

        Raises:
            BrokerRefused: the broker does not take it.
            LinkLost: no answer in time.
        """
        session = self._session
        try:
            refused = session.answers([session.ask_send(self.encode(number))])[0]
            session.commit()
        except CoreRefused as cause:
            refused = cause
        if refused is not None:
            raise BrokerRefused(
                f"the token queue {self._queue} takes no token: {refused}"
            ) from refused

    def encode(self, number: int) -> CoreMessage:
        """Return the message that is token `number` now."""
        properties = {
            _CYCLE: CoreProperty(CorePropertyType.LONG, number),
            PROPERTY_RULES_DIGEST: CoreProperty(CorePropertyType.STRING, self._rules_digest),
            "_AMQ_ROUTING_TYPE": CoreProperty(CorePropertyType.BYTE, packets.ANYCAST),
        }
        return new_message(
            self._queue,
            properties,
            timestamp_ms=self._clock.now_ms(),
            kind=TEXT_MESSAGE,
            body=NULLABLE_SIMPLE_STRING.write(str(number)),
        )


def _decoded(message: CoreMessage) -> artemis_token.Token | None:
    """Return the content of a token; None = the message is no token."""
    if message.kind == BYTES_MESSAGE:
        return artemis_token.decode(message.body)
    if message.kind != TEXT_MESSAGE:
        return None
    try:
        text = NULLABLE_SIMPLE_STRING.read(CoreReader(message.body))
    except CoreProtocolError:
        return None
    return None if text is None else artemis_token.decode(text.encode(errors="replace"))
