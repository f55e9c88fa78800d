"""The rules of the running program: the judge that asks them, gates, groups of failures, notes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final

import structlog

from amqsidecar.broker import BrokerKind, Delivery, LookSession
from amqsidecar.clock import Clock
from amqsidecar.config.copy_keys import copy_keys
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.policy import TopicPolicy, VerdictPolicy
from amqsidecar.config.sections.redelivery import ExhaustedChoice, RedeliveryMode
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.diagnosis.cause_notes import CauseNoteSettings
from amqsidecar.engine.cause_notebook import CauseNotebook
from amqsidecar.engine.gates import GatesAt, described
from amqsidecar.engine.intake import IntakeNames, dead_letter_queues_of, named_queues
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.engine.judging.death_groups import FieldsOf, no_fields
from amqsidecar.engine.judging.judge import Judge, Readers
from amqsidecar.engine.judging.noted import SHARED_VERDICT_WAIT_MS, VERDICT_WAIT_MS, CauseNotes
from amqsidecar.engine.judging.one_queue import copied_by
from amqsidecar.engine.judging.reported import Reports
from amqsidecar.engine.judging.resend_copies import (
    ResendProblem,
    classic_resend_problem,
    no_resend_problem,
    resend_warnings,
)
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.manual import ALL, Manual
from amqsidecar.errors import BrokerRefused, ConfigError, Problem
from amqsidecar.messages.cause_notes import read_cause_note, read_event_name
from amqsidecar.messages.edit import edit_properties
from amqsidecar.messages.facts import delivery_facts
from amqsidecar.messages.fields import Field, FieldKind, OpenMessage, parse_field
from amqsidecar.messages.interceptions import vetting
from amqsidecar.messages.kept_message import chosen_cause, chosen_properties, producer_of
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.marker import ServiceMark, ServiceMarkKind
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.operate import checked_target
from amqsidecar.operations.retention import KeepRule, Retention
from amqsidecar.plugin import Chance, Decider, Gate, GroupGate, Plugin
from amqsidecar.plugin_loader import load_gate_plugins, load_plugins
from amqsidecar.policy.address_settings import compile_address_settings
from amqsidecar.policy.artemis_rules import AddressSettingEntry, ArtemisRules
from amqsidecar.policy.chain import Chain, StoredDeadLetters, compile_plugins
from amqsidecar.policy.classic_rules import BROKER_DEFAULTS, ClassicRules, PluginRules
from amqsidecar.policy.gate_entries import EntryFinder, read_entries
from amqsidecar.policy.option_reader import OptionReader
from amqsidecar.policy.rule_source import parse_source
from amqsidecar.policy_source.digest import rules_digest
from amqsidecar.policy_source.gates import GATES_KEY, read_gates
from amqsidecar.policy_source.load import compile_policy, load_policy, read_plugins, with_plugins
from amqsidecar.runtime.discovery import Discovery
from amqsidecar.runtime.late_notes import NoteProblems
from amqsidecar.runtime.live_policy import LivePolicy, SeenSettings
from amqsidecar.runtime.work import MakeJudge

log = structlog.get_logger("amqsidecar.wiring.app")


def load_rules(config: Config, plugins: Mapping[str, Plugin]) -> ClassicRules | ArtemisRules | None:
    """Return the rules that the configuration names; None = none are named.

    Raises:
        ConfigError: with every problem found.
    """
    given = config.policy.source if config.policy.source is not None else config.policy.rules
    links = load_links(config, plugins)
    if given is None:
        return None
    rules = with_plugins(load_policy(given, plugins), links)
    _refuse_waits(config, rules.plugins, plugins)
    return rules


def load_links(config: Config, plugins: Mapping[str, Plugin]) -> tuple[PluginRules, ...]:
    """Return the rules beyond the broker's that the configuration names.

    Raises:
        ConfigError: with every problem found.
    """
    place = parse_source(config.origin("policy.plugins"))
    links = read_plugins(config.policy.plugins, place, plugins)
    _refuse_waits(config, links, plugins)
    return links


def _refuse_waits(
    config: Config, links: Sequence[PluginRules], plugins: Mapping[str, Plugin]
) -> None:
    """Refuse rules that wait for events outside where the broker keeps the schedule.

    Raises:
        ConfigError: with every such rule.
    """
    if config.store.url != BROKER_HELD:
        return
    rules = [rule for one in compile_plugins(links, plugins) for rule in getattr(one, "awaits", ())]
    why = "needs a store, because Artemis can't hold a message until an event is reported"
    if rules:
        what = f"is broker:, but {{}} {why}: leave `until` out, or use another store"
        raise ConfigError([Problem("store.url", what.format(rule)) for rule in rules])


def send_rules(config: Config, rules: object, names: IntakeNames) -> SendRules:
    """Return where a sidecar of this configuration never sends."""
    options = config.redelivery
    copies: ResendProblem = no_resend_problem
    if isinstance(rules, ClassicRules):
        copies = classic_resend_problem(rules.interceptors, options.allow)
    is_classic = names.kind is BrokerKind.CLASSIC
    return SendRules(
        names.kind,
        names.covers,
        options.final_suffix,
        notes=config.intake.cause_notes.removeprefix("queue://"),
        parks_topics=is_classic and config.policy.topics is TopicPolicy.PARK,
        allowed_origins=options.allowed_origins,
        copies=copies,
    )


def manual_of(config: Config, rules: object) -> Manual:
    """Return the dead letters that options leave to a person, under these rules of the broker."""
    classic = rules if isinstance(rules, ClassicRules) else None
    found, _ = dead_letter_queues_of(classic or ClassicRules())
    mode = config.redelivery.mode
    return Manual(
        config.redelivery.manual if mode is RedeliveryMode.AUTOMATIC else (ALL,),
        names=DeadLetterNames(classic, config.intake.origin),
        known=named_queues(config.intake.queues) or found,
        redelivers=mode is RedeliveryMode.IN_PLACE,
    )


class RunningRules:
    """The rules of a running service: configured rules, or the connected product's defaults.

    Attributes:
        intake: finds the dead-letter queues that the rules and the broker name.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self._plugins = load_plugins()
        self._config = config
        self._clock = clock
        self.given = load_rules(config, self._plugins)
        self.links = load_links(config, self._plugins)
        self._defaults = with_plugins(BROKER_DEFAULTS, self.links)
        apart = () if self.given is not None else config.policy.plugins
        self.digest = rules_digest(self.given, (*apart, *config.policy.gates))
        self._decider = None if self.given is None else _compile(self.given, self._plugins)
        self.intake = Discovery(self.classic).find
        self._seen = SeenSettings()
        self._filled = self.given if isinstance(self.given, ArtemisRules) else ArtemisRules()
        self._kind: BrokerKind | None = None
        for warning in () if self.given is None else self.given.warnings:
            log.warning("policy_warning", meaning=warning)
        if self.classic is not None:
            for reason in resend_warnings(self.classic.interceptors, config.redelivery.allow):
                log.warning("redeliveries_parked", meaning=reason)

    def decider(self, link: LookSession) -> Decider:
        """Return the decider for the broker of an open link.

        Raises:
            BrokerRefused: it is not the broker that the options expect, or it shows no settings.
            ConfigError: the given rules are of another product.
        """
        expected = self._config.broker.expected_kind
        kind = link.description.kind
        if expected is not None and expected is not kind:
            raise BrokerRefused(
                f"the broker is {kind.value}, but broker.kind says {expected.value}"
            )
        if kind is BrokerKind.CLASSIC and isinstance(self.given, ArtemisRules):
            what = (
                "holds address settings of Artemis, and the broker is Classic: name its "
                "activemq.xml, or the broker that these settings are of in broker.url"
            )
            raise ConfigError([Problem("policy.source", what)])
        if kind is BrokerKind.ARTEMIS and not isinstance(self.given, ClassicRules):
            return self._live_decider(link)
        if self._decider is not None:
            return self._decider
        log.info("policy", source="none given: the broker's default redelivery policy for all")
        self._kind = kind
        return _compile(self._defaults, self._plugins)

    def _live_decider(self, link: LookSession) -> Decider:
        """Return the decider by the given rules, and the broker's settings for the rest.

        Raises:
            BrokerRefused: no rules are given, and the broker does not show its settings.
        """
        settings, given = link.features.settings, self.given
        assert settings is not None  # noqa: S101 - every wire to Artemis asks for them
        assert not isinstance(given, ClassicRules)  # noqa: S101 - the caller's condition
        try:
            # Why: a broker that shows us nothing is refused before the first dead letter.
            settings.address_settings(["#"])
        except BrokerRefused as refused:
            if self._decider is None:
                raise
            log.warning(
                "policy_incomplete",
                meaning="the broker does not show its address settings: where policy.source says "
                "nothing, the defaults of Artemis are assumed, and what they would destroy is kept",
                reason=str(refused),
            )
            return self._decider
        if given is None:
            log.info("policy", source="the broker's own address settings, read live")
        self._kind = BrokerKind.ARTEMIS
        live = LivePolicy(
            settings,
            self._clock,
            self._config.discovery.interval_s,
            self._seen,
            None if given is None else compile_address_settings(given),
        )
        plugins = self.links if given is None else given.plugins
        links = compile_plugins(plugins, self._plugins)
        return Chain([live, *links]) if links else live

    def acting(self) -> ClassicRules | ArtemisRules | Mapping[str, AddressSettingEntry] | None:
        """Return the rules that act; None = no broker answered yet. Any thread may call it."""
        entries = self._seen.entries
        if self.given is None and self._kind is BrokerKind.ARTEMIS:
            return entries
        if isinstance(self.given, ArtemisRules):
            # Why kept: who asks compiles rules only once, as long as they are the same object.
            if self._filled.live is not entries:
                self._filled = replace(self.given, live=entries)
            return self._filled
        return self.given or (None if self._kind is None else self._defaults)

    def mark(self, kind: ServiceMarkKind, instance: str, at_ms: int) -> ServiceMark:
        """Return a mark of a service, with the digest of these rules."""
        return ServiceMark(at_ms=at_ms, instance=instance, kind=kind, rules_digest=self.digest)

    def change(self, instance: str) -> ServiceMark | None:
        """Return a mark of the latest change of the broker's own settings; None = none."""
        at_ms = self._seen.changed_at_ms
        return None if at_ms is None else self.mark(ServiceMarkKind.RULES, instance, at_ms)

    @property
    def classic(self) -> ClassicRules | None:
        """The given rules, if they are Classic's."""
        return self.given if isinstance(self.given, ClassicRules) else None

    def judges(
        self,
        chance: Chance,
        readers: Readers = Readers(),  # noqa: B008 - a value
    ) -> MakeJudge:
        """Return the factory of judges for open links.

        Args:
            chance: spreads delays.
            readers: of the mode; all others follow from the configuration.
        """
        keeps_exhausted = self._config.redelivery.exhausted is ExhaustedChoice.KEEP
        journaled, share = self._config.journal.properties, self._config.otel.traced_share
        keys = copy_keys(self._config)
        readers = replace(
            readers,
            properties=chosen_properties(journaled) if journaled else None,
            true_origin=DeadLetterNames(self.classic).true_origin,
            cause=chosen_cause(self._config.intake.cause_properties),
            producer=producer_of(share) if share else None,
            edit=edit_properties,
            vet=vetting(keys),
            # Why none without keys: no copy of the listener can be proven, so nothing is paired.
            records_lives=keys is not None,
        )

        def make(link: LookSession, names: IntakeNames) -> Judge:
            decider = self.decider(link)
            return Judge(
                decider,
                send_rules(self._config, self.classic, names),
                chance,
                replace(readers, facts=delivery_facts if getattr(decider, "asks", ()) else None),
                keeps_exhausted=keeps_exhausted,
            )

        return make


def _compile(rules: ClassicRules | ArtemisRules, plugins: Mapping[str, Plugin]) -> Decider:
    decider = compile_policy(rules, plugins)
    if isinstance(rules, ClassicRules):
        return StoredDeadLetters(decider, rules.dead_letter)
    return decider


def log_gate_fault(name: str, error: Exception) -> None:
    """Log that a gate raised when it was notified of an event."""
    log.warning("gate_failed", gate=name, error=f"{type(error).__name__}: {error}")


def load_gates(config: Config) -> Mapping[str, Gate]:
    """Return the gates that the configuration names, by name; each has seen nothing yet.

    Raises:
        ConfigError: with every problem found.
    """
    if not config.policy.gates:
        return {}
    origin = config.origin(GATES_KEY)
    gates = read_gates(config.policy.gates, origin, load_gate_plugins())
    if config.store.is_shared and (names := ", ".join(need_groups(gates))):
        what = (
            f"{GATES_KEY}: {names} needs a schedule with a single sidecar: leave it out, or use a "
            "store.url of sqlite:"
        )
        raise ConfigError([Problem(origin, what)])
    return gates


def need_groups(gates: Mapping[str, Gate]) -> Collection[str]:
    """Return the names of gates that use message groups."""
    return [name for name, gate in gates.items() if isinstance(gate, GroupGate)]


def gates_at(config: Config) -> GatesAt:
    """Return descriptions of gates, from instances other than those of the engine's thread."""
    gates_at, lock = described(load_gates(config)), Lock()

    def describe(destination: Destination) -> tuple[str, ...]:
        # Why: a gate expects one thread, and several answer pages.
        with lock:
            return gates_at(destination)

    return describe


GROUP_BY_KEY: Final = "intake.group_by"

FIELDS_MAX: Final = 8
"""Fields of one entry."""


def load_grouping(config: Config) -> FieldsOf:
    """Return the finder of the fields that divide groups.

    Raises:
        ConfigError: with every problem found.
    """
    if not config.intake.group_by:
        return no_fields
    source = parse_source(config.origin(GROUP_BY_KEY))
    entries = EntryFinder(read_entries(config.intake.group_by, source, _read_fields))

    def find_fields(delivery: Delivery, place: Destination) -> list[tuple[str, str]]:
        fields = entries.find(place)
        if fields is None:
            return []
        message = OpenMessage(delivery.encoding, delivery.message)
        count = str(delivery.provenance.redelivery_count)
        values = [
            (field.label, count if field.kind is FieldKind.REDELIVERIES else message.value(field))
            for field in fields
        ]
        return [(label, value) for label, value in values if value]

    return find_fields


def load_retention(config: Config) -> Retention:
    """Return the retention that the options ask for.

    Raises:
        ConfigError: with every problem found.
    """
    options = config.redelivery
    keeps = {}
    for option in ("parked_keep", "exhausted_keep", "in_place_keep"):
        if given := getattr(options, option):
            source = parse_source(config.origin(f"redelivery.{option}"))
            read = partial(_read_keep, may_export=bool(config.journal.path))
            keeps[option] = EntryFinder(read_entries(given, source, read))
    return Retention(keeps, notice_ms=options.retention_notice_h * 3_600_000)


def _read_keep(entry: OptionReader, *, may_export: bool) -> KeepRule:
    if "days" not in entry:
        entry.fail("days", "expected a number of days")
    target = entry.text("move_to", "")
    try:
        move_to = str(checked_target(target)) if target else None
    except ActionRefused as refused:
        entry.fail("move_to", str(refused))
        move_to = None
    exports = entry.boolean("export", default=False)
    if exports and (target or not may_export):
        entry.fail("export", "is not for `move_to`, and needs journal.path")
    return KeepRule(entry.integer("days", 1, least=1, most=36_500), move_to, exports)


def _read_fields(entry: OptionReader) -> tuple[Field, ...]:
    fields = []
    for text in entry.texts("fields"):
        try:
            fields.append(parse_field(text))
        except ValueError as error:
            entry.fail("fields", str(error))
    if not 0 < len(fields) <= FIELDS_MAX:
        entry.fail("fields", f"expected 1 to {FIELDS_MAX} fields, found {len(fields)}")
    return tuple(fields)


def cause_note_settings(config: Config) -> CauseNoteSettings | None:
    """Return how notes are read; None = the configuration names no queue of notes."""
    name = config.intake.cause_notes.removeprefix("queue://")
    if not name:
        return None
    return CauseNoteSettings(queue=queue(name), obeys=config.policy.verdicts is VerdictPolicy.OBEY)


def load_cause_notes(
    config: Config, clock: Clock, classic: ClassicRules | None, problems: NoteProblems
) -> CauseNotes | None:
    """Return the taker of notes; None = the configuration names no queue of notes."""
    settings = cause_note_settings(config)
    if settings is None:
        return None
    return CauseNotes(
        queue=settings.queue,
        book=CauseNotebook(),
        read=read_cause_note,
        obeys=settings.obeys,
        wait_ms=SHARED_VERDICT_WAIT_MS if config.store.is_shared else VERDICT_WAIT_MS,
        clock=clock,
        true_origin=DeadLetterNames(classic).true_origin,
        is_copied=copied_by(None if classic is None else classic.interceptors),
        report_unreadable=partial(problems.unreadable, "cause_note"),
        report_ambiguous=problems.ambiguous,
    )


def reports_queue(config: Config) -> Destination | None:
    """Return the queue of reports of events outside; None = the configuration names none."""
    name = config.intake.events.removeprefix("queue://")
    return queue(name) if name else None


def load_reports(config: Config, problems: NoteProblems) -> Reports | None:
    """Return the taker of reports of events outside; None = no queue of them is read."""
    place = reports_queue(config)
    if place is None:
        return None
    return Reports(
        queue=place,
        read=read_event_name,
        report_unreadable=partial(problems.unreadable, "event"),
    )
