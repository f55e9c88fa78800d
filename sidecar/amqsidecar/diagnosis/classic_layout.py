"""Judges the dead-letter rules of a Classic broker, as far as its activemq.xml is given."""

from collections.abc import Collection, Iterator
from functools import partial

from amqsidecar.diagnosis.finding import Check, Finding, Severity
from amqsidecar.engine.judging.resend_copies import (
    composite_line,
    composite_problem,
    keeps_nothing,
    mirror_problem,
)
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.resend_effect import ResendEffect
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    PolicyEntry,
    RedeliveryRules,
    VirtualTopic,
)
from amqsidecar.policy.destination_map import describe_pattern

_finding = partial(Finding, Check.DEAD_LETTERS)
_origin_finding = partial(Finding, Check.ORIGINS)


def layout_findings(rules: ClassicRules | None) -> Iterator[Finding]:
    """Yield effects of the rules on dead letters before the sidecar can see them.

    Args:
        rules: None = none were given.
    """
    if rules is None:
        yield Finding(
            Check.DEAD_LETTERS,
            Severity.WARNING,
            "policy.source",
            "no rules are given: only ActiveMQ.DLQ is read, by the broker's default "
            "redelivery policy; where the broker has other dead-letter strategies, name its "
            "activemq.xml",
            "policy: {source: activemq.xml}",
        )
        return
    entries = [*rules.dead_letter.entries]
    if rules.dead_letter.default_entry is not None:
        entries.append(rules.dead_letter.default_entry)
    found = [finding for entry in entries for finding in _entry_findings(entry)]
    yield from found
    if not found:
        yield Finding(
            Check.DEAD_LETTERS,
            Severity.OK,
            str(rules.source),
            "no strategy discards dead letters or makes them expire",
        )
    if any(isinstance(plugin.options, RedeliveryRules) for plugin in rules.plugins):
        yield Finding(
            Check.POLICY,
            Severity.NOTE,
            str(rules.source),
            "holds a redeliveryPlugin: the sidecar replaces it, so the broker must run "
            "without it, or both redeliver; no client can see whether it runs",
        )


def _entry_findings(entry: PolicyEntry) -> Iterator[Finding]:
    strategy = entry.dead_letter_strategy
    if strategy is None:
        return
    place = describe_pattern(entry.destinations) if entry.destinations else "all destinations"
    if isinstance(strategy, DiscardingDeadLetterStrategy):
        yield _finding(
            Severity.WARNING,
            place,
            f"{strategy.source}: a discarding strategy: the broker drops these dead letters, and "
            "the sidecar never sees them",
            '<deadLetterStrategy><sharedDeadLetterStrategy processExpired="true" '
            'processNonPersistent="true"/></deadLetterStrategy>',
        )
        return
    yield from _strategy_findings(strategy, place)


def _strategy_findings(strategy: DeadLetterStrategy, place: str) -> Iterator[Finding]:
    if not strategy.process_non_persistent:
        yield _finding(
            Severity.WARNING,
            place,
            f"{strategy.source}: processNonPersistent is false: the broker drops non-persistent "
            "messages that are given up",
            'processNonPersistent="true"',
        )
    if not strategy.process_expired:
        yield _finding(
            Severity.NOTE,
            place,
            f"{strategy.source}: processExpired is false: the broker drops what expires",
        )
    if strategy.expiration_ms > 0:
        yield _finding(
            Severity.PROBLEM,
            place,
            f"{strategy.source}: expiration={strategy.expiration_ms} makes dead letters expire "
            "in their queue while the sidecar is down, and hides their own time to live",
            'expiration="0"',
        )


def interceptor_findings(
    rules: ClassicRules | None, allowed: Collection[ResendEffect]
) -> Iterator[Finding]:
    """Yield interceptors that copy a redelivery to its origin, with the effect.

    Args:
        rules: None = none were given.
        allowed: what the operator allows to copy it.
    """
    if rules is None or not rules.interceptors.are_known:
        yield _origin_finding(
            Severity.NOTE,
            "policy.source",
            "no client can see whether the broker has composite destinations or mirrored queues, "
            "which would copy each redelivery: set policy.source to its activemq.xml, or list "
            "them in the policy ({} = none)",
            "destination_interceptors: {}",
        )
        return
    for composite in rules.interceptors.composites:
        subject, problem = describe_pattern(composite.destinations), composite_problem(composite)
        if keeps_nothing(composite):
            what = "the composite is forwardOnly: messages die in its targets, not in it"
            yield _origin_finding(Severity.OK, subject, f"{composite.source}: {what}")
        elif problem is None:
            what = "the composite forwards no redelivery"
            yield _origin_finding(Severity.OK, subject, f"{composite.source}: {what}")
        else:
            line, is_allowed = composite_line(composite), ResendEffect.COMPOSITE in allowed
            yield _copied(subject, problem, line, is_allowed=is_allowed)
    yield from map(_virtual_topic_finding, rules.interceptors.virtual_topics)
    mirror = rules.interceptors.mirrored_queues
    if mirror is not None:
        line, is_allowed = ResendEffect.MIRROR.option, ResendEffect.MIRROR in allowed
        problem = mirror_problem(mirror, queue(">"))
        yield _copied('queue=">"', problem, line, is_allowed=is_allowed)


def _virtual_topic_finding(one: VirtualTopic) -> Finding:
    subject = describe_pattern(one.destinations)
    place = f"{one.source}: virtual topic with the queues {one.prefix}TOPIC{one.postfix}"
    if one.set_original_destination:
        what = "a redelivery goes only to the consumer's queue that it died in"
        return _origin_finding(Severity.OK, subject, f"{place}: {what}")
    return _origin_finding(
        Severity.NOTE,
        subject,
        f"{place}: its dead letters name the topic; only an individual dead-letter queue shows "
        "the consumer's queue, to which a redelivery then goes; from any other they are parked",
        'setOriginalDestination="true"',
    )


def _copied(subject: str, problem: str, mend: str, *, is_allowed: bool) -> Finding:
    if is_allowed:
        return _origin_finding(Severity.NOTE, subject, f"{problem}; redelivery.allow permits it")
    return _origin_finding(
        Severity.WARNING, subject, f"{problem}: redeliveries there are parked", mend
    )


def token_finding(token_queue: str, expiration_ms: int | None) -> Finding:
    """Return whether the broker gives the token an expiry, although it was sent without one.

    Source: TimeStampingBrokerPlugin; it treats dead letters like the token.
    """
    if not expiration_ms:
        what = "the broker gives the token no expiration"
        return Finding(Check.TOKEN_QUEUE, Severity.OK, token_queue, what)
    return Finding(
        Check.TOKEN_QUEUE,
        Severity.PROBLEM,
        token_queue,
        "the broker adds an expiration to messages sent without one: the token would be "
        "lost, and the messages of a cycle in doubt sent twice",
        '<timeStampingBrokerPlugin zeroExpirationOverride="0"/>',
    )


def named_origins(rules: ClassicRules) -> tuple[Destination, ...]:
    """Return the destinations and patterns that rules redeliver to."""
    return tuple(
        dict.fromkeys(
            destination
            for plugin in rules.plugins
            if isinstance(plugin.options, RedeliveryRules)
            for entry in plugin.options.entries
            for destination in entry.destinations
        )
    )
