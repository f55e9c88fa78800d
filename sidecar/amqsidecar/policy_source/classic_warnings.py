"""Warnings about Classic rules."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

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
from amqsidecar.policy.discarding_decider import split_patterns
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.policy_warning import PolicyWarning, policy_warning

# As destinations are written elsewhere: a list, a kind before the name, the wildcard for all below.
_LIKE_NO_EXPRESSION: Final = re.compile(r",(?![^{]*\})|://|\.>$|^>$")
# A dot that is not escaped, after which any text may follow a name.
_BEYOND_DOTS: Final = re.compile(r"^((?:[\w.\\-]*\w)?)\.[*+]$")


def list_warnings(rules: ClassicRules) -> tuple[str, ...]:
    """Return the sentences of `find_warnings`."""
    return tuple(one.text for one in find_warnings(rules))


def find_warnings(rules: ClassicRules) -> tuple[PolicyWarning, ...]:
    """Return one sentence for each surprise in the rules, with its place.

    Source: the table in `policy/README.md`.
    """
    return tuple(dict.fromkeys(_warnings(rules)))


def _warnings(rules: ClassicRules) -> Iterator[PolicyWarning]:
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


def _redelivery_warnings(
    rules: RedeliveryRules, *, is_the_brokers: bool
) -> Iterator[PolicyWarning]:
    yield from _ambiguities(
        [(entry.destinations, entry.policy.source) for entry in rules.entries], "redeliveryPolicy"
    )
    for entry in rules.entries:
        yield from _policy_warnings(entry.policy)
        if not all(destination.is_queue for destination in entry.destinations):
            yield policy_warning(
                "topic_redelivery", entry.policy.source, detail=describe_pattern(entry.destinations)
            )
    if rules.default_entry is not None:
        yield from _policy_warnings(rules.default_entry)
        if is_the_brokers:
            yield policy_warning("default_entry_wide", rules.default_entry.source)


def _policy_warnings(policy: RedeliveryPolicy) -> Iterator[PolicyWarning]:
    if policy.maximum_redeliveries is not None and policy.maximum_redeliveries <= 1:
        return
    has_back_off = policy.use_exponential_back_off and policy.back_off_multiplier > 1
    initial_ms, later_ms = policy.initial_redelivery_delay_ms, policy.redelivery_delay_ms
    cap_ms = policy.maximum_redelivery_delay_ms
    if not has_back_off and later_ms < initial_ms:
        yield policy_warning(
            "initial_delay_not_inherited", policy.source, initial_ms=initial_ms, later_ms=later_ms
        )
    if policy.use_exponential_back_off and not has_back_off:
        yield policy_warning(
            "back_off_off",
            policy.source,
            back_off_multiplier=policy.back_off_multiplier,
            later_ms=later_ms,
        )
    if cap_ms is None:
        return
    if not has_back_off:
        yield policy_warning("maximum_delay_unused", policy.source)
        return
    if initial_ms > cap_ms:
        yield policy_warning(
            "initial_delay_uncapped", policy.source, initial_ms=initial_ms, cap_ms=cap_ms
        )
    if cap_ms < later_ms:
        yield policy_warning("maximum_delay_low", policy.source, cap_ms=cap_ms, later_ms=later_ms)


def _discarding_warnings(
    rules: DiscardingRules, *, is_outside_redelivery: bool
) -> Iterator[PolicyWarning]:
    if rules.drop_all is not False and (rules.drop_only or "").strip():
        yield policy_warning("drop_only_unused", rules.source)
    if rules.drop_all is not False and is_outside_redelivery:
        yield policy_warning("discarding_first", rules.source)
    for pattern in split_patterns(rules.drop_only):
        if _LIKE_NO_EXPRESSION.search(pattern):
            yield policy_warning("drop_only_unmatched", rules.source, pattern=pattern)
        elif wide := _BEYOND_DOTS.search(pattern):
            also = f"{wide[1]}2" if wide[1] else "any name"
            yield policy_warning("drop_only_wide", rules.source, pattern=pattern, also=also)


def _persistence_warnings(rules: DeadLetterRules) -> Iterator[PolicyWarning]:
    places = [
        str(strategy.source)
        for strategy in _strategies(rules)
        if not isinstance(strategy, DiscardingDeadLetterStrategy)
        and not strategy.process_non_persistent
    ]
    if places or not rules.entries:
        yield policy_warning(
            "non_persistent_dropped",
            places[0] if places else rules.source,
            also=f" (also at {', '.join(places[1:])})" if places[1:] else "",
        )


def _lost_warnings(rules: DeadLetterRules) -> Iterator[PolicyWarning]:
    lost = "so the sidecar can't redeliver them as the in-broker plugin does"
    for strategy in _strategies(rules):
        if isinstance(strategy, DiscardingDeadLetterStrategy):
            yield policy_warning("discarding_strategy", strategy.source, lost=lost)
        elif (
            isinstance(strategy, IndividualDeadLetterStrategy)
            and not strategy.use_queue_for_queue_messages
        ):
            yield policy_warning("dead_letters_to_topic", strategy.source, lost=lost)


def _strategies(rules: DeadLetterRules) -> list[DeadLetterStrategy]:
    return [
        entry.dead_letter_strategy
        for entry in (*rules.entries, *((rules.default_entry,) if rules.default_entry else ()))
        if entry.dead_letter_strategy is not None
    ]


def _strategy_warnings(rules: DeadLetterRules) -> Iterator[PolicyWarning]:
    for strategy in _strategies(rules):
        if strategy.expiration_ms > 0 and not isinstance(strategy, DiscardingDeadLetterStrategy):
            yield policy_warning(
                "dead_letters_expire", strategy.source, expiration_ms=strategy.expiration_ms
            )


def _ambiguities(
    entries: Sequence[tuple[Sequence[Destination], RuleSource]], kind: str
) -> Iterator[PolicyWarning]:
    for group in list_ambiguities([destinations for destinations, _ in entries]):
        described = " and ".join(
            f"{describe_pattern(entries[index][0])} ({entries[index][1]})" for index in group
        )
        yield policy_warning(
            "ambiguous_entries", entries[group[0]][1], kind=kind, described=described
        )
