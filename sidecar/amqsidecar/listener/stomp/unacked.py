"""The unacknowledged messages of one client, and their subscriptions; no IO."""

from dataclasses import dataclass
from typing import Final

from amqsidecar.formats.stomp_stream import header_value
from amqsidecar.listener.bodies import BodyBudget, KeptBody

_ARTEMIS: Final = b"ActiveMQ-Artemis/"
_DURABLE_NAMES: Final = (
    *(b"durable-subscription-name", b"durable-subscriber-name"),
    b"activemq.subscriptionName",
)


ENTRY_BYTES: Final = 512
"""Memory of a subscription or a transaction without its names."""


class ClientSubscription:
    """A subscription whose client acknowledges.

    Attributes:
        destination: as the client named it.
        is_cumulative: an acknowledgement counts for all before it, too.
        durable_name: "" = it ends with its connection.
        messages: unacknowledged messages by their key, in the order received.
        size_bytes: memory of its names.
    """

    __slots__ = ("destination", "durable_name", "is_cumulative", "messages", "size_bytes")

    def __init__(self, headers: dict[bytes, bytes]) -> None:
        self.destination = headers.get(b"destination", b"").decode(errors="replace")
        self.is_cumulative = headers.get(b"ack") == b"client"
        names = [headers[name] for name in _DURABLE_NAMES if name in headers]
        self.durable_name = names[0].decode(errors="replace") if names else ""
        self.messages: dict[bytes, UnackedMessage] = {}
        kept = (headers.get(b"id", b""), headers.get(b"destination", b""), *names)
        self.size_bytes = ENTRY_BYTES + sum(map(len, kept))


@dataclass(slots=True, eq=False)
class UnackedMessage:
    """A message that the client has not acknowledged.

    Attributes:
        head: of its MESSAGE frame.
        body: the kept part of its body.
        given_up_in: the transaction in which it was given up; b"" = it was not.
        is_here: its last byte was seen.
    """

    key: bytes
    head: bytes
    body: KeptBody
    subscription: ClientSubscription
    given_up_in: bytes = b""
    is_here: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it can be saved: it has arrived, and all of it was kept."""
        return self.is_here and self.body.is_kept


class Deliveries:
    """Deliveries over one connection.

    Attributes:
        session: the broker's name of the connection.
        subscription_bytes: memory of the names of subscriptions.
        version: STOMP version that the broker answered; b"" = no answer yet.
        is_destroying_nacks: the broker is known to destroy messages on NACK: Artemis, over a
            version of STOMP that has NACK.
    """

    def __init__(self, budget: BodyBudget) -> None:
        self.session = ""
        self.version = b""
        self.is_destroying_nacks = False
        self._budget = budget
        self._subscriptions: dict[bytes, ClientSubscription] = {}
        self.subscription_bytes = 0
        self._messages: dict[bytes, UnackedMessage] = {}

    def connected(self, headers: dict[bytes, bytes]) -> None:
        """Note the broker's CONNECTED."""
        self.session = headers.get(b"session", b"").decode(errors="replace")
        is_artemis = headers.get(b"server", b"").startswith(_ARTEMIS)
        self.version = headers.get(b"version", b"1.0")
        self.is_destroying_nacks = is_artemis and self.version != b"1.0"

    def subscribe(self, headers: dict[bytes, bytes]) -> None:
        """Note a SUBSCRIBE."""
        if headers.get(b"ack") in (b"client", b"client-individual"):
            self.unsubscribe(headers.get(b"id", b""))
            made = ClientSubscription(headers)
            self._subscriptions[headers.get(b"id", b"")] = made
            self.subscription_bytes += made.size_bytes

    def unsubscribe(self, name: bytes) -> None:
        """Note an UNSUBSCRIBE: unacknowledged messages return to the broker."""
        gone = self._subscriptions.pop(name, None)
        if gone is not None:
            self.subscription_bytes -= gone.size_bytes
            self.drop(list(gone.messages.values()))

    def begin(self, head: bytes) -> UnackedMessage | None:
        """Note a MESSAGE frame; None = it needs no acknowledgement."""
        if not self.is_destroying_nacks:
            return None
        subscription = self._subscriptions.get(header_value(head, b"subscription"))
        if subscription is None:
            return None
        key = header_value(head, b"message-id")
        body = self._budget.new_body(len(head))
        message = UnackedMessage(key, head, body, subscription)
        earlier = self._messages.get(key)
        if earlier is not None:
            self.drop([earlier])
        self._messages[key] = subscription.messages[key] = message
        return message

    def covered(self, headers: dict[bytes, bytes]) -> list[UnackedMessage]:
        """Return the messages that an ACK or a NACK covers, in the order received."""
        last = self._messages.get(headers.get(b"id") or headers.get(b"message-id", b""))
        if last is None:
            return []
        if not last.subscription.is_cumulative:
            return [last]
        covered = []
        for one in last.subscription.messages.values():
            covered.append(one)
            if one is last:
                break
        return covered

    def abort(self, transaction: bytes) -> None:
        """Keep the messages of an aborted transaction."""
        for one in self._messages.values():
            if one.given_up_in == transaction:
                one.given_up_in = b""

    def take(self, messages: list[UnackedMessage]) -> None:
        """Forget messages, but keep their content until they are dropped."""
        for one in messages:
            if self._messages.get(one.key) is one:
                del self._messages[one.key]
            if one.subscription.messages.get(one.key) is one:
                del one.subscription.messages[one.key]

    def drop(self, messages: list[UnackedMessage]) -> None:
        """Forget messages and their kept bodies."""
        self.take(messages)
        for one in messages:
            one.body.discard()

    def clear(self) -> None:
        """Forget everything."""
        self.drop(list(self._messages.values()))
