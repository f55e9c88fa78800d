"""A table of rules: what each condition checks, what each action does, where it is explained."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.engine.judging.judge import Judge, Judgement, Readers
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.errors import ConfigError
from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.messages.edit import edit_properties
from amqsidecar.messages.facts import delivery_facts
from amqsidecar.messages.kept_message import chosen_properties
from amqsidecar.model.dead_letter import NO_FACTS, DeadLetter, KnownFacts
from amqsidecar.model.decision import (
    DeadLetterTo,
    Decision,
    Discard,
    Exhaust,
    Park,
    Redeliver,
    Redirect,
    WrittenLine,
)
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.event import Received, Scheduled
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.schedule import RowState, age_ms, dated_redelivery_id
from amqsidecar.operations.explain import Explainer, Explanation
from amqsidecar.pipeline.whatif.policy import DelayPlan, dead_letter_of, load_candidates, plan_of
from amqsidecar.plugin import Decider, RuleSource
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_decider import ArtemisDecider
from amqsidecar.policy.chain import Chain
from amqsidecar.policy_source.digest import rules_digest
from amqsidecar.policy_source.load import compile_policy, load_policy, parse_policy
from amqsidecar.policy_source.policy_yaml import read_policy_mapping, read_yaml
from amqsidecar.policy_source.yaml_writer import write_yaml
from amqsidecar_rules import plugin
from support.tier import at_length

PLUGINS = load_plugins()
SOURCE = RuleSource("rules.yaml", 7)
SEND_RULES = SendRules(
    BrokerKind.CLASSIC, lambda one: one.name.startswith("DLQ"), ".exhausted", parks_topics=True
)
DEAD = DeadLetter(queue("orders.eu"))
CAUSE = "com.acme.Failed: x\n\tat a.b\nCaused by: java.net.ConnectException: refused by db1:5432"
FACTS = KnownFacts(5_000, CAUSE, "order", {"code": "E42", "n": "7"}, {"JMSPriority": "9"})


def decider(*rules: Mapping[str, object]) -> Decider:
    compiled: Decider = plugin.compile(plugin.parse_options({"rules": list(rules)}, SOURCE))
    return compiled


def decide(dead_letter: DeadLetter, *rules: Mapping[str, object]) -> Decision | None:
    return decider(*rules).decide(dead_letter, None)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({}, True),
        ({"queue": "orders.>"}, True),
        ({"queue": "orders.*"}, True),
        ({"queue": "bills.>"}, False),
        ({"topic": "orders.>"}, False),
        ({"queue": ["bills", "orders.eu"]}, True),
        ({"cause_class": "java.net.ConnectException"}, True),
        ({"cause_class": ["IOException", "ConnectException"]}, True),
        ({"cause_class": "com.acme.Failed"}, True),
        ({"cause_class": "net.ConnectException"}, False),
        ({"cause_matches": r"refused by db\d+"}, True),
        ({"cause_matches": r"^com\.acme"}, True),
        ({"cause_matches": r"(?i)REFUSED"}, True),
        ({"cause_matches": r"timed out"}, False),
        ({"jms_type": "order"}, True),
        ({"jms_type": ["bill", "order"]}, True),
        ({"jms_type": "bill"}, False),
        ({"jms_type": None}, False),
        ({"properties": {"code": "E42"}}, True),
        ({"properties": {"code": {"matches": r"E\d+"}}}, True),
        ({"properties": {"code": {"matches": r"\d+"}}}, False),
        ({"properties": {"code": "E42", "n": "8"}}, False),
        ({"properties": {"none": None}}, True),
        ({"properties": {"code": None}}, False),
        ({"properties": {"none": ""}}, False),
        ({"headers": {"JMSPriority": "9"}}, True),
        ({"headers": {"JMSPriority": {"matches": "[0-8]"}}}, False),
        ({"least_redelivery_count": 3}, True),
        ({"least_redelivery_count": 4}, False),
        ({"most_redelivery_count": 3}, True),
        ({"most_redelivery_count": 2}, False),
        ({"least_age_ms": 5_000}, True),
        ({"least_age_ms": 5_001}, False),
        ({"most_age_ms": 5_000}, True),
        ({"most_age_ms": 4_999}, False),
        ({"expired": True}, False),
    ],
    ids=str,
)
def test_a_rule_matches_where_its_condition_holds(
    condition: Mapping[str, object], holds: bool
) -> None:
    dead = replace(DEAD, redelivery_count=3, facts=FACTS)
    found = decide(dead, {**condition, "action": "park"})
    assert found == (Park("rule 1 park (rules.yaml:7)") if holds else None)


def test_without_facts_conditions_on_them_do_not_hold() -> None:
    assert decide(DEAD, {"cause_matches": "x", "action": "park"}) is None
    assert decide(DEAD, {"cause_class": "X", "action": "park"}) is None
    assert decide(DEAD, {"cause_matches": "^$", "action": "park"}) is not None


SUPPRESSED = "java.lang.Throwable: Suppressing duplicate delivery on connection, consumer ID:a-1"
PAGED_IN = "java.lang.Throwable: duplicate paged in from cursor for queue://orders"


@pytest.mark.parametrize(
    ("dead", "is_named"),
    [
        (replace(DEAD, is_store_duplicate=True), True),
        (replace(DEAD, facts=replace(FACTS, cause=SUPPRESSED)), True),
        (replace(DEAD, facts=replace(FACTS, cause=PAGED_IN)), True),
        (DEAD, False),
    ],
)
def test_a_rule_can_name_duplicates(dead: DeadLetter, is_named: bool) -> None:
    found = decide(dead, {"name": "twice", "duplicate": True, "action": "discard"})
    assert (found is not None) == is_named


def test_expired_messages_and_duplicates_of_the_store_match_only_rules_that_name_them() -> None:
    expired, duplicate = replace(DEAD, expired=True), replace(DEAD, is_store_duplicate=True)
    rules = {"action": "park"}, {"name": "late", "expired": True, "action": "discard"}
    assert decide(expired, *rules) == Discard(WrittenLine('rule "late" discard', "rules.yaml:7"))
    assert decide(duplicate, *rules) is None


@pytest.mark.parametrize(
    ("action", "count", "age", "decision"),
    [
        ({"action": "exhaust"}, 2, 0, Exhaust("rule 1 exhaust (rules.yaml:7)")),
        ({"action": "park"}, 2, 0, Park("rule 1 park (rules.yaml:7)")),
        ({"action": "discard"}, 2, 0, Discard(WrittenLine("rule 1 discard", "rules.yaml:7"))),
        ({"action": "continue"}, 2, 0, None),
        (
            {"redirect": {"to": "topic://t", "delay_ms": 5}},
            2,
            0,
            Redirect(topic("t"), 5, 3, "rule 1 redirect to topic://t (rules.yaml:7)"),
        ),
        ("curve", 0, 0, Redeliver(100, 1, "rule 1 redeliver (rules.yaml:7)")),
        ("curve", 2, 0, Redeliver(4_000, 3, "rule 1 redeliver (rules.yaml:7)")),
        ("curve", 4, 0, Exhaust("rule 1 maximum_redeliveries=4 (rules.yaml:7)")),
        ("curve", 2, 56_000, Redeliver(4_000, 3, "rule 1 redeliver (rules.yaml:7)")),
        ("curve", 2, 56_001, Exhaust("rule 1 within_ms=60000 (rules.yaml:7)")),
    ],
)
def test_each_action_says_its_rule_with_file_and_line(
    action: object, count: int, age: int, decision: Decision | None
) -> None:
    curve = {
        "redeliver": {
            "maximum_redeliveries": 4,
            "initial_redelivery_delay_ms": 100,
            "redelivery_delay_ms": 2_000,
            "use_exponential_back_off": True,
            "back_off_multiplier": 2.0,
            "within_ms": 60_000,
        }
    }
    rule = curve if action == "curve" else action
    assert isinstance(rule, Mapping)
    dead = replace(DEAD, redelivery_count=count, facts=KnownFacts(age))
    if (
        action == "curve" and count == 2
    ):  # Back-off starts from the initial delay, as in the broker.
        curve["redeliver"]["initial_redelivery_delay_ms"] = 1_000
    assert decide(dead, rule) == decision


def test_a_rule_waits_for_the_event_that_properties_name() -> None:
    wait = {"maximum_redeliveries": 2, "until": "invoice-{code}-{n}", "within_ms": 60_000}
    dead, title = replace(DEAD, facts=FACTS), "rule 1 redeliver until invoice-{code}-{n}"
    assert decide(dead, {"redeliver": wait}) == Redeliver(
        1_000, 1, f"{title} (rules.yaml:7)", until="invoice-E42-7", longest_ms=55_000
    )
    found = decide(dead, {"redeliver": {**wait, "longest_ms": 9_000}})
    assert isinstance(found, Redeliver)
    assert found.longest_ms == 9_000
    assert decide(replace(dead, redelivery_count=2), {"redeliver": wait}) == Exhaust(
        "rule 1 maximum_redeliveries=2 (rules.yaml:7)"
    )
    assert decide(DEAD, {"redeliver": wait}) == Park(
        "rule 1 until: it has no property code (rules.yaml:7)"
    )
    asks = getattr(decider({"redeliver": wait}), "asks", None)
    assert asks == {"age", "property:code", "property:n"}


def test_the_first_rule_that_matches_wins() -> None:
    rules = (
        {"properties": {"code": "E1"}, "action": "discard"},
        {"properties": {"code": "E42"}, "action": "exhaust"},
        {"action": "park"},
    )
    assert decide(replace(DEAD, facts=FACTS), *rules) == Exhaust("rule 2 exhaust (rules.yaml:7)")
    assert decide(DEAD, *rules) == Park("rule 3 park (rules.yaml:7)")


class Asked:
    """Facts that remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    age_ms = 0

    def later(self, _by_ms: int) -> "Asked":
        return self

    @property
    def cause(self) -> str | None:
        self.asked.append("cause")
        return None

    @property
    def jms_type(self) -> str | None:
        self.asked.append("jms_type")
        return None

    def property_of(self, name: str) -> str | None:
        self.asked.append(f"property {name}")
        return None

    def header_of(self, name: str) -> str | None:
        self.asked.append(f"header {name}")
        return None


def test_a_message_is_read_only_for_what_a_rule_of_its_destination_asks() -> None:
    table = decider(
        {"queue": "bills", "jms_type": "x", "action": "park"},
        {"queue": "orders.>", "least_redelivery_count": 5, "cause_class": "X", "action": "park"},
        {"queue": "orders.>", "properties": {"code": "E1", "n": "2"}, "action": "park"},
    )
    facts = Asked()
    assert table.decide(replace(DEAD, facts=facts), None) is None
    assert facts.asked == ["property code"]


def test_an_expression_that_takes_too_long_parks_the_message() -> None:
    table = decider({"cause_matches": "(a+)+b", "action": "discard"})
    dead = replace(DEAD, facts=KnownFacts(cause="a" * 5_000))
    found = Park("rule 1: a regular expression takes too long (rules.yaml:7)")
    assert table.decide(dead, None) == found


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, "action, redeliver, redirect: expected exactly one of these, found none of them"),
        ({"action": "park", "redirect": {"to": "a"}}, "found action and redirect"),
        ({"action": "drop"}, "expected one of exhaust, park, discard, continue, found 'drop'"),
        ({"action": "park", "when": 1}, "when: there is no such option"),
        ({"action": "park", "queue": "a", "topic": "b"}, "expected exactly one of these"),
        ({"action": "park", "cause_matches": "("}, "cause_matches: "),
        ({"action": "park", "cause_matches": "a)(b"}, "cause_matches: "),
        ({"action": "park", "properties": "x"}, "expected a mapping from names"),
        ({"action": "park", "properties": {"n": 7}}, "properties.n: expected a text in quotes"),
        ({"action": "park", "properties": {"n": {"match": "7"}}}, "properties.n: expected a text"),
        ({"action": "park", "least_age_ms": -1}, "least_age_ms: expected an integer from 0"),
        (
            {"redeliver": {"maximum_redeliveries": -1}},
            "expected maximum_redeliveries, within_ms or",
        ),
        ({"redeliver": {"within": 3}}, "within: there is no such option"),
        ({"redirect": {"to": ""}}, "redirect: to: "),
        ({"redirect": {"to": "a", "delay": 1}}, "delay: there is no such option"),
    ],
    ids=str,
)
def test_a_mistake_is_reported_with_its_place_and_the_expected_form(
    rule: Mapping[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        decider(rule)
    assert said in str(refused.value)
    assert "rules.yaml:7" in str(refused.value)


def test_a_table_has_rules() -> None:
    with pytest.raises(ConfigError, match="expected 1 to 1000 rules, found 0"):
        plugin.parse_options({}, SOURCE)


TABLE = """
  - rules:
      rules:
        - name: down
          queue: "orders.>"
          cause_class: ConnectException
          redeliver: {maximum_redeliveries: -1, redelivery_delay_ms: 60000, within_ms: 259200000}
        - queue: "orders.>"
          properties: {code: {matches: "E4.*"}, none: null}
          redirect: {to: "queue://repair"}
        - jms_type: [bill, order]
          action: continue
"""
CLASSIC = f"""plugins:
  - redelivery:
      default_entry: {{maximum_redeliveries: 2}}{TABLE}"""
ARTEMIS = f"""address_settings:
  - match: "#"
    dead_letter_address: DLA
    max_delivery_attempts: 3
plugins:{TABLE}"""


ASKED = {"age", "cause", "jms_type", "property:code", "property:none"}


@pytest.mark.parametrize("text", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
def test_a_policy_with_rules_is_written_and_read_back_and_has_its_own_digest(text: str) -> None:
    rules = parse_policy("p.yaml", text.encode(), PLUGINS, {})
    again = parse_policy("q.yaml", write_yaml(rules).encode(), PLUGINS, {})
    assert [link.name for link in again.plugins] == [link.name for link in rules.plugins]
    assert again.plugins[-1].options == rules.plugins[-1].options
    other = parse_policy("p.yaml", text.replace("60000", "60001").encode(), PLUGINS, {})
    assert rules_digest(rules) == rules_digest(again) != rules_digest(other)
    assert rules_digest(rules) != rules_digest(replace(rules, plugins=rules.plugins[:-1]))


@pytest.mark.parametrize("text", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
def test_rules_are_asked_before_the_brokers_and_named_with_their_lines(text: str) -> None:
    lines = text.splitlines()
    down = 1 + next(at for at, line in enumerate(lines) if "name: down" in line)
    chain = compile_policy(parse_policy("p.yaml", text.encode(), PLUGINS, {}), PLUGINS)
    found = chain.decide(replace(DEAD, facts=FACTS), None)
    assert found == Redeliver(1_000, 1, f'rule "down" redeliver (p.yaml:{down})')
    passed = chain.decide(replace(DEAD, facts=KnownFacts(jms_type="bill")), None)
    assert isinstance(passed, Redeliver)
    assert passed.rule.startswith("rule 3 continue (p.yaml:")
    assert " -> " in passed.rule
    untouched = chain.decide(DEAD, None)
    assert isinstance(untouched, Redeliver)
    assert "rule " not in untouched.rule


def test_without_the_plugin_no_facts_are_read() -> None:
    for text in (CLASSIC, ARTEMIS):
        whole = parse_policy("p.yaml", text.encode(), PLUGINS, {})
        plain = compile_policy(replace(whole, plugins=whole.plugins[:-1]), PLUGINS)
        assert not getattr(plain, "asks", ())
        assert getattr(compile_policy(whole, PLUGINS), "asks", ()) == ASKED
    assert isinstance(plain, ArtemisDecider)


def test_what_if_refuses_rules_that_ask_what_history_has_not(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(CLASSIC)
    with pytest.raises(ConfigError, match="ask for jms_type, which history lacks"):
        load_candidates([f"new={path}"], PLUGINS)


JOURNALED = chosen_properties({"code"})


def judge_of(rules: Decider, *, asks_facts: bool = True) -> Judge:
    return Judge(
        rules,
        SEND_RULES,
        lambda: 0.5,
        Readers(
            properties=JOURNALED,
            facts=delivery_facts if asks_facts else None,
            edit=edit_properties,
        ),
        keeps_exhausted=True,
    )


def judged(
    rules: Decider, message: bytes, now_ms: int = 1_000, *, asks_facts: bool = True, **died: Any
) -> Judgement:
    provenance = Provenance(**{"origin": queue("orders.eu"), **died})
    delivery = Delivery(1, queue("DLQ"), message, provenance, ENCODING)
    judge = judge_of(rules, asks_facts=asks_facts)
    return judge.judge(delivery, "i1", 7, now_ms, is_backlog=False)


@pytest.mark.parametrize(
    ("rule", "state", "destination", "final", "reason"),
    [
        (
            {"redirect": {"to": "queue://repair"}},
            RowState.WAITING,
            "queue://repair",
            None,
            "rule 1",
        ),
        (
            {"redirect": {"to": "queue://DLQ"}},
            RowState.PARKED,
            "queue://orders.eu",
            None,
            "come back",
        ),
        (
            {"redirect": {"to": "topic://t"}},
            RowState.PARKED,
            "queue://orders.eu",
            None,
            "subscriber",
        ),
        (
            {"redirect": {"to": "queue://amqsidecar.token.x"}},
            RowState.PARKED,
            "queue://orders.eu",
            None,
            "token",
        ),
        ({"action": "park"}, RowState.PARKED, "queue://orders.eu", None, "rule 1 park"),
        (
            {"action": "exhaust"},
            RowState.EXHAUSTED,
            "queue://orders.eu",
            "queue://DLQ.exhausted",
            "rule 1 exhaust",
        ),
    ],
    ids=str,
)
def test_the_judge_carries_out_what_no_broker_decides(
    rule: Mapping[str, object], state: RowState, destination: str, final: str | None, reason: str
) -> None:
    row = judged(decider({**rule, "properties": {"code": "E1"}}), kept([(b"code", b"E1")], b"")).row
    assert row is not None
    assert (row.state, row.destination, row.final_queue) == (state, destination, final)
    assert reason in row.rule
    assert "(rules.yaml:7)" in row.rule


def test_the_age_counts_from_the_first_death_over_all_deaths() -> None:
    table = decider({"redeliver": {"maximum_redeliveries": -1, "within_ms": 10_000}})
    first = judged(table, b"\n").row
    assert first is not None
    assert (first.redelivery_id, first.due_at_ms) == ("i1-000000000007.3e8", 2_000)
    again: dict[str, Any] = {"redelivery_id": first.redelivery_id, "redelivery_count": 1}
    late = judged(table, b"\n", 10_000, **again).row
    assert late is not None
    assert (late.redelivery_id, late.state) == (first.redelivery_id, RowState.WAITING)
    over = judged(table, b"\n", 10_001, **again).row
    assert over is not None
    assert (over.state, over.rule) == (RowState.EXHAUSTED, "rule 1 within_ms=10000 (rules.yaml:7)")


def test_a_forecast_grows_older_with_each_redelivery() -> None:
    curve = {"maximum_redeliveries": -1, "redelivery_delay_ms": 1_000, "within_ms": 3_500}
    explainer = Explainer(decider({"redeliver": curve}), SEND_RULES)
    forecast = explainer.forecast(DEAD)
    assert [send.after_ms for send in forecast.sends] == [1_000, 2_000, 3_000]
    assert forecast.end is not None
    assert forecast.end.rule == "rule 1 within_ms=3500 (rules.yaml:7)"


@pytest.mark.parametrize("name", ["", "i1-7", "abc", "x.", "x.g1", "x." + "f" * 13, "x.-1"])
def test_an_id_without_a_time_makes_a_message_young(name: str) -> None:
    assert age_ms(name, 5_000) == 0


def test_an_id_of_a_stranger_makes_no_age_beyond_the_clock() -> None:
    assert age_ms("x.0", 5_000) == 5_000
    assert age_ms("x.ffffffffffff", 5_000) == 0
    assert age_ms(dated_redelivery_id("i1-7", 4_000), 5_000) == 1_000


def test_where_no_rules_ask_nothing_is_dated_and_nothing_is_read() -> None:
    class Rules:
        def decide(self, dead_letter: DeadLetter, _chance: object) -> Decision:
            assert dead_letter.facts is NO_FACTS
            return Redeliver(0, 1, "rule")

    row = judged(Rules(), b"\n", asks_facts=False).row
    assert row is not None
    assert row.redelivery_id == "i1-000000000007"


EDIT = {
    "remove_properties": ["traceparent", "missing"],
    "set_properties": {"site": "b-{redelivery_count}", "copy": "{redelivery_id}"},
}
EDITED = "removes traceparent, missing, sets site, copy"
TRACED = kept([(b"traceparent", b"00-1"), (b"site", b"a"), (b"k", b"v")], b"body")
RENEWED = kept([(b"site", b"b-3"), (b"k", b"v"), (b"copy", b"i1-000000000007.3e8")], b"body")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"redeliver": {"maximum_redeliveries": 9}}, "rule 1 redeliver"),
        ({"redirect": {"to": "queue://repair"}}, "rule 1 redirect to queue://repair"),
    ],
    ids=str,
)
def test_a_rule_removes_and_sets_properties_of_what_it_re_sends(
    rule: Mapping[str, object], text: str
) -> None:
    judgement = judged(decider({**rule, **EDIT}), TRACED, redelivery_count=2)
    assert judgement.row is not None
    assert judgement.row.message == RENEWED
    [*_, scheduled] = judgement.events
    assert isinstance(scheduled, Scheduled)
    assert scheduled.rule == judgement.row.rule == f"{text} {EDITED} (rules.yaml:7)"


def test_a_rule_that_continues_edits_what_the_broker_re_sends() -> None:
    def chain(action: str) -> Chain:
        inner = FixedRules(DeadLetterTo(queue("DLQ"), 0, "x"))
        outer = FixedRules(Redeliver(0, 1, "broker") if action == "redeliver" else None)
        return Chain([inner, outer, decider({"queue": "orders.>", "action": "continue", **EDIT})])

    row = judged(chain("redeliver"), TRACED).row
    assert row is not None
    assert row.message == kept([(b"site", b"b-1"), *RENEWED_HEADS], b"body")
    assert row.rule == f"rule 1 continue {EDITED} (rules.yaml:7) -> broker"
    for rules, origin in ((chain("dead_letter"), "orders.eu"), (chain("redeliver"), "bills")):
        row = judged(rules, TRACED, origin=queue(origin)).row
        assert row is not None
        assert row.message == TRACED


RENEWED_HEADS = [(b"k", b"v"), (b"copy", b"i1-000000000007.3e8")]


class FixedRules:
    def __init__(self, decision: Decision | None) -> None:
        self._decision = decision

    def decide(self, _dead_letter: DeadLetter, _chance: object) -> Decision | None:
        return self._decision


def test_a_message_that_cannot_be_edited_is_parked_as_it_is() -> None:
    rules = decider({"redeliver": {"maximum_redeliveries": 9}, "remove_properties": ["a"]})
    row = judged(rules, b"no end of headers").row
    assert row is not None
    assert (row.state, row.message) == (RowState.PARKED, b"no end of headers")
    assert row.rule.startswith("rule 1 redeliver removes a (rules.yaml:7): ")


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        ({"remove_properties": ["JMSXGroupID"]}, "JMSXGroupID can't be changed: names that begin"),
        ({"set_properties": {"amqsidecarRedeliveryId": "x"}}, "can't be changed: the sidecar"),
        ({"set_properties": {"a": 5}}, "expected names with texts in quotes"),
        ({"remove_properties": ["a"], "set_properties": {"a": "b"}}, "expected each name once"),
        ({"remove_properties": [f"n{one}" for one in range(21)]}, "at most 20 names"),
    ],
    ids=str,
)
def test_an_edit_that_cannot_be_is_refused(edit: Mapping[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        decider({"redeliver": {"maximum_redeliveries": 9}, **edit})


def test_an_edit_of_what_is_not_re_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match="park re-sends nothing"):
        decider({"action": "park", "remove_properties": ["a"]})


def test_explain_shows_the_edit() -> None:
    rules = decider({"redeliver": {"maximum_redeliveries": 9}, **EDIT})
    explainer = Explainer(rules, SEND_RULES)
    assert explainer.explain(DEAD).edit == EDITED


CASES = at_length(1_000_000, otherwise=4_000)
RULES_ASKING_HISTORY = 3 / 4
"""Share of tables that ask only what history has, which what-if plays; it refuses the others."""


@pytest.mark.timeout(at_length(3_600, otherwise=120))
def test_explain_run_and_what_if_decide_alike(tmp_path: Path) -> None:
    """Random tables and messages.

    What `explain` says of a case is what the judge does with it, and what what-if makes of the
    event that the judge writes.
    """
    dice = random.Random(20261124)
    seen = set[str]()
    for number in range(max(1, CASES // 100)):
        asks_all = dice.random() > RULES_ASKING_HISTORY
        count = dice.randint(1, 8)
        content: dict[str, object] = {
            "plugins": [
                {"redelivery": {"default_entry": {"maximum_redeliveries": 2}}},
                {"rules": {"rules": [random_rule(dice, asks_all=asks_all) for _ in range(count)]}},
            ]
        }
        path = tmp_path / "policy.yaml"
        path.write_bytes(msgspec.json.encode(content))
        rules = compile_policy(
            read_policy_mapping(read_yaml(str(path), path.read_bytes()), RuleSource("p"), PLUGINS)
            if number % 2
            else load_policy(path, PLUGINS),
            PLUGINS,
        )
        explainer = Explainer(rules, SEND_RULES)
        for _ in range(100):
            seen.add(decided_alike(rules, explainer, dice, is_played=not asks_all))
    assert seen >= {"redeliver", "redirect", "exhaust", "park", "discard", "dead_letter"}


def decided_alike(
    rules: Decider, explainer: Explainer, dice: random.Random, *, is_played: bool
) -> str:
    code, kind = dice.choice(("E1", "E2", None)), dice.choice(("order", "bill", None))
    cause = dice.choice((CAUSE, "java.io.IOException: no route 7", None))
    died_at_ms, now_ms = 1_000, 1_000 + dice.choice((0, 5_000, 50_000))
    count, expired = dice.randint(0, 4), dice.random() < 0.1
    origin = queue(dice.choice(("orders.eu", "orders.us", "bills")))
    headers = [(b"type", kind), (b"code", code), (b"priority", "4")]
    message = kept([(name, text.encode()) for name, text in headers if text is not None], b"x")
    row_and_events = judged(
        rules,
        message,
        now_ms,
        origin=origin,
        cause=cause,
        expired=expired,
        redelivery_count=count,
        redelivery_id=dated_redelivery_id("i1-000000000001", died_at_ms),
    )
    facts = KnownFacts(
        now_ms - died_at_ms, cause, kind, {"code": code} if code else {}, {"priority": "4"}
    )
    dead = DeadLetter(origin, count, expired=expired, facts=facts)
    answer = explainer.explain(dead)
    assert told_by(row_and_events, now_ms) == told_of(answer, origin), answer
    row = row_and_events.row
    assert row is None or (row.message != message) == (answer.edit is not msgspec.UNSET), answer
    if is_played:
        plan = played(rules, row_and_events, now_ms - died_at_ms)
        forecast = explainer.forecast(dead, SENDS_MAX)
        assert plan.decided_by[0] == answer.rule
        assert list(plan.delays_ms) == [send.delay_ms for send in forecast.sends]
        assert plan.goes_on == (forecast.end is None)
    return answer.action


SENDS_MAX = 8


def played(rules: Decider, judgement: Judgement, age_ms: int) -> DelayPlan:
    """Return the decision of what-if on the death in history, after this many redeliveries."""
    [event] = [one for one in judgement.events if isinstance(one, Received)]
    assert event.origin is not None
    properties = tuple((event.properties or {}).items())
    death = dead_letter_of((event.origin, event.persistent, event.expired, event.cause, properties))
    later = replace(death, redelivery_count=event.redelivery_count, facts=death.facts.later(age_ms))
    return plan_of(rules, later, most_attempts=SENDS_MAX)


def told_by(judgement: Judgement, now_ms: int) -> tuple[object, ...]:
    row, event = judgement.row, judgement.events[-1]
    if row is None:
        return (None, None, None, getattr(event, "rule", None))
    delay_ms = row.due_at_ms - now_ms
    return (row.state, row.destination, delay_ms, row.rule)


def told_of(answer: Explanation, origin: Destination) -> tuple[object, ...]:
    if answer.action == "discard":
        return (None, None, None, answer.rule)
    place: object = answer.destination if answer.action == "redirect" else str(origin)
    state = {
        "redeliver": RowState.WAITING,
        "redirect": RowState.WAITING,
        "park": RowState.PARKED,
    }.get(answer.action, RowState.EXHAUSTED)
    return (state, place, max(0, answer.delay_ms or 0), answer.rule)


def random_rule(dice: random.Random, *, asks_all: bool) -> dict[str, object]:
    conditions: list[dict[str, object]] = [
        {"queue": dice.choice(("orders.>", "orders.*", "bills", ">"))},
        {"cause_class": dice.choice(("ConnectException", "java.io.IOException", "Missing"))},
        {"cause_matches": dice.choice(("refused", r"route \d", "^$", "(?i)EXCEPTION"))},
        {"properties": {"code": dice.choice(("E1", {"matches": "E.*"}, None))}},
        {"least_redelivery_count": dice.randint(0, 3)},
        {"most_redelivery_count": dice.randint(0, 3)},
        {"least_age_ms": dice.choice((1, 5_000))},
        {"most_age_ms": dice.choice((0, 5_000))},
        {"expired": True},
    ]
    if asks_all:
        conditions += [
            {"jms_type": dice.choice(("order", ["order", "bill"], None))},
            {"headers": {"priority": dice.choice(("4", "5"))}},
        ]
    actions: list[dict[str, object]] = [
        {"action": dice.choice(("exhaust", "park", "discard", "continue"))},
        {"redirect": {"to": "queue://repair", "delay_ms": dice.randint(0, 9)}},
        {"redeliver": {"maximum_redeliveries": dice.randint(0, 4), "within_ms": 20_000}},
    ]
    rule: dict[str, object] = {}
    for condition in dice.sample(conditions, dice.randint(0, 3)):
        rule |= condition
    action = dice.choice(actions)
    if action.get("action") in (None, "continue") and dice.random() < 1 / 4:
        action = {**action, "set_properties": {"site": "b"}}
    return rule | action
