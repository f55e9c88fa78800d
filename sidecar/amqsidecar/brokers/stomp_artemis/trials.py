"""Tries the rights of the sidecar's user on Artemis over STOMP; takes and leaves no message.

Each trial has a connection of its own, since the broker ends a connection when it refuses a frame.

Quirk (Artemis 2.44): over STOMP the broker names a permission only where it would have to make
something; that SEND or CONSUME is missing it says in words that name none. In the same words it
says that an address is full.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from typing_extensions import override

from amqsidecar.broker import Delivery, IntakeQueue
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.listing import list_messages
from amqsidecar.brokers.artemis.management import ADDRESS, of_queue
from amqsidecar.brokers.artemis.trials import EMPTIED, ArtemisTrials
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, call, error_text
from amqsidecar.brokers.stomp_artemis.management import REPLY_PREFIX, StompManagement, connect
from amqsidecar.brokers.stomp_artemis.selection import MADE_BY_OTHERS, MEANINGS, read_list
from amqsidecar.brokers.stomp_artemis.subscriptions import subscription_type
from amqsidecar.errors import BrokerRefused, QueueRefused
from amqsidecar.formats.artemis_properties import OriginReader
from amqsidecar.formats.stomp_artemis_message import destination_headers
from amqsidecar.formats.stomp_frame import ENCODING, Header
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.trials import TrialFeatures

_TRANSACTION: Header = (b"transaction", b"trial")
_UNNAMED_SEND = "AMQ339011 Error sending message"
_UNNAMED_CONSUME = "AMQ339016 Error creating subscription"
_NAMES_NONE = "over STOMP the broker does not say which; that is the one it asks for there"
_NO_SEND = "the user may not send there; over STOMP the broker does not say which"
# Precedent: management-browse-page-size unless configured.
_LISTED_MAX = 200
_EMPTIED_AFTER_S = 0.5


class StompArtemisTrials(ArtemisTrials):
    """Trials over STOMP connections."""

    def __init__(
        self,
        settings: ArtemisLinkSettings,
        management: StompManagement,
        read_origin: OriginReader,
    ) -> None:
        super().__init__(management)
        self._read_origin = read_origin
        self._settings = settings
        self._user = settings.endpoint.user or "anonymous"

    @property
    @override
    def features(self) -> TrialFeatures:
        return TrialFeatures(roles=self, effects=self, messages=self, disk=self, acceptors=self)

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The consumer selects no message. The broker makes a queue that is missing where it may.
        """
        try:
            headers = [*self._source(destination), (b"ack", b"client-individual")]
        except QueueRefused as refused:
            return str(refused)
        headers.append((b"selector", b"1 = 0"))
        return self._try(
            destination, [("SUBSCRIBE", headers), ("UNSUBSCRIBE", [(b"id", b"trial")])]
        )

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        The trial send is rolled back. The broker creates a missing queue where it may.
        """
        return self._write(destination, destination_headers(destination))

    def _write(self, destination: Destination, headers: Iterable[Header]) -> str | None:
        frames = [
            ("BEGIN", [_TRANSACTION]),
            ("SEND", [*headers, _TRANSACTION]),
            ("ABORT", [_TRANSACTION]),
        ]
        return self._try(destination, frames)

    def _source(self, destination: Destination) -> list[Header]:
        return [
            (b"destination", destination.name.encode()),
            subscription_type(self._management, destination),
            (b"id", b"trial"),
        ]

    def _try(
        self, destination: Destination, frames: Iterable[tuple[str, Iterable[Header]]]
    ) -> str | None:
        def call_all(connection: StompConnection) -> None:
            for command, headers in frames:
                call(connection, command, headers)

        return self._refusal(destination, call_all)

    def _refusal(
        self, destination: Destination, ask: Callable[[StompConnection], None]
    ) -> str | None:
        """Ask over a connection of its own; return the broker's reason why not."""
        connection = connect(self._settings)
        try:
            ask(connection)
            connection.disconnect(2.0)
        except FrameRefused as refused:
            return self._named(error_text(refused.frame), destination)
        finally:
            connection.close()
        return None

    def _named(self, words: str, destination: Destination) -> str:
        address = destination.address
        if words.startswith(_UNNAMED_CONSUME):
            return self._lacks("CONSUME", address)
        if not words.startswith(_UNNAMED_SEND):
            return words
        if address == ADDRESS:
            # Why: there the broker asks for it instead of SEND.
            return self._lacks("MANAGE", address)
        settings = self._management.settings([address])[0]
        if settings.get("addressFullMessagePolicy") == "FAIL":
            return f"{_UNNAMED_SEND}: it is full (address-full-policy FAIL), or {_NO_SEND}"
        return self._lacks("SEND", address)

    def _lacks(self, permission: str, address: str) -> str:
        return (
            f"User: {self._user} does not have permission='{permission}' on address {address} "
            f"({_NAMES_NONE})"
        )

    @override
    def _empty(self, destination: Destination) -> str | None:
        headers = [*self._source(destination), (b"ack", b"auto")]

        def take_all(connection: StompConnection) -> None:
            call(connection, "SUBSCRIBE", headers)
            taken = -1
            while len(connection.messages) > taken:
                taken = len(connection.messages)
                connection.wait(_EMPTIED_AFTER_S)
            call(connection, "UNSUBSCRIBE", [(b"id", b"trial")])

        return self._refusal(destination, take_all) or EMPTIED

    @override
    def refusals(self) -> tuple[str, ...]:
        why = self._management.why_unusable
        if not why:
            return ()
        asked = self._write(queue(ADDRESS), [(b"destination", ADDRESS.encode())])
        words = [] if asked is None else [asked]
        if _UNNAMED_CONSUME in why:
            words.append(self._lacks("CREATE_NON_DURABLE_QUEUE", REPLY_PREFIX))
            words.append(self._lacks("CONSUME", REPLY_PREFIX))
        elif _UNNAMED_SEND in why and asked is None:
            # Why: the question went out, so SEND is missing on the reply address.
            words.append(self._lacks("SEND", REPLY_PREFIX))
        elif f"address {REPLY_PREFIX}" in why:
            words.append(why)
        return tuple(words) or (why,)

    def list_messages(self, intake: IntakeQueue, at_most: int) -> list[Delivery]:
        self._management.demand("over STOMP only users with the manage permission can see that")
        listed = list_messages(self._management, intake, at_most, self._read_origin, ENCODING)
        if listed is None:
            raise BrokerRefused("it holds too many messages to be listed")
        return listed

    def would_leave(self, intake: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return the messages that a link would leave in a queue, if the broker lists types."""
        management, name = self._management, intake.destination.name.rpartition("::")[2]
        management.demand(
            "messages of other clients than STOMP are not taken, and only users with the "
            "manage permission can count them"
        )
        count = management.message_count(name) or 0
        answer = management.ask(of_queue(intake.destination, "listMessagesAsJSON", MADE_BY_OTHERS))
        if not answer.is_ok or not answer.value:
            return ()
        losses = Counter(
            one.loss for one in read_list(answer.value, self._settings.allowed_losses) if one.loss
        )
        return tuple(
            LeftBehind(
                intake.destination, loss, found, MEANINGS[loss], at_least=count > _LISTED_MAX
            )
            for loss, found in sorted(losses.items())
        )
