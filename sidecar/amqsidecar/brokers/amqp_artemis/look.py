"""What a link to Artemis over AMQP can do that was opened only to look."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from amqsidecar.broker import (
    BrokerDescription,
    BrokerKind,
    Delivery,
    Features,
    ForeignToken,
    IntakeQueue,
    LeftBehind,
)
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.parts import AmqpParts
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_artemis.browse import browse_convertible
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.amqp_artemis.trials import ArtemisTrials
from amqsidecar.brokers.artemis.counters import queue_counters
from amqsidecar.brokers.artemis.foreign_tokens import foreign_tokens
from amqsidecar.brokers.artemis.listing import list_messages
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.brokers.artemis.schedule import ArtemisSchedule
from amqsidecar.brokers.artemis.settings import ArtemisSettingsReader
from amqsidecar.brokers.artemis.waiting_places import WaitingPlaces
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.model.destination import Destination
from amqsidecar.model.outcome import Counters
from amqsidecar.model.resend_effect import ResendEffect

ENCODING: Final = "amqp/1.0"


class AmqpArtemisSettings(NamedTuple):
    """What the sessions of a link have in common; see `AmqpArtemisLink`."""

    clock: Clock
    instance: str
    timeout_s: float
    final_suffix: str
    allowed_effects: Collection[ResendEffect]
    crash_point: CrashPoint


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


class AmqpArtemisLook:
    """A session over one AMQP connection to one Artemis broker; see `broker.LookSession`."""

    def __init__(
        self, opened: AmqpArtemisOpened, settings: AmqpArtemisSettings, token_queue: str = ""
    ) -> None:
        """Look over a connection.

        Args:
            opened: the connection.
            settings: of the link.
            token_queue: of ours, which is no dead-letter queue; "" = there is none.
        """
        self._connection = opened.connection
        self._client_id = opened.client_id
        self._parts = opened.parts
        self._management = opened.management
        self._clock = settings.clock
        self._instance = settings.instance
        self._timeout_s = settings.timeout_s
        self._browse_number = 0
        self._seen_in_part: dict[IntakeQueue, str] = {}
        version = self._connection.remote_properties().get("version", "")
        self.description = BrokerDescription(BrokerKind.ARTEMIS, version, ENCODING)
        self._live_settings = ArtemisSettingsReader(self._management)
        self._routes = ArtemisRoutes(
            self._management,
            self._clock,
            token_queue,
            settings.final_suffix,
            settings.allowed_effects,
        )
        self._waiting_places = WaitingPlaces(self._management, self._clock)

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(settings=self._live_settings, delayed=self)

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect."""
        self._parts.close()

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name."""
        return foreign_tokens(self._management, known)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return what was not shown by a browse."""
        return tuple(
            LeftBehind(
                queue.destination,
                "not_listed",
                0,
                f"what Core and OpenWire clients have made is not looked at: {reason}",
                at_least=True,
            )
            for queue, reason in self._seen_in_part.items()
        )

    def wait(self, timeout_s: float) -> None:
        """Block until `wake` was called, or the time is over."""
        connection = self._connection
        connection.run_until(lambda: connection.was_woken, timeout_s)
        connection.was_woken = False

    def wake(self) -> None:
        """End a running or the next `wait` at once; the only method for other threads."""
        self._connection.wake()

    def route_problem(self, destination: Destination) -> str | None:
        """Return why a send to this destination would get lost, as a sentence; None = it routes."""
        return self._routes.problem(destination)

    def waiting_problem(self, destination: Destination) -> str | None:
        """Return why a message that waits there may be lost, as a sentence; None = it is kept."""
        return self._waiting_places.problem(destination)

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of these destinations, as far as they can be told."""
        return queue_counters(self._management, destinations, self._client_id)

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return the dead-letter queues that the live broker has; empty where it can't tell."""
        return self._routes.discover()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait in a dead-letter queue, but no more than `at_most`."""
        if self._management.missing is None:
            name = queue.destination.name
            return min(self._management.message_count(name.split("::")[-1]) or 0, at_most)
        # Why: a link that only looks must not make copies (`amqp_browse`).
        return len(self.browse(queue, at_most))

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return what lies in a dead-letter queue: told without bodies, or browsed in part.

        What the broker would have to convert is not browsed, see `amqp_browse`; `left_behind`
        tells of it.

        Raises:
            BrokerRefused: the user may not browse it.
            LinkLost: the connection is gone.
        """
        routes, management = self._routes, self._management
        routes.note_intake(queue)
        listed = list_messages(management, queue, at_most, routes.read_origin)
        if listed is not None:
            self._seen_in_part.pop(queue, None)
            return listed
        self._seen_in_part[queue] = management.missing or f"it holds more than {at_most} messages"
        self._browse_number += 1
        name = f"amqsidecar-browse-{self._browse_number}"
        return browse_convertible(
            self._connection, name, queue, at_most, routes.read_origin, self._timeout_s
        )

    def schedule(self) -> ArtemisSchedule:
        """Return what waits in the broker, for the time of this connection."""
        return ArtemisSchedule(self._management, self._instance)

    def trials(self) -> ArtemisTrials:
        """Return what tries the user's rights over this connection."""
        tried = AmqpTrials(self._connection, self._timeout_s)
        return ArtemisTrials(tried, self._management)

    def prepare_final(self, destination: Destination) -> str | None:
        """Make sure that a final dead-letter queue exists, where this user may manage it."""
        if self._management.missing is None:
            return self._routes.prepare_final(destination)
        return None
