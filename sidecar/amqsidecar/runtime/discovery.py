"""Finds the dead-letter queues of a broker, and which of them are not read.

It reports skipped and missing queues once, not at each discovery.
"""

from collections.abc import Callable, Sequence

import structlog

from amqsidecar.broker import BrokerKind, IntakeQueue, LookSession
from amqsidecar.engine.intake import (
    IntakeNames,
    NamePattern,
    dead_letter_queues_of,
    name_patterns_of,
)
from amqsidecar.engine.manual import Manual
from amqsidecar.errors import DiscoveryRefused
from amqsidecar.model.destination import Destination, final_queue, queue
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.runtime.intake_keeper import lasting_words

EXPIRED_STAYS = (
    "expired messages are not redelivered and stay in these queues; name a queue in "
    "intake.queues to read it"
)
ONLY_DEFAULT = (
    "without policy.source only ActiveMQ.DLQ is read, because the broker does not report its "
    "dead-letter strategies: set policy.source to its activemq.xml, or name the other queues in "
    "intake.queues"
)
NOT_LISTED = "this wire does not list queues; name them in intake.queues"

log = structlog.get_logger("amqsidecar.discovery")


class Discovery:
    """Finds queues repeatedly; remembers its reports.

    Args:
        rules: of a Classic broker; None = none were given. Artemis is asked itself.
        is_silent: log nothing, because another one logs it.
    """

    def __init__(self, rules: ClassicRules | None, *, is_silent: bool = False) -> None:
        self._rules = rules
        self._is_silent = is_silent
        self._told: set[str] = set()
        self._told_expired: set[str] = set()

    def find(self, link: LookSession) -> Sequence[IntakeQueue]:
        """Return the dead-letter queues to read that are known now.

        Raises:
            DiscoveryRefused: no permission to ask the broker, and no other source names a queue.
        """
        if link.description.kind is BrokerKind.ARTEMIS:
            return self._find_artemis(link)
        if self._rules is None:
            self._log_once("intake_limited", ONLY_DEFAULT)
        return self._find_classic(link, self._rules or ClassicRules())

    def _find_artemis(self, link: LookSession) -> Sequence[IntakeQueue]:
        found = link.discover()
        expired = {item.destination.name for item in found if item.expires} - self._told_expired
        if expired and not self._is_silent:
            self._told_expired |= expired
            log.info("expiry_queues_left_out", meaning=EXPIRED_STAYS, queues=sorted(expired))
        return tuple(item for item in found if not item.expires)

    def _find_classic(self, link: LookSession, rules: ClassicRules) -> Sequence[IntakeQueue]:
        queues, doubts = dead_letter_queues_of(rules)
        for doubt in doubts:
            self._log_once("intake_incomplete", doubt)
        patterns = name_patterns_of(rules)
        if not patterns:
            return queues
        names = self._names(link, patterns)
        matching = dict.fromkeys(name for one in patterns for name in one.matching(names))
        for item in queues:
            matching.pop(item.destination.name, None)
        return (*queues, *(IntakeQueue(queue(name)) for name in matching))

    def _names(self, link: LookSession, patterns: Sequence[NamePattern]) -> tuple[str, ...]:
        """Return the names of all queues; none, with one warning, if they are not listed."""
        reason = NOT_LISTED
        listing = link.features.listing
        if listing is not None:
            try:
                return listing.queue_names()
            except DiscoveryRefused as refused:
                reason = str(refused)
        for pattern in patterns:
            words = f"{pattern} can't be found: "
            self._log_once("intake_incomplete", words + reason, words + lasting_words(reason))
        return ()

    def _log_once(self, event: str, meaning: str, key: str = "") -> None:
        key = key or meaning
        if self._is_silent or key in self._told:
            return
        self._told.add(key)
        if event == "intake_incomplete":
            log.warning(event, meaning=meaning)
        else:
            log.info(event, meaning=meaning)


QUEUES_MAX = 50
"""Maximum queues returned; more are left out."""

FindUnread = Callable[[LookSession], Sequence[Destination]]
"""Returns them; asks the broker over a link."""


def no_unread_queues(_link: LookSession) -> Sequence[Destination]:
    """Find none."""
    return ()


def unread_queues(
    link: LookSession,
    named: Sequence[IntakeQueue],
    find_intake: Callable[[LookSession], Sequence[IntakeQueue]],
    final_suffix: str,
    manual: Manual,
) -> tuple[Destination, ...]:
    """Return final dead-letter queues, and dead-letter queues that the operator did not name.

    On Artemis some may not exist. Empty if a Classic doesn't list its queues: looking at a missing
    queue would create it.

    Args:
        link: to the broker.
        named: queues that the operator named; if empty, all found queues are read.
        final_suffix: ends the names of final queues.
        manual: which dead letters are left to a person.

    Raises:
        LinkLost: the connection is gone.
    """
    kind = link.description.kind
    names = IntakeNames(kind)
    names.replace(named)
    try:
        found = [one.destination for one in find_intake(link)]
        others = [
            one for one in found if manual.leaves_queue(one) or (named and not names.covers(one))
        ]
        others += [one.destination for one in named if manual.leaves_queue(one.destination)]
        if kind is BrokerKind.ARTEMIS:
            sources = [one.destination for one in named] or found
            others += [final_queue(one, final_suffix) for one in sources]
        elif (listing := link.features.listing) is not None:
            there = frozenset(listing.queue_names())
            others = [one for one in others if one.name in there]
            others += [queue(name) for name in listing.final_names()]
        else:
            others = []
    except DiscoveryRefused:
        return ()
    return tuple(dict.fromkeys(others))[:QUEUES_MAX]
