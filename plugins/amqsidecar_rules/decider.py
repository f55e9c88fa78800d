"""Decides by a table of rules."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from amqsidecar.plugin import (
    Chance,
    DeadLetter,
    Decision,
    DelayTable,
    Destination,
    DestinationMap,
    Discard,
    Exhaust,
    JavaRegexTimeout,
    MessageEdit,
    Park,
    Redeliver,
    Redirect,
    cause_classes,
    cause_group,
    describe_edit,
    describe_rule,
    written_line,
)
from amqsidecar_rules.options import Redelivery, Redirection, RuleAction, RuleTable, TableRule

_DESTINATIONS_MAX = 8_192
# Source: ActiveMQMessageConsumer (the client), Queue (cursor) of Classic.
_DUPLICATES = "Suppressing duplicate delivery on ", "duplicate paged in from cursor for "
_GROUPS_MAX = 2_048


_PLACE = re.compile(r"\{([^{}]+)\}")


def _named_in(until: str) -> list[str]:
    """Return the properties that the name of an event is made of."""
    return _PLACE.findall(until)


class _CompiledRule:
    """A rule with its texts and delays worked out."""

    __slots__ = ("_delays", "_fixed", "_map", "_timed_out", "rule", "text")

    def __init__(self, rule: TableRule) -> None:
        self.rule = rule
        self._map = DestinationMap([(rule.destinations, True)]) if rule.destinations else None
        outcome = rule.outcome
        self._delays = DelayTable(outcome.policy) if isinstance(outcome, Redelivery) else None
        edit = describe_edit(rule.edit)
        action = f"{_action_of(rule)} {edit}" if edit else _action_of(rule)
        self.text = describe_rule(f"{rule.title} {action}", rule.source)
        self._fixed: dict[RuleAction, Decision | None] = {
            RuleAction.EXHAUST: Exhaust(self.text),
            RuleAction.PARK: Park(self.text),
            RuleAction.CONTINUE: None,
        }
        if outcome is RuleAction.DISCARD:
            line = written_line(f"{rule.title} {action}", rule.source)
            self._fixed[RuleAction.DISCARD] = Discard(line)
        self._timed_out = Park(
            describe_rule(f"{rule.title}: a regular expression takes too long", rule.source)
        )

    def covers(self, destination: Destination) -> bool:
        """Return whether its pattern covers a destination."""
        return self._map is None or self._map.find(destination) is not None

    def outcome_of(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the decision on a dead letter that it matches; None = the broker's rules act."""
        match self.rule.outcome:
            case Redelivery() as redelivery:
                return self._redeliver(redelivery, dead_letter, chance)
            case Redirection(to, delay_ms):
                count = dead_letter.redelivery_count + 1
                return Redirect(to, delay_ms, count, self.text, self.rule.edit)
            case action:
                return self._fixed[action]

    def _redeliver(
        self, redelivery: Redelivery, dead_letter: DeadLetter, chance: Chance | None
    ) -> Decision:
        assert self._delays is not None  # noqa: S101 - it has them where it redelivers
        count, limit = dead_letter.redelivery_count, redelivery.policy.maximum_redeliveries
        if limit is not None and count >= limit:
            return self._exhaust(f"maximum_redeliveries={limit}")
        delay_ms, within_ms = self._delays.delay_ms(count, chance), redelivery.within_ms
        if within_ms is not None and dead_letter.facts.age_ms + max(0, delay_ms) > within_ms:
            return self._exhaust(f"within_ms={within_ms}")
        found = Redeliver(delay_ms, count + 1, self.text, self.rule.edit)
        return self._waiting(redelivery, dead_letter, found) if redelivery.until else found

    def _waiting(
        self, redelivery: Redelivery, dead_letter: DeadLetter, decision: Redeliver
    ) -> Decision:
        facts, longest_ms = dead_letter.facts, redelivery.longest_ms
        values = {name: facts.property_of(name) for name in _named_in(redelivery.until)}
        absent = [name for name, value in values.items() if not value]
        if absent:
            why = f"{self.rule.title} until: it has no property {absent[0]}"
            return Park(describe_rule(why, self.rule.source))
        if redelivery.within_ms is not None:
            longest_ms = min(longest_ms, redelivery.within_ms - facts.age_ms)
        name = _PLACE.sub(lambda found: values[found[1]] or "", redelivery.until)
        return replace(decision, until=name, longest_ms=longest_ms)

    def _exhaust(self, limit: str) -> Exhaust:
        return Exhaust(describe_rule(f"{self.rule.title} {limit}", self.rule.source))

    def matches(self, dead_letter: DeadLetter) -> Park | bool:
        """Return whether its other conditions hold; Park = one can't be decided in time.

        Cheap conditions come first; the message is read only for fields that the rule names.
        """
        rule, facts = self.rule, dead_letter.facts
        if (
            (dead_letter.is_store_duplicate and not rule.duplicate)
            or (rule.duplicate and not _is_duplicate(dead_letter))
            or dead_letter.expired != rule.expired
            or not rule.least_count <= dead_letter.redelivery_count <= rule.most_count
            or not rule.least_age_ms <= facts.age_ms <= rule.most_age_ms
        ):
            return False
        if rule.cause_classes:
            # Why the group: it is known already, and many causes have the same.
            named = _classes_in(cause_group(facts.cause or ""))
            if named.isdisjoint(rule.cause_classes):
                return False
        try:
            return (
                (rule.cause is None or rule.cause.holds(facts.cause or ""))
                and (rule.jms_type is None or rule.jms_type.holds(facts.jms_type))
                and all(
                    test.holds(facts.property_of(name)) for name, test in rule.properties.items()
                )
                and all(test.holds(facts.header_of(name)) for name, test in rule.headers.items())
            )
        except JavaRegexTimeout:
            return self._timed_out


def _is_duplicate(dead_letter: DeadLetter) -> bool:
    cause = dead_letter.facts.cause or ""
    return dead_letter.is_store_duplicate or any(one in cause for one in _DUPLICATES)


class RulesDecider:
    """Asks the rules that cover a destination, in their order; the first that matches decides.

    Expired messages and duplicates from the store match only rules that name them.
    """

    def __init__(self, table: RuleTable) -> None:
        rules = [_CompiledRule(rule) for rule in table.rules]
        self.asks = frozenset({"age", *(name for rule in table.rules for name in _asked_by(rule))})
        self.awaits = tuple(
            describe_rule(f"{rule.title} until {rule.outcome.until}", rule.source)
            for rule in table.rules
            if isinstance(rule.outcome, Redelivery) and rule.outcome.until
        )
        continuing = [rule for rule in table.rules if rule.outcome is RuleAction.CONTINUE]
        self._has_continue = bool(continuing)
        self._edits_and_continues = any(rule.edit is not None for rule in continuing)
        self._at = lru_cache(_DESTINATIONS_MAX)(
            lambda destination: tuple(rule for rule in rules if rule.covers(destination))
        )

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the decision of the first rule that matches; None = the broker's rules decide."""
        for rule in self._at(dead_letter.destination):
            found = rule.matches(dead_letter)
            if found is True:
                return rule.outcome_of(dead_letter, chance)
            if found:
                return found
        return None

    def passing_rule(self, dead_letter: DeadLetter) -> str | None:
        """Return the rule that let the broker's rules decide; None = no rule matches."""
        passing = self._passing(dead_letter)
        return None if passing is None else passing.text

    def passing_edit(self, dead_letter: DeadLetter) -> MessageEdit | None:
        """Return the edit of that rule; None = it has none."""
        passing = self._passing(dead_letter) if self._edits_and_continues else None
        return None if passing is None else passing.rule.edit

    def _passing(self, dead_letter: DeadLetter) -> _CompiledRule | None:
        if not self._has_continue:
            return None
        rules = self._at(dead_letter.destination)
        return next((rule for rule in rules if rule.matches(dead_letter)), None)


def _asked_by(rule: TableRule) -> Iterator[str]:
    if rule.cause_classes or rule.cause is not None:
        yield "cause"
    if rule.jms_type is not None:
        yield "jms_type"
    yield from (f"property:{name}" for name in rule.properties)
    if isinstance(rule.outcome, Redelivery):
        yield from (f"property:{name}" for name in _named_in(rule.outcome.until))
    yield from (f"header:{name}" for name in rule.headers)


def _action_of(rule: TableRule) -> str:
    match rule.outcome:
        case Redelivery():
            until = rule.outcome.until
            return f"redeliver until {until}" if until else "redeliver"
        case Redirection(to):
            return f"redirect to {to}"
        case action:
            return str(action)


@lru_cache(_GROUPS_MAX)
def _classes_in(group: str) -> frozenset[str]:
    """Return the classes that a cause group names, each with and without its package."""
    names = cause_classes(group)
    return frozenset((*names, *(name.rpartition(".")[2] for name in names)))
