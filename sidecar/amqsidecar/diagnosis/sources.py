"""Finds the queues that a run would read, and the origins of their messages."""

from collections.abc import Callable, Collection, Iterable, Sequence

from amqsidecar.broker import BrokerKind, IntakeQueue, LookSession
from amqsidecar.diagnosis.classic_layout import named_origins
from amqsidecar.diagnosis.finding import Check, Findings, Severity
from amqsidecar.diagnosis.judging import is_wildcard
from amqsidecar.diagnosis.permissions import read_refusal
from amqsidecar.diagnosis.rights_trial import RightsTrial
from amqsidecar.diagnosis.settings import DoctorSettings
from amqsidecar.engine.intake import IntakeNames, dead_letter_queues_of, name_patterns_of
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.trials import Trials

FindQueues = Callable[[LookSession], Sequence[IntakeQueue]]
"""Finds the dead-letter queues that a service would read, where none are named."""

ADVISORIES = topic("ActiveMQ.Advisory.Queue")
_BROWSED_MAX = 100
_QUIET_S = 1.0


class Sources:
    """A look at the dead-letter queues of one broker."""

    def __init__(
        self,
        settings: DoctorSettings,
        kind: BrokerKind,
        find_queues: FindQueues,
        rights: RightsTrial,
        *,
        may_ask: bool,
    ) -> None:
        self._settings = settings
        self._kind = kind
        self._find_queues = find_queues
        self._rights = rights
        self._may_ask = may_ask
        self.found = Findings()

    def note_existing(self, link: LookSession, addresses: Collection[str]) -> None:
        """Keep which queues (Artemis: addresses) exist, where the broker reports it."""
        self._rights.existing = self._existing(link, addresses)
        # Why: `known_origins` looks again, and reports messages that were stuck both times.
        link.left_behind()

    def _existing(self, link: LookSession, addresses: Collection[str]) -> frozenset[str] | None:
        if self._kind is BrokerKind.ARTEMIS:
            return frozenset(addresses) if self._may_ask else None
        if (listing := link.features.listing) is None:
            return None
        try:
            names = frozenset(listing.queue_names())
            # Why only there: over STOMP the broker says nowhere that it has told of all queues.
            while self._settings.scheme.startswith("stomp"):
                link.wait(_QUIET_S)
                known, names = names, frozenset(listing.queue_names())
                if names == known:
                    break
        except BrokerRefused:
            return None
        return names

    def find_intake(self, link: LookSession) -> tuple[IntakeQueue, ...]:
        """Return the queues that a run would read."""
        settings = self._settings
        if settings.intake_queues:
            self._note_missing(item.destination for item in settings.intake_queues)
            return settings.intake_queues
        found: tuple[IntakeQueue, ...] = ()
        if self._may_ask:
            found = tuple(self._find_queues(link))
        if self._kind is BrokerKind.CLASSIC:
            self._note_doubts(link)
        if found:
            names = ", ".join(one.destination.name for one in found)
            self.found.report("intake_queues", "intake.queues", names=names)
        else:
            what = "no dead-letter queue is known, so nothing would be taken"
            if not self._may_ask:
                what += "; without the right to query the broker they must be named"
            mend = "intake: {queues: [DLQ]}"
            self.found.add(Check.DEAD_LETTERS, Severity.PROBLEM, "intake.queues", what, mend)
        return found

    def _note_missing(self, named: Iterable[Destination]) -> None:
        if (existing := self._rights.existing) is None:
            return
        for one in named:
            if not is_wildcard(one, self._kind) and one.address not in existing:
                self.found.report("intake_queue_missing", one)

    def _note_doubts(self, link: LookSession) -> None:
        """Report dead-letter queues of the rules that can't be found."""
        rules = self._settings.rules
        if not isinstance(rules, ClassicRules):
            return
        doubts = [*dead_letter_queues_of(rules)[1]]
        if self._rights.existing is None:
            doubts += [
                f"{pattern} can't be found: the broker does not list its queues to this user over "
                "this wire"
                for pattern in name_patterns_of(rules)
            ]
        for doubt in doubts:
            mend = "intake: {queues: [NAME]}"
            self.found.add(Check.DEAD_LETTERS, Severity.WARNING, "intake.queues", doubt, mend)

    def guessed_sources(self) -> tuple[Destination, ...]:
        """Return dead-letter addresses of the rules, to try the rights that will be needed."""
        rules = self._settings.rules
        if self._may_ask or not isinstance(rules, ArtemisRules):
            return ()
        names = dict.fromkeys(entry.settings.dead_letter_address for entry in rules.entries)
        return tuple(queue(name) for name in names if name)

    def expand(self, trials: Trials, intake: Sequence[IntakeQueue]) -> tuple[Destination, ...]:
        """Return the queues that names and wildcards stand for now."""
        found: dict[Destination, None] = {}
        for item in intake:
            destination = item.destination
            if is_wildcard(destination, self._kind):
                found.update(dict.fromkeys(self._expand_one(trials, destination)))
            else:
                found[destination] = None
        return tuple(found)

    def _expand_one(self, trials: Trials, destination: Destination) -> tuple[Destination, ...]:
        try:
            found = trials.expand([destination])
        except BrokerRefused as refused:
            words = str(refused)
            if read_refusal(words) is not None:
                purpose = f"finding the queues of {destination.name}"
                self._rights.note(ADVISORIES, purpose, words, exists=False)
            else:
                mend = "intake: {queues: [NAME]}"
                self.found.add(Check.DEAD_LETTERS, Severity.PROBLEM, destination.name, words, mend)
            return ()
        if self._rights.existing is None:
            names = ", ".join(one.name for one in found) or "none now"
            self.found.report("pattern_partly_tried", destination, names=names)
        return found

    def known_origins(
        self,
        link: LookSession,
        trials: Trials,
        intake: Sequence[IntakeQueue],
        sources: Sequence[Destination],
    ) -> tuple[Destination, ...]:
        """Return where messages wait for being sent to: of the schedule and of dead letters."""
        found = dict.fromkeys(self._settings.schedule.destinations)
        by_name = self._settings.needs_names and self._kind is BrokerKind.CLASSIC
        for origin in map(self._settings.names.origin_of, sources if by_name else ()):
            if origin is not None:
                found[origin] = None
        rules = self._settings.rules
        find = DeadLetterNames(rules if isinstance(rules, ClassicRules) else None).true_origin
        for item in () if by_name else intake:
            try:
                told = trials.features.messages
                listing = link.browse if told is None else told.list_messages
                for delivery in listing(item, _BROWSED_MAX):
                    if (named := delivery.provenance.origin) is not None:
                        found[find(named, delivery.source)] = None
            except BrokerRefused as refused:
                self.found.report("origins_unreadable", item.destination, refused=refused)
        for left in link.left_behind():
            if left.count:
                self._find_left(left)
            else:
                self.found.add(Check.ORIGINS, Severity.NOTE, str(left.queue), left.meaning)
        return tuple(found)

    def note_leftovers(self, trials: Trials, intake: Sequence[IntakeQueue]) -> None:
        """Report how many of the present dead letters this wire would leave."""
        total, is_told = 0, bool(intake) and self._rights.may_take
        for item in intake:
            try:
                leftovers = trials.would_leave(item)
            except BrokerRefused as refused:
                is_told = False
                self.found.report("leftovers_unknown", item.destination, refused=refused)
                continue
            total += len(leftovers)
            for left in leftovers:
                self._find_left(left)
        if is_told and not total:
            self.found.report("no_leftovers", "intake.queues")

    def _find_left(self, left: LeftBehind) -> None:
        more = " or more" if left.at_least else ""
        # Why not "dead letters": stuck messages may be in any queue.
        are = "message stays" if left.count == 1 and not more else "messages stay"
        self.found.report(
            "left_behind",
            left.queue,
            count=left.count,
            more=more,
            are=are,
            reason=left.reason,
            meaning=left.meaning,
        )

    def policy_origins(self, trials: Trials) -> tuple[Destination, ...]:
        """Return the origins that rules name and that exist; Classic only.

        Where it can't be known which exist, try queues of our own in their place.
        """
        rules, existing = self._settings.rules, self._rights.existing
        if not isinstance(rules, ClassicRules):
            return ()
        found: list[Destination] = []
        for pattern in named_origins(rules):
            # Why not `>`: it names every queue, even queues that the sidecar does not read.
            if not pattern.is_queue or pattern.name == ">" or "," in pattern.name:
                continue
            if existing is not None:
                found += [queue(name) for name in sorted(existing) if _covers(pattern, name)]
            elif not is_wildcard(pattern, self._kind):
                continue
            elif trials.can_remove:
                self._rights.try_pattern(trials, pattern)
            else:
                self.found.report("pattern_not_tried", pattern)
        return tuple(found)


def _covers(pattern: Destination, name: str) -> bool:
    """Return whether a name or wildcard of Classic stands for a queue."""
    names = IntakeNames(BrokerKind.CLASSIC)
    names.replace([IntakeQueue(pattern)])
    return names.covers(queue(name))
