"""Judges broker and configuration together: loops, backlog, policy."""

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from amqsidecar.broker import BrokerKind, IntakeQueue, LookSession
from amqsidecar.diagnosis.artemis_layout import delivery_attempts, listed
from amqsidecar.diagnosis.classic_layout import named_origins
from amqsidecar.diagnosis.finding import Check, Finding, Severity, new_finding
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.engine.judging.allowed_origins import OPTION, within
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.engine.judging.final_destination import final_destination
from amqsidecar.engine.judging.resend_copies import no_resend_problem
from amqsidecar.engine.manual import PATTERNS_OPTION, Manual
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Redeliver, Redirect
from amqsidecar.model.destination import Destination, final_queue
from amqsidecar.model.outcome import COUNTING_PLUGIN, NOT_COUNTED, Counters
from amqsidecar.model.schedule import ExhaustedTally
from amqsidecar.plugin import Decider
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy.dead_letter_decider import DeadLetterDecider
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source import artemis_warnings, classic_warnings
from amqsidecar.trials import BrokerDisk

_IN_LAYOUT = ("non_persistent_dropped", "dead_letters_expire", "dead_letter_address_limited")
"""Ids of warnings that the layout reports as well, with its line."""


def policy_findings(rules: Rules | None, *, is_layout_known: bool) -> Iterator[Finding]:
    """Yield warnings about the rules."""
    if rules is None:
        return
    found = (
        classic_warnings.find_warnings(rules)
        if isinstance(rules, ClassicRules)
        else artemis_warnings.find_warnings(rules)
    )
    in_layout = {one.text for one in found if is_layout_known and one.id in _IN_LAYOUT}
    for warning in rules.warnings:
        if warning not in in_layout:
            yield Finding(Check.POLICY, Severity.WARNING, "policy.source", warning)


def kind_finding(kind: BrokerKind, rules: Rules | None) -> Iterator[Finding]:
    """Yield rules of the other product.

    Classic rules can be used on Artemis, like our own format; Artemis rules mean nothing on
    Classic.
    """
    if kind is BrokerKind.CLASSIC and isinstance(rules, ArtemisRules):
        yield new_finding("artemis_rules_on_classic", "policy.source")
    elif kind is BrokerKind.ARTEMIS and isinstance(rules, ClassicRules):
        is_xml = rules.source.path.endswith(".xml")
        yield new_finding(
            "classic_rules_on_artemis",
            "policy.source",
            severity=Severity.WARNING if is_xml else Severity.NOTE,
            path=rules.source.path,
            mend="policy: {source: broker.xml}" if is_xml else "",
        )


def manual_findings(manual: Manual, link: LookSession) -> Iterator[Finding]:
    """Yield a finding if the link can't leave the dead letters that are left to a person."""
    if problem := manual.problem(link):
        yield new_finding("manual_in_part", PATTERNS_OPTION, problem=problem)


def loop_findings(
    intake: Sequence[IntakeQueue],
    kind: BrokerKind,
    rules: Rules | None,
    origins: Iterable[Destination],
    suffix: str,
) -> Iterator[Finding]:
    """Yield queues that would be read as well as written."""
    names = IntakeNames(kind)
    names.replace(intake)
    what = (
        f"is read, and its name ends with {suffix} like the queues of final dead letters: these "
        "would circulate"
    )
    found = [
        (item.destination.name, what) for item in intake if item.destination.name.endswith(suffix)
    ]
    named = named_origins(rules) if isinstance(rules, ClassicRules) else ()
    for origin in dict.fromkeys((*named, *origins)):
        if is_wildcard(origin, kind) or origin.name.endswith(suffix) or not names.covers(origin):
            continue
        what = (
            "is both a dead-letter queue and an origin: messages that applications send there "
            "would be taken as dead letters"
        )
        found.append((str(origin), what))
    for subject, what in found:
        mend = "intake: {queues: [DLQ]}"
        yield Finding(Check.LOOPS, Severity.PROBLEM, subject, what, mend)
    if intake and not found:
        yield new_finding("no_loops", "intake.queues", suffix=suffix)


def final_queues(
    rules: Rules | None,
    sources: Iterable[Destination],
    origins: Iterable[Destination],
    is_intake: Callable[[Destination], bool],
    suffix: str,
) -> list[Destination]:
    """Return the final queues of a run, as far as they are known before."""
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
    """Yield whether outcomes of re-sends can be known; nothing if no queue was examined."""
    if not counters:
        return
    if all(one.acknowledged is None for one in counters.values()):
        yield new_finding(
            "outcomes_not_counted", place, not_counted=NOT_COUNTED, mend=COUNTING_PLUGIN
        )
    else:
        yield new_finding("outcomes_counted", place)


def backlog_finding(
    source: Destination, count: int, *, holds: bool, threshold: int, is_seen: bool
) -> Finding:
    """Return the decisions of a run on the present dead letters of a queue."""
    if holds and count > threshold and not is_seen:
        return new_finding("backlog_held", source, count=count)
    return new_finding("backlog_processed", source, count=count, plural="" if count == 1 else "s")


def exhausted_findings(
    known: Sequence[ExhaustedTally], held: Mapping[Destination, int]
) -> Iterator[Finding]:
    """Yield findings about exhausted messages, which wait for a person."""
    for one in known:
        place = f"in {one.queue}" if one.is_in_queue else "kept in the schedule"
        yield new_finding(
            "exhausted_wait",
            one.destination,
            count=one.count,
            place=place,
            since=datetime.fromtimestamp(one.since_ms / 1000, UTC),
            destination=shlex.quote(one.destination),
        )
    counts = Counter[str]()
    for one in known:
        if one.is_in_queue:
            counts[one.queue] += one.count
    for queue, count in held.items():
        strangers = count - counts[str(queue)]
        if strangers > 0:
            yield new_finding("exhausted_unknown", queue, strangers=strangers)
    if not known and not any(held.values()):
        yield new_finding("no_exhausted", "redelivery.exhausted")


def unknown_origin_findings(
    intake: Sequence[IntakeQueue], names: DeadLetterNames, existing: Collection[str] | None
) -> Iterator[Finding]:
    """Yield dead-letter queues whose messages' origin neither message nor name shows.

    Args:
        intake: the queues read over a wire that does not show origins.
        names: find an origin by the name of its queue.
        existing: names of existing queues; None = unknown.
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
        yield new_finding("origin_unknown", item.destination, where=where, name=name)


def allowed_origins_findings(
    patterns: Sequence[str], origins: Iterable[Destination]
) -> Iterator[Finding]:
    """Yield where redeliveries may go, and the known origins from which they may not.

    Args:
        patterns: of the configuration; empty = anywhere.
        origins: known origins; names, no wildcards.
    """
    if not patterns:
        yield new_finding("allowed_origins_empty", OPTION)
        return
    problem_of = within(patterns, no_resend_problem)
    outside = [one for one in dict.fromkeys(origins) if problem_of(one) is not None]
    for origin in outside:
        wanted = ", ".join(f"'{one}'" for one in (*patterns, origin))
        yield new_finding(
            "origin_not_allowed", origin, option=OPTION, patterns=", ".join(patterns), wanted=wanted
        )
    if not outside:
        yield new_finding("origins_allowed", OPTION, patterns=", ".join(patterns))


def is_wildcard(destination: Destination, kind: BrokerKind) -> bool:
    """Return whether a name stands for several queues."""
    return kind is BrokerKind.CLASSIC and not {"*", ">"}.isdisjoint(destination.name.split("."))


_NEAR = 0.05


def disk_findings(disk: BrokerDisk) -> Iterator[Finding]:
    """Yield the effect of a full or nearly full disk on redeliveries.

    Artemis blocks all producers while more of the disk is in use than `max-disk-usage`
    (`PagingManagerImpl`), so that nothing is re-sent.
    """
    if disk.is_full:
        limit = "there is more room" if disk.limit is None else f"less than {disk.limit:.0%} is"
        effect = (
            f"it blocks all producers until {limit}, so nothing is re-sent; the rest of the "
            "examination was skipped"
        )
    elif disk.limit is not None and disk.used >= disk.limit - _NEAR:
        effect = f"above {disk.limit:.0%} it blocks all producers, and nothing is re-sent"
    else:
        return
    yield new_finding(
        "broker_disk_full",
        "disk",
        severity=Severity.PROBLEM if disk.is_full else Severity.WARNING,
        used=disk.used,
        effect=effect,
        # Why six: nearer to the limit, doctor would warn again.
        limit=min(99, round(disk.used * 100) + 6),
    )


_WARNING_MS = 1_000
_PROBLEM_MS = 10_000


def difference_ms(broker_ms: int, began_ms: int, ended_ms: int) -> int:
    """Return by how much the broker's clock is ahead of ours at least; negative = behind.

    Example:
        >>> difference_ms(5, 0, 10), difference_ms(15, 0, 10), difference_ms(-3, 0, 10)
        (0, 5, -3)
    """
    if broker_ms < began_ms:
        return broker_ms - began_ms
    return max(0, broker_ms - ended_ms)


def clock_finding(kind: BrokerKind, ahead_ms: int) -> Finding:
    """Return the effect of a clock difference on messages with a time to live.

    On Classic the sidecar writes absolute expiry times and judges them; on Artemis the time to live
    is sent in milliseconds, and the broker counts.

    Args:
        ahead_ms: by how much its clock is ahead of ours; negative = behind.
    """
    off_ms = abs(ahead_ms)
    direction = "ahead of" if ahead_ms > 0 else "behind"
    mend = ""
    if off_ms < _WARNING_MS:
        severity, what = Severity.OK, "the broker's clock and ours agree within a second"
    else:
        severity = Severity.WARNING
        what = f"the broker's clock is {off_ms / 1000:.1f} s {direction} ours"
        if kind is BrokerKind.CLASSIC:
            if off_ms >= _PROBLEM_MS:
                severity = Severity.PROBLEM
            effect = (
                "redeliveries whose time to live is shorter expire on arrival"
                if ahead_ms > 0
                else "dead letters with less time left count as expired, and redeliveries live "
                "longer than their producers said"
            )
            what = f"{what}: {effect}"
        else:
            what = f"{what}: times in the history and in final queues are wrong by the same amount"
        mend = "timedatectl set-ntp true"
    return Finding(Check.CLOCK, severity, "clock", what, mend)


_COUNTED_MAX = 1_000
"""Redeliveries that are counted at most: rules that allow more have no product to report."""


def delivery_findings(
    decider: Decider | None,
    origins: Collection[Destination],
    settings_of: Mapping[str, Mapping[str, Any]],
) -> Iterator[Finding]:
    """Yield rules that never redeliver, and how many deliveries a failing message gets.

    Args:
        decider: the given rules; None = a run decides by the broker's own settings.
        origins: destinations of which dead letters are known.
        settings_of: Artemis: address to merged live settings; empty = not known.
    """
    counts = {
        origin: delivery_attempts(settings_of[origin.address])
        for origin in origins
        if origin.address in settings_of
    }
    yield from _never_redelivered(decider, origins, counts)
    found: dict[tuple[int, int], list[str]] = {}
    for origin, attempts in counts.items():
        lives = attempts if decider is None else _deliveries_by(decider, origin)
        if attempts > 1 and lives > 1:
            found.setdefault((attempts, lives), []).append(str(origin))
    for (attempts, lives), names in found.items():
        yield new_finding(
            "deliveries_multiplied",
            listed(names),
            attempts=attempts,
            lives=lives,
            total=attempts * lives,
        )


def _never_redelivered(
    decider: Decider | None, origins: Collection[Destination], counts: Mapping[Destination, int]
) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    for origin in origins:
        decision = None if decider is None else decider.decide(DeadLetter(origin), None)
        if decision is not None and not isinstance(decision, Redeliver | Redirect):
            found.setdefault(decision.rule, []).append(str(origin))
        elif decider is None and counts.get(origin) == 1:
            found.setdefault("the broker's max-delivery-attempts=1", []).append(str(origin))
    for rule, names in found.items():
        yield new_finding("never_redelivered", listed(names), rule=rule)


def _deliveries_by(decider: Decider, origin: Destination) -> int:
    """Return how often the rules have a message delivered, each time until the broker gives up.

    Returns:
        1 = the rules redeliver nothing; 0 = more than `_COUNTED_MAX`.
    """
    for count in range(_COUNTED_MAX):
        decision = decider.decide(DeadLetter(origin, count), None)
        if not isinstance(decision, Redeliver):
            return count + 1
    return 0
