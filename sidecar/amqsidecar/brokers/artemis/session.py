"""The part of an Artemis session that asks the management, over any wire."""

from collections.abc import Collection, Mapping, Sequence
from typing import Generic, TypeVar

from amqsidecar.broker import BrokerDescription, Features, IntakeQueue, Resend
from amqsidecar.brokers.artemis.counters import queue_counters
from amqsidecar.brokers.artemis.foreign_tokens import foreign_tokens
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.brokers.artemis.schedule import ArtemisSchedule
from amqsidecar.brokers.artemis.settings import ArtemisSettingsReader
from amqsidecar.brokers.artemis.waiting_places import WaitingPlaces
from amqsidecar.formats.artemis_filter_view import filter_view
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.outcome import Counters
from amqsidecar.model.send_terms import ROUTES, SendTerms
from amqsidecar.policy.selector import PropertyOf

M = TypeVar("M", bound=ArtemisQuestions)


class ManagedSession(Generic[M]):
    """The part of a `broker.LookSession` that the management answers."""

    description: BrokerDescription

    def __init__(
        self,
        management: M,
        settings: ArtemisLinkSettings,
        *,
        run: str,
        token_queue: str,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            management: of the broker.
            settings: of the link.
            run: of the connection: the broker has not restarted while it lasts.
            token_queue: of ours, which is no dead-letter queue; "" = there is none.
        """
        clock = settings.clock
        self._management = management
        self._clock = clock
        self._instance = settings.instance
        self._run = run
        self._live_settings = ArtemisSettingsReader(management)
        self._waiting_places = WaitingPlaces(management, clock)
        self._routes = ArtemisRoutes(
            management, clock, token_queue, settings.final_suffix, settings.allowed_effects
        )

    @property
    def routes(self) -> ArtemisRoutes:
        """What is known about destinations."""
        return self._routes

    def share_routes(self, routes: ArtemisRoutes) -> None:
        """Use the routes of another session to the same broker from now on."""
        self._routes = routes

    def _target_of(self, destination: Destination) -> str:
        """Return the name to send to, as known from the last question."""
        return self._routes.target(destination)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all other instances."""
        return foreign_tokens(self._management, known)

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        """Return what becomes of a send to a destination."""
        if makes and not self._management.is_usable:
            problem = self._make_unmanaged(destination)
            return ROUTES if problem is None else SendTerms(problem)
        return self._routes.send_terms(destination, makes=makes)

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        """Ask about many at once, so that `send_terms` knows them for some seconds."""
        self._routes.ask_ahead(destinations)

    def filter_view(self, resend: Resend) -> PropertyOf:
        """Return what a filter of the broker sees of a message."""
        return filter_view(
            resend,
            self._target_of(resend.destination),
            resend.encoding or self.description.encodings[0],
            self._clock.now_ms(),
            expires_by_itself=self._routes.expires(resend.destination),
        )

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of those destinations that the broker counts."""
        return queue_counters(self._management, destinations, self._run)

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return the dead-letter queues that the live broker has.

        Raises:
            DiscoveryRefused: this user may not ask.
        """
        return self._routes.discover()

    def _make_unmanaged(self, destination: Destination) -> str | None:
        """Make a queue where the management can't be used; return why it can't be made."""
        # Why None: the broker creates the queue at the first send, or refuses that send.
        return None


class DelayingSession(ManagedSession[M]):
    """The same over a wire on which the broker can keep waiting messages; see `KeepsDelayed`."""

    @property
    def features(self) -> Features:
        """What this wire can do beyond the contract."""
        return Features(settings=self._live_settings, delayed=self)

    def waiting_problem(self, destination: Destination) -> str | None:
        """Return why a message that waits there may be lost, as a sentence; None = it is kept."""
        return self._waiting_places.problem(destination)

    def schedule(self) -> ArtemisSchedule:
        """Return the messages that wait in the broker; valid while the connection lasts."""
        return ArtemisSchedule(self._management, self._instance)


class ReadingSession(ManagedSession[M]):
    """The same of a session that reads dead-letter queues; see `broker.IntakeSession`."""

    def is_bound(self, queue: Destination) -> bool:
        """Return whether the broker keeps messages of a queue for one consumer; True = unknown.

        It does where a group is bound to one, or where the queue is exclusive.
        """
        name = queue.name.rpartition("::")[2]
        answers = self._management.ask_all(
            [
                ManagementQuestion(f"queue.{name}", attribute=attribute)
                for attribute in ("GroupCount", "Exclusive")
            ]
        )
        return any(not one.is_ok or one.value for one in answers)

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link was open, so that all in it is new."""
        return self._routes.watch.is_newborn(destination.name.rpartition("::")[2])
