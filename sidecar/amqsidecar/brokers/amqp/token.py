"""The token of an instance over AMQP: commit record and fence in one message.

The queue is exclusive where it could be made so: then the broker hands tokens to one connection
only, until that is gone. A token that was handed out often without being exchanged (a sidecar that
crashes and starts again and again) is replaced by a fresh one with the same number, because the
broker gives up on any message that was delivered too often.

Its number is the body, as text, and a property: so the links of the other wires can read it, and
this one reads theirs. On Artemis the token of STOMP also names dead letters that may still have to
be acknowledged; AMQP shows no numbers of messages, so that such a token is left to STOMP.
"""

from typing import Any, NamedTuple

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import (
    AmqpDelivery,
    Receiver,
    Sender,
    forget,
    is_answered,
    refusal_words,
)
from amqsidecar.brokers.amqp.transaction import Coordinator, Transaction
from amqsidecar.brokers.artemis import token as artemis_token
from amqsidecar.brokers.token_session import TokenQueueMaker
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused, LinkLost, UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST

_TIMEOUT_S = 15.0
_STRAY_MAX = 64
_NOT_A_TOKEN = -1
# The property in which tokens of all wires of Classic have their number.
_CYCLE = "amqsidecarCycle"


class _Released(NamedTuple):
    """The queue is not read."""


class _Awaited(NamedTuple):
    """The queue is read, and no token was in hand since."""

    receiver: Receiver


class _Held(NamedTuple):
    """The token is in hand."""

    receiver: Receiver
    delivery: AmqpDelivery
    number: int


class _Sent(NamedTuple):
    """The token was exchanged for one of this number, which is on its way to us."""

    receiver: Receiver
    number: int


class AmqpTokenQueue:
    """The token queue of this instance, and the token when it is in our hand.

    Attributes:
        sender: link to the token queue.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        management: TokenQueueMaker,
        coordinator: Coordinator,
        queue: str,
        clock: Clock,
        source: str | None = None,
        *,
        timeout_s: float,
        rules_digest: str = "",
    ) -> None:
        """Make the queue where it can be made, attach to it, and begin to wait for the token.

        Args:
            connection: of the links.
            management: makes and counts the queue.
            coordinator: of the transactions that exchange the token.
            queue: its name.
            clock: gives the time at which a token is sent.
            source: the address to read from, with options of the broker's; None = the name.
            timeout_s: maximum wait until the broker has answered both links.
            rules_digest: shown by each token that is sent.

        Raises:
            BrokerRefused: the queue can't be used; the message names it.
            LinkLost: no answer in time.
        """
        self._connection = connection
        self._management = management
        self._coordinator = coordinator
        self._queue = queue
        self._clock = clock
        self._source = source or queue
        self._rules_digest = rules_digest
        self._attached = 0
        management.make_token_queue(queue)
        self.sender = Sender(connection, "amqsidecar-token-sender", queue, capability="queue")
        receiver = self._attach()
        self._state: _Released | _Awaited | _Held | _Sent = _Awaited(receiver)
        try:
            self._confirm(receiver, timeout_s)
        except BaseException:
            self.close()
            raise

    def _confirm(self, receiver: Receiver, timeout_s: float) -> None:
        """Wait until the broker has answered both links."""
        sender = self.sender
        self._connection.run_until(
            lambda: (
                (receiver.is_open and sender.credit > 0)
                or receiver.refusal is not None
                or sender.refusal is not None
            ),
            timeout_s,
        )
        refusal = receiver.refusal or sender.refusal
        if refusal is not None:
            raise BrokerRefused(f"the token queue {self._queue} can't be used: {refusal}")
        if not receiver.is_open:
            raise LinkLost(f"no answer about the token queue {self._queue} in {timeout_s:g} s")

    def _attach(self) -> Receiver:
        """Begin to wait for the token."""
        self._attached += 1
        receiver = Receiver(
            self._connection,
            f"amqsidecar-token-{self._attached}",
            self._source,
            capability="queue",
        )
        receiver.flow(1)
        return receiver

    def release(self, timeout_s: float) -> None:
        """Give the token back and wait for it no more, until `take`.

        When it returns, the token is in its queue; that does not count as a failed delivery.

        Raises:
            LinkLost: the connection is gone, or the broker does not answer.
        """
        receiver = self._receiver()
        receiver.end(timeout_s)
        if not receiver.is_closed:
            raise LinkLost(f"the token queue {self._queue} was not released in {timeout_s:g} s")
        self._state = _Released()

    def take(self, timeout_s: float) -> int | None:
        """Return the number of the token once it is in hand; None = not in time."""
        self._connection.check()
        if isinstance(self._state, _Released):
            self._state = _Awaited(self._attach())
        if not isinstance(self._state, _Held):
            self._collect(self._state.receiver, timeout_s)
        return self._state.number if isinstance(self._state, _Held) else None

    def _collect(self, receiver: Receiver, timeout_s: float) -> None:
        if receiver.credit == 0:
            receiver.flow(1)
        self._connection.run_until(lambda: receiver.arrived or receiver.refusal, timeout_s)
        if receiver.refusal is not None:
            raise LinkLost(f"the token queue {self._queue} was closed: {receiver.refusal}")
        if not receiver.arrived:
            return
        receiver.drain(_STRAY_MAX)
        self._connection.run_until(lambda: receiver.is_drained, _TIMEOUT_S)
        receiver.end_drain()
        found = [
            (_number(message), not _names_dead_letters(message), at, in_hand, message)
            for at, (in_hand, message) in enumerate(receiver.take_arrived(_STRAY_MAX + 1))
        ]
        highest = max(found, key=lambda one: one[:3])
        number, names_nothing, _, in_hand, message = highest
        if not names_nothing:
            raise LinkLost(
                f"the token in {self._queue} was left by a sidecar over stomp:// that died, and "
                "names dead letters that may not be acknowledged yet: start it once more over "
                "stomp://, and stop it, before it goes on over amqp://"
            )
        for one in found:
            if one is not highest or number == _NOT_A_TOKEN:
                receiver.accept(one[3])
        self._connection.pump(0)
        if number == _NOT_A_TOKEN:
            return
        self._state = _Held(receiver, in_hand, number)
        if _delivery_count(message) > 0:
            self._renew(number)

    def _renew(self, number: int) -> None:
        """Replace the token by a fresh one of the same number, in one transaction."""
        transaction = self._coordinator.begin()
        delivery = self.sender.send(self.encode(number), transaction.send_state)
        self._connection.run_until(lambda: is_answered(delivery), _TIMEOUT_S)
        refusal = transaction.refusal(delivery)
        forget(delivery)
        if refusal is not None:
            self._coordinator.abort(transaction)
            return
        self.accept(transaction)
        if self._coordinator.commit(transaction) is None:
            self.committed(number)
            self.take_for_commit(_TIMEOUT_S)

    def take_for_commit(self, timeout_s: float) -> None:
        """Ensure that the token in hand is the one that we sent last.

        Raises:
            LinkLost: it is not; someone else has it.
        """
        match self._state:
            case _Held():
                return
            case _Sent(receiver, number):
                delivery = self._await_sent(receiver, number, timeout_s)
                self._state = _Held(receiver, delivery, number)
            case _Released() | _Awaited():
                raise LinkLost("the token was never taken")

    def _await_sent(self, receiver: Receiver, expected: int, timeout_s: float) -> AmqpDelivery:
        """Return the token that we sent last, once it is handed over."""
        number = _NOT_A_TOKEN
        while number == _NOT_A_TOKEN:
            self._connection.run_until(lambda: receiver.arrived or receiver.refusal, timeout_s)
            arrived = receiver.take_arrived(1)
            if not arrived:
                words = receiver.refusal or f"not handed over in {timeout_s:g} s"
                raise LinkLost(
                    f"token {expected} is not in hand ({words}); another instance has it"
                )
            in_hand, message = arrived[0]
            number = _number(message)
            if number == _NOT_A_TOKEN:
                # The guard of a link over STOMP that waits for the token.
                receiver.accept(in_hand)
                receiver.flow(1)
        if number != expected:
            raise LinkLost(f"found token {number}, not {expected}: another one runs this instance")
        return in_hand

    def accept(self, transaction: Transaction) -> None:
        """Take the token under a transaction and ask the broker for the next one."""
        receiver = self._receiver()
        if receiver.credit == 0:
            receiver.flow(1)
        if isinstance(self._state, _Held):
            transaction.accept(self._state.delivery)

    def committed(self, number: int) -> None:
        """Take note that the token was exchanged; the new one is on its way."""
        receiver = self._receiver()
        if isinstance(self._state, _Held):
            receiver.settle(self._state.delivery)
        self._state = _Sent(receiver, number)

    def exists(self) -> bool | None:
        """Return whether the queue holds a token, handed out or not; None = unknown."""
        self._connection.check()
        if isinstance(self._state, _Held):
            return True
        return self._management.has_token(self._queue)

    def create(self, number: int) -> None:
        """Put a token into the queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.

        Raises:
            BrokerRefused: the broker does not take it.
            LinkLost: no answer in time.
        """
        sender = self.sender
        self._connection.run_until(lambda: sender.credit > 0 or sender.refusal, _TIMEOUT_S)
        if sender.credit <= 0:
            reason = sender.refusal or "no credit"
            raise BrokerRefused(f"the token queue {self._queue} takes no token: {reason}")
        delivery = sender.send(self.encode(number))
        if not self._connection.run_until(lambda: is_answered(delivery), _TIMEOUT_S):
            raise LinkLost(f"no answer about the first token in {_TIMEOUT_S:g} s")
        words = refusal_words(delivery)
        forget(delivery)
        if words is not None:
            raise BrokerRefused(f"the token queue {self._queue} takes no token: {words}")

    def encode(self, number: int) -> bytes:
        """Return the message that is token `number` now."""
        return encode_token(self._queue, number, self._clock.now_ms(), self._rules_digest)

    def _receiver(self) -> Receiver:
        if isinstance(self._state, _Released):
            raise LinkLost(f"the token queue {self._queue} is not read: the token was given back")
        return self._state.receiver

    def close(self) -> None:
        """Begin to close the links; the token goes back."""
        if not isinstance(self._state, _Released):
            self._state.receiver.close()
        self.sender.close()

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed the links."""
        is_let_go = isinstance(self._state, _Released) or self._state.receiver.is_closed
        return is_let_go and self.sender.is_closed


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


def _decoded(message: bytes) -> artemis_token.Token | None:
    """Return what a token says; None = it is none."""
    try:
        value: Any = amqp.scalar(amqp.split(message).get(amqp.VALUE, b"")[3:])
    except UndecodableMessage:
        return None
    return artemis_token.decode(str(value).encode()) if type(value) in (str, int) else None


def _number(message: bytes) -> int:
    """Return the number of a token; `_NOT_A_TOKEN` for any other message."""
    token = _decoded(message)
    return _NOT_A_TOKEN if token is None else token.cycle


def _names_dead_letters(message: bytes) -> bool:
    token = _decoded(message)
    return token is not None and bool(token.accepted)


def _delivery_count(message: bytes) -> int:
    try:
        items = amqp.elements(amqp.split(message).get(amqp.HEADER, b""))
        value = amqp.scalar(items[4]) if len(items) > 4 else 0
    except UndecodableMessage:
        return 0
    return value if type(value) is int else 0
