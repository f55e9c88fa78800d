"""What an Artemis broker does with a message for a destination, asked before one is sent.

*Accepted* is no proof that a queue got the message: `spec-artemis.md` 9 lists six ways in which it
is lost. A message sent by fully qualified name has that name as its address, so that on its next
death the filter of an auto-created dead-letter queue does not match and it is destroyed; such a
name routes only when a queue is bound to the dead-letter address that catches it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.amqp_message import ANYCAST, ORIGIN_LOST, Origin
from amqsidecar.brokers.artemis_management import (
    ADDRESS,
    ArtemisQuestions,
    AskedAhead,
    QueueRow,
    about_queues,
    about_routing_types,
    about_settings,
)
from amqsidecar.brokers.artemis_queue_watch import ArtemisQueueWatch
from amqsidecar.clock import Clock
from amqsidecar.errors import DiscoveryRefused
from amqsidecar.model.destination import Destination, DestinationKind

_INTERNAL_ADDRESSES = (ADDRESS, "activemq.notifications")
_KEEP_S = 5.0
_ENTRIES_MAX = 20_000
_FILTERED_NAMES = (
    "amqsidecar",
    "redeliveryDelay",
    "_AMQ_ORIG",
    "_AMQ_DUPL_ID",
    "_AMQ_ACTUAL_EXPIRY",
    "JMSXDeliveryCount",
    "JMSExpiration",
    "AMQExpiration",
    "AMQSize",
    "AMQUserID",
    "JMSMessageID",
    "x-opt-",
)


class ArtemisRoutes:
    """Answers about destinations, kept for some seconds."""

    def __init__(
        self,
        management: ArtemisQuestions,
        clock: Clock,
        token_queue: str,
        final_suffix: str,
    ) -> None:
        self._management = management
        self._clock = clock
        self._token_queue = token_queue
        self._final_suffix = final_suffix
        self._problems: dict[Destination, tuple[float, str | None]] = {}
        self._origins: dict[Origin, tuple[Destination | None, str | None]] = {}
        self._dead_letter_names: set[str] = set()
        self.watch = ArtemisQueueWatch(clock, self._dead_letter_addresses)

    # Origins

    def set_intake(self, queues: Sequence[IntakeQueue]) -> None:
        """Take note of queues that hold dead letters, so that none counts as an origin."""
        for queue in queues:
            self._dead_letter_names.update(queue.destination.name.split("::"))
        self.watch.watch(self._dead_letter_names)
        self._origins.clear()

    def note_intake(self, queue: IntakeQueue) -> None:
        """Take note of one more queue that holds dead letters."""
        names = set(queue.destination.name.split("::"))
        if not names <= self._dead_letter_names:
            self._dead_letter_names |= names
            self._origins.clear()

    def read_origin(self, origin: Origin) -> tuple[Destination | None, str | None]:
        """Return where an origin is, or the sentence why it can't be used."""
        known = self._origins.get(origin)
        if known is None:
            if len(self._origins) >= _ENTRIES_MAX:
                self._origins.clear()
            known = self._origins[origin] = self._find_origin(origin)
        return known

    def _find_origin(self, origin: Origin) -> tuple[Destination | None, str | None]:
        address, queue, routing_type = origin
        if address == self._token_queue:
            return None, "it is a token of amqsidecar, not a message of an application"
        names = (address, queue or address)
        if "\0" in address or "\0" in names[1]:
            return None, "the name of its origin holds a NUL, which ends a name on our side"
        if any(_is_internal(name) for name in names):
            return None, f"its origin {address} is the broker's own: a re-send would command it"
        if any(
            name in self._dead_letter_names or name.endswith(self._final_suffix) for name in names
        ):
            return None, ORIGIN_LOST
        is_anycast = routing_type == ANYCAST
        if routing_type is None:
            is_anycast = self._guess_anycast(address, queue)
        name = (
            address
            if queue is None or (is_anycast and queue == address)
            else (f"{address}::{queue}")
        )
        kind = DestinationKind.QUEUE if is_anycast else DestinationKind.TOPIC
        return Destination(kind, name), None

    def _guess_anycast(self, address: str, queue: str | None) -> bool:
        """Return whether a queue is anycast, for messages that carried no routing type."""
        for row in self._management.queues(address=address):
            if row.name == queue:
                return row.is_anycast
        types = self._management.routing_types(address)
        if types is not None and len(types) == 1:
            return "ANYCAST" in types
        return queue is None or queue == address

    # Routes

    def problem(self, destination: Destination) -> str | None:
        """Return why a send to this destination would get lost; None = it routes."""
        now_s = self._clock.monotonic_s()
        known = self._problems.get(destination)
        if known is not None and now_s < known[0]:
            return known[1]
        return self._look(destination, self._management)

    def ask_ahead(self, destinations: Iterable[Destination]) -> None:
        """Ask about many queues at once, so that `problem` knows them for some seconds."""
        now_s = self._clock.monotonic_s()
        unknown = [
            one
            for one in destinations
            if one.is_queue and "::" not in one.name and now_s >= self._known_until_s(one)
        ]
        if len(unknown) < 2 or self._management.missing is not None:
            return
        management = AskedAhead(self._management)
        management.ask_ahead([about_queues(address=one.name) for one in unknown])
        missing = [
            one.name
            for one in unknown
            if not any(row.is_anycast for row in management.queues(address=one.name))
        ]
        management.ask_ahead([about_routing_types(name) for name in missing])
        management.ask_ahead([about_settings(name) for name in missing])
        for one in unknown:
            self._look(one, management)

    def _known_until_s(self, destination: Destination) -> float:
        known = self._problems.get(destination)
        return 0.0 if known is None else known[0]

    def _look(self, destination: Destination, management: ArtemisQuestions) -> str | None:
        if len(self._problems) >= _ENTRIES_MAX:
            self._problems.clear()
        found = self._find_problem(destination, management)
        self._problems[destination] = (self._clock.monotonic_s() + _KEEP_S, found)
        return found

    def forget(self, destination: Destination) -> None:
        """Ask the broker again next time."""
        self._problems.pop(destination, None)

    def _find_problem(self, destination: Destination, management: ArtemisQuestions) -> str | None:
        if destination.is_temporary:
            return f"{destination} is temporary, its owner is gone"
        if _is_internal(destination.address):
            return f"{destination} is the broker's own: a message there is a command to it"
        address, separator, queue = destination.name.partition("::")
        if self._management.missing is not None:
            if destination.is_queue and not separator:
                return None
            return f"whether {destination} exists can't be asked: {self._management.missing}"
        rows = management.queues(address=address)
        if separator:
            return self._named_queue_problem(destination, address, queue, rows)
        return _address_problem(destination, rows, management)

    def _named_queue_problem(
        self, destination: Destination, address: str, queue: str, rows: list[QueueRow]
    ) -> str | None:
        row = next((row for row in rows if row.name == queue), None)
        if row is None:
            elsewhere = self._management.queues(name=queue)
            if not elsewhere:
                return f"queue {queue} of address {address} does not exist any more"
            row = elsewhere[0]
            if not _is_wildcard_match(row.address, address):
                return f"queue {queue} is bound to address {row.address}, not to {address}"
        if row.is_anycast != destination.is_queue:
            word = "anycast" if row.is_anycast else "multicast"
            return f"queue {queue} of address {address} is {word}, which {destination} is not"
        return _filter_problem(row) or self._second_death_problem(row.address, destination.name)

    def _second_death_problem(self, queue_address: str, qualified: str) -> str | None:
        settings = self._management.settings([queue_address])[0]
        if settings.get("autoCreateExpiryResources") and expires_by_itself(settings):
            return (
                f"a message sent to {qualified} gets an expiration from the address settings and "
                f"would be dropped when it expires: switch auto-create-expiry-resources off for "
                f"{queue_address}"
            )
        target = settings.get("deadLetterAddress") or ""
        if not target or not settings.get("autoCreateDeadLetterResources"):
            return None
        wanted = _catching_filter(qualified)
        if any(
            not row.filter or _same_filter(row.filter, wanted)
            for row in self._management.queues(address=target)
        ):
            return None
        target_settings = self._management.settings([target])[0]
        default_type = str(target_settings.get("defaultQueueRoutingType") or "MULTICAST")
        refused = self._management.create_queue(
            f"amqsidecar.dead.{qualified.replace('::', '.of.')}",
            target,
            is_anycast=default_type.upper() == "ANYCAST",
            filter_text=wanted,
        )
        if refused is None:
            return None
        return (
            f"a message sent to {qualified} would be destroyed when it fails again: bind a durable "
            f"queue to {target} that has no filter or the filter {wanted} ({refused})"
        )

    # Dead-letter queues

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return the queues bound to dead-letter and expiry addresses.

        Raises:
            DiscoveryRefused: this user may not ask.
        """
        if self._management.missing is not None:
            raise DiscoveryRefused(self._management.missing)
        dead: set[str] = set()
        expired: set[str] = set()
        all_settings = self._management.all_settings()
        for settings in all_settings.values():
            dead.add(settings.get("deadLetterAddress") or "")
            expired.add(settings.get("expiryAddress") or "")
        rows = self._management.queues()
        found: list[IntakeQueue] = []
        for row in rows:
            is_final = row.name.endswith(self._final_suffix) or row.address.endswith(
                self._final_suffix
            )
            is_ours = self._token_queue in (row.name, row.address)
            # Why: what died in its dead-letter queue has lost its origin and may not be readable at
            # all; the broker keeps it in this queue of its own (see `readable_selector`).
            is_dead_twice = _same_filter(row.filter, _catching_filter(row.address))
            if is_final or is_ours or is_dead_twice or not row.address:
                continue
            if row.address in dead | expired:
                is_plain = row.is_anycast and row.name == row.address
                name = row.name if is_plain else f"{row.address}::{row.name}"
                destination = Destination(DestinationKind.QUEUE, name)
                found.append(IntakeQueue(destination, expires=row.address not in dead))
        self._dead_letter_names |= (dead | expired) - {""}
        self._origins.clear()
        self.watch.watch(self._dead_letter_names)
        self.watch.looked({row.name: row.id for row in rows}, all_settings)
        return tuple(sorted(found, key=lambda queue: queue.destination.name))

    def _dead_letter_addresses(self, names: list[str]) -> list[str]:
        return [
            settings.get(key) or ""
            for settings in self._management.settings(names)
            for key in ("deadLetterAddress", "expiryAddress")
        ]

    def prepare_final(self, destination: Destination) -> str | None:
        """Make the anycast queue of a final destination; return why it can't be used."""
        name = destination.name
        if not destination.is_queue or "::" in name:
            return f"{destination} is no plain queue, which a final dead-letter queue has to be"
        refused = self._management.create_queue(name, name, is_anycast=True)
        self.forget(destination)
        if refused is not None:
            return f"queue {name} can't be made: {refused}"
        return self.problem(destination)


def _address_problem(
    destination: Destination, rows: list[QueueRow], management: ArtemisQuestions
) -> str | None:
    wants_anycast = destination.is_queue
    fitting = [row for row in rows if row.is_anycast == wants_anycast]
    if fitting:
        filters = [row for row in fitting if _filter_problem(row)]
        return _filter_problem(filters[0]) if len(filters) == len(fitting) else None
    word = "anycast" if wants_anycast else "multicast"
    if not wants_anycast:
        return f"no {word} queue is bound to address {destination.name}"
    types = management.routing_types(destination.name)
    if types is not None and "ANYCAST" not in types:
        return f"address {destination.name} is multicast and no anycast queue is bound to it"
    settings = management.settings([destination.name])[0]
    if not settings.get("autoCreateQueues", True):
        return f"queue {destination.name} does not exist and auto-create-queues is off"
    if types is None and not settings.get("autoCreateAddresses", True):
        return f"address {destination.name} does not exist and auto-create-addresses is off"
    return None


def _is_internal(address: str) -> bool:
    # Why the end: an acceptor's prefix such as `jms.queue.` is cut off by the broker.
    return address.endswith(_INTERNAL_ADDRESSES)


def _catching_filter(qualified: str) -> str:
    escaped = qualified.replace("'", "''")
    return f"_AMQ_ORIG_ADDRESS = '{escaped}'"


def _same_filter(one: str, other: str) -> bool:
    return "".join(one.split()) == "".join(other.split())


def expires_by_itself(settings: Mapping[str, Any]) -> bool:
    """Tell whether the broker gives messages of an address with these settings an expiration."""
    names = ("expiryDelay", "minExpiryDelay", "maxExpiryDelay")
    return any(int(settings.get(name, -1)) >= 0 for name in names)


def _filter_problem(row: QueueRow) -> str | None:
    # Why: the message was in this queue, so its filter fits, unless it asks for what we change.
    if row.filter and any(name in row.filter for name in _FILTERED_NAMES):
        return f"the filter of queue {row.name} ({row.filter}) would not let a redelivery in"
    return None


def _is_wildcard_match(pattern: str, address: str) -> bool:
    """Return whether a queue's address with the default wildcards covers an address.

    Source: Artemis, WildcardConfiguration; words by `.`, `*` one word, `#` any words.
    """
    words, asked = pattern.split("."), address.split(".")
    if words[-1] == "#":
        words = words[:-1]
        if len(asked) < len(words):
            return False
        asked = asked[: len(words)]
    return len(words) == len(asked) and all(
        word in ("*", name) for word, name in zip(words, asked, strict=True)
    )
