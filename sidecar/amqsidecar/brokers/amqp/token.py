"""Messages of the token queue over AMQP, on both brokers; see `brokers/token_queue.py`.

The number of a token is its body, as text, and a property: so the links of the other wires can read
it, and this one reads theirs.
"""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from amqsidecar.brokers.amqp.links import (
    AmqpDelivery,
    Receiver,
    Sender,
    forget,
    is_answered,
    refusal_words,
)
from amqsidecar.brokers.amqp.transaction import Coordinator, Transaction
from amqsidecar.brokers.token import Token, decode
from amqsidecar.brokers.token_queue import (
    TOKEN_TIMEOUT_S,
    TokenMessage,
    TokenQueueMaker,
    TokenWire,
)
from amqsidecar.errors import BrokerRefused, LinkLost, UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST

_STRAY_MAX = 64
# The property in which tokens of all wires of Classic have their number.
_CYCLE = "amqsidecarCycle"


class AmqpTokenWire(TokenWire[AmqpDelivery]):
    """Reads and writes the token queue over links of one connection.

    Attributes:
        sender: link to the token queue.
    """

    scheme, accepts_later = "amqp", False

    def __init__(
        self,
        coordinator: Coordinator,
        management: TokenQueueMaker,
        queue: str,
        rules_digest: str,
        source: str | None = None,
    ) -> None:
        """Make the queue where it can be made, and attach to it.

        Args:
            coordinator: of the transactions that exchange the token.
            management: makes and counts the queue.
            queue: its name.
            rules_digest: shown by each token that is sent.
            source: the address to read from, with options of the broker's; None = the name.
        """
        self._connection = connection = coordinator.connection
        self._management = management
        self._coordinator = coordinator
        self._queue = queue
        self._source = source or queue
        self._rules_digest = rules_digest
        self._attached = 0
        management.make_token_queue(queue)
        self.sender = Sender(connection, "amqsidecar-token-sender", queue, capability="queue")
        self._receiver: Receiver | None = None
        connection.parts.append(self)

    @override
    def open(self) -> None:
        self._attached += 1
        receiver = Receiver(
            self._connection,
            f"amqsidecar-token-{self._attached}",
            self._source,
            capability="queue",
        )
        receiver.flow(1)
        self._receiver = receiver
        if self._attached == 1:
            self._confirm(receiver)

    def _confirm(self, receiver: Receiver) -> None:
        """Wait until the broker has answered both links."""
        sender = self.sender
        self._connection.run_until(
            lambda: (
                (receiver.is_open and sender.credit > 0)
                or receiver.refusal is not None
                or sender.refusal is not None
            )
        )
        refusal = receiver.refusal or sender.refusal
        if refusal is not None:
            raise BrokerRefused(f"the token queue {self._queue} can't be used: {refusal}")
        if not receiver.is_open:
            raise LinkLost(
                f"no answer about the token queue {self._queue} in {self._connection.timeout_s:g} s"
            )

    @override
    def release(self) -> None:
        receiver = self._reading()
        receiver.end()
        if not receiver.is_closed:
            raise LinkLost(
                f"the token queue {self._queue} was not released in "
                f"{self._connection.timeout_s:g} s"
            )
        self._receiver = None

    @override
    def poll(self) -> None:
        self._connection.check()

    @override
    def collect(self, timeout_s: float) -> Sequence[TokenMessage[AmqpDelivery]]:
        receiver = self._await(timeout_s)
        if not receiver.arrived:
            return ()
        receiver.drain(_STRAY_MAX)
        self._connection.run_until(lambda: receiver.is_drained, TOKEN_TIMEOUT_S)
        receiver.end_drain()
        return [_found(*one) for one in receiver.take_arrived(_STRAY_MAX + 1)]

    @override
    def next(self, timeout_s: float) -> TokenMessage[AmqpDelivery] | None:
        arrived = self._await(timeout_s).take_arrived(1)
        return _found(*arrived[0]) if arrived else None

    def _await(self, timeout_s: float) -> Receiver:
        """Wait until something has arrived, or the time is over."""
        receiver = self._reading()
        if receiver.credit == 0 and not receiver.arrived:
            receiver.flow(1)
        self._connection.run_until(lambda: receiver.arrived or receiver.refusal, timeout_s)
        if receiver.refusal is not None:
            raise LinkLost(f"the token queue {self._queue} was closed: {receiver.refusal}")
        return receiver

    def _reading(self) -> Receiver:
        if self._receiver is None:
            raise LinkLost(f"the token queue {self._queue} is not read: the token was given back")
        return self._receiver

    @override
    def drop(self, handles: Sequence[AmqpDelivery]) -> None:
        receiver = self._reading()
        for one in handles:
            receiver.accept(one)
        self._connection.pump(0)

    @override
    def replace(self, handle: AmqpDelivery, token: Token) -> bool:
        transaction = self._coordinator.begin()
        delivery = self.sender.send(self.encode(token.cycle), transaction.send_state)
        self._connection.run_until(lambda: is_answered(delivery), TOKEN_TIMEOUT_S)
        refusal = transaction.refusal(delivery)
        forget(delivery)
        if refusal is not None:
            self._coordinator.abort(transaction)
            return False
        self.accept(transaction, handle)
        if self._coordinator.commit(transaction) is not None:
            return False
        self.settle(handle)
        return True

    def accept(self, transaction: Transaction, handle: AmqpDelivery) -> None:
        """Take the token under a transaction and ask the broker for the next one."""
        receiver = self._reading()
        if receiver.credit == 0:
            receiver.flow(1)
        transaction.accept(handle)

    @override
    def settle(self, handle: AmqpDelivery) -> None:
        self._reading().settle(handle)

    @override
    def put(self, token: Token) -> str | None:
        sender = self.sender
        self._connection.run_until(lambda: sender.credit > 0 or sender.refusal, TOKEN_TIMEOUT_S)
        if sender.credit <= 0:
            return sender.refusal or "no credit"
        delivery = sender.send(self.encode(token.cycle))
        if not self._connection.run_until(lambda: is_answered(delivery), TOKEN_TIMEOUT_S):
            raise LinkLost(f"no answer about the first token in {TOKEN_TIMEOUT_S:g} s")
        words = refusal_words(delivery)
        forget(delivery)
        return words

    @override
    def holds_any(self) -> bool | None:
        return self._management.has_token(self._queue)

    def encode(self, number: int) -> bytes:
        """Return the message that is token `number` now."""
        return encode_token(
            self._queue, number, self._connection.clock.now_ms(), self._rules_digest
        )

    def close(self) -> None:
        """Begin to close the links; the token goes back."""
        if self._receiver is not None:
            self._receiver.close()
        self.sender.close()

    @property
    def is_closed(self) -> bool:
        return (self._receiver is None or self._receiver.is_closed) and self.sender.is_closed


def _found(in_hand: AmqpDelivery, message: bytes) -> TokenMessage[AmqpDelivery]:
    return TokenMessage(in_hand, _decoded(message), _delivery_count(message) > 0)


def encode_token(queue: str, number: int, now_ms: int, rules_digest: str) -> bytes:
    """Return the message that is a token; it shows its queue, its time and the rules' digest."""
    durable = amqp.make_list(amqp.HEADER, [b"\x41"])
    nothing = amqp.NULL
    to, now = amqp.string(f"queue://{queue}"), amqp.timestamp(now_ms)
    properties = amqp.make_list(amqp.PROPERTIES, [nothing, nothing, to, *[nothing] * 6, now])
    shown = amqp.make_map(
        amqp.APPLICATION_PROPERTIES,
        [
            amqp.string(_CYCLE),
            amqp.long(number),
            amqp.string(PROPERTY_RULES_DIGEST),
            amqp.string(rules_digest),
        ],
    )
    return durable + properties + shown + b"\x00\x53\x77" + amqp.string(str(number))


def _decoded(message: bytes) -> Token | None:
    """Return the content of a token; None = it is none."""
    try:
        value: Any = amqp.scalar(amqp.split(message).get(amqp.VALUE, b"")[3:])
    except UndecodableMessage:
        return None
    return decode(str(value).encode()) if type(value) in (str, int) else None


def _delivery_count(message: bytes) -> int:
    try:
        items = amqp.elements(amqp.split(message).get(amqp.HEADER, b""))
        value = amqp.scalar(items[4]) if len(items) > 4 else 0
    except UndecodableMessage:
        return 0
    return value if type(value) is int else 0
