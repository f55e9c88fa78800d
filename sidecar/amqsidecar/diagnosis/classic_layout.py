"""Judges the dead-letter rules of a Classic broker, as far as its activemq.xml is given."""

from collections.abc import Collection, Iterator

from amqsidecar.diagnosis.finding import Finding, new_finding
from amqsidecar.engine.judging.resend_copies import (
    composite_line,
    composite_problem,
    keeps_nothing,
    mirror_problem,
)
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.send_terms import ResendEffect
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    PolicyEntry,
    RedeliveryRules,
    VirtualTopic,
)
from amqsidecar.policy.destination_map import describe_pattern


def layout_findings(rules: ClassicRules | None) -> Iterator[Finding]:
    """Yield effects of the rules on dead letters before the sidecar can see them.

    Args:
        rules: None = none were given.
    """
    if rules is None:
        yield new_finding("no_classic_rules", "policy.source")
        return
    entries = [*rules.dead_letter.entries]
    if rules.dead_letter.default_entry is not None:
        entries.append(rules.dead_letter.default_entry)
    found = [finding for entry in entries for finding in _entry_findings(entry)]
    yield from found
    if not found:
        yield new_finding("strategies_keep", rules.source)
    if any(isinstance(plugin.options, RedeliveryRules) for plugin in rules.plugins):
        yield new_finding("redelivery_plugin_twice", rules.source)


def _entry_findings(entry: PolicyEntry) -> Iterator[Finding]:
    strategy = entry.dead_letter_strategy
    if strategy is None:
        return
    place = describe_pattern(entry.destinations) if entry.destinations else "all destinations"
    if isinstance(strategy, DiscardingDeadLetterStrategy):
        yield new_finding("discarding_strategy", place, source=strategy.source)
        return
    yield from _strategy_findings(strategy, place)


def _strategy_findings(strategy: DeadLetterStrategy, place: str) -> Iterator[Finding]:
    if not strategy.process_non_persistent:
        yield new_finding("non_persistent_dropped", place, source=strategy.source)
    if not strategy.process_expired:
        yield new_finding("expired_dropped", place, source=strategy.source)
    if strategy.expiration_ms > 0:
        yield new_finding(
            "dead_letters_expire",
            place,
            source=strategy.source,
            expiration_ms=strategy.expiration_ms,
        )


def interceptor_findings(
    rules: ClassicRules | None, allowed: Collection[ResendEffect]
) -> Iterator[Finding]:
    """Yield interceptors that copy a redelivery to its origin, with the effect.

    Args:
        rules: None = none were given.
        allowed: permitted copies.
    """
    if rules is None or not rules.interceptors.are_known:
        yield new_finding("interceptors_unknown", "policy.source")
        return
    for composite in rules.interceptors.composites:
        subject, problem = describe_pattern(composite.destinations), composite_problem(composite)
        if keeps_nothing(composite):
            yield new_finding("composite_forward_only", subject, source=composite.source)
        elif problem is None:
            yield new_finding("composite_forwards_nothing", subject, source=composite.source)
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
        return new_finding("virtual_topic_queue", subject, place=place)
    return new_finding("virtual_topic_name", subject, place=place)


def _copied(subject: str, problem: str, mend: str, *, is_allowed: bool) -> Finding:
    if is_allowed:
        return new_finding("copy_allowed", subject, problem=problem)
    return new_finding("copy_parked", subject, problem=problem, mend=mend)


def token_finding(token_queue: str, expiration_ms: int | None) -> Finding:
    """Return whether the broker gives the token an expiry, although it was sent without one.

    Source: TimeStampingBrokerPlugin; it treats dead letters like the token.
    """
    if not expiration_ms:
        return new_finding("token_without_expiration", token_queue)
    return new_finding("token_expires", token_queue)


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
