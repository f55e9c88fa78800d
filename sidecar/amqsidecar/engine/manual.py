"""Which dead letters only a person takes: all, or those that patterns match."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from amqsidecar.broker import BrokerKind, Delivery, IntakeQueue, LookSession
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.errors import QueueRefused
from amqsidecar.model.destination import Destination, parse_pattern, queue
from amqsidecar.model.provenance import is_of_listener
from amqsidecar.policy.destination_map import DestinationMap, have_overlap

PATTERNS_OPTION: Final = "redelivery.manual"
_NO_PLACE: Final = "redelivery.mode: in_place needs an Artemis over artemis://, core:// or amqp://"
ALL: Final = ">"
"""The pattern of every dead letter: `redelivery.mode: manual`."""

_SHARED: Final = (
    "{} is no dead-letter queue of intake.queues or policy.source, and over this wire some "
    "messages of a shared one can't be left in their place while the others are taken: name "
    "dead-letter queues; on Classic give these origins their own by an "
    "individualDeadLetterStrategy, on Artemis use artemis://"
)
_NOT_LISTED: Final = (
    f"a pattern of {PATTERNS_OPTION} may match some of its queues, and this wire does not list "
    "queues: use openwire://, or name each dead-letter queue in intake.queues"
)
ORIGINS: Final = ("_AMQ_ORIG_ADDRESS", '"m.x-opt-ORIG-ADDRESS"')
"""Where Artemis writes the origin on a dead letter: of Core and of AMQP clients."""


class Manual:
    """The dead letters that are left to a person; equal if both leave the same.

    Args:
        patterns: of origins and of dead-letter queues, as `parse_pattern` reads them; with
            `ALL` among them every dead letter is left to a person.
        names: of Classic's dead-letter queues; None = they name no origins.
        known: the dead-letter queues that options and rules of Classic name.
        redelivers: the rules redeliver these dead letters straight from their queues.
    """

    def __init__(
        self,
        patterns: Iterable[str] = (),
        *,
        names: DeadLetterNames | None = None,
        known: Sequence[IntakeQueue] = (),
        redelivers: bool = False,
    ) -> None:
        self.redelivers = redelivers
        found = tuple(dict.fromkeys(queue(parse_pattern(one).name) for one in patterns))
        self.is_all = queue(ALL) in found
        self._names = names or DeadLetterNames(None)
        self._known = known
        self._patterns = () if self.is_all else found
        matching = DestinationMap([((one,), True) for one in self._patterns])
        self._matches = lru_cache(maxsize=4096)(lambda name: matching.find(queue(name)) is not None)

    def __eq__(self, other: object) -> bool:
        """Return whether both leave the same dead letters to a person."""
        return isinstance(other, Manual) and (
            self.redelivers is other.redelivers and {*self.patterns} == {*other.patterns}
        )

    def __hash__(self) -> int:
        """Return a number that equals that of an equal value."""
        return hash(frozenset(self.patterns))

    def __str__(self) -> str:
        return "all" if self.is_all else ", ".join(self.patterns) or "nothing"

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of these destinations, in the form that `Manual` takes."""
        return (ALL,) if self.is_all else tuple(one.name for one in self._patterns)

    def joined(self, patterns: Iterable[str]) -> "Manual":
        """Return a value that leaves these patterns, too."""
        joined = Manual((*self.patterns, *patterns), names=self._names, known=self._known)
        joined.redelivers = self.redelivers
        return joined

    @property
    def is_any(self) -> bool:
        """Whether anything may be left."""
        return self.is_all or bool(self._patterns)

    def leaves_queue(self, source: Destination) -> bool:
        """Return whether every message of a dead-letter queue is left."""
        if not self._patterns:
            return self.is_all
        origin = self._names.origin_of(source)
        return (
            self.is_all
            or any(self._matches(name) for name in source.name.split("::"))
            or (origin is not None and self._matches(origin.name))
        )

    def leaves(self, delivery: Delivery) -> bool:
        """Return whether a dead letter is left."""
        origin = delivery.provenance.origin
        return self.leaves_queue(delivery.source) or (
            origin is not None and bool(self._patterns) and self._matches(origin.address)
        )

    def problem(self, link: LookSession) -> str:
        """Return why a link can't leave these dead letters, with the fix; "" = it can."""
        if self.redelivers and (
            link.features.choosing is None
            or link.description.kind is BrokerKind.CLASSIC
            or link.description.encodings[0].startswith("stomp")
        ):
            return _NO_PLACE
        if self.is_all or link.features.selects_origins:
            return ""
        for pattern in self._patterns:
            sample = queue(pattern.name.replace("*", "x").replace(">", "x"))
            is_own = self._names.queue_for(sample) is not None
            if not is_own and not any(
                have_overlap(pattern, one.destination) for one in self._known
            ):
                return _SHARED.format(pattern.name)
        return ""

    def automatic(
        self, link: LookSession, queues: Sequence[IntakeQueue]
    ) -> tuple[IntakeQueue, ...]:
        """Return how to read dead-letter queues without taking dead letters left to a person.

        Copies of the listener are taken, and held: a browse can't prove a copy's seal.

        Raises:
            DiscoveryRefused: the queues of a wildcard can't be listed now.
            QueueRefused: the wire can't list them.
            LinkLost: the connection is gone.
        """
        copies = tuple(one for one in queues if is_of_listener(one.destination))
        if not self._patterns:
            return copies if self.is_all else tuple(queues)
        read = [
            one for one in queues if one not in copies and not self.leaves_queue(one.destination)
        ]
        if link.description.kind is BrokerKind.CLASSIC:
            return tuple(dict.fromkeys(one for each in read for one in self._split(link, each)))
        selector = selector_without(self._patterns) if link.features.selects_origins else ""
        return (*copies, *(msgspec.structs.replace(one, selector=selector) for one in read))

    def _split(self, link: LookSession, wanted: IntakeQueue) -> Sequence[IntakeQueue]:
        """Return the queues of a wildcard that are read, where it also stands for others."""
        wildcard = wanted.destination
        if not {"*", ">"}.intersection(wildcard.name.split(".")):
            return (wanted,)
        if (listing := link.features.listing) is None:
            raise QueueRefused(wildcard.name, f"{wildcard} can't be read: {_NOT_LISTED}")
        covers = DestinationMap([((wildcard,), True)])
        found = [queue(name) for name in listing.queue_names()]
        return [
            msgspec.structs.replace(wanted, destination=one)
            for one in found
            if covers.find(one) is not None and not self.leaves_queue(one)
        ]


def selector_without(patterns: Sequence[Destination]) -> str:
    """Return the selector of an Artemis for messages whose origin matches no pattern.

    Quirk (Artemis): a message sent to `address::queue` has that full name as its origin.
    """
    return " AND ".join(
        f"({name} IS NULL OR NOT ({_matching(name, pattern.name)}))"
        for pattern in patterns
        for name in ORIGINS
    )


def _matching(name: str, pattern: str) -> str:
    words = pattern.split(".")
    is_open = words[-1] == ">"
    if is_open:
        del words[-1]
    if not words:
        return f"{name} IS NOT NULL"
    stem = ".".join("%" if one == "*" else _escaped(one) for one in words)
    terms = [_like(name, stem), _like(name, f"{stem}::%")]
    if is_open:
        terms.append(_like(name, f"{stem}.%"))
    found = " OR ".join(terms)
    if "*" not in words or is_open:
        return found
    # Why: `%` stands for any number of words, `*` for one.
    return f"({found}) AND NOT ({_like(name, '%.' * len(words) + '%')})"


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("'", "''")


def _like(name: str, text: str) -> str:
    return f"{name} LIKE '{text}' ESCAPE '\\'"
