"""Examines a broker as a service with this configuration would meet it.

Three connections, one after the other: one that only looks, one with a token queue of the doctor's
own for the transactions, one that removes that queue. No message of an application is taken: dead
letters are browsed, readers ask for none, what is sent is rolled back. What stays in the broker are
queues that a service would make as well: dead-letter queues that are named and missing, and final
ones.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from amqsidecar.broker import BrokerKind, IntakeQueue, Link
from amqsidecar.clock import Clock
from amqsidecar.diagnosis.artemis_layout import (
    dead_letter_findings,
    dropping_origins,
    token_findings,
)
from amqsidecar.diagnosis.classic_layout import layout_findings, named_origins
from amqsidecar.diagnosis.clocks import clock_finding, difference_ms
from amqsidecar.diagnosis.finding import Check, Finding, Severity, in_order
from amqsidecar.diagnosis.judging import (
    backlog_finding,
    is_wildcard,
    kind_finding,
    loop_findings,
    policy_findings,
)
from amqsidecar.diagnosis.permissions import TOKEN_PREFIX, read_refusal
from amqsidecar.diagnosis.rights import management_attempt, permission_findings
from amqsidecar.diagnosis.rights_trial import RightsTrial, roles_teller
from amqsidecar.diagnosis.schedule import ScheduleFacts, schedule_findings
from amqsidecar.diagnosis.transactions import transaction_findings
from amqsidecar.diagnosis.trials import HasTrials, TellsSettings, Trials
from amqsidecar.diagnosis.wires import version_finding, wire_findings
from amqsidecar.engine.intake import IntakeNames, dead_letter_queues_of
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules

MakeLink = Callable[[str], Link]
"""Makes a link, not yet opened, for an instance of that name."""

_ADVISORIES = topic("ActiveMQ.Advisory.Queue")
_BROWSED_MAX = 100
_ADDRESSES_MAX = 2000


class DoctorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What of the configuration matters.

    Attributes:
        scheme: of the broker's URL.
        place: host and port.
        user: who logs in; "" = nobody.
        expected_kind: None = whichever it is.
        intake_queues: named by the operator; () = discover.
        rules: given ones; None = none.
        default_rules: what acts on Classic where none are given.
        holds_backlog: whether dead letters that were there before are held.
        backlog_threshold: not where they are no more than this.
        final_suffix: of final queues.
        store_url: for telling.
        schedule: what the store holds.
    """

    scheme: str
    place: str
    user: str = ""
    expected_kind: BrokerKind | None = None
    intake_queues: tuple[IntakeQueue, ...] = ()
    rules: ClassicRules | ArtemisRules | None = None
    default_rules: ClassicRules = ClassicRules()
    holds_backlog: bool = True
    backlog_threshold: int = 100
    final_suffix: str
    store_url: str
    schedule: ScheduleFacts = ScheduleFacts()


class Doctor:
    """One examination."""

    def __init__(self, make_link: MakeLink, clock: Clock, settings: DoctorSettings) -> None:
        self._make_link = make_link
        self._clock = clock
        self._settings = settings
        self._found: list[Finding] = []
        self._rights = RightsTrial(settings.final_suffix)
        self._kind = BrokerKind.CLASSIC
        self._encoding = ""
        self._settings_of: dict[str, Mapping[str, Any]] = {}
        self._may_ask = True
        self._is_layout_known = False
        self._token_queue = queue(f"{TOKEN_PREFIX}doctor-{secrets.token_hex(4)}")

    def examine(self) -> tuple[Finding, ...]:
        """Return all that was found.

        If the process dies inside, at most the doctor's own token queue stays in the broker.

        Raises:
            LinkLost: the broker can't be reached at all.
            ConfigError: a password or a certificate can't be read.
        """
        is_open = False
        try:
            with self._opened(None) as link:
                is_open = True
                self._look(link)
            self._try_token()
        except LinkLost as lost:
            if not is_open:
                raise
            what = f"the link broke off, and the examination with it: {lost}"
            self._find(Check.BROKER, Severity.PROBLEM, self._settings.place, what)
        except BrokerRefused as refused:
            self._refuse_log_in(refused)
        settings, rights = self._settings, self._rights
        self._found += policy_findings(settings.rules, is_layout_known=self._is_layout_known)
        self._found += rights.found
        self._found += permission_findings(
            self._kind, settings.user, rights.attempts, lambda name: rights.roles.get(name, ())
        )
        self._found += schedule_findings(settings.store_url, settings.schedule, self._encoding)
        return in_order(self._found)

    def _find(
        self, check: Check, severity: Severity, subject: str, what: str, mend: str = ""
    ) -> None:
        self._found.append(
            Finding(check=check, severity=severity, subject=subject, what=what, mend=mend)
        )

    @contextmanager
    def _opened(self, token_queue: str | None) -> Iterator[Link]:
        # Why by chance: Classic 5.18 keeps the client id of a refused log-in for ever.
        link = self._make_link(f"doctor-{secrets.token_hex(4)}")
        self._began_ms = self._clock.now_ms()
        try:
            link.open(token_queue)
            yield link
        finally:
            link.close()

    def _refuse_log_in(self, refused: BrokerRefused) -> None:
        words = str(refused)
        if read_refusal(words) is None:
            self._find(Check.BROKER, Severity.PROBLEM, self._settings.place, words)
            return
        self._rights.note(_ADVISORIES, "logging in", words)
        self._find(
            Check.PERMISSIONS,
            Severity.NOTE,
            self._settings.place,
            "the broker ended the connection with that refusal, so that nothing else could be "
            "tried; run doctor again once it is mended",
        )

    # ------------------------------------------------------------------ looking

    def _look(self, link: Link) -> None:
        settings = self._settings
        self._kind = link.description.kind
        self._encoding = link.description.encoding
        self._found += version_finding(link.description, settings.place, settings.expected_kind)
        self._found += wire_findings(self._kind, settings.scheme, settings.place)
        trials = link.trials() if isinstance(link, HasTrials) else None
        self._note_management(link, trials)
        rights = self._rights
        if trials is not None:
            rights.existing = self._note_existing(trials)
        intake = self._find_intake(link)
        sources = self._expand(trials, intake)
        origins = self._known_origins(link, intake)
        self._judge_layout(intake, origins)
        self._found += loop_findings(
            intake, self._kind, settings.rules, origins, settings.final_suffix
        )
        self._found += kind_finding(self._kind, settings.rules)
        sources = sources or self._guessed_sources()
        rights.try_sources(link, trials, sources)
        rights.try_finals(link, trials, sources)
        names = IntakeNames(self._kind)
        names.replace(intake)
        named = self._policy_origins(trials)
        rights.try_origins(
            link, trials, [one for one in (*origins, *named) if not names.covers(one)]
        )
        self._count(link, sources)
        if trials is not None and self._kind is BrokerKind.ARTEMIS:
            rights.note_roles(trials)
            self._judge_clock(trials)

    def _note_management(self, link: Link, trials: Trials | None) -> None:
        if not isinstance(link, TellsSettings) or self._kind is not BrokerKind.ARTEMIS:
            return
        try:
            names = ["#", self._token_queue.name]
            tells = roles_teller(trials)
            names += () if tells is None else tells.addresses()[:_ADDRESSES_MAX]
            self._settings_of = dict(zip(names, link.address_settings(names), strict=True))
        except BrokerRefused as refused:
            self._may_ask = False
            # Why the fixed name: what can't be removed is used again by the next doctor.
            user = re.sub(r"[^A-Za-z0-9_-]", "_", self._settings.user)
            self._token_queue = queue(f"{TOKEN_PREFIX}doctor-{user}")
            self._note_unasked(refused, trials)

    def _note_unasked(self, refused: BrokerRefused, trials: Trials | None) -> None:
        settings = self._settings
        user = settings.user
        tells = roles_teller(trials)
        words = () if tells is None else tells.refusals()
        purpose = "asking the broker for its dead-letter queues, its settings and its queues"
        attempts = [management_attempt(one, user, purpose) for one in words or (str(refused),)]
        if not settings.intake_queues or settings.rules is None:
            self._rights.attempts += attempts
            self._rights.is_made_for_us = True
            return
        for finding in permission_findings(self._kind, user, attempts):
            self._find(
                Check.PERMISSIONS,
                Severity.WARNING,
                finding.subject,
                f"{finding.what}; queues and rules are named, so that a run can do without, but "
                "can't see what routes",
                finding.mend,
            )

    def _note_existing(self, trials: Trials) -> frozenset[str] | None:
        if self._kind is BrokerKind.ARTEMIS:
            return frozenset(self._settings_of) if self._may_ask else None
        try:
            names = frozenset(one.name for one in trials.expand([queue(">")]))
        except BrokerRefused:
            return None
        return names or None

    def _find_intake(self, link: Link) -> tuple[IntakeQueue, ...]:
        settings = self._settings
        if settings.intake_queues:
            return settings.intake_queues
        if self._kind is BrokerKind.ARTEMIS:
            found = (
                tuple(one for one in link.discover() if not one.expires) if self._may_ask else ()
            )
        else:
            is_classic = isinstance(settings.rules, ClassicRules)
            rules = settings.rules if is_classic else settings.default_rules
            assert isinstance(rules, ClassicRules)  # noqa: S101 - the line above
            found, doubts = dead_letter_queues_of(rules)
            for doubt in doubts:
                mend = "intake: {queues: [NAME]}"
                self._find(Check.DEAD_LETTERS, Severity.WARNING, "intake.queues", doubt, mend)
        if found:
            names = ", ".join(one.destination.name for one in found)
            what = f"dead letters are read from {names}"
            self._find(Check.DEAD_LETTERS, Severity.OK, "intake.queues", what)
        else:
            self._find(
                Check.DEAD_LETTERS,
                Severity.PROBLEM,
                "intake.queues",
                "no dead-letter queue is known, so that nothing would be taken",
                "intake: {queues: [DLQ]}",
            )
        return found

    def _guessed_sources(self) -> tuple[Destination, ...]:
        """Return dead-letter addresses of the rules, to try the rights that will be needed."""
        rules = self._settings.rules
        if self._may_ask or not isinstance(rules, ArtemisRules):
            return ()
        names = dict.fromkeys(entry.settings.dead_letter_address for entry in rules.entries)
        return tuple(queue(name) for name in names if name)

    def _expand(
        self, trials: Trials | None, intake: Sequence[IntakeQueue]
    ) -> tuple[Destination, ...]:
        found: dict[Destination, None] = {}
        for item in intake:
            destination = item.destination
            if not is_wildcard(destination, self._kind):
                found[destination] = None
            elif trials is not None:
                found.update(dict.fromkeys(self._expand_one(trials, destination)))
        return tuple(found)

    def _expand_one(self, trials: Trials, destination: Destination) -> tuple[Destination, ...]:
        try:
            return trials.expand([destination])
        except BrokerRefused as refused:
            words = str(refused)
            if read_refusal(words) is not None:
                purpose = f"finding the queues of {destination.name}"
                self._rights.note(_ADVISORIES, purpose, words, exists=False)
            else:
                mend = "intake: {queues: [NAME]}"
                self._find(Check.DEAD_LETTERS, Severity.PROBLEM, destination.name, words, mend)
        return ()

    def _known_origins(self, link: Link, intake: Sequence[IntakeQueue]) -> tuple[Destination, ...]:
        """Return where messages wait for being sent to: of the schedule and of dead letters."""
        found = dict.fromkeys(self._settings.schedule.destinations)
        for item in intake:
            try:
                for delivery in link.browse(item, _BROWSED_MAX):
                    if delivery.provenance.origin is not None:
                        found[delivery.provenance.origin] = None
            except BrokerRefused as refused:
                what = f"the origins of its dead letters can't be looked at: {refused}"
                self._find(Check.ORIGINS, Severity.NOTE, str(item.destination), what)
        for left in link.left_behind():
            more = " or more" if left.at_least else ""
            what = f"{left.count}{more} dead letters are not taken ({left.reason}): {left.meaning}"
            self._find(Check.FIDELITY, Severity.WARNING, str(left.queue), what)
        return tuple(found)

    # ------------------------------------------------------------------ judging

    def _judge_layout(self, intake: Sequence[IntakeQueue], origins: Sequence[Destination]) -> None:
        rules = self._settings.rules
        self._is_layout_known = self._kind is BrokerKind.CLASSIC or bool(self._settings_of)
        if self._kind is BrokerKind.CLASSIC:
            self._found += layout_findings(rules if isinstance(rules, ClassicRules) else None)
            return
        if not self._settings_of:
            return
        addresses = {one.address for one in origins}
        self._found += dead_letter_findings(self._settings_of, intake, addresses)
        self._found += dropping_origins(self._settings_of)
        token = self._token_queue.name
        self._found += token_findings(token, self._settings_of.get(token, {}))

    def _judge_clock(self, trials: Trials) -> None:
        try:
            broker_ms = trials.broker_ms()
        except BrokerRefused:
            broker_ms = None
        if broker_ms is None:
            what = "the broker does not tell its time to this user over this wire"
            self._find(Check.CLOCK, Severity.NOTE, "clock", what)
            return
        ahead_ms = difference_ms(broker_ms, self._began_ms, self._clock.now_ms())
        self._found.append(clock_finding(self._kind, ahead_ms))

    def _policy_origins(self, trials: Trials | None) -> tuple[Destination, ...]:
        """Return the origins that rules name and that exist; Classic only.

        Where it can't be known which exist, try queues of our own in their place.
        """
        rules, existing = self._settings.rules, self._rights.existing
        if not isinstance(rules, ClassicRules) or trials is None:
            return ()
        found: list[Destination] = []
        for pattern in named_origins(rules):
            # Why not `>`: it names every queue, also those whose dead letters nobody reads.
            if not pattern.is_queue or pattern.name == ">" or "," in pattern.name:
                continue
            if existing is not None:
                found += [one for one in trials.expand([pattern]) if one.name in existing]
            elif is_wildcard(pattern, self._kind):
                self._rights.try_pattern(trials, pattern)
        return tuple(found)

    def _count(self, link: Link, sources: Sequence[Destination]) -> None:
        settings, total = self._settings, 0
        if self._kind is BrokerKind.ARTEMIS and not self._may_ask:
            # Why: browsed, a message that the broker can't convert to AMQP leaves a copy of itself.
            what = "how many dead letters wait is told to those only who may manage the broker"
            self._find(Check.BACKLOG, Severity.NOTE, "intake.queues", what)
            return
        for source in sources:
            try:
                count = link.count(IntakeQueue(source), 1_000_000_000)
            except BrokerRefused:
                continue
            total += count
            if not count:
                continue
            finding = backlog_finding(
                source,
                count,
                holds=settings.holds_backlog,
                threshold=settings.backlog_threshold,
                is_seen=str(source) in settings.schedule.seen,
            )
            self._found.append(finding)
        if sources and not total:
            self._find(Check.BACKLOG, Severity.OK, "intake.queues", "no dead letters wait")

    # ------------------------------------------------------------------ transactions

    def _try_token(self) -> None:
        token = self._token_queue
        try:
            with self._opened(None) as link:
                if not self._rights.try_token(link, token):
                    return
            self._found += transaction_findings(self._opened, token, self._at_work)
        except BrokerRefused as refused:
            words = str(refused)
            if read_refusal(words) is not None:
                self._rights.note(token, "using the token queue", words)
            else:
                self._find(Check.TRANSACTIONS, Severity.PROBLEM, token.name, words)

    def _at_work(self, link: Link) -> None:
        if isinstance(link, HasTrials) and self._kind is BrokerKind.CLASSIC:
            self._judge_clock(link.trials())
