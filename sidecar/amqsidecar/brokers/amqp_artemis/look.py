"""What a link to Artemis over AMQP can do that was opened only to look."""

from dataclasses import dataclass
from typing import NamedTuple

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, IntakeQueue
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.parts import AmqpParts
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_artemis.browse import BROWSABLE, browse_convertible
from amqsidecar.brokers.amqp_artemis.core_messages import LISTED_MAX, Listed, list_of_others
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.listing import list_messages
from amqsidecar.brokers.artemis.session import ArtemisSession
from amqsidecar.brokers.artemis.trials import EMPTIED, ArtemisAnswers
from amqsidecar.brokers.selectors import both, of_redelivery_ids
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats.amqp_artemis_message import ENCODING
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.trials import TrialFeatures


@dataclass(frozen=True, kw_only=True)
class AmqpArtemisSettings(ArtemisLinkSettings):
    """Settings of an `AmqpArtemisLink`.

    Attributes:
        is_own_only: only what AMQP clients have made is read.
    """

    is_own_only: bool = False


class ArtemisTrials(ArtemisAnswers):
    """Trials over one AMQP connection."""

    def __init__(self, tried: AmqpTrials, management: ArtemisManagement) -> None:
        super().__init__(management)
        self._tried = tried
        self._refusals = management.refusals

    @property
    def features(self) -> TrialFeatures:
        """The optional parts of these trials."""
        return TrialFeatures(roles=self, effects=self, disk=self, acceptors=self)

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The link gives no credit. The broker makes a queue that is missing where it may.
        """
        capability = None if "::" in destination.name else "queue"
        return self._tried.read(destination.name, capability)

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        Nothing is sent. The broker makes a queue that is missing where it may.
        """
        return self._tried.write(destination.name, "queue" if destination.is_queue else "topic")

    def remove(self, destination: Destination) -> str | None:
        """Remove or empty a queue of ours; return why it may stay."""
        if self.can_remove:
            return self.destroyed(destination)
        return self._tried.empty(destination.name, "queue") or EMPTIED

    def refusals(self) -> tuple[str, ...]:
        """Return the broker's words why it can't be asked; () = it can."""
        return self._refusals

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return messages that the broker may be unable to convert; see `core_messages.py`."""
        management, name = self._management, queue.destination.name.rpartition("::")[2]
        management.demand(
            "only users with the manage permission can see which messages the broker may be "
            "unable to convert to AMQP"
        )
        count = management.message_count(name)
        if count is None:
            return ()
        listed = Listed()
        listed.read(management.ask(list_of_others(queue)), 0)
        if listed.refusal:
            raise BrokerRefused(f"the broker does not list it: {listed.refusal}")
        has_more = count > LISTED_MAX
        left = tuple(listed.left_behind(queue.destination, at_least=has_more))
        if has_more and not left:
            raise BrokerRefused(f"the broker lists the first {LISTED_MAX} of its {count} messages")
        return left


class AmqpArtemisOpened(NamedTuple):
    """A connection that is open.

    Attributes:
        parts: are closed with it.
        management: is ready.
    """

    connection: AmqpConnection
    client_id: str
    parts: AmqpParts
    management: ArtemisManagement


class AmqpArtemisLook(ArtemisSession):
    """A session over one AMQP connection to one Artemis broker; see `broker.LookSession`."""

    _management: ArtemisManagement

    def __init__(
        self, opened: AmqpArtemisOpened, settings: AmqpArtemisSettings, token_queue: str = ""
    ) -> None:
        """Look over a connection.

        Args:
            opened: the connection.
            settings: of the link.
            token_queue: of ours, which is no dead-letter queue; "" = there is none.
        """
        super().__init__(opened.management, settings, run=opened.client_id, token_queue=token_queue)
        self._connection = opened.connection
        self._parts = opened.parts
        self._browse_number = 0
        self._is_own_only = settings.is_own_only
        self._seen_in_part: dict[IntakeQueue, str] = {}
        version = self._connection.remote_properties().get("version", "")
        self.description = BrokerDescription(BrokerKind.ARTEMIS, version, (ENCODING,))

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        self._parts.close()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what browses did not show, or is stuck."""
        return super().left_behind() + tuple(
            LeftBehind(
                queue.destination,
                "not_listed",
                0,
                f"messages of Core and OpenWire clients are not browsed: {reason}",
                at_least=True,
            )
            for queue, reason in self._seen_in_part.items()
        )

    def wait(self, timeout_s: float) -> None:
        """Block until `wake` was called, or the time is over."""
        self._connection.rest_until(lambda: False, timeout_s)

    def descriptor(self) -> int:
        """Return the file descriptor of the connection."""
        return self._connection.descriptor()

    def wait_beside(self, descriptor: int) -> None:
        """End each `wait` also when this descriptor is readable."""
        self._connection.beside = (descriptor,)

    def wake(self) -> None:
        """End a running or the next `wait` at once; the only method for other threads."""
        self._connection.wake()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait in a dead-letter queue, but no more than `at_most`."""
        count = self._management.count(queue.destination, at_most)
        return self._browse_count(queue, at_most) if count is None else count

    def _browse_count(self, queue: IntakeQueue, at_most: int) -> int:
        # Why: a link that only looks must not make copies (`browse.py`).
        return len(self.browse(queue, at_most))

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return a dead-letter queue's messages: listed without bodies, or browsed in part.

        Messages that the broker would have to convert are not browsed (see `browse.py`);
        `left_behind` reports them.
        """
        routes, management = self._routes, self._management
        routes.note_intake(queue)
        if not queue.redelivery_ids:
            listed = list_messages(management, queue, at_most, routes.read_origin, ENCODING)
            if listed is not None:
                self._seen_in_part.pop(queue, None)
                return listed
            self._seen_in_part[queue] = (
                management.why_unusable or f"it holds more than {at_most} messages"
            )
        self._browse_number += 1
        name = f"amqsidecar-browse-{self._browse_number}"
        return browse_convertible(
            self._connection,
            name,
            queue,
            at_most,
            routes.read_origin,
            both(
                of_redelivery_ids(queue.redelivery_ids),
                MADE_BY_AMQP if self._is_own_only else BROWSABLE,
            ),
        )

    def trials(self) -> ArtemisTrials:
        """Return what tries the user's rights over this connection."""
        return ArtemisTrials(AmqpTrials(self._connection), self._management)
