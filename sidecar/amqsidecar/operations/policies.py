"""Policies as they act, and what other rules would change for what waits and dies lately."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.engine.intake import IntakeNames, dead_letter_queues_of, named_queues
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.ledger import Ledger
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import parse_destination, queue
from amqsidecar.model.failure import CountKind
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.explain import Answer, Explainer, Forecast
from amqsidecar.plugin import Chance, Plugin
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.load import compile_policy, parse_policy
from amqsidecar.policy_source.yaml_writer import write_helm_values, write_yaml
from amqsidecar.store import Store

RECENT_MS: Final = 24 * 3_600_000
DESTINATIONS_MAX: Final = 100
"""Destinations that are shown: those with most deaths and most waiting messages."""

ROWS_MAX: Final = 5_000
"""Waiting messages that are looked at for their attempts."""

RULES_BYTES_MAX: Final = 256 * 1024

Rules = ClassicRules | ArtemisRules


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a sidecar, and how others are asked.

    Attributes:
        rules: None = none are given: on Artemis the broker is asked live.
        explainer: of the rules; None where these are.
        plugins: name to plugin.
        explainer_of: compiles other rules for the same sidecar.
    """

    rules: Rules | None
    explainer: Explainer | None
    plugins: Mapping[str, Plugin]
    explainer_of: Callable[[Rules], Explainer]


def policies_of(
    rules: Rules | None,
    plugins: Mapping[str, Plugin],
    *,
    intake_queues: Sequence[str],
    final_suffix: str,
    parks_topics: bool,
    chance: Chance | None = None,
) -> Policies:
    """Return the policies of a sidecar.

    Args:
        rules: that are given; None = none.
        plugins: name to plugin.
        intake_queues: that the operator named; none = they follow from the rules.
        final_suffix: of final dead-letter queues.
        parks_topics: messages of Classic's topics are parked.
        chance: varies delays; None = they are as without collision avoidance.

    Raises:
        ConfigError: the rules can't be compiled.
    """

    def explainer_of(asked: Rules) -> Explainer:
        return Explainer(
            compile_policy(asked, plugins),
            _intake_names(asked, intake_queues).covers,
            final_suffix=final_suffix,
            parks_topics=parks_topics and isinstance(asked, ClassicRules),
            chance=chance,
        )

    return Policies(
        rules=rules,
        explainer=None if rules is None else explainer_of(rules),
        plugins=plugins,
        explainer_of=explainer_of,
    )


def _intake_names(rules: Rules, intake_queues: Sequence[str]) -> IntakeNames:
    kind = BrokerKind.ARTEMIS if isinstance(rules, ArtemisRules) else BrokerKind.CLASSIC
    names = IntakeNames(kind)
    if intake_queues:
        names.replace(named_queues(intake_queues))
    elif isinstance(rules, ClassicRules):
        names.replace(dead_letter_queues_of(rules)[0])
    else:
        addresses = {
            address
            for entry in rules.entries
            for address in (entry.settings.dead_letter_address, entry.settings.expiry_address)
            if address
        }
        names.replace([IntakeQueue(queue(address)) for address in sorted(addresses)])
    return names


class ActingPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What rules do with messages that die at a destination.

    Attributes:
        deaths: in the last 24 hours.
        waiting: messages that wait for their re-send there, held and parked ones too.
        forecast: of a message that dies there for the first time; None = no rules are given.
    """

    destination: str
    deaths: int
    waiting: int
    forecast: Forecast | None


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of a sidecar as they act.

    Attributes:
        source: where the rules were read; "" = none are given.
        warnings: of the rules, a sentence each.
        yaml: the rules as a policy in YAML; "" = none are given.
        destinations: that deaths or waiting messages are known of, those with most first.
        left_out: how many more there are.
    """

    source: str
    warnings: list[str]
    yaml: str
    destinations: list[ActingPolicy]
    left_out: int


def policy_view(ledger: Ledger, policies: Policies, now_ms: int) -> PolicyView:
    """Return the policies as they act on the destinations that the store knows.

    Args:
        ledger: of an open store.
        policies: of the sidecar.
        now_ms: the time.
    """
    rules, explainer = policies.rules, policies.explainer
    known = _Known(ledger, now_ms, explainer)
    return PolicyView(
        source="" if rules is None else str(rules.source),
        warnings=[] if rules is None else list(rules.warnings),
        yaml="" if rules is None else write_yaml(rules),
        destinations=[
            ActingPolicy(
                destination=destination,
                deaths=known.deaths_at(destination),
                waiting=known.waiting[destination],
                forecast=None
                if explainer is None
                else explainer.forecast(DeadLetter(parse_destination(destination))),
            )
            for destination in known.shown
        ],
        left_out=known.left_out,
    )


class _Known:
    """Destinations that messages die at, by how much there is to say of them."""

    def __init__(self, ledger: Ledger, now_ms: int, explainer: Explainer | None) -> None:
        self.deaths = Counter[tuple[str, int]]()
        kinds = (CountKind.DIED, CountKind.RETURNED)
        for one in ledger.failure_counts(now_ms - RECENT_MS, now_ms + 1, kinds, RECENT_MS):
            self.deaths[one.key.destination, one.key.attempt] += one.count
        self.waiting = Counter[str]()
        for tally in ledger.group_tallies():
            self.waiting[tally.destination] += tally.count
        self._total = Counter[str](self.waiting)
        for (destination, _), count in self.deaths.items():
            self._total[destination] += count
        found = [
            destination
            for destination, _ in self._total.most_common()
            if explainer is None or explainer.is_origin(parse_destination(destination))
        ]
        self.shown = found[:DESTINATIONS_MAX]
        self.left_out = len(found) - len(self.shown)

    def deaths_at(self, destination: str) -> int:
        """Return how many died there."""
        return sum(count for (place, _), count in self.deaths.items() if place == destination)

    def attempts_at(self, destination: str) -> dict[int, int]:
        """Return how many died there by redeliveries so far."""
        return {
            attempt: count
            for (place, attempt), count in self.deaths.items()
            if place == destination
        }


class AttemptEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What other rules change about deaths after so many redeliveries.

    Attributes:
        redelivery_count: redeliveries so far, 0 = the first death.
        deaths: so many died like this in the last 24 hours.
        waiting: so many of the messages that were looked at will die like this if their next
            re-send fails.
        before: by the rules as they are; None = no rules are given.
        after: by the other rules.
    """

    redelivery_count: int
    deaths: int
    waiting: int
    before: Answer | None
    after: Answer


class DestinationEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What other rules change at a destination.

    Attributes:
        waiting: messages that wait there; each keeps its due time whatever the rules become.
        looked_at: so many of them were looked at.
        attempts: deaths that something else becomes of.
        before, after: of a message that dies there for the first time.
    """

    destination: str
    waiting: int
    looked_at: int
    attempts: list[AttemptEffect]
    before: Forecast | None
    after: Forecast


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What other rules would change.

    Attributes:
        destinations: where something changes.
        unchanged: at so many destinations nothing does.
        deaths: in the last 24 hours at all of them.
        deaths_changed: of these something else would have become.
        waiting_changed: of the waiting messages that were looked at something else will become if
            their next re-send fails.
        left_out: destinations that were not looked at.
        warnings: of the rules, a sentence each.
        yaml: the rules as a policy in YAML.
        helm: the same as values of the Helm chart.
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


def effect_of(store: Store, ledger: Ledger, policies: Policies, text: str, now_ms: int) -> Effect:
    """Return what would change with other rules; nothing is changed.

    Delays are compared without collision avoidance.

    Args:
        store: an open store.
        ledger: the same store.
        policies: of the sidecar.
        text: the other rules, a policy in YAML.
        now_ms: the time.

    Raises:
        ConfigError: the rules can't be used; with every problem found.
    """
    data = text.encode(errors="replace")
    if len(data) > RULES_BYTES_MAX:
        what = f"they have {len(data)} bytes; at most {RULES_BYTES_MAX} are read here"
        raise ConfigError([Problem("rules", what)])
    rules = parse_policy("rules.yaml", data, policies.plugins, {})
    after = policies.explainer_of(rules)
    known = _Known(ledger, now_ms, policies.explainer or after)
    effects: list[DestinationEffect] = []
    rows_left = ROWS_MAX
    for destination in known.shown:
        rows = store.list_rows(RowFilter(destination=destination), min(rows_left, ROWS_MAX))
        rows_left -= len(rows)
        waiting = Counter(row.redelivery_count for row in rows if not row.is_final)
        effects.append(
            _effect_at(destination, known, waiting, policies.explainer, after, len(rows))
        )
    changed = [one for one in effects if one.attempts or _differ(one.before, one.after)]
    attempts = [attempt for one in changed for attempt in one.attempts]
    return Effect(
        destinations=changed,
        unchanged=len(effects) - len(changed),
        deaths=sum(known.deaths_at(destination) for destination in known.shown),
        deaths_changed=sum(one.deaths for one in attempts),
        waiting_changed=sum(one.waiting for one in attempts),
        left_out=known.left_out,
        warnings=list(rules.warnings),
        yaml=write_yaml(rules),
        helm=write_helm_values(rules),
    )


def _effect_at(
    destination: str,
    known: _Known,
    waiting: Mapping[int, int],
    before: Explainer | None,
    after: Explainer,
    looked_at: int,
) -> DestinationEffect:
    place = parse_destination(destination)
    deaths = known.attempts_at(destination)
    return DestinationEffect(
        destination=destination,
        waiting=known.waiting[destination],
        looked_at=looked_at,
        attempts=[
            effect
            for count in sorted({*deaths, *waiting})
            for effect in _changed(
                AttemptEffect(
                    redelivery_count=count,
                    deaths=deaths.get(count, 0),
                    waiting=waiting.get(count, 0),
                    before=None if before is None else before.explain(DeadLetter(place, count)),
                    after=after.explain(DeadLetter(place, count)),
                )
            )
        ],
        before=None if before is None else before.forecast(DeadLetter(place)),
        after=after.forecast(DeadLetter(place)),
    )


def _changed(effect: AttemptEffect) -> Iterable[AttemptEffect]:
    """Yield an effect if it is one; that another line of a file decides the same is none."""
    if effect.before is None or _result(effect.before) != _result(effect.after):
        yield effect


def _result(answer: Answer) -> Answer:
    return msgspec.structs.replace(answer, rule="")


def _differ(before: Forecast | None, after: Forecast) -> bool:
    if before is None:
        return True
    return _course(before) != _course(after)


def _course(forecast: Forecast) -> tuple[list[int], Answer | None]:
    end = forecast.end
    return [one.delay_ms for one in forecast.sends], None if end is None else _result(end)
