"""The decisions of policies on the messages of history, by the sidecar's own policy functions."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.dead_letter import DeadLetter, KnownFacts
from amqsidecar.model.decision import Redeliver
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.plugin import Decider, Plugin
from amqsidecar.policy.address_settings import compile_address_settings
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DiscardingRules,
    PluginRules,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
)
from amqsidecar.policy.destination_map import DestinationMap, describe_pattern
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.load import compile_policy, load_policy

HISTORY: Final = "history"
"""Stands for the policy that really acted."""
PROPOSAL: Final = "proposal"

FirstDeath = tuple[str, bool, bool, str | None, tuple[tuple[str, str], ...]]
"""A first death: destination, whether persistent, whether expired, cause, journaled properties."""


@dataclass(frozen=True)
class Candidate:
    """A policy under a name.

    Attributes:
        name: as tables and the report show it.
        rules: as they are written.
        decider: the same, compiled.
    """

    name: str
    rules: Rules
    decider: Decider

    @property
    def asks(self) -> frozenset[str]:
        """Facts of messages that its rules read; see `amqsidecar.plugin.Plugin`."""
        asks: frozenset[str] = getattr(self.decider, "asks", frozenset())
        return asks


@dataclass(frozen=True)
class DelayPlan:
    """The delays before the re-sends of one kind of message.

    Attributes:
        delays_ms: of each re-send, from the death before it.
        goes_on: whether the policy has more re-sends than these.
        decided_by: the rules, in the order in which they decide first.
    """

    delays_ms: tuple[int, ...]
    goes_on: bool
    decided_by: tuple[str, ...] = ()


def load_candidates(policies: Sequence[str], plugins: Mapping[str, Plugin]) -> list[Candidate]:
    """Return the policies that are given as `FILE` or `NAME=FILE`.

    Raises:
        ConfigError: one can't be loaded, or two have one name; with every problem found.
    """
    candidates: list[Candidate] = []
    problems: list[Problem] = []
    for given in policies:
        name, equals, path = given.partition("=")
        if not equals:
            path = given
        if name in (HISTORY, PROPOSAL, *(one.name for one in candidates)):
            problems.append(Problem("--policy", f"the name {name!r} is taken; use NAME=FILE"))
            continue
        try:
            rules = load_policy(path, plugins, os.environ)
            candidate = Candidate(name, rules, compile_policy(rules, plugins))
            unknown = sorted(
                one for one in candidate.asks if one.startswith(("jms_type", "header:"))
            )
            if unknown:
                what = f"its rules ask for {', '.join(unknown)}, which history lacks"
                raise ConfigError([Problem(path, f"{what}: remove these rules from it")])
            candidates.append(candidate)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return candidates


def dead_letter_of(death: FirstDeath) -> DeadLetter:
    """Return a first death of history as input of the rules."""
    destination, persistent, expired, cause, properties = death
    return DeadLetter(
        parse_destination(destination),
        persistent=persistent,
        expired=expired,
        facts=KnownFacts(cause=cause, properties=dict(properties)),
    )


def plan_of(
    decider: Decider, dead_letter: DeadLetter, *, most_attempts: int, back_ms: int = 0
) -> DelayPlan:
    """Return a policy's delays for messages that die like `dead_letter`, after each re-send too.

    Collision avoidance is left out: it varies a delay evenly to both sides, so the delay without it
    is the expected one.

    Args:
        dead_letter: the first death; the next ones have its cause and properties.
        most_attempts: maximum number of re-sends that are returned.
        back_ms: time from the end of a delay to the next death, by which the message is older.
    """
    delays: list[int] = []
    rules: dict[str, None] = {}
    while len(delays) <= most_attempts:
        decision = decider.decide(dead_letter, None)
        rules["" if decision is None else decision.rule] = None
        if not isinstance(decision, Redeliver):
            return DelayPlan(tuple(delays), goes_on=False, decided_by=tuple(rules))
        delay_ms = max(0, decision.delay_ms)
        delays.append(delay_ms)
        dead_letter = dead_letter.again(decision.redelivery_count, delay_ms + back_ms)
    return DelayPlan(tuple(delays[:most_attempts]), goes_on=True, decided_by=tuple(rules))


def unmatched_entries(rules: Rules, destinations: Iterable[str]) -> list[str]:
    """Return the entries of a policy that match none of these destinations, with their places."""
    places = [parse_destination(destination) for destination in destinations]
    if isinstance(rules, ArtemisRules):
        settings = compile_address_settings(rules)
        acting = {id(entry) for place in places for entry in settings.entries_of(place.name)}
        return [
            f'address-setting match="{entry.match}" ({entry.source})'
            for entry in rules.entries
            if id(entry) not in acting
        ]
    unmatched = []
    for plugin in rules.plugins:
        if not isinstance(plugin.options, RedeliveryRules):
            continue
        entries = plugin.options.entries
        index = DestinationMap([(entry.destinations, at) for at, entry in enumerate(entries)])
        acting_at = {index.find(place) for place in places}
        unmatched += [
            f"redeliveryPolicy {describe_pattern(entry.destinations)} ({entry.policy.source})"
            for at, entry in enumerate(entries)
            if at not in acting_at
        ]
    return unmatched


@dataclass(frozen=True, order=True)
class Setting:
    """One value of each of the four numbers that a search varies, in Classic's terms.

    Attributes:
        initial_redelivery_delay_ms: delay before the first re-send.
        back_off_multiplier: 1 = all delays are the same.
        maximum_redelivery_delay_ms: no delay is longer.
        maximum_redeliveries: how many re-sends; Artemis's `max-delivery-attempts` is one more.
    """

    initial_redelivery_delay_ms: int
    back_off_multiplier: float
    maximum_redelivery_delay_ms: int
    maximum_redeliveries: int


def with_settings(rules: Rules, settings: Mapping[str, Setting]) -> Rules:
    """Return the rules with an additional entry for each of these destinations."""
    places = {parse_destination(one): setting for one, setting in settings.items()}
    if isinstance(rules, ArtemisRules):
        return _artemis_with(rules, places)
    return _classic_with(rules, places)


def _classic_with(rules: ClassicRules, settings: Mapping[Destination, Setting]) -> ClassicRules:
    entries = tuple(
        RedeliveryEntry(
            destinations=(place,),
            policy=RedeliveryPolicy(
                maximum_redeliveries=setting.maximum_redeliveries,
                initial_redelivery_delay_ms=setting.initial_redelivery_delay_ms,
                redelivery_delay_ms=setting.initial_redelivery_delay_ms,
                maximum_redelivery_delay_ms=setting.maximum_redelivery_delay_ms,
                use_exponential_back_off=setting.back_off_multiplier > 1,
                back_off_multiplier=setting.back_off_multiplier,
            ),
        )
        for place, setting in settings.items()
    )
    plugins = list(rules.plugins)
    found = [at for at, plugin in enumerate(plugins) if isinstance(plugin.options, RedeliveryRules)]
    if not found:
        added = PluginRules(name="redelivery", options=RedeliveryRules(entries=entries))
        # Why there: rules beyond the broker's are asked before the broker's.
        brokers = [
            at for at, one in enumerate(plugins, 1) if isinstance(one.options, DiscardingRules)
        ]
        plugins.insert(max(brokers, default=0), added)
        return replace(rules, plugins=tuple(plugins))
    # Why the last one: it is asked first.
    outermost = plugins[found[-1]]
    options = outermost.options
    assert isinstance(options, RedeliveryRules)  # noqa: S101 - as found above
    kept = tuple(
        entry
        for entry in options.entries
        if len(entry.destinations) > 1 or entry.destinations[0] not in settings
    )
    plugins[found[-1]] = replace(outermost, options=replace(options, entries=kept + entries))
    return replace(rules, plugins=tuple(plugins))


def _artemis_with(rules: ArtemisRules, settings: Mapping[Destination, Setting]) -> ArtemisRules:
    written = {entry.match: entry for entry in rules.entries}
    for place, setting in settings.items():
        old = written.get(
            place.name, AddressSettingEntry(match=place.name, settings=AddressSettings())
        )
        written[place.name] = replace(
            old,
            settings=replace(
                old.settings,
                max_delivery_attempts=setting.maximum_redeliveries + 1,
                redelivery_delay_ms=setting.initial_redelivery_delay_ms,
                redelivery_delay_multiplier=setting.back_off_multiplier,
                max_redelivery_delay_ms=setting.maximum_redelivery_delay_ms,
            ),
        )
    return replace(rules, entries=tuple(written.values()))
