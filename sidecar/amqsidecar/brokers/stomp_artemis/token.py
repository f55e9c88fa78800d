"""Messages of the token queue over STOMP on Artemis; see `brokers/token_queue.py`.

An ACK can't be part of a transaction here, so dead letters are acknowledged after the commit. Token
k therefore carries the numbers of the dead letters that cycle k accepts: when they come again
after a crash, the next owner of the token acknowledges them, and hands none of them over.

All its messages are of one message group, so that the broker hands them to one connection only,
until that connection is gone, also where the queue is not exclusive.

Quirk (Artemis 2.44): when a STOMP connection dies, two threads clean up. One
(`ServerSessionImpl.doClose`) rolls the session's transaction back, then closes the consumers. The
other (`StompProtocolManager.cleanup`) calls `rollback(true)`, which acknowledges the first message
in hand of each consumer in that transaction. If this happens in between, the transaction is over
already and nothing ends the acknowledgement: the message counts as handed out until the broker is
restarted.

Therefore the token is never the first message in hand. Each connection sends a guard before it
subscribes: a message of the highest priority, which the broker hands over before any token. The
last guard before the token is not acknowledged while a token is in hand. It is not persistent, so
it does not outlive a restart of the broker.
"""

from collections.abc import Sequence
from uuid import uuid4

from typing_extensions import override

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, call
from amqsidecar.brokers.stomp_artemis.management import connect
from amqsidecar.brokers.token import Token, decode, encode
from amqsidecar.brokers.token_queue import (
    TOKEN_TIMEOUT_S,
    TokenMessage,
    TokenQueueMaker,
    TokenWire,
)
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.stomp_artemis_message import Arrived, destination_headers, read_frame
from amqsidecar.formats.stomp_frame import Frame, Header
from amqsidecar.model.destination import queue
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST

_SUBSCRIPTION = "token"
_WINDOW_BYTES = 4 << 20
_GUARD = b"guard"
# Maximum of unacknowledged guards, of other connections that wait for the token.
_GUARDS_MAX = 100
_PERSISTENT, _NOT_PERSISTENT = (b"persistent", b"true"), (b"persistent", b"false")


class StompTokenWire(TokenWire[bytes]):
    """Reads and writes the token queue over the connection of the transactions.

    A message in hand is known by the id that acknowledges it.

    Attributes:
        connection: carries token and transactions: the broker gives the token to another
            connection only after it has ended both.
    """

    scheme, accepts_later = "stomp", True

    def __init__(
        self,
        settings: ArtemisLinkSettings,
        administration: TokenQueueMaker,
        queue_name: str,
    ) -> None:
        """Make the queue where it can be made, and connect.

        Raises:
            BrokerRefused: the queue can't be made.
            LinkLost: the broker can't be reached.
        """
        self._settings = settings
        self._administration = administration
        self._queue = queue_name
        self._guards: list[bytes] = []
        administration.make_token_queue(queue_name)
        self.connection = self._connected()

    def _connected(self) -> StompConnection:
        connection = connect(self._settings)
        connection.is_ours = _is_ours
        return connection

    @override
    def open(self) -> None:
        # Why a guard first: the broker hands it over before the token.
        self._guards.clear()
        try:
            self._send(_GUARD, _NOT_PERSISTENT, (b"priority", b"9"))
            call(
                self.connection,
                "SUBSCRIBE",
                [
                    (b"destination", self._queue.encode()),
                    (b"subscription-type", b"ANYCAST"),
                    (b"id", _SUBSCRIPTION.encode()),
                    (b"ack", b"client-individual"),
                    (b"consumer-window-size", b"%d" % _WINDOW_BYTES),
                ],
            )
        except FrameRefused as refused:
            self.connection.close()
            raise BrokerRefused(
                f"the token queue {self._queue} can't be used: {refused}"
            ) from refused
        except BaseException:
            self.connection.close()
            raise

    @override
    def release(self) -> None:
        try:
            call(self.connection, "UNSUBSCRIBE", [(b"id", _SUBSCRIPTION.encode())])
        except FrameRefused as refused:
            raise LinkLost(str(refused)) from refused
        while self.connection.messages:
            self.connection.next_message()

    def reopen(self) -> None:
        """Connect again after an ERROR; messages in hand are given back.

        Raises:
            BrokerRefused: the queue can't be read any more.
        """
        self.connection.close()
        self.connection = self._connected()
        self.open()

    @property
    def has_guard(self) -> bool:
        """Whether this connection is the next that gets the token."""
        return bool(self._guards)

    @override
    def poll(self) -> None:
        self.connection.poll()

    def keep_alive(self) -> None:
        """Answer the broker's heart-beats."""
        if not self.connection.errors:
            self.connection.poll()

    @override
    def collect(self, timeout_s: float) -> Sequence[TokenMessage[bytes]]:
        arrived = self._next(timeout_s)
        while arrived is not None and not self._guards:
            # Why it may be missing: it was removed from the queue by hand.
            self.release()
            self.open()
            arrived = self._next(timeout_s)
        if arrived is None:
            return ()
        spare, self._guards = self._guards[:-1], self._guards[-1:]
        # Why a probe: it comes last, so all tokens that were there are in hand when it comes.
        probe = f"probe {uuid4().hex}".encode()
        words = self._ask(probe, _NOT_PERSISTENT)
        if words is not None:
            raise BrokerRefused(f"the token queue {self._queue} takes no token: {words}")
        found = []
        while arrived.body != probe:
            found.append(_found(arrived))
            arrived = self._next(TOKEN_TIMEOUT_S)
            if arrived is None:
                raise LinkLost(f"the token queue {self._queue} does not answer")
        self.drop([*spare, arrived.ack])
        return found

    @override
    def next(self, timeout_s: float) -> TokenMessage[bytes] | None:
        arrived = self._next(timeout_s)
        return None if arrived is None else _found(arrived)

    @override
    def drop(self, handles: Sequence[bytes]) -> None:
        for ack in handles:
            self._acknowledge(ack)
        self.connection.flush()

    @override
    def replace(self, handle: bytes, token: Token) -> bool:
        words = self.put(token)
        if words is not None:
            raise LinkLost(f"the token queue {self._queue} takes no token: {words}")
        self.drop([handle])
        return True

    @override
    def settle(self, handle: bytes) -> None:
        self.drop([handle])

    def send_next(self, token: Token, transaction: Header) -> str:
        """Send a token in a transaction; return the receipt that confirms it and all before it."""
        duplicate_id = (b"_AMQ_DUPL_ID", f"{token.lineage}:{token.cycle}".encode())
        headers = [*self._headers(), _PERSISTENT, transaction, duplicate_id]
        return self.connection.ask("SEND", headers, encode(token))

    @override
    def put(self, token: Token) -> str | None:
        return self._ask(encode(token), _PERSISTENT)

    @override
    def holds_any(self) -> bool | None:
        return self._administration.has_token(self._queue)

    def close(self) -> None:
        """Give the token back and disconnect; never raises."""
        try:
            self.connection.send("UNSUBSCRIBE", [(b"id", _SUBSCRIPTION.encode())])
            self.connection.disconnect(2.0)
        except LinkLost:
            self.connection.close()

    def _headers(self) -> list[Header]:
        return [
            *destination_headers(queue(self._queue)),
            (b"_AMQ_GROUP_ID", b"amqsidecar"),
            (PROPERTY_RULES_DIGEST.encode(), self._settings.rules_digest.encode()),
        ]

    def _send(self, body: bytes, *headers: Header) -> None:
        call(self.connection, "SEND", [*self._headers(), *headers], body)

    def _ask(self, body: bytes, *headers: Header) -> str | None:
        """Send; return the broker's words if it refuses."""
        try:
            self._send(body, *headers)
        except FrameRefused as refused:
            return str(refused)
        return None

    def _acknowledge(self, ack: bytes) -> None:
        self.connection.send("ACK", [(b"id", ack)])

    def _next(self, timeout_s: float) -> Arrived | None:
        """Return the next message that is no guard; None = not in time."""
        deadline_s = self._settings.clock.monotonic_s() + timeout_s
        connection = self.connection
        while True:
            while connection.messages:
                arrived = read_frame(connection.next_message())
                if arrived.body != _GUARD:
                    return arrived
                self._guards.append(arrived.ack)
                if len(self._guards) > _GUARDS_MAX:
                    # Why not the first: it stands before the token.
                    self._acknowledge(self._guards.pop(1))
            if connection.errors:
                error = connection.errors.popleft().text(b"message")
                connection.close()
                raise LinkLost(f"the broker ended the connection of the token: {error}")
            left_s = deadline_s - self._settings.clock.monotonic_s()
            if left_s <= 0:
                return None
            connection.wait(left_s)


def _found(arrived: Arrived) -> TokenMessage[bytes]:
    return TokenMessage(arrived.ack, decode(arrived.body), arrived.redelivered)


def _is_ours(frame: Frame) -> bool:
    return frame.text(b"subscription") == _SUBSCRIPTION
