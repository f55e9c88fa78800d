"""The part of an Artemis session that asks the management, over any wire."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from amqsidecar.broker import BrokerDescription, Delivery, Features, IntakeQueue, Resend
from amqsidecar.brokers.artemis.left_behind import StuckMessages
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.listing import LISTED_MAX, list_messages
from amqsidecar.brokers.artemis.management import (
    ArtemisQuestions,
    AskedAhead,
    ChosenMessages,
    ManagementQuestion,
    about_queues,
    about_settings,
    attribute_of_queue,
)
from amqsidecar.brokers.artemis.routes import ArtemisRoutes, expires_by_itself
from amqsidecar.brokers.artemis.schedule import ArtemisSchedule
from amqsidecar.brokers.sends_ahead import Misrouted
from amqsidecar.clock import Clock
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX, is_examiner
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats.artemis_filter_view import filter_view
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.outcome import Counters
from amqsidecar.model.send_terms import ROUTES, SendTerms
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST
from amqsidecar.policy.selector import PropertyOf

_KEEP_S = 10.0
# Bound: maximum remembered destinations.
_ENTRIES_MAX = 10_000


class WaitingPlaces:
    """Where a message may wait for its delivery time, remembered for some seconds.

    Measured on a broker (`deploy/reference/schedules.md`).
    """

    def __init__(self, management: ArtemisQuestions, clock: Clock) -> None:
        self._management = management
        self._clock = clock
        self._problems: dict[Destination, tuple[float, str | None]] = {}

    def problem(self, destination: Destination) -> str | None:
        """Return why a message that waits there may be lost, as a sentence; None = it is kept."""
        now_s = self._clock.monotonic_s()
        known = self._problems.get(destination)
        if known is not None and now_s < known[0]:
            return known[1]
        if len(self._problems) >= _ENTRIES_MAX:
            self._problems.clear()
        found = self._find_problem(destination)
        self._problems[destination] = (now_s + _KEEP_S, found)
        return found

    def _find_problem(self, destination: Destination) -> str | None:
        address, _, queue = destination.name.partition("::")
        settings = self._management.settings([address])[0]
        rows = [
            row
            for row in self._management.queues(address=address)
            if row.is_anycast == destination.is_queue and queue in ("", row.name)
        ]
        purged = [row.name for row in rows if row.is_purged]
        if not rows and settings.get("defaultPurgeOnNoConsumers"):
            purged = [address]
        if purged:
            return (
                f"queue {purged[0]} loses its waiting messages when its last consumer leaves "
                "(purge-on-no-consumers)"
            )
        for row in rows:
            if not row.is_durable:
                return f"queue {row.name} is not durable: a restart loses its waiting messages"
        deletes = [row.is_auto_deleted for row in rows] or [settings.get("autoDeleteQueues", True)]
        if settings.get("autoDeleteQueuesMessageCount", 0) != 0 and any(deletes):
            return (
                f"the broker removes the queue of {address} when it has no consumer, with its "
                "waiting messages (auto-delete-queues-message-count is not 0)"
            )
        return _settings_problem(address, settings)


def _settings_problem(address: str, settings: Mapping[str, Any]) -> str | None:
    if expires_by_itself(settings):
        return (
            f"the address settings of {address} make messages expire, and the time runs while they "
            "wait"
        )
    is_limited = any(
        int(settings.get(name, -1)) >= 0 for name in ("maxSizeBytes", "maxSizeMessages")
    )
    if is_limited and settings.get("addressFullMessagePolicy") == "DROP":
        return f"address {address} drops messages when it is full (address-full-policy DROP)"
    return None


def _rules_digest(management: ArtemisQuestions, queue: str) -> str:
    """Return the digest that the tokens of a queue show, handed out or not; "" = none.

    Source: Artemis, QueueControl.listDeliveringMessagesAsJSON, which also lists messages whose
    acknowledgement is not committed yet.
    """
    resource = f"queue.{queue}"
    delivered = management.ask(ManagementQuestion(resource, "listDeliveringMessagesAsJSON"))
    by_consumer = json.loads(delivered.value) if delivered.is_ok and delivered.value else []
    found = [entry for consumer in by_consumer for entry in consumer.get("elements", ())]
    if not found:
        lying = management.ask(ManagementQuestion(resource, "listMessagesAsJSON", ("",)))
        found = json.loads(lying.value) if lying.is_ok and lying.value else []
    digests = (entry.get(PROPERTY_RULES_DIGEST) for entry in found)
    return next((one for one in digests if isinstance(one, str) and one), "")


def _counters(management: ArtemisQuestions, destination: Destination, run: str) -> Counters | None:
    address, separator, name = destination.name.partition("::")
    rows = [
        row
        for row in management.queues(address=address)
        if row.is_anycast == destination.is_queue and (not separator or row.name == name)
    ]
    if len(rows) > 1:
        # Why: redeliveries go to the queue that has the name of the address.
        rows = [row for row in rows if row.name == address]
    if len(rows) != 1:
        return None
    row = rows[0]
    if row.is_replacing:
        return Counters(depth=row.message_count)
    return Counters(
        depth=row.message_count,
        acknowledged=row.acknowledged_count,
        removed=row.expired_count + row.killed_count,
        # Why the id: a queue that is deleted and created again has another one.
        run=f"{run} {row.id}",
    )


class ArtemisSession:
    """The part of a session that the management answers, over any wire.

    Args:
        run: of the connection: the broker has not restarted while it lasts.
        token_queue: of ours, which is no dead-letter queue; "" = there is none.
    """

    description: BrokerDescription

    def __init__(
        self,
        management: ArtemisQuestions,
        settings: ArtemisLinkSettings,
        *,
        run: str,
        token_queue: str,
    ) -> None:
        clock = settings.clock
        self._management: ArtemisQuestions = management
        self._clock = clock
        self._settings = settings
        self._run = run
        self._seen_in_part: dict[IntakeQueue, str] = {}
        self._stuck = StuckMessages(management)
        self._waiting_places = WaitingPlaces(management, clock)
        self._routes = ArtemisRoutes(
            management, clock, token_queue, settings.final_suffix, settings.allowed_effects
        )

    @property
    def routes(self) -> ArtemisRoutes:
        """The cache of routes to destinations."""
        return self._routes

    def share_routes(self, routes: ArtemisRoutes) -> None:
        """Use the routes of another session to the same broker from now on."""
        self._routes = routes

    def _target_of(self, destination: Destination) -> str:
        """Return the name to send to, as known from the last question."""
        return self._routes.target(destination)

    def _watch_sends(self, sends: Sequence[Resend]) -> Misrouted:
        return self._routes.watch_sends(sends)

    def queues_read(self) -> tuple[Destination, ...]:
        return ()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return messages that the broker has handed to no consumer, from the second call on."""
        return self._stuck.look(self.queues_read())

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        """Return a dead-letter queue's messages: listed without bodies, or browsed in part.

        `left_behind` reports messages that a wire does not browse.
        """
        routes, management = self._routes, self._management
        routes.note_intake(queue)
        if not queue.redelivery_ids:
            encoding = self.description.encodings[0]
            listed = list_messages(management, queue, at_most, routes.read_origin, encoding)
            if listed is not None:
                self._seen_in_part.pop(queue, None)
                yield from listed
                return
            why = management.why_unusable or (
                "the broker does not list them all: management-browse-page-size of the address is "
                f"smaller, or they are more than {LISTED_MAX}"
            )
            self._seen_in_part[queue] = why
        yield from self._browse_in_part(queue, at_most)

    def _browse_in_part(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        """Return the messages that the wire can browse."""
        raise NotImplementedError

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        management = self._management
        management.demand("can't look for other sidecars' tokens: {}")
        found = []
        for row in management.queues_like(TOKEN_QUEUE_PREFIX):
            instance = row.name.removeprefix(TOKEN_QUEUE_PREFIX)
            if instance == row.name or instance in known or is_examiner(instance):
                continue
            if row.message_count:
                sent_at_ms = management.first_sent_at_ms(row.name)
                found.append(
                    ForeignToken(
                        instance=instance,
                        sent_at_ms=sent_at_ms,
                        is_held=row.consumer_count > 0,
                        rules_digest=_rules_digest(management, row.name),
                    )
                )
        return tuple(found)

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        if makes and not self._management.is_usable:
            problem = self._make_unmanaged(destination)
            return ROUTES if problem is None else SendTerms(problem)
        return self._routes.send_terms(destination, makes=makes)

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        self._routes.ask_ahead(destinations)

    def filter_view(self, resend: Resend) -> PropertyOf:
        return filter_view(
            resend,
            self._target_of(resend.destination),
            resend.encoding or self.description.encodings[0],
            self._clock.now_ms(),
            expires_by_itself=self._routes.expires(resend.destination),
        )

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of each destination that is exactly one queue.

        Measured on 2.44: `messagesAcked` grows with each acknowledgement; `messagesKilled` with
        each dead letter, also of a person's making, and with each message of a purge;
        `messagesExpired` with each that expires; `messageCount` has also messages that are handed
        out or scheduled. All but the last start at 0 when the broker starts. Quirk: a message that
        a person moves to another queue by management, or removes by its number, counts as
        acknowledged.
        """
        management = self._management
        management.demand()
        addresses = dict.fromkeys(one.address for one in destinations)
        asked = AskedAhead(management)
        questions = [about_queues("address", address) for address in addresses]
        asked.ask_ahead(questions)
        refused = next((one for one in asked.ask_all(questions) if not one.is_ok), None)
        if refused is not None:
            raise BrokerRefused(f"the queues can't be counted: {refused.value}")
        found = {}
        for destination in destinations:
            counters = _counters(asked, destination, self._run)
            if counters is not None:
                found[destination] = counters
        return found

    def discover(self) -> tuple[IntakeQueue, ...]:
        return self._routes.discover()

    def _make_unmanaged(self, destination: Destination) -> str | None:
        """Make a queue where the management can't be used; return why it can't be made."""
        # Why None: the broker creates the queue at the first send, or refuses that send.
        return None

    @property
    def features(self) -> Features:
        return Features(settings=self, delayed=self, selects_origins=True)

    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the merged settings of each address, by the broker's names; unset = absent."""
        management = self._management
        management.demand("{}; or name the rules in policy.source")
        questions = [about_settings(name) for name in addresses]
        found: list[Mapping[str, Any]] = []
        for name, answer in zip(addresses, management.ask_all(questions), strict=True):
            if not answer.is_ok or not answer.value:
                # Why: guessing defaults would decide wrongly.
                raise BrokerRefused(f"the settings of {name} can't be read: {answer.value}")
            found.append(json.loads(answer.value))
        return found

    def waiting_problem(self, destination: Destination) -> str | None:
        return self._waiting_places.problem(destination)

    def schedule(self) -> ArtemisSchedule:
        return ArtemisSchedule(self._management, self._settings.instance)

    def holds_selected(self, queue: IntakeQueue) -> bool:
        try:
            return ChosenMessages(self._management).holds(queue.destination, queue.selector)
        except BrokerRefused:
            return False

    def is_bound(self, queue: Destination) -> bool:
        """Return whether the broker keeps messages of a queue for one consumer; True = unknown.

        It does where a group is bound to one, or where the queue is exclusive.
        """
        answers = self._management.ask_all(
            [attribute_of_queue(queue, one) for one in ("GroupCount", "Exclusive")]
        )
        return any(not one.is_ok or one.value for one in answers)

    def is_newborn(self, destination: Destination) -> bool:
        return self._routes.watch.is_newborn(destination.name.rpartition("::")[2])
