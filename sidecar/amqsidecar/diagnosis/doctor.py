"""Examines a broker as a service with this configuration would find it.

Three connections in turn: the first only looks, the second has the doctor's own token queue for
transactions, the third removes that queue. No message of an application is taken: dead letters are
browsed, readers give no credit, and sends are rolled back. The broker keeps only queues that a
service would create as well: missing dead-letter queues that are named, and final queues.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from typing import Any

from amqsidecar.broker import (
    BrokerKind,
    IntakeQueue,
)
from amqsidecar.clock import Clock
from amqsidecar.diagnosis.artemis_layout import (
    copies_finding,
    dead_letter_findings,
    difference_findings,
    effect_findings,
    is_application,
    nack_finding,
    reject_finding,
    token_findings,
    unasked_findings,
)
from amqsidecar.diagnosis.broker_held import keeping_clock_findings, keeping_findings
from amqsidecar.diagnosis.cause_notes import cause_note_findings
from amqsidecar.diagnosis.classic_layout import interceptor_findings, layout_findings, token_finding
from amqsidecar.diagnosis.finding import Check, Finding, Findings, Severity, in_order
from amqsidecar.diagnosis.judging import (
    allowed_origins_findings,
    backlog_finding,
    clock_finding,
    counting_findings,
    delivery_findings,
    difference_ms,
    disk_findings,
    exhausted_findings,
    final_queues,
    is_wildcard,
    kind_finding,
    loop_findings,
    manual_findings,
    policy_findings,
    unknown_origin_findings,
)
from amqsidecar.diagnosis.permissions import TOKEN_PREFIX, read_refusal
from amqsidecar.diagnosis.rights import (
    management_attempt,
    needed_rights,
    permission_findings,
    untried_findings,
)
from amqsidecar.diagnosis.rights_trial import RightsTrial
from amqsidecar.diagnosis.schedule import (
    foreign_token_findings,
    schedule_findings,
    shared_rules_findings,
)
from amqsidecar.diagnosis.settings import DoctorSettings
from amqsidecar.diagnosis.sources import ADVISORIES, FindQueues, Sources
from amqsidecar.diagnosis.transactions import transaction_findings
from amqsidecar.diagnosis.wires import recorded_findings, version_finding, wire_findings
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.errors import (
    BrokerRefused,
    DiscoveryRefused,
    LinkLost,
)
from amqsidecar.model.destination import Destination, parse_destination, queue
from amqsidecar.model.sidecar_names import INTERCEPTED
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.trials import (
    ExaminedLink,
    ExaminedSession,
    ExaminedTakeSession,
    Trials,
)

MakeLink = Callable[[str], ExaminedLink]
"""Makes a link, not yet opened, for an instance of that name."""

# What a link advises to write into the broker's configuration.
_LINE_IN_WORDS = re.compile(r"<transportConnector[^>]*/>")
_ADDRESSES_MAX = 2000
_COUNTED_MAX = 1_000_000_000


class Doctor:
    """One examination."""

    def __init__(
        self,
        make_link: MakeLink,
        find_queues: FindQueues,
        clock: Clock,
        settings: DoctorSettings,
    ) -> None:
        self._make_link = make_link
        self._find_queues = find_queues
        self._clock = clock
        self._settings = settings
        self._found = Findings()
        self._rights = RightsTrial(settings.final_suffix)
        self._found_of_sources = Findings()
        self._kind = BrokerKind.CLASSIC
        self._encodings: tuple[str, ...] = ()
        self._settings_of: dict[str, Mapping[str, Any]] = {}
        self._sources: Sequence[Destination] = [one.destination for one in settings.intake_queues]
        self._origins: Sequence[Destination] = ()
        self._may_ask = True
        self._may_send = True
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
            with self._looking() as link:
                is_open = True
                self._look(link)
                self._judge_notes(link)
            if self._may_send and not self._settings.is_broker_held:
                self._try_token()
        except LinkLost as lost:
            if not is_open:
                raise
            self._found.report("link_lost", self._settings.place, lost=lost)
        except BrokerRefused as refused:
            self._refuse_log_in(refused)
        if is_open and self._may_send and self._kind is BrokerKind.ARTEMIS:
            self._look_at_disk_again()
        settings, rights = self._settings, self._rights
        self._found += policy_findings(settings.rules, is_layout_known=self._is_layout_known)
        self._found += (*rights.found, *self._found_of_sources)
        self._found += permission_findings(
            self._kind, settings.user, rights.attempts, lambda name: rights.roles.get(name, ())
        )
        needed = needed_rights(self._kind, self._sources, self._origins, settings.final_suffix)
        self._found += untried_findings(self._kind, settings.user, rights.attempts, needed)
        if not settings.is_broker_held:
            self._found += schedule_findings(settings.store_url, settings.schedule, self._encodings)
            self._found += shared_rules_findings(settings.schedule, settings.rules_digest)
        return in_order(self._found)

    def _make(self) -> ExaminedLink:
        # Why by chance: Classic 5.18 keeps the client id of a refused log-in for ever.
        link = self._make_link(f"doctor-{secrets.token_hex(4)}")
        self._began_ms = self._clock.now_ms()
        return link

    def _looking(self) -> AbstractContextManager[ExaminedSession]:
        return closing(self._make().look())

    def _taking(self, token_queue: str) -> AbstractContextManager[ExaminedTakeSession]:
        return closing(self._make().take(token_queue))

    def _refuse_log_in(self, refused: BrokerRefused) -> None:
        words = str(refused)
        if read_refusal(words) is None:
            self._found.add(Check.BROKER, Severity.PROBLEM, self._settings.place, words)
            return
        self._rights.note(ADVISORIES, "logging in", words)
        self._found.report("log_in_refused", self._settings.place)

    # ------------------------------------------------------------------ looking

    def _look(self, link: ExaminedSession) -> None:
        settings = self._settings
        self._kind = link.description.kind
        self._encodings = link.description.encodings
        self._found += version_finding(link.description, settings.place, settings.expected_kind)
        self._found += wire_findings(
            self._kind,
            settings.scheme,
            settings.place,
            self._encodings,
            settings.allowed_losses,
            has_amqp=settings.has_amqp,
        )
        trials = link.trials()
        self._judge_disk(trials)
        if not self._may_send:
            return
        self._note_management(link, trials)
        rights = self._rights
        if not trials.can_remove:
            # Why: this user's next doctor on this wire reuses a queue that can't be removed.
            own = re.sub(r"[^A-Za-z0-9_-]", "_", f"{settings.scheme}-{settings.user}")
            self._token_queue = queue(f"{TOKEN_PREFIX}doctor-{own}")
        look = Sources(settings, self._kind, self._find_queues, rights, may_ask=self._may_ask)
        self._found_of_sources = look.found
        look.note_existing(link, self._settings_of)
        intake = look.find_intake(link)
        self._note_settings(link, intake)
        sources = look.expand(trials, intake)
        origins = look.known_origins(link, trials, intake, sources)
        self._judge_layout(intake, origins)
        self._judge_effects(trials, intake)
        self._judge_given_up(trials, intake)
        self._found += loop_findings(
            intake, self._kind, settings.rules, origins, settings.final_suffix
        )
        self._found += (
            *kind_finding(self._kind, settings.rules),
            *manual_findings(settings.manual, link),
        )
        if settings.needs_names and self._kind is BrokerKind.CLASSIC:
            self._found += unknown_origin_findings(intake, settings.names, rights.existing)
        self._found += recorded_findings(self._kind, settings.scheme, settings.allowed_losses)
        self._sources, self._origins = sources or look.guessed_sources(), origins
        sources = self._sources
        rights.try_sources(trials, sources)
        look.note_leftovers(trials, intake)
        names = IntakeNames(self._kind)
        names.replace(intake)
        named = look.policy_origins(trials)
        self._found += allowed_origins_findings(
            settings.allowed_origins,
            [
                one
                for one in (*origins, *named)
                if not (names.covers(one) or is_wildcard(one, self._kind))
            ],
        )
        finals = final_queues(
            settings.rules, sources, (*origins, *named), names.covers, settings.final_suffix
        )
        rights.try_finals(link, trials, finals)
        rights.try_origins(
            link, trials, [one for one in (*origins, *named) if not names.covers(one)]
        )
        if settings.is_broker_held:
            self._found += keeping_findings(link, origins, may_ask=self._may_ask)
            if link.features.delayed is not None:
                rights.try_keeping(link, trials)
        self._count(link, sources)
        self._count_exhausted(link, trials, finals)
        self._look_for_tokens(link)
        self._try_counting(link, sources)
        if self._kind is BrokerKind.ARTEMIS:
            rights.note_roles(trials)
            self._judge_clock(trials)

    def _judge_notes(self, link: ExaminedSession) -> None:
        """Begin to read the queue of notes, and take nothing."""
        for notes in self._settings.notes:
            told: Mapping[str, Any] = {}
            if link.features.settings is not None and self._settings_of:
                [told] = link.features.settings.address_settings([notes.queue.address])
            refusal = link.trials().read(notes.queue) or ""
            self._found += cause_note_findings(notes, refusal, told, self._settings.allowed_origins)

    def _judge_disk(self, trials: Trials) -> None:
        tells = trials.features.disk
        if tells is not None and (disk := tells.disk()) is not None:
            self._found += disk_findings(disk)
            self._may_send = not disk.is_full

    def _look_at_disk_again(self) -> None:
        """Drop all findings of the broker if its disk became full during the examination.

        Why: over STOMP such a broker's answer to a send reads as a missing permission.
        """
        before, self._found = self._found, Findings()
        with suppress(BrokerRefused, LinkLost), self._looking() as link:
            self._judge_disk(link.trials())
        if self._may_send:
            self._found = before
        else:
            self._rights = RightsTrial(self._settings.final_suffix)
            self._found_of_sources = Findings()

    def _judge_given_up(self, trials: Trials, intake: Sequence[IntakeQueue]) -> None:
        """Report the fate of messages that consumers give up, with the listener or without."""
        if (tells := trials.features.roles) is not None:
            self._found += copies_finding(
                intake, tells.roles(INTERCEPTED), has_keys=self._settings.has_copy_keys
            )
        if (acceptors := trials.features.acceptors) is not None:
            self._found += nack_finding(acceptors.acceptors_of("STOMP"))
            self._found += reject_finding(acceptors.acceptors_of("AMQP"), self._settings_of)

    def _note_management(self, link: ExaminedSession, trials: Trials) -> None:
        if (asked := link.features.settings) is None:
            return
        try:
            names = ["#", self._token_queue.name]
            tells = trials.features.roles
            names += () if tells is None else tells.addresses()[:_ADDRESSES_MAX]
            self._settings_of = dict(zip(names, asked.address_settings(names), strict=True))
        except BrokerRefused as refused:
            self._may_ask = False
            self._note_unasked(refused, trials)

    def _note_settings(self, link: ExaminedSession, intake: Sequence[IntakeQueue]) -> None:
        """Ask for the settings of dead-letter addresses, where not all addresses are known."""
        asked = link.features.settings
        if asked is None or not self._settings_of:
            return
        addresses = dict.fromkeys(item.destination.address for item in intake)
        missing = [name for name in addresses if name not in self._settings_of]
        told = asked.address_settings(missing)
        self._settings_of.update(zip(missing, told, strict=True))

    def _note_unasked(self, refused: BrokerRefused, trials: Trials) -> None:
        settings = self._settings
        user = settings.user
        tells = trials.features.roles
        words = () if tells is None else tells.refusals()
        purpose = "asking the broker for its dead-letter queues, its settings and its queues"
        attempts = [management_attempt(one, user, purpose) for one in words or (str(refused),)]
        if not settings.intake_queues or settings.rules is None:
            self._rights.attempts += attempts
            self._rights.is_made_for_us = True
            return
        for finding in permission_findings(self._kind, user, attempts):
            self._found.report(
                "management_not_needed", finding.subject, what=finding.what, mend=finding.mend
            )

    # ------------------------------------------------------------------ judging

    def _judge_layout(self, intake: Sequence[IntakeQueue], origins: Sequence[Destination]) -> None:
        rules = self._settings.rules
        self._is_layout_known = self._kind is BrokerKind.CLASSIC or bool(self._settings_of)
        self._found += delivery_findings(self._settings.decider, origins, self._settings_of)
        if self._kind is BrokerKind.CLASSIC:
            classic = rules if isinstance(rules, ClassicRules) else None
            self._found += layout_findings(classic)
            self._found += interceptor_findings(classic, self._settings.allowed_effects)
            return
        if not self._settings_of:
            if isinstance(rules, ArtemisRules) and self._settings.scheme.startswith("amqp"):
                names = [item.destination.address for item in intake]
                self._found += unasked_findings(rules, names)
            return
        addresses = {one.address for one in origins}
        self._found += dead_letter_findings(self._settings_of, intake, addresses)
        if isinstance(rules, ArtemisRules):
            read = {item.destination.address for item in intake}
            self._found += difference_findings(rules, self._settings_of, read)
        token = self._token_queue.name
        self._found += token_findings(token, self._settings_of.get(token, {}))

    def _look_for_tokens(self, link: ExaminedSession) -> None:
        settings = self._settings
        if settings.is_broker_held:
            return
        try:
            tokens = link.foreign_tokens(settings.schedule.instances)
        except BrokerRefused as refused:
            self._found.add(Check.SCHEDULE, Severity.NOTE, settings.place, str(refused))
            return
        self._found += foreign_token_findings(
            tokens,
            settings.schedule,
            accepts_orphans=settings.accepts_orphans,
            rules_digest=settings.rules_digest,
        )

    def _judge_effects(self, trials: Trials, intake: Sequence[IntakeQueue]) -> None:
        """Look at every address that a message may have died on, known origin or not."""
        asked = trials.features.effects
        if asked is None or not self._settings_of:
            return
        read = {item.destination.address for item in intake}
        settings_of = {
            name: settings
            for name, settings in self._settings_of.items()
            if name == "#" or (is_application(name) and name not in read)
        }
        try:
            effects = asked.resend_effects(settings_of)
        except (BrokerRefused, DiscoveryRefused) as refused:
            self._found.report("effects_not_reported", "#", refused=refused)
            return
        self._found += effect_findings(effects, self._settings.allowed_effects)

    def _try_counting(self, link: ExaminedSession, sources: Sequence[Destination]) -> None:
        """Find out whether the broker counts acknowledgements; any dead-letter queue will do."""
        settings = self._settings
        if not settings.watches_outcomes:
            return
        try:
            counters = link.queue_counters([*sources][:1])
        except BrokerRefused as refused:
            self._found.add(Check.OUTCOMES, Severity.WARNING, settings.place, str(refused))
            return
        self._found += counting_findings(counters, settings.place)

    def _judge_clock(self, trials: Trials) -> None:
        try:
            broker_ms = trials.broker_ms()
        except BrokerRefused:
            broker_ms = None
        if broker_ms is None:
            self._found.report("time_not_reported", "clock")
            return
        ahead_ms = difference_ms(broker_ms, self._began_ms, self._clock.now_ms())
        self._found.append(clock_finding(self._kind, ahead_ms))
        if self._settings.is_broker_held:
            self._found += keeping_clock_findings(ahead_ms)

    def _count(self, link: ExaminedSession, sources: Sequence[Destination]) -> None:
        settings, total, is_counted = self._settings, 0, True
        if self._kind is BrokerKind.ARTEMIS and not self._may_ask:
            # Why: browsed, a message that the broker can't convert to AMQP leaves a copy of itself.
            self._found.report("backlog_not_shown", "intake.queues")
            return
        for source in sources:
            try:
                count = link.count(IntakeQueue(source), _COUNTED_MAX)
            except BrokerRefused:
                is_counted = False
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
        if sources and is_counted and not total:
            self._found.report("no_backlog", "intake.queues")

    def _count_exhausted(
        self, link: ExaminedSession, trials: Trials, finals: Sequence[Destination]
    ) -> None:
        """Report messages that wait for a person, and unknown messages if browsing is permitted."""
        settings, held = self._settings, dict[Destination, int]()
        known = settings.schedule.exhausted
        names = dict.fromkeys([*finals, *(parse_destination(one.queue) for one in known)])
        may_look = self._kind is BrokerKind.CLASSIC or self._may_ask
        for final in names if may_look else ():
            with suppress(BrokerRefused):
                if trials.read(final) is None:
                    held[final] = link.count(IntakeQueue(final, is_final=True), _COUNTED_MAX)
        self._found += exhausted_findings(known, held)

    # ------------------------------------------------------------------ transactions

    def _try_token(self) -> None:
        token = self._token_queue
        try:
            with self._looking() as link:
                if not self._rights.try_token(link, token):
                    self._found.report("transactions_not_tried", token.name)
                    return
            self._found += transaction_findings(self._looking, self._taking, token, self._at_work)
        except BrokerRefused as refused:
            words = str(refused)
            refusal = read_refusal(words)
            if refusal is not None:
                is_probe = refusal.destination.is_temporary
                purpose = "trying the connector" if is_probe else "using the token queue"
                self._rights.note(token, purpose, words)
            else:
                line = _LINE_IN_WORDS.search(words)
                what = f"a run could not start: {words}"
                mend = "" if line is None else line[0]
                self._found.add(Check.BROKER, Severity.PROBLEM, self._settings.place, what, mend)

    def _at_work(self, link: ExaminedSession) -> None:
        if self._kind is not BrokerKind.CLASSIC:
            return
        trials = link.trials()
        self._judge_clock(trials)
        if (expiration := trials.features.expiration) is not None:
            expiration_ms = expiration.token_expiration_ms()
            self._found.append(token_finding(self._token_queue.name, expiration_ms))
