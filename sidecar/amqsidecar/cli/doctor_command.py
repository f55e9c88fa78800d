"""`amqsidecar doctor`: examines a broker before the service is run on it."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import replace

from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line
from amqsidecar.cli.reading import configured
from amqsidecar.clock import SystemClock
from amqsidecar.config.broker_url import BrokerUrl
from amqsidecar.config.load import check_start, has_amqp
from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import revealed
from amqsidecar.config.sections.intake import Backlog
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.diagnosis.cause_notes import CauseNoteSettings
from amqsidecar.diagnosis.database import database_findings, look_at_database
from amqsidecar.diagnosis.doctor import Doctor
from amqsidecar.diagnosis.finding import Check, Finding, Severity, has_problem, in_order
from amqsidecar.diagnosis.schedule import ScheduleFacts, look_at_schedule, place_problem
from amqsidecar.diagnosis.settings import DoctorSettings
from amqsidecar.engine.intake import named_queues
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.errors import ConfigError, LinkLost, Problem
from amqsidecar.operations.words import many, one_line
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.digest import rules_digest
from amqsidecar.policy_source.load import compile_policy
from amqsidecar.runtime.discovery import Discovery
from amqsidecar.stores.sqlite.store import path_of_url
from amqsidecar.telemetry.logs import configure_logs
from amqsidecar.wiring.links import LinkMaker
from amqsidecar.wiring.rules import (
    cause_note_settings,
    load_gates,
    load_rules,
    manual_of,
    reports_queue,
)
from amqsidecar.wiring.schedules import SCHEMA, open_schedule

EXIT_PROBLEMS = 78

# Bound: of a queue with more such messages, the last one is reported as the cause of the lost link.
_EXAMINATIONS_MAX = 200

_OPTION = re.compile(r"(?P<section>[a-z]+): \{(?P<line>(?P<key>[a-z_]+): .+)\}")
"""A line of our own configuration, as findings write it."""


@configured
def doctor(
    config: Config,
    output: Output = OutputFormat.TEXT,
    notes: Annotated[
        bool,
        typer.Option("--notes", help="Print notes, too, not only those of a check with a problem."),
    ] = False,
) -> None:
    """Check broker and configuration; print a fix for each fault.

    Takes and changes no message. Exit codes: 0 nothing would be lost, doubled or altered; 78
    something would, or the service could not work: the broker's or our configuration must change;
    69 the broker can't be reached.

    \b
    JSON: {"verdict": "fit" | "problems", "findings": [{"check", "severity": "ok" | "note" |
    "warning" | "problem", "subject", "what", "mend"}]}
    """  # noqa: D301 - the backspace makes the library keep the lines
    problems = check_start(config)
    if not config.broker.url:
        what = (
            "is not set: give the broker's address, such as artemis://user@host:61616; "
            "`amqsidecar init` writes it"
        )
        problems = [*problems, Problem("broker.url", what)]
    if problems:
        raise ConfigError(problems)
    # Why: everything worth a line here is a finding.
    configure_logs("error", config.log.format)
    findings = _examine(config)
    verdict = "problems" if has_problem(findings) else "fit"
    if output is OutputFormat.JSON:
        print_json({"verdict": verdict, "findings": findings})
    else:
        _print(findings, verdict, config, with_notes=notes)
    raise typer.Exit(EXIT_PROBLEMS if verdict == "problems" else 0)


def _examine(config: Config) -> tuple[Finding, ...]:
    """Examine the first of the brokers that answers.

    Raises:
        LinkLost: none does.
    """
    clock = SystemClock()
    rules = load_rules(config, load_plugins())
    load_gates(config)
    classic = rules if isinstance(rules, ClassicRules) else None
    maker = LinkMaker(config, clock, rules=classic)
    away: list[Finding] = []
    for number, url in enumerate(config.broker.url, start=1):
        settings = _settings(config, url, rules)
        try:
            for _ in range(_EXAMINATIONS_MAX):
                doctor = Doctor(maker.make, Discovery(classic).find, clock, settings)
                found = doctor.examine()
                # Why again: a message that ended a STOMP link is left out from now on, as by a run.
                if not maker.has_learned():
                    break
            return in_order((*away, *found))
        except LinkLost as lost:
            if number == len(config.broker.url):
                raise
            what = f"does not answer; trying the next URL of broker.url: {lost}"
            away.append(
                Finding(
                    check=Check.BROKER, severity=Severity.NOTE, subject=settings.place, what=what
                )
            )
            maker.go_on()
    raise AssertionError("a configuration without a URL was refused before")


def _settings(
    config: Config, url: BrokerUrl, rules: ClassicRules | ArtemisRules | None
) -> DoctorSettings:
    notes, events = cause_note_settings(config), reports_queue(config)
    reports = None if events is None else CauseNoteSettings(queue=events, obeys=False)
    return DoctorSettings(
        scheme=url.scheme,
        place=f"{url.host}:{url.port}",
        user=url.user or "",
        expected_kind=config.broker.expected_kind,
        has_amqp=has_amqp(),
        intake_queues=named_queues(config.intake.queues),
        notes=tuple(one for one in (notes, reports) if one is not None),
        has_copy_keys=config.listener.copy_key_file is not None,
        rules=rules,
        decider=None if rules is None else compile_policy(rules, load_plugins()),
        needs_names=url.scheme.startswith("amqp"),
        manual=manual_of(config, rules),
        names=DeadLetterNames(
            rules if isinstance(rules, ClassicRules) else None, config.intake.origin
        ),
        allowed_losses=tuple(config.intake.allow_lossy),
        allowed_effects=config.redelivery.allow,
        allowed_origins=config.redelivery.allowed_origins,
        holds_backlog=config.intake.backlog is Backlog.HOLD,
        backlog_threshold=config.intake.backlog_threshold,
        final_suffix=config.redelivery.final_suffix,
        store_url=config.store.url,
        is_broker_held=config.store.url == BROKER_HELD,
        schedule=_schedule(config),
        watches_outcomes=config.outcomes.watch and config.store.url != BROKER_HELD,
        accepts_orphans=config.store.accept_orphans,
        rules_digest=rules_digest(rules, config.policy.gates),
    )


def _schedule(config: Config) -> ScheduleFacts:
    store = config.store
    if store.url == BROKER_HELD:
        return ScheduleFacts()
    if store.is_shared:
        database = look_at_database(store.url, revealed(store.password()), SCHEMA)
        facts = ScheduleFacts(place=tuple(database_findings(store.url, database, SCHEMA)))
        is_there = database.has_schedule
    else:
        path = path_of_url(store.url)
        facts = ScheduleFacts(problem=place_problem(path))
        is_there = not facts.problem and path.exists()
    if not is_there:
        return facts
    found = look_at_schedule(lambda: open_schedule(config, SystemClock(), read_only=True))
    return replace(found, place=facts.place)


def _print(findings: Sequence[Finding], verdict: str, config: Config, *, with_notes: bool) -> None:
    failed = {one.check for one in findings if one.severity == "problem"}
    check = None
    for finding in findings:
        if finding.severity == "note" and not (with_notes or finding.check in failed):
            continue
        if finding.check is not check:
            check = finding.check
            print_line(str(check))
        what = one_line(finding.what, 2000)
        print_line(f"  {finding.severity:8} {one_line(finding.subject)}: {what}")
        if finding.mend:
            print_line(f"           {in_place(finding.mend, config)}")
    kinds = ("problem", "warning", "note")
    counts = [many(sum(one.severity == kind for one in findings), kind) for kind in kinds]
    print_line()
    print_line(f"{verdict}: {', '.join(counts)}{'' if with_notes else ' (print them by --notes)'}")


def in_place(mend: str, config: Config) -> str:
    """Return a line that fixes something; of our own configuration with its place in the file.

    Why: a second `store:` in the same file is no YAML.
    """
    found = _OPTION.fullmatch(mend)
    if found is None:
        return mend
    section, line = found["section"], found["line"]
    key = f"{section}.{found['key']}"
    if (place := config.origin(key)) != key:
        return f"in place of {place}: {line}"
    place_of_section = config.section_in_file(section)
    return mend if place_of_section is None else f"{place_of_section}, under {section}: {line}"
