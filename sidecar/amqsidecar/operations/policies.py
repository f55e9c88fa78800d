"""Policies in force, and the effect of other rules on waiting messages and recent deaths."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.messages.facts import MessageFacts
from amqsidecar.model.dead_letter import DeadLetter, KnownFacts
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.failure import CountKind
from amqsidecar.model.schedule import RowFilter, RowState, RowView, age_ms
from amqsidecar.operations.active_rules import ASKS_DEATHS, ASKS_FACTS, ActiveRules, Policies
from amqsidecar.operations.browse import read_story
from amqsidecar.operations.explain import Explainer, Explanation, Forecast, kept_message, last_death
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.policy_yaml import read_policy_mapping, read_yaml
from amqsidecar.policy_source.yaml_writer import write_helm_values, write_yaml
from amqsidecar.schedule import Schedule

RECENT_MS: Final = 24 * 3_600_000
DESTINATIONS_MAX: Final = 100
"""Destinations that are shown: those with most deaths and most waiting messages."""

ROWS_MAX: Final = 5_000
"""Maximum waiting messages whose attempts are examined."""

_NOT_EXHAUSTED: Final = (RowState.WAITING, RowState.HELD, RowState.PARKED)

OPENED_MAX: Final = 1_000
"""Maximum waiting messages examined if rules read their content."""

RULES_BYTES_MAX: Final = 32 * 1024
"""Of rules that a person tries out."""

RULES_VALUES_MAX: Final = 2_000
"""Keys and values of such rules; the time to read and compare them grows with these."""


class ActingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions of rules on messages that die at a destination.

    Attributes:
        deaths: in the last 24 hours.
        waiting: messages that wait for their re-send there, including held and parked messages.
        exhausted: messages that the rules no longer redeliver.
        rules: the source of the rules, or why they are unknown.
        forecast: for a message's first death there; None = the rules are unknown.
    """

    destination: str
    deaths: int
    waiting: int
    exhausted: int
    rules: str
    forecast: Forecast | None


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of a sidecar as they act.

    Attributes:
        source: where the rules come from, or why none are known.
        warnings: of the rules, a sentence each.
        yaml: the rules as a policy in YAML; "" = the broker is asked live, or none are known.
        destinations: that deaths or waiting messages are known of, those with most first.
        left_out: how many more there are.
    """

    source: str
    warnings: list[str]
    yaml: str
    destinations: list[ActingPolicy]
    left_out: int


def policy_view(schedule: Schedule, policies: Policies, now_ms: int) -> PolicyView:
    """Return the policies as they act on the destinations that the store knows."""
    acting = policies.acting()
    rules = acting.rules
    known = _Known(schedule, now_ms, acting)
    return PolicyView(
        source=acting.source,
        warnings=[*([] if rules is None else rules.warnings), *acting.warnings],
        yaml=acting_yaml(policies),
        destinations=[
            ActingPolicy(
                destination=destination,
                deaths=known.deaths[destination].total(),
                waiting=known.waiting[destination],
                exhausted=known.exhausted[destination],
                rules=acting.source_at(parse_destination(destination)),
                forecast=acting.forecast(DeadLetter(parse_destination(destination))),
            )
            for destination in known.shown
        ],
        left_out=known.left_out,
    )


def acting_yaml(policies: Policies) -> str:
    """Return the rules that act as a policy in YAML; "" = read live, or none are known."""
    rules = policies.acting().rules
    return "" if rules is None else write_yaml(rules)


class _Known:
    """Destinations that messages die at, by how much there is to say of them."""

    def __init__(self, schedule: Schedule, now_ms: int, acting: ActiveRules) -> None:
        self.deaths = defaultdict[str, Counter[int]](Counter)
        kinds = (CountKind.DIED, CountKind.RETURNED)
        for one in schedule.failure_counts(now_ms - RECENT_MS, now_ms + 1, kinds, RECENT_MS):
            self.deaths[one.key.destination][one.key.attempt] += one.count
        self.waiting, self.exhausted = Counter[str](), Counter[str]()
        for tally in schedule.tallies():
            is_exhausted = tally.state is RowState.EXHAUSTED
            counts = self.exhausted if is_exhausted else self.waiting
            counts[tally.destination] += tally.count
        total = self.waiting + self.exhausted
        total.update({place: deaths.total() for place, deaths in self.deaths.items()})
        found = [
            destination
            for destination, _ in total.most_common()
            if acting.is_origin(parse_destination(destination))
        ]
        self.shown = found[:DESTINATIONS_MAX]
        self.left_out = len(found) - len(self.shown)


class AttemptEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of other rules on deaths after a number of redeliveries.

    Rules beyond the broker's may make several of one number, each with its own `before` and
    `after`.

    Attributes:
        redelivery_count: redeliveries so far, 0 = the first death.
        deaths: how many died like this in the last 24 hours.
        waiting: how many of the messages that were looked at will die like this if their next
            re-send fails.
        before: by the rules as they are; None = none are known.
        after: by the other rules.
    """

    redelivery_count: int
    deaths: int
    waiting: int
    before: Explanation | None
    after: Explanation


class DestinationEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of other rules at a destination.

    Attributes:
        waiting: messages that wait there; new rules leave their due times unchanged.
        looked_at: the number examined.
        attempts: deaths that the other rules decide differently.
        before, after: forecasts for a message's first death there.
    """

    destination: str
    waiting: int
    looked_at: int
    attempts: list[AttemptEffect]
    before: Forecast | None
    after: Forecast


class PolicyEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of other rules.

    Attributes:
        destinations: where something changes.
        unchanged: number of destinations where nothing changes.
        deaths: in the last 24 hours at all of them.
        deaths_changed: of these something else would have become.
        waiting_changed: of the waiting messages that were looked at something else will become if
            their next re-send fails.
        left_out: destinations that were not looked at.
        warnings: of the rules, a sentence each.
        yaml: the rules as a policy in YAML.
        helm: the rules as values of the Helm chart.
    """

    destinations: list[DestinationEffect]
    unchanged: int
    deaths: int
    deaths_changed: int
    waiting_changed: int
    left_out: int
    warnings: list[str]
    yaml: str
    helm: str


def effect_of(
    schedule: Schedule, policies: Policies, text: str, now_ms: int, *, opens: bool
) -> PolicyEffect:
    """Return the effect of other rules; changes nothing.

    Delays are compared without collision avoidance. Rules that read messages get the kept bytes of
    waiting messages, and past deaths without cause and properties.

    Args:
        text: the other rules, a policy in YAML.
        opens: whether the caller may see causes and content of all messages.

    Raises:
        ConfigError: the rules can't be used; with every problem found.
    """
    rules = _read_rules(policies, text)
    after = policies.explainer_of(rules)
    acting = policies.acting()
    known = _Known(schedule, now_ms, acting)
    effects: list[DestinationEffect] = []
    rows_left = OPENED_MAX if after.asks_facts or acting.warnings else ROWS_MAX
    for destination in known.shown:
        rows: list[RowView] = []
        for state in _NOT_EXHAUSTED:
            wanted = RowFilter(destination=destination, state=state)
            rows += schedule.list_rows(wanted, rows_left - len(rows))
        rows_left -= len(rows)
        before = acting.explainer_at(parse_destination(destination))
        asks = opens and (after.asks_facts or (before is not None and before.asks_facts))
        waiting = [
            _next_death(schedule, row, now_ms)
            if asks
            else DeadLetter(parse_destination(destination), row.redelivery_count)
            for row in rows
            if not row.is_final
        ]
        effects.append(_effect_at(destination, known, waiting, before, after, len(rows)))
    changed = [one for one in effects if one.attempts or _differ(one.before, one.after)]
    attempts = [attempt for one in changed for attempt in one.attempts]
    return PolicyEffect(
        destinations=changed,
        unchanged=len(effects) - len(changed),
        deaths=sum(known.deaths[destination].total() for destination in known.shown),
        deaths_changed=sum(one.deaths for one in attempts),
        waiting_changed=sum(one.waiting for one in attempts),
        left_out=known.left_out,
        warnings=[*rules.warnings, *([ASKS_DEATHS] if after.asks_facts else [])],
        yaml=write_yaml(rules),
        helm=write_helm_values(rules),
    )


class MessageEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of other rules on the latest death of one message.

    Attributes:
        before: by the rules as they are; None = none are known.
        after: by the other rules.
        warnings: of the other rules, a sentence each.
    """

    before: Forecast | None
    after: Forecast
    warnings: list[str]


def effect_on(
    schedule: Schedule, policies: Policies, reference: str, uid: str, text: str, *, opens: bool
) -> MessageEffect | None:
    """Return the decision of other rules on a message; None = its origin is unknown.

    Args:
        reference: a row number or a redelivery id.
        uid: of the store; see `StoreState`.
        text: the other rules, a policy in YAML.
        opens: whether the caller may see its cause and content; else the rules can't, either.

    Raises:
        ConfigError: the rules can't be used; with every problem found.
    """
    rules = _read_rules(policies, text)
    story = read_story(schedule, reference, uid)
    message = None if story is None or not opens else kept_message(schedule, story.rows)
    death = None if story is None else last_death(story.history, message)
    if death is None:
        return None
    if not opens:
        death = replace(death, facts=KnownFacts(death.facts.age_ms))
    after = policies.explainer_of(rules)
    return MessageEffect(
        before=policies.acting().forecast(death),
        after=after.forecast(death),
        warnings=[*rules.warnings, *([ASKS_FACTS] if after.asks_facts and not opens else [])],
    )


def _next_death(schedule: Schedule, row: RowView, now_ms: int) -> DeadLetter:
    """Return the death of a waiting message whose next re-send fails at once."""
    age = age_ms(row.redelivery_id, max(now_ms, row.due_at_ms))
    message = kept_message(schedule, [row])
    facts = KnownFacts(age, row.cause) if message is None else MessageFacts(message, row.cause, age)
    return DeadLetter(parse_destination(row.destination), row.redelivery_count, facts=facts)


def _read_rules(policies: Policies, text: str) -> Rules:
    data = text.encode(errors="replace")
    if len(data) > RULES_BYTES_MAX:
        what = f"they have {len(data)} bytes; at most {RULES_BYTES_MAX} are read here"
        raise ConfigError([Problem("rules", what)])
    name = "rules.yaml"
    content = read_yaml(name, data, values_max=RULES_VALUES_MAX)
    return read_policy_mapping(content, RuleSource(name), policies.plugins)


_Case = tuple[int, Explanation | None, Explanation]
"""Redeliveries so far, and the decisions before and after."""


def _effect_at(
    destination: str,
    known: _Known,
    waiting: Sequence[DeadLetter],
    before: Explainer | None,
    after: Explainer,
    looked_at: int,
) -> DestinationEffect:
    place = parse_destination(destination)

    def case_of(dead: DeadLetter) -> _Case:
        now = None if before is None else before.explain(dead)
        return dead.redelivery_count, now, after.explain(dead)

    died, waits = Counter[_Case](), Counter[_Case](map(case_of, waiting))
    for count, deaths in known.deaths[destination].items():
        died[case_of(DeadLetter(place, count))] += deaths
    return DestinationEffect(
        destination=destination,
        waiting=known.waiting[destination],
        looked_at=looked_at,
        attempts=[
            AttemptEffect(
                redelivery_count=case[0],
                deaths=died[case],
                waiting=waits[case],
                before=case[1],
                after=case[2],
            )
            for case in sorted({*died, *waits}, key=lambda case: (case[0], case[2].rule))
            # Why not the rule: that another line of a file decides the same is no effect.
            if case[1] is None or _result(case[1]) != _result(case[2])
        ],
        before=None if before is None else before.forecast(DeadLetter(place)),
        after=after.forecast(DeadLetter(place)),
    )


def _result(answer: Explanation) -> Explanation:
    return msgspec.structs.replace(answer, rule="")


def _differ(before: Forecast | None, after: Forecast) -> bool:
    return before is None or _course(before) != _course(after)


def _course(forecast: Forecast) -> tuple[list[int], object, Explanation | None]:
    end = None if forecast.end is None else _result(forecast.end)
    return [one.delay_ms for one in forecast.sends], forecast.now.edit, end
