"""An Artemis broker's treatment of sends to a destination, asked before a send.

*Accepted* does not prove that a queue got the message: `spec-artemis.md` 9 lists six ways to lose
it. And a redelivery to an address has the effects of every send to it once more: on its other
queues, its diverts, and by its queue's treatment of new messages (`resend_effects.py`).

A fully qualified name reaches one queue of an address alone. A message sent by such a name has it
as its address, so that on its next death the filter of an auto-created dead-letter queue does not
match and it is destroyed; so the plain name is used where it will do, and such a name routes only
when a queue is bound to the dead-letter address that catches it.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from amqsidecar.broker import BrokerKind, IntakeQueue, Resend
from amqsidecar.brokers.artemis.management import (
    DIVERT_NAMES,
    ArtemisQuestions,
    AskedAhead,
    ManagementQuestion,
    QueueRow,
    about_divert,
    about_queues,
    about_routing_types,
    about_settings,
)
from amqsidecar.brokers.artemis.queue_watch import ArtemisQueueWatch
from amqsidecar.brokers.artemis.resend_effects import Divert, resend_effects
from amqsidecar.brokers.selectors import quoted
from amqsidecar.brokers.sends_ahead import Misrouted
from amqsidecar.clock import Clock
from amqsidecar.engine.judging.send_rules import is_internal
from amqsidecar.errors import DiscoveryRefused
from amqsidecar.formats.artemis_properties import ANYCAST, ORIGIN_LOST, Origin
from amqsidecar.model.destination import Destination, DestinationKind
from amqsidecar.model.send_terms import ROUTES, BoundQueue, ResendEffect, SendTerms
from amqsidecar.model.sidecar_names import INTERCEPTED

_KEEP_S = 5.0
_ENTRIES_MAX = 20_000

_log = logging.getLogger(__name__)


class _Route(NamedTuple):
    """The state of sends to a destination.

    Attributes:
        target: the address, or the qualified name of one queue, to send to.
        expires: the broker sets an expiration of its own on messages that arrive there.
        until_s: monotonic time after which the broker is asked again.
    """

    target: str
    terms: SendTerms = ROUTES
    expires: bool = False
    until_s: float = 0.0


class _Address(NamedTuple):
    """The broker's answers about an address.

    Attributes:
        queues: that are bound to exactly this address.
        settings: merged.
        others: further bindings: queues with wildcards, queues of other nodes.
        diverts: also those with wildcards.
    """

    queues: Sequence[QueueRow]
    settings: Mapping[str, Any]
    others: frozenset[str]
    diverts: Sequence[Divert]


class ArtemisRoutes:
    """Answers about destinations, kept for some seconds."""

    def __init__(
        self,
        management: ArtemisQuestions,
        clock: Clock,
        token_queue: str,
        final_suffix: str,
        allowed: Collection[ResendEffect] = (),
    ) -> None:
        self._management = management
        self._clock = clock
        self._token_queue = token_queue
        self._final_suffix = final_suffix
        self._allowed = frozenset(allowed)
        self._is_ignorance_logged = False
        self._routes: dict[Destination, _Route] = {}
        self._routed: dict[str, set[Destination]] = {}
        self._fresh: set[Destination] = set()
        self._origins: dict[Origin, tuple[Destination | None, str | None]] = {}
        self._dead_letter_names: set[str] = set()
        self.watch = ArtemisQueueWatch(clock, self._dead_letter_addresses)

    # Origins

    def set_intake(self, queues: Sequence[IntakeQueue]) -> None:
        """Note queues that hold dead letters, so that none counts as an origin."""
        for queue in queues:
            self._dead_letter_names.update(queue.destination.name.split("::"))
        self.watch.watch(self._dead_letter_names)
        self._origins.clear()

    def note_intake(self, queue: IntakeQueue) -> None:
        """Note one more queue that holds dead letters."""
        names = set(queue.destination.name.split("::"))
        if not names <= self._dead_letter_names:
            self._dead_letter_names |= names
            self._origins.clear()

    def read_origin(self, origin: Origin) -> tuple[Destination | None, str | None]:
        """Return the destination of an origin, or a sentence why it can't be used."""
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
        if any(is_internal(name, BrokerKind.ARTEMIS) for name in names):
            return None, f"its origin {address} is the broker's own, not an application's"
        if any(self._is_dead_letter_name(name) for name in names):
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

    def _is_dead_letter_name(self, name: str) -> bool:
        return not self._dead_letter_names.isdisjoint((name, name.removesuffix(self._final_suffix)))

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

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        """Return the terms of a send; see `broker.LookSession.send_terms`."""
        terms = self._route(destination).terms
        if not makes or terms.exists:
            return terms
        name = destination.name
        if not destination.is_queue or "::" in name:
            problem = f"{destination} is no plain queue, which a final dead-letter queue has to be"
            return SendTerms(problem)
        refused = self._management.create_queue(name, name, is_anycast=True)
        self.forget(destination)
        if refused is not None:
            return SendTerms(f"queue {name} can't be made: {refused}", exists=False)
        return self._route(destination).terms

    def watch_sends(self, sends: Sequence[Resend]) -> Misrouted:
        """Return a check of these sends; see `WatchSends`.

        The broker routes a message on arrival, also in a transaction: enabled queues whose filters
        are unchanged afterwards have the messages sent to them.
        """
        bound = {
            one: route.terms.queues
            for one in dict.fromkeys(send.destination for send in sends)
            if (route := self._routes.get(one)) is not None
        }
        pairs = [(one, queue) for one, queues in bound.items() for queue in queues]

        def misrouted() -> dict[int, str]:
            found = self._management.routings([queue.name for _, queue in pairs])
            doubtful = {
                one
                for (one, queue), now in zip(pairs, found, strict=True)
                if now != (queue.filter, True)
            }
            if doubtful:
                # Why again: a user to whom one question is refused may still ask for the list.
                self._look(sorted(doubtful, key=str))
            changed = {one for one in doubtful if self._routes[one].terms.queues != bound[one]}
            return {
                index: f"the queues of {one.destination} changed while messages were sent there"
                for index, one in enumerate(sends)
                if one.destination in changed
            }

        return misrouted

    def expires(self, destination: Destination) -> bool:
        """Return whether the broker sets an expiration on arriving messages, by the last answer."""
        known = self._routes.get(destination)
        return known is not None and known.expires

    def target(self, destination: Destination) -> str:
        """Return the name to send to from the last answer, without asking."""
        known = self._routes.get(destination)
        return destination.name if known is None else known.target

    def ask_ahead(self, destinations: Iterable[Destination]) -> None:
        """Ask about many destinations at once, so that each is known for some seconds.

        One with filters is known for the next `send_terms` alone.
        """
        now_s = self._clock.monotonic_s()
        unknown = [
            one
            for one in destinations
            if (r := self._routes.get(one)) is None or now_s >= r.until_s
        ]
        self._fresh.clear()
        if len(unknown) > 1:
            self._look(unknown)
            self._fresh.update(unknown)

    def forget(self, destination: Destination) -> None:
        self._routes.pop(destination, None)

    def bindings_changed(self, bindings: Iterable[tuple[str, str, bool]]) -> list[str]:
        """Note queues that came or went; return their addresses.

        Args:
            bindings: name and address of each queue, and whether it came.
        """
        addresses = []
        for name, address, is_added in bindings:
            self.watch.bound(name, address, is_added=is_added)
            self.binding_changed(address)
            addresses.append(address)
        return addresses

    def binding_changed(self, address: str) -> None:
        """Forget every destination of an address, since its bindings changed."""
        if any(wildcard in address for wildcard in "*#"):
            self._routes.clear()
            self._routed.clear()
        for destination in self._routed.pop(address, ()):
            self._routes.pop(destination, None)

    def _route(self, destination: Destination) -> _Route:
        known = self._routes.get(destination)
        is_fresh = destination in self._fresh
        self._fresh.discard(destination)
        if known is None or not (is_fresh or self._clock.monotonic_s() < known.until_s):
            self._look([destination])
            known = self._routes[destination]
        return known

    def _look(self, destinations: Sequence[Destination]) -> None:
        """Ask about these destinations in as few turns as possible."""
        if len(self._routes) + len(destinations) > _ENTRIES_MAX:
            self._routes.clear()
            self._routed.clear()
        management = AskedAhead(self._management)
        addresses = {
            one.address: None
            for one in destinations
            if not one.is_temporary and not is_internal(one.address, BrokerKind.ARTEMIS)
        }
        found = self._ask_about(addresses, management)
        now_s = self._clock.monotonic_s()
        for one in destinations:
            route = self._find_route(one, found, management)
            # Why at once: the broker announces no change of a filter.
            keep_s = 0.0 if route.terms.has_filters else _KEEP_S
            self._routes[one] = route._replace(until_s=now_s + keep_s)
            self._routed.setdefault(one.address, set()).add(one)

    def _ask_about(
        self, addresses: Collection[str], management: AskedAhead
    ) -> Mapping[str, _Address]:
        """Return the broker's answers about these addresses; none where it can't be asked."""
        if management.is_usable:
            return _ask_about(addresses, management)
        if not self._is_ignorance_logged:
            self._is_ignorance_logged = True
            _log.warning(
                "redeliveries go to the plain address, and whether a divert or another queue gets "
                "them as well, or the broker drops them, is not known: %s",
                management.why_unusable,
            )
        return {}

    def _find_route(
        self,
        destination: Destination,
        found: Mapping[str, _Address],
        management: ArtemisQuestions,
    ) -> _Route:
        name = destination.name
        if destination.is_temporary:
            return _lost(name, f"{destination} is temporary, its owner is gone")
        address, separator, queue = name.partition("::")
        told = found.get(address)
        if told is None:
            if destination.is_queue and not separator:
                return _Route(name)
            why = f"whether {destination} exists can't be asked: {management.why_unusable}"
            return _lost(name, why)
        if not separator and destination.is_queue:
            queue = _own_queue(address, told)
        if queue:
            name = f"{address}::{queue}"
            reached, problem = self._named_queue(destination, name, told.queues, management)
        else:
            reached = [row for row in told.queues if row.is_anycast == destination.is_queue]
            problem = _address_problem(destination, reached, told.settings, management)
        effects = resend_effects(address, reached, told.diverts, told.settings)
        terms = SendTerms(
            problem,
            exists=bool(reached),
            queues=tuple(BoundQueue(row.name, row.filter) for row in reached if row.is_enabled),
            effects=tuple(one for one in effects if one.kind not in self._allowed),
            has_copies=len(told.queues) + len(told.others) + len(told.diverts) > 1,
            trusts_filters=ResendEffect.FILTER in self._allowed,
        )
        return _Route(name, terms, expires_by_itself(told.settings))

    def _named_queue(
        self,
        destination: Destination,
        qualified: str,
        rows: Sequence[QueueRow],
        management: ArtemisQuestions,
    ) -> tuple[list[QueueRow], str | None]:
        """Return the queue of a qualified name, if any, and why it can't be used."""
        address, _, queue = qualified.partition("::")
        row = next((row for row in rows if row.name == queue), None)
        if row is None:
            elsewhere = management.queues(name=queue)
            if not elsewhere:
                return [], f"queue {queue} of address {address} does not exist any more"
            row = elsewhere[0]
            if not is_wildcard_match(row.address, address):
                return [], f"queue {queue} is bound to address {row.address}, not to {address}"
        if row.is_anycast != destination.is_queue:
            word = "anycast" if row.is_anycast else "multicast"
            problem = f"queue {queue} of address {address} is {word}, which {destination} is not"
            return [row], problem
        return [row], _queue_problem(row) or self._second_death_problem(
            row.address, qualified, management
        )

    def _second_death_problem(
        self, queue_address: str, qualified: str, management: ArtemisQuestions
    ) -> str | None:
        settings = management.settings([queue_address])[0]
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
            for row in management.queues(address=target)
        ):
            return None
        target_settings = management.settings([target])[0]
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
        """Return the queues bound to dead-letter and expiry addresses, and the listener's.

        Raises:
            DiscoveryRefused: this user may not ask.
        """
        self._management.demand(error=DiscoveryRefused)
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
            # Why: a message that died in its dead-letter queue has lost its origin and may be
            # unreadable; the broker keeps it in this separate queue (see
            # `amqp_artemis/core_messages.py`).
            is_dead_twice = _same_filter(row.filter, _catching_filter(row.address))
            if is_final or is_ours or is_dead_twice or not row.address:
                continue
            if row.address in dead | expired or row.name == INTERCEPTED:
                is_plain = row.is_anycast and row.name == row.address
                name = row.name if is_plain else f"{row.address}::{row.name}"
                destination = Destination(DestinationKind.QUEUE, name)
                found.append(IntakeQueue(destination, expires=row.address in expired - dead))
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


def _ask_about(addresses: Collection[str], management: AskedAhead) -> dict[str, _Address]:
    """Ask for queues, settings, bindings and diverts of addresses, in three turns for all."""
    management.ask_ahead([DIVERT_NAMES, *map(about_settings, addresses)])
    management.ask_ahead([about_queues("address", name) for name in addresses])
    rows = {name: management.queues(address=name) for name in addresses}
    divert_names = _names(management, DIVERT_NAMES)
    # Why not all: the broker logs a warning for a missing address.
    questions = {
        name: ManagementQuestion(f"address.{name}", attribute="BindingNames")
        for name in addresses
        if rows[name] or divert_names
    }
    types = [about_routing_types(name) for name in addresses if not rows[name]]
    management.ask_ahead([*questions.values(), *types])
    bindings = {name: _names(management, question) for name, question in questions.items()}
    diverts = divert_names & {one for names in bindings.values() for one in names}
    management.ask_ahead([question for name in diverts for question in about_divert(name)])
    return {
        name: _Address(
            queues=rows[name],
            settings=management.settings([name])[0],
            others=bindings.get(name, frozenset()) - diverts - {row.name for row in rows[name]},
            diverts=[
                _read_divert(one, management) for one in bindings.get(name, ()) if one in diverts
            ],
        )
        for name in addresses
    }


def _names(management: ArtemisQuestions, question: ManagementQuestion) -> frozenset[str]:
    answer = management.ask(question)
    return frozenset(map(str, answer.value)) if answer.is_ok else frozenset()


def all_diverts(management: ArtemisQuestions) -> list[tuple[str, Divert]]:
    """Return the diverts of the broker, each after its address, which may hold wildcards."""
    known = AskedAhead(management)
    known.ask_ahead([DIVERT_NAMES])
    names = sorted(_names(known, DIVERT_NAMES))
    addresses = [ManagementQuestion(f"divert.{name}", attribute="Address") for name in names]
    known.ask_ahead([*addresses, *(one for name in names for one in about_divert(name))])
    return [
        (str(answer.value), _read_divert(name, known))
        for name, answer in zip(names, known.ask_all(addresses), strict=True)
        if answer.is_ok
    ]


def _read_divert(name: str, management: ArtemisQuestions) -> Divert:
    # Why: a divert that can't be read counts as one that copies every message.
    exclusive, selector = management.ask_all(about_divert(name))
    return Divert(
        name,
        is_exclusive=exclusive.is_ok and exclusive.value is True,
        filter=str(selector.value or "") if selector.is_ok else "",
    )


def _lost(target: str, problem: str) -> _Route:
    return _Route(target, SendTerms(problem))


def _own_queue(address: str, found: _Address) -> str:
    """Return the queue that the name of an address stands for; "" = the address itself will do.

    Why not always the queue: a message sent to a qualified name has it as its address, and only a
    queue of ours catches it when it dies again (`_second_death_problem`).
    """
    anycast = [row.name for row in found.queues if row.is_anycast]
    return address if address in anycast and len(anycast) + len(found.others) > 1 else ""


def _address_problem(
    destination: Destination,
    fitting: Sequence[QueueRow],
    settings: Mapping[str, Any],
    management: ArtemisQuestions,
) -> str | None:
    if fitting:
        problems = [_queue_problem(row) for row in fitting]
        return None if None in problems else problems[0]
    if not destination.is_queue:
        return f"no multicast queue is bound to address {destination.name}"
    types = management.routing_types(destination.name)
    if types is not None and "ANYCAST" not in types:
        return f"address {destination.name} is multicast and no anycast queue is bound to it"
    if not settings.get("autoCreateQueues", True):
        return f"queue {destination.name} does not exist and auto-create-queues is off"
    if types is None and not settings.get("autoCreateAddresses", True):
        return f"address {destination.name} does not exist and auto-create-addresses is off"
    return None


def _catching_filter(qualified: str) -> str:
    return f"_AMQ_ORIG_ADDRESS = {quoted(qualified)}"


def _same_filter(one: str, other: str) -> bool:
    return "".join(one.split()) == "".join(other.split())


def expires_by_itself(settings: Mapping[str, Any]) -> bool:
    """Return whether the broker gives messages of an address with these settings an expiration."""
    names = ("expiryDelay", "minExpiryDelay", "maxExpiryDelay")
    return any(int(settings.get(name, -1)) >= 0 for name in names)


def _queue_problem(row: QueueRow) -> str | None:
    if not row.is_enabled:
        return f"queue {row.name} is disabled: the broker drops messages that are sent to it"
    if row.is_internal:
        return f"queue {row.name} is the broker's own"
    return None


def is_wildcard_match(pattern: str, address: str) -> bool:
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
