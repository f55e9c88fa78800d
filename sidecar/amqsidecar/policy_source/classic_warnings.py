"""Warnings about Classic rules."""

from collections.abc import Iterator, Sequence

from amqsidecar.model.destination import Destination
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    DiscardingRules,
    IndividualDeadLetterStrategy,
    RedeliveryPolicy,
    RedeliveryRules,
)
from amqsidecar.policy.destination_map import describe_pattern, list_ambiguities
from amqsidecar.policy.rule_source import RuleSource


def list_warnings(rules: ClassicRules) -> tuple[str, ...]:
    """Return one sentence for each surprise in the rules, with its place.

    Source: the table in `policy/README.md`.
    """
    return tuple(dict.fromkeys(_warnings(rules)))


def _warnings(rules: ClassicRules) -> Iterator[str]:
    redelivery_position = None
    for position, plugin in enumerate(rules.plugins):
        if isinstance(plugin.options, RedeliveryRules):
            redelivery_position = position
            yield from _redelivery_warnings(
                plugin.options, is_the_brokers=rules.dead_letter.is_known
            )
        elif isinstance(plugin.options, DiscardingRules):
            yield from _discarding_warnings(
                plugin.options, is_outside_redelivery=redelivery_position is not None
            )
    if redelivery_position is not None and rules.dead_letter.is_known:
        yield from _persistence_warnings(rules.dead_letter)
        yield from _lost_warnings(rules.dead_letter)
    yield from _ambiguities(
        [(entry.destinations, entry.source) for entry in rules.dead_letter.entries],
        "policyEntry",
    )
    yield from _strategy_warnings(rules.dead_letter)


def _redelivery_warnings(rules: RedeliveryRules, *, is_the_brokers: bool) -> Iterator[str]:
    yield from _ambiguities(
        [(entry.destinations, entry.policy.source) for entry in rules.entries], "redeliveryPolicy"
    )
    for entry in rules.entries:
        yield from _policy_warnings(entry.policy)
        if not all(destination.is_queue for destination in entry.destinations):
            yield (
                f"{entry.policy.source}: {describe_pattern(entry.destinations)} redelivers to a "
                "topic: the broker re-publishes to every subscriber and loses the message for "
                "durable ones; the sidecar parks such messages unless configured otherwise"
            )
    if rules.default_entry is not None:
        yield from _policy_warnings(rules.default_entry)
        if is_the_brokers:
            yield (
                f"{rules.default_entry.source}: defaultEntry also covers topics, dead-letter "
                "queues and advisories in the broker; the sidecar redelivers none of these by it"
            )


def _policy_warnings(policy: RedeliveryPolicy) -> Iterator[str]:
    if policy.maximum_redeliveries is not None and policy.maximum_redeliveries <= 1:
        return
    has_back_off = policy.use_exponential_back_off and policy.back_off_multiplier > 1
    initial_ms, later_ms = policy.initial_redelivery_delay_ms, policy.redelivery_delay_ms
    cap_ms = policy.maximum_redelivery_delay_ms
    if not has_back_off and later_ms < initial_ms:
        yield (
            f"{policy.source}: redeliveryDelay does not inherit initialRedeliveryDelay: the first "
            f"redelivery waits {initial_ms} ms, every later one {later_ms} ms"
        )
    if policy.use_exponential_back_off and not has_back_off:
        yield (
            f"{policy.source}: backOffMultiplier={policy.back_off_multiplier} switches the "
            f"back-off off (only above 1 does it act): later delays are {later_ms} ms"
        )
    if cap_ms is None:
        return
    if not has_back_off:
        yield f"{policy.source}: maximumRedeliveryDelay acts only with exponential back-off"
        return
    if initial_ms > cap_ms:
        yield (
            f"{policy.source}: the first redelivery waits initialRedeliveryDelay={initial_ms} ms; "
            f"maximumRedeliveryDelay={cap_ms} does not cap it"
        )
    if cap_ms < later_ms:
        yield (
            f"{policy.source}: maximumRedeliveryDelay={cap_ms} is below "
            f"redeliveryDelay={later_ms}, which then is the cap"
        )


def _discarding_warnings(rules: DiscardingRules, *, is_outside_redelivery: bool) -> Iterator[str]:
    if rules.drop_all is not False and (rules.drop_only or "").strip():
        yield (
            f"{rules.source}: dropOnly has no effect, because dropAll is true unless "
            'dropAll="false" is written: the broker discards every dead letter'
        )
    if rules.drop_all is not False and is_outside_redelivery:
        yield (
            f"{rules.source}: a discarding plugin listed after the redelivery plugin is asked "
            "first: with dropAll nothing is ever redelivered"
        )


def _persistence_warnings(rules: DeadLetterRules) -> Iterator[str]:
    places = [
        str(strategy.source)
        for strategy in _strategies(rules)
        if not isinstance(strategy, DiscardingDeadLetterStrategy)
        and not strategy.process_non_persistent
    ]
    if places or not rules.entries:
        yield (
            f"{places[0] if places else rules.source}: processNonPersistent is false: "
            "non-persistent messages never reach a dead-letter queue, so the sidecar can't "
            "redeliver them as the in-broker plugin does; write processNonPersistent="
            '"true"' + (f" (also at {', '.join(places[1:])})" if places[1:] else "")
        )


def _lost_warnings(rules: DeadLetterRules) -> Iterator[str]:
    lost = "so the sidecar can't redeliver them as the in-broker plugin does"
    for strategy in _strategies(rules):
        if isinstance(strategy, DiscardingDeadLetterStrategy):
            yield (
                f"{strategy.source}: discarding keeps no dead letters, {lost}; to try again and "
                "then drop, keep them in a queue here and write "
                'sendToDlqIfMaxRetriesExceeded="false" at the redeliveryPlugin'
            )
        elif (
            isinstance(strategy, IndividualDeadLetterStrategy)
            and not strategy.use_queue_for_queue_messages
        ):
            yield (
                f"{strategy.source}: dead letters of queues go to a topic, {lost}; remove "
                'useQueueForQueueMessages="false"'
            )


def _strategies(rules: DeadLetterRules) -> list[DeadLetterStrategy]:
    return [
        entry.dead_letter_strategy
        for entry in (*rules.entries, *((rules.default_entry,) if rules.default_entry else ()))
        if entry.dead_letter_strategy is not None
    ]


def _strategy_warnings(rules: DeadLetterRules) -> Iterator[str]:
    for strategy in _strategies(rules):
        if strategy.expiration_ms > 0 and not isinstance(strategy, DiscardingDeadLetterStrategy):
            yield (
                f"{strategy.source}: expiration={strategy.expiration_ms} hides the original time "
                "to live: a redelivered message has none then"
            )


def _ambiguities(
    entries: Sequence[tuple[Sequence[Destination], RuleSource]], kind: str
) -> Iterator[str]:
    for group in list_ambiguities([destinations for destinations, _ in entries]):
        described = " and ".join(
            f"{describe_pattern(entries[index][0])} ({entries[index][1]})" for index in group
        )
        yield (
            f"{entries[group[0]][1]}: {kind} {described} match the same destinations and the "
            "broker chooses by chance at each start; the sidecar takes the one with most literal "
            "segments, then one without > at its end, then the longer, then the first in the file"
        )
