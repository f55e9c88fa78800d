"""Judges broker and configuration together: loops, backlog, policy."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.diagnosis.classic_layout import named_origins
from amqsidecar.diagnosis.finding import Check, Finding, Severity
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.allowed_origins import OPTION, within
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.engine.judging.final_destination import final_destination
from amqsidecar.engine.judging.resend_copies import no_resend_problem
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo
from amqsidecar.model.destination import Destination, final_queue
from amqsidecar.model.outcome import COUNTING_PLUGIN, NOT_COUNTED, Counters
from amqsidecar.model.schedule import ExhaustedTally
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy.dead_letter_decider import DeadLetterDecider
from amqsidecar.policy.rules import Rules

# Findings that the layout reports as well, with its line.
_TOLD_ELSEWHERE = ("processNonPersistent", ": expiration=", "is itself limited to")


def policy_findings(rules: Rules | None, *, is_layout_known: bool) -> Iterator[Finding]:
    """Yield warnings about the rules.

    Args:
        rules: given ones; None = none.
        is_layout_known: whether the layout of dead-letter queues is judged by itself.
    """
    for warning in () if rules is None else rules.warnings:
        if is_layout_known and any(words in warning for words in _TOLD_ELSEWHERE):
            continue
        yield Finding(Check.POLICY, Severity.WARNING, "policy.source", warning)


def kind_finding(kind: BrokerKind, rules: Rules | None) -> Iterator[Finding]:
    """Yield rules that are of the other product.

    Those of Classic can be used on Artemis, as our own format does; those of Artemis say nothing to
    Classic.
    """
    if kind is BrokerKind.CLASSIC and isinstance(rules, ArtemisRules):
        yield Finding(
            Check.POLICY,
            Severity.PROBLEM,
            "policy.source",
            "holds address settings of Artemis, the broker is classic: a run refuses to start",
            "policy: {source: activemq.xml}",
        )
    elif kind is BrokerKind.ARTEMIS and isinstance(rules, ClassicRules):
        is_xml = rules.source.path.endswith(".xml")
        yield Finding(
            Check.POLICY,
            Severity.WARNING if is_xml else Severity.NOTE,
            "policy.source",
            f"{rules.source.path} holds rules of Classic's kind: a run decides by them, and "
            "not by the broker's own address settings",
            "policy: {source: broker.xml}" if is_xml else "",
        )


def loop_findings(
    intake: Sequence[IntakeQueue],
    kind: BrokerKind,
    rules: Rules | None,
    origins: Iterable[Destination],
    suffix: str,
) -> Iterator[Finding]:
    """Yield queues that would be read as well as written.

    Args:
        intake: what is read.
        kind: of the broker.
        rules: given ones.
        origins: where messages wait for being sent to.
        suffix: of final queues.
    """
    names = IntakeNames(kind)
    names.replace(intake)
    found = [
        _problem(
            item.destination.name,
            f"is read, and its name ends with {suffix} like the queues of final dead letters: "
            "these would circulate",
        )
        for item in intake
        if item.destination.name.endswith(suffix)
    ]
    named = named_origins(rules) if isinstance(rules, ClassicRules) else ()
    for origin in dict.fromkeys((*named, *origins)):
        if is_wildcard(origin, kind) or origin.name.endswith(suffix) or not names.covers(origin):
            continue
        what = (
            "is both a dead-letter queue and an origin: messages that applications send there "
            "would be taken as dead letters"
        )
        found.append(_problem(str(origin), what))
    yield from found
    if intake and not found:
        what = f"no queue is both read and written; final ones end with {suffix}"
        yield Finding(Check.LOOPS, Severity.OK, "intake.queues", what)


def final_queues(
    rules: Rules | None,
    sources: Iterable[Destination],
    origins: Iterable[Destination],
    is_intake: Callable[[Destination], bool],
    suffix: str,
) -> list[Destination]:
    """Return the final queues of a run, as far as they are known before.

    Args:
        rules: given ones.
        sources: dead-letter queues that are read.
        origins: where messages die.
        is_intake: returns whether the intake reads a queue.
        suffix: of final queues.
    """
    found = [final_queue(source, suffix) for source in sources]
    if isinstance(rules, ClassicRules):
        decider = DeadLetterDecider(rules.dead_letter)
        for origin in origins:
            decision = decider.decide(DeadLetter(origin), None)
            if not isinstance(decision, DeadLetterTo) or decision.is_assumed:
                continue
            if decision.destination.is_queue:
                found.append(final_destination(decision, origin, is_intake, suffix))
    return list(dict.fromkeys(found))


def counting_findings(counters: Mapping[Destination, Counters], place: str) -> Iterator[Finding]:
    """Yield whether outcomes of re-sends can be known; nothing if no queue was examined.

    Args:
        counters: of some queues.
        place: of the broker.
    """
    if not counters:
        return
    if all(one.acknowledged is None for one in counters.values()):
        yield Finding(
            Check.OUTCOMES,
            Severity.WARNING,
            place,
            f"{NOT_COUNTED}: re-sends that do not come back stay unknown, even if consumed; "
            "add the line, or set broker.jolokia_url to read the counters of its web console",
            COUNTING_PLUGIN,
        )
    else:
        what = "the broker counts acknowledgements: the sidecar can separate consumed messages"
        yield Finding(Check.OUTCOMES, Severity.OK, place, what)


def _problem(subject: str, what: str) -> Finding:
    return Finding(
        Check.LOOPS,
        Severity.PROBLEM,
        subject,
        what,
        "intake: {queues: [DLQ]}",
    )


def backlog_finding(
    source: Destination, count: int, *, holds: bool, threshold: int, is_seen: bool
) -> Finding:
    """Return the decisions of a run on the present dead letters of a queue.

    Args:
        source: the queue.
        count: messages in it, at least.
        holds: whether a backlog is held.
        threshold: no more than these are no backlog.
        is_seen: whether the schedule has met the queue before.
    """
    if holds and count > threshold and not is_seen:
        return Finding(
            Check.BACKLOG,
            Severity.WARNING,
            str(source),
            f"holds {count} dead letters or more: a run takes them and holds them until a "
            "person releases them",
            "intake: {backlog: process}",
        )
    return Finding(
        Check.BACKLOG,
        Severity.NOTE,
        str(source),
        f"holds {count} dead letter{'' if count == 1 else 's'}: a run processes them like new ones",
    )


def exhausted_findings(
    known: Sequence[ExhaustedTally], held: Mapping[Destination, int]
) -> Iterator[Finding]:
    """Yield findings about exhausted messages, which wait for a person.

    Args:
        known: where exhausted messages are, as far as the schedule knows.
        held: how many messages final dead-letter queues hold, those that could be looked at.
    """
    for one in known:
        place = f"in {one.queue}" if one.is_in_queue else "kept in the schedule"
        yield Finding(
            Check.EXHAUSTED,
            Severity.WARNING,
            one.destination,
            f"{one.count} messages wait for a person, {place}, the first since "
            f"{datetime.fromtimestamp(one.since_ms / 1000, UTC):%Y-%m-%d %H:%M}Z: the rules "
            "allow no further redelivery",
            f"amqsidecar retry --state exhausted --destination {one.destination}",
        )
    counts = Counter[str]()
    for one in known:
        if one.is_in_queue:
            counts[one.queue] += one.count
    for queue, count in held.items():
        strangers = count - counts[str(queue)]
        if strangers > 0:
            yield Finding(
                Check.EXHAUSTED,
                Severity.NOTE,
                str(queue),
                f"holds {strangers} messages that are not in the schedule: they died before "
                "it began, or another program sent them; with this option a run takes them "
                "into the schedule",
                "redelivery: {exhausted: keep}",
            )
    if not known and not any(held.values()):
        what = "no known exhausted message waits for a person"
        yield Finding(Check.EXHAUSTED, Severity.OK, "redelivery.exhausted", what)


def unknown_origin_findings(
    intake: Sequence[IntakeQueue], names: DeadLetterNames, existing: Collection[str] | None
) -> Iterator[Finding]:
    """Yield dead-letter queues whose messages do not show where they died, nor does the name.

    Args:
        intake: what is read over a wire that does not show origins.
        names: find an origin by the name of its queue.
        existing: names of the queues that there are; None = not known.
    """
    for item in intake:
        name = item.destination.name
        is_pattern = is_wildcard(item.destination, BrokerKind.CLASSIC)
        if item.origin is not None or (not is_pattern and names.origin_of(item.destination)):
            continue
        if is_pattern and names.explains_patterns:
            continue
        is_absent = existing is not None and name not in existing and not is_pattern
        where = "; it does not exist yet" if is_absent else ""
        yield Finding(
            Check.ORIGINS,
            Severity.PROBLEM,
            str(item.destination),
            "neither AMQP nor its name shows where its messages died, so that "
            f"a run refuses to read it{where}: attach by openwire://, name the origin, or give "
            "each queue a dead-letter queue of its own and the activemq.xml as policy.source",
            f"intake: {{origin: {{{name}: ORIGIN}}}}",
        )


def allowed_origins_findings(
    patterns: Sequence[str], origins: Iterable[Destination]
) -> Iterator[Finding]:
    """Yield where redeliveries may go, and the known origins from which they may not.

    Args:
        patterns: of the configuration; none = anywhere.
        origins: known origins; names, no wildcards.
    """
    if not patterns:
        yield Finding(
            Check.ORIGINS,
            Severity.NOTE,
            OPTION,
            "is empty: anyone with write permission on a dead-letter queue can make the "
            "sidecar send messages to any destination that it may send to",
        )
        return
    problem_of = within(patterns, no_resend_problem)
    outside = [one for one in dict.fromkeys(origins) if problem_of(one) is not None]
    for origin in outside:
        wanted = ", ".join(f"'{one}'" for one in (*patterns, origin))
        yield Finding(
            Check.ORIGINS,
            Severity.WARNING,
            str(origin),
            f"is outside {OPTION} ({', '.join(patterns)}): a run parks its dead letters",
            f"redelivery: {{allowed_origins: [{wanted}]}}",
        )
    if not outside:
        what = (
            f"redeliveries go only to {', '.join(patterns)}; messages of other origins are parked"
        )
        yield Finding(Check.ORIGINS, Severity.OK, OPTION, what)


def is_wildcard(destination: Destination, kind: BrokerKind) -> bool:
    """Return whether a name stands for several queues."""
    return kind is BrokerKind.CLASSIC and not {"*", ">"}.isdisjoint(destination.name.split("."))
