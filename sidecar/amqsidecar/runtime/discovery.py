"""Finds the dead-letter queues of a broker, from rules and from the broker itself.

It reports once what it leaves out on purpose and what it can't find, not at each look.
"""

from collections.abc import Sequence

import structlog

from amqsidecar.broker import BrokerKind, IntakeQueue, LookSession
from amqsidecar.engine.intake import NamePattern, dead_letter_queues_of, name_patterns_of
from amqsidecar.errors import DiscoveryRefused
from amqsidecar.model.destination import queue
from amqsidecar.policy.classic_rules import ClassicRules

EXPIRED_STAYS = (
    "expired messages are not redelivered, so they stay in these queues; name one in "
    "intake.queues to read it"
)
ONLY_DEFAULT = (
    "without policy.source only ActiveMQ.DLQ is read, since the broker does not report which "
    "dead-letter strategies it has: give its activemq.xml, or name the others in intake.queues"
)
NOT_LISTED = "this wire does not show which queues there are; name them in intake.queues"

log = structlog.get_logger("amqsidecar.discovery")


class Discovery:
    """Finds again and again; knows what it has told."""

    def __init__(self, rules: ClassicRules | None, *, is_silent: bool = False) -> None:
        """Make it.

        Args:
            rules: of a Classic broker; None = none were given. Artemis is asked itself.
            is_silent: it logs nothing, because another one logs the same.
        """
        self._rules = rules
        self._is_silent = is_silent
        self._told: set[str] = set()

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
        expired = sorted(item.destination.name for item in found if item.expires)
        if expired:
            self._log_once("expiry_queues_left_out", EXPIRED_STAYS, queues=expired)
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
        """Return the names of all queues; none, and once a warning, where they aren't told."""
        reason = NOT_LISTED
        listing = link.features.listing
        if listing is not None:
            try:
                return listing.queue_names()
            except DiscoveryRefused as refused:
                reason = str(refused)
        for pattern in patterns:
            self._log_once("intake_incomplete", f"{pattern} can't be found: {reason}")
        return ()

    def _log_once(self, event: str, meaning: str, **more: object) -> None:
        key = f"{event} {meaning} {more}"
        if self._is_silent or key in self._told:
            return
        self._told.add(key)
        if event == "intake_incomplete":
            log.warning(event, meaning=meaning, **more)
        else:
            log.info(event, meaning=meaning, **more)
