"""Messages of the token queue over Core; see `brokers/token_queue.py`.

A token is a text message, which AMQP shows as a text: each wire reads the tokens of the others.
"""

from collections import deque
from collections.abc import Callable, Sequence

from typing_extensions import override

from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.connection.refusal import raised_as
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import QUEUE_EXISTS, CoreRefused
from amqsidecar.brokers.core.session import CoreAcknowledgement, CoreSession, is_forced
from amqsidecar.brokers.token import Token, decode
from amqsidecar.brokers.token_queue import TOKEN_TIMEOUT_S, TokenMessage, TokenWire
from amqsidecar.errors import BrokerRefused
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
# Tokens of AMQP carry their number in the same property.
_CYCLE = "amqsidecarCycle"


class CoreTokenWire(TokenWire[CoreDelivery]):
    """Reads and writes the token queue over a transacted session."""

    scheme, accepts_later = "core", False

    def __init__(
        self,
        session: CoreSession,
        management: ArtemisQuestions,
        queue: str,
        route: Callable[[], None],
        rules_digest: str,
    ) -> None:
        """Make the queue where it can be made.

        Args:
            session: transacted and started.
            queue: its name.
            route: passes incoming deliveries to `arrived`.
            rules_digest: shown by each token that is sent.

        Raises:
            BrokerRefused: the queue can't be made; the message names it.
        """
        self._session = session
        self._management = management
        self._queue = queue
        self._route = route
        self._rules_digest = rules_digest
        self._consumer: int | None = None
        self._arrived: deque[CoreDelivery] = deque()
        self._strays: list[CoreDelivery] = []
        self._make()

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

    def reads(self, delivery: CoreDelivery) -> bool:
        """Return whether a delivery was handed out of the token queue."""
        return delivery.consumer == self._consumer

    def arrived(self, delivery: CoreDelivery) -> None:
        """Accept a message from the token queue."""
        self._session.give_back(delivery)
        if delivery.large_body is not None:
            delivery.large_body.close()
        self._arrived.append(delivery)

    @override
    def open(self) -> None:
        with raised_as(f"the token queue {self._queue} can't be used: {{}}"):
            self._consumer = self._session.create_consumer(self._queue, window_bytes=_WINDOW_BYTES)

    @override
    def release(self) -> None:
        consumer, self._consumer = self._consumer, None
        self.forget()
        if consumer is not None:
            self._session.close_consumer(consumer)

    def forget(self) -> None:
        """Forget the arrived tokens, because they are given back."""
        self._arrived.clear()
        self._strays.clear()

    @override
    def poll(self) -> None:
        self._session.wire.poll()

    @override
    def collect(self, timeout_s: float) -> Sequence[TokenMessage[CoreDelivery]]:
        # Why: with no time to wait nothing else writes the credit, and the token would not come.
        self._session.wire.flush()
        if self._consumer is None or not self._wait(timeout_s):
            return ()
        found = []
        self._session.force_delivery(self._consumer)
        while self._wait(TOKEN_TIMEOUT_S):
            delivery = self._arrived.popleft()
            if is_forced(delivery.message):
                break
            found.append(_found(delivery))
        return found

    @override
    def next(self, timeout_s: float) -> TokenMessage[CoreDelivery] | None:
        return _found(self._arrived.popleft()) if self._wait(timeout_s) else None

    def _wait(self, timeout_s: float) -> bool:
        """Wait until something has arrived; return whether it has."""

        def is_known() -> bool:
            # Why first: a commit that was waited for may have read the token, and nothing comes.
            self._route()
            return bool(self._arrived) or self._consumer in self._session.ended_consumers

        self._session.wire.run_until(is_known, timeout_s)
        return bool(self._arrived)

    @override
    def drop(self, handles: Sequence[CoreDelivery]) -> None:
        # Why not at once: a transaction's sends would be committed without the token of its cycle.
        if self._session.is_begun:
            self._strays += handles
        else:
            self._session.acknowledge_all([*map(_acknowledgement, handles)])
            self._session.commit()

    def acknowledgements(self, handle: CoreDelivery) -> list[CoreAcknowledgement]:
        """Return the acknowledgements that take the token in hand out of its queue."""
        return [_acknowledgement(one) for one in (*self._strays, handle)]

    @override
    def replace(self, handle: CoreDelivery, token: Token) -> bool:
        session = self._session
        if session.is_begun or session.answers([session.ask_send(self.encode(token.cycle))])[0]:
            return False
        session.acknowledge_all(self.acknowledgements(handle))
        session.commit()
        self._strays.clear()
        return True

    @override
    def settle(self, handle: CoreDelivery) -> None:
        self._strays.clear()

    @override
    def put(self, token: Token) -> str | None:
        session = self._session
        try:
            refused = session.answers([session.ask_send(self.encode(token.cycle))])[0]
            session.commit()
        except CoreRefused as cause:
            refused = cause
        return None if refused is None else str(refused)

    @override
    def holds_any(self) -> bool | None:
        self._route()
        if self._arrived:
            return True
        has_token = self._management.has_token(self._queue)
        if has_token is None:
            return self._session.ask_queue(self._queue).message_count > 0
        return has_token

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
            timestamp_ms=self._session.wire.clock.now_ms(),
            kind=TEXT_MESSAGE,
            body=NULLABLE_SIMPLE_STRING.write(str(number)),
        )


def _acknowledgement(delivery: CoreDelivery) -> CoreAcknowledgement:
    return CoreAcknowledgement(delivery.consumer, delivery.message.message_id, is_up_to_it=False)


def _found(delivery: CoreDelivery) -> TokenMessage[CoreDelivery]:
    return TokenMessage(delivery, _decoded(delivery.whole()), delivery.delivery_count > 1)


def _decoded(message: CoreMessage) -> Token | None:
    """Return the content of a token; None = the message is no token."""
    if message.kind == BYTES_MESSAGE:
        return decode(message.body)
    if message.kind != TEXT_MESSAGE:
        return None
    try:
        text = NULLABLE_SIMPLE_STRING.read(CoreReader(message.body))
    except CoreProtocolError:
        return None
    return None if text is None else decode(text.encode(errors="replace"))
