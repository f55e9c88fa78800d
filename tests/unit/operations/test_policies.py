"""Policies as they act, and what other rules would change, from the counts of a real store."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import pytest
from jsonschema import Draft7Validator
from msgspec import UNSET
from ruamel.yaml import YAML

from amqsidecar.clock import SystemClock
from amqsidecar.engine.gates import GatesAt, no_gates
from amqsidecar.errors import ConfigError
from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import queue
from amqsidecar.model.event import Received, Returned
from amqsidecar.model.schedule import RowState
from amqsidecar.operations.active_rules import (
    LIVE,
    NO_BROKER,
    NOT_READ,
    LiveSettings,
    Policies,
    policies_of,
)
from amqsidecar.operations.policies import (
    RULES_BYTES_MAX,
    effect_of,
    policy_view,
)
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy.classic_rules import BROKER_DEFAULTS
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.load import load_policy
from amqsidecar.policy_source.policy_yaml import read_yaml
from amqsidecar.stores.sqlite.store import SqliteStore
from support.send_rules import send_rules_of
from support.stores.rows import take_rows, taken_row
from support.web.console_store import dead, keep

CHART_SCHEMA = Path(__file__).parents[3] / "helm/amqsidecar/values.schema.json"

NOW_MS = 1_700_000_000_000
RULES = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 2, initial_redelivery_delay_ms: 1000}
"""
MORE = """
plugins:
  - redelivery:
      entries:
        - queue: "orders"
          maximum_redeliveries: 4
          initial_redelivery_delay_ms: 1000
      default_entry: {maximum_redeliveries: 2, initial_redelivery_delay_ms: 1000}
"""


def policies(folder: Path, text: str | None) -> Policies:
    plugins = load_plugins()
    path = folder / "rules.yaml"
    path.write_text(text or "")
    return acting(None if text is None else load_policy(path, plugins))


def acting(rules: Rules | LiveSettings | None, gates_at: GatesAt = no_gates) -> Policies:
    return policies_of(
        lambda: rules,
        load_plugins(),
        send_rules_of=send_rules_of(),
        gates_at=gates_at,
    )


def test_what_may_not_be_sent_to_is_parked(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    rules = load_policy(path, load_plugins())
    explainer = policies_of(
        lambda: rules,
        load_plugins(),
        send_rules_of=send_rules_of("redelivery.allowed_origins=orders.>"),
    ).explainer_of(rules)
    assert not explainer.explain(DeadLetter(queue("orders.eu"))).is_parked
    outside = explainer.explain(DeadLetter(queue("bills")))
    assert outside.is_parked
    assert "redelivery.allowed_origins does not allow its origin queue://bills" in str(
        outside.differs
    )


class Died(TypedDict):
    at_ms: int
    source: str
    redelivery_id: str


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Three wait at orders, two for their first re-send, and a final one, which no rule is about.

    Two died there lately, one at bills.
    """
    store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock())
    store.open()
    first = store.allocate_ids(5)
    taken = [
        taken_row(first + at, destination="queue://orders", redelivery_count=count)
        for at, count in enumerate((1, 1, 3))
    ]
    taken.append(taken_row(first + 3, destination="queue://bills", redelivery_count=1))
    taken.append(
        taken_row(first + 4, destination="queue://orders", redelivery_count=3, is_final=True)
    )
    died: Died = {
        "at_ms": NOW_MS - 60_000,
        "source": "queue://ActiveMQ.DLQ",
        "redelivery_id": "r",
    }
    with store.transaction() as tx:
        tx.record_cycle(1, taken, [], [])
        tx.finish_cycle(1)
        tx.record(
            [
                Received(origin="queue://orders", **died),
                Returned(origin="queue://orders", redelivery_count=3, **died),
                Received(origin="queue://bills", **died),
            ]
        )
    yield store
    store.close()


def test_exhausted_messages_do_not_wait(store: SqliteStore, tmp_path: Path) -> None:
    first = store.allocate_ids(2)
    rows = [taken_row(first + n, state=RowState.EXHAUSTED, redelivery_count=1) for n in range(2)]
    take_rows(store, 2, rows)
    known = policies(tmp_path, RULES)
    orders = policy_view(store, known, NOW_MS).destinations[0]
    assert (orders.destination, orders.waiting, orders.exhausted) == ("queue://orders", 4, 2)
    effect = effect_of(store, known, MORE, NOW_MS, opens=True)
    assert (effect.destinations[0].waiting, effect.destinations[0].looked_at) == (4, 4)


def test_policies_are_shown_as_they_act(store: SqliteStore, tmp_path: Path) -> None:
    view = policy_view(store, policies(tmp_path, RULES), NOW_MS)
    found = [(one.destination, one.deaths, one.waiting) for one in view.destinations]
    assert found == [("queue://orders", 2, 4), ("queue://bills", 1, 1)]
    forecast = view.destinations[0].forecast
    assert forecast is not None
    assert [one.delay_ms for one in forecast.sends] == [1000, 1000]
    assert "rules.yaml:4" in forecast.sends[0].rule
    assert view.source.endswith("rules.yaml")
    assert "maximum_redeliveries: 2" in view.yaml


def test_policies_name_the_gates_that_redeliveries_pass(store: SqliteStore, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    rules = load_policy(path, load_plugins())
    view = policy_view(
        store, acting(rules, lambda where: ("pace: 1",) * (where.name == "bills")), NOW_MS
    )
    found = {one.destination: one.forecast for one in view.destinations}
    bills, orders = found["queue://bills"], found["queue://orders"]
    assert bills is not None
    assert orders is not None
    assert (bills.now.gates, orders.now.gates) == (("pace: 1",), UNSET)
    assert bills.end is not None
    assert bills.end.gates is UNSET


def test_before_a_broker_answers_the_destinations_are_shown_alone(store: SqliteStore) -> None:
    view = policy_view(store, acting(None), NOW_MS)
    assert {one.forecast for one in view.destinations} == {None}
    assert (view.source, view.yaml) == (NO_BROKER, "")


def test_settings_read_live_are_shown_as_far_as_they_were_read(store: SqliteStore) -> None:
    """What another address' settings call a dead-letter address is no origin here either."""
    settings = AddressSettings(
        max_delivery_attempts=3, redelivery_delay_ms=500, dead_letter_address="bills"
    )
    entry = AddressSettingEntry(match="#", settings=settings, source=RuleSource("read at noon"))
    view = policy_view(store, acting({"orders": entry}), NOW_MS)
    [orders] = view.destinations
    assert (view.source, view.yaml, orders.rules) == (LIVE, "", "read at noon")
    assert orders.forecast is not None
    assert [one.delay_ms for one in orders.forecast.sends] == [500, 500]
    assert orders.forecast.end is not None
    assert "goes to queue://bills.exhausted" in str(orders.forecast.end.differs)

    view = policy_view(store, acting({"other": entry}), NOW_MS)
    assert [(one.rules, one.forecast) for one in view.destinations] == [(NOT_READ, None)]


@pytest.mark.parametrize("text", [None, 'address_settings: [{match: "other.#"}]'])
def test_a_partial_policy_is_tried_over_the_settings_read_live(
    store: SqliteStore, text: str | None
) -> None:
    """A run fills it from the broker, so that what is tried has the same fate as what acts."""
    settings = AddressSettings(max_delivery_attempts=3, dead_letter_address="D", expiry_address="E")
    entry = AddressSettingEntry(match="#", settings=settings, source=RuleSource("read at noon"))
    live = {"orders": entry}
    given = None if text is None else load_policy(read_yaml("p", text.encode()), load_plugins(), {})
    assert given is None or isinstance(given, ArtemisRules)
    here = acting(live if given is None else replace(given, live=live))
    partial = 'address_settings: [{match: "#", max_delivery_attempts: 2}]'
    tried = here.explainer_of(load_policy(read_yaml("p", partial.encode()), load_plugins(), {}))
    for expired, address in ((False, "D"), (True, "E")):
        dead = DeadLetter(queue("orders"), redelivery_count=5, expired=expired)
        before = here.acting().forecast(dead)
        assert before is not None
        for found in (before.now, tried.explain(dead)):
            assert (found.action, found.destination) == ("dead_letter", f"queue://{address}")
            assert f"goes to queue://{address}.exhausted" in str(found.differs)
    [orders] = [
        one
        for one in effect_of(store, here, partial, NOW_MS, opens=True).destinations
        if one.destination == "queue://orders"
    ]
    assert orders.after.end is not None
    assert orders.after.end.destination == "queue://D"


def test_a_partial_policy_alone_says_that_the_sidecar_keeps_what_it_would_destroy() -> None:
    text = 'address_settings: [{match: "#", max_delivery_attempts: 2}]'
    tried = acting(load_policy(read_yaml("p", text.encode()), load_plugins(), {})).acting()
    for expired in (False, True):
        found = tried.forecast(DeadLetter(queue("orders"), redelivery_count=5, expired=expired))
        assert found is not None
        assert "no written line orders a discard: the final dead letter goes to" in str(
            found.now.differs
        )


def test_the_broker_s_own_defaults_act_where_no_rules_are_given(store: SqliteStore) -> None:
    view = policy_view(store, acting(BROKER_DEFAULTS), NOW_MS)
    forecast = view.destinations[0].forecast
    assert forecast is not None
    assert len(forecast.sends) == 6
    assert "default redelivery policy" in view.source
    [effect] = effect_of(store, acting(BROKER_DEFAULTS), MORE, NOW_MS, opens=True).destinations[:1]
    assert effect.before == forecast


def test_rules_that_change_are_seen(store: SqliteStore) -> None:
    """A service that has no rules gets them when a broker answers."""
    found: list[Rules | None] = [None]
    policies = policies_of(
        lambda: found[0],
        load_plugins(),
        send_rules_of=send_rules_of(),
    )
    assert policies.acting().explainer_at(queue("orders")) is None
    found[0] = BROKER_DEFAULTS
    assert policies.acting().explainer_at(queue("orders")) is not None
    assert policies.acting() is policies.acting()


def test_an_effect_counts_what_waits_and_what_died(store: SqliteStore, tmp_path: Path) -> None:
    """Only orders gets more redeliveries: deaths after the second are given up no more."""
    effect = effect_of(store, policies(tmp_path, RULES), MORE, NOW_MS, opens=True)
    [orders] = effect.destinations
    assert (orders.destination, orders.waiting, orders.looked_at) == ("queue://orders", 4, 4)
    [attempt] = orders.attempts
    assert attempt.before is not None
    told = (attempt.redelivery_count, attempt.deaths, attempt.waiting)
    assert told == (3, 1, 1)
    assert (attempt.before.action, attempt.after.action) == ("dead_letter", "redeliver")
    assert orders.before is not None
    assert (len(orders.before.sends), len(orders.after.sends)) == (2, 4)
    assert (effect.unchanged, effect.deaths, effect.deaths_changed) == (1, 3, 1)
    assert effect.waiting_changed == 1


def test_the_same_rules_written_otherwise_change_nothing(
    store: SqliteStore, tmp_path: Path
) -> None:
    effect = effect_of(
        store, policies(tmp_path, RULES), f"# a line more\n{RULES}", NOW_MS, opens=True
    )
    assert (effect.destinations, effect.unchanged) == ([], 2)


LOOKING = f"""{RULES}
  - rules:
      rules:
        - {{properties: {{code: E1}}, action: exhaust}}
        - cause_class: ConnectException
          redeliver: {{maximum_redeliveries: -1, redelivery_delay_ms: 3000, within_ms: 5000}}
"""


def looking_store(path: Path) -> SqliteStore:
    """Three messages of code E1, two that lost their connection, and one of neither, wait."""
    store = SqliteStore(path, clock=SystemClock(), instance_name="test")
    refused = "java.net.ConnectException: refused"
    kinds = [("E1", None)] * 3 + [("E2", refused)] * 2 + [("E2", None)]
    keep(
        store,
        [
            dead(
                number,
                cause,
                NOW_MS,
                destination="queue://orders",
                encoding=ENCODING,
                message=kept([(b"code", code.encode())], b""),
            )
            for number, (code, cause) in enumerate(kinds, start=1)
        ],
    )
    return store


def test_rules_that_look_into_messages_are_asked_about_what_waits(tmp_path: Path) -> None:
    store = looking_store(tmp_path / "waiting.db")
    before = policies(tmp_path, RULES)
    seen, hidden = (
        effect_of(store, before, LOOKING, NOW_MS, opens=opens) for opens in (True, False)
    )
    store.close()
    [orders] = seen.destinations
    found = {one.after.rule.partition(" (")[0]: one.waiting for one in orders.attempts}
    assert found == {"rule 1 exhaust": 3, "rule 2 redeliver": 2}
    assert seen.waiting_changed == 5
    assert any("waiting messages are asked" in one for one in seen.warnings)
    assert hidden.waiting_changed == 0


def test_an_effect_says_itself_as_policy_and_as_helm_values(
    store: SqliteStore, tmp_path: Path
) -> None:
    effect = effect_of(store, policies(tmp_path, RULES), MORE, NOW_MS, opens=True)
    again = effect_of(store, policies(tmp_path, MORE), effect.yaml, NOW_MS, opens=True)
    assert again.destinations == []
    values = YAML(typ="safe").load(effect.helm)
    Draft7Validator(json.loads(CHART_SCHEMA.read_bytes())).validate(values)
    assert values == {"config": {"policy": {"rules": YAML(typ="safe").load(effect.yaml)}}}


@pytest.mark.parametrize("text", ["plugins: [", "plugins: 5", "x" * (RULES_BYTES_MAX + 1)])
def test_rules_that_can_t_be_used_are_refused_with_their_place(
    store: SqliteStore, tmp_path: Path, text: str
) -> None:
    with pytest.raises(ConfigError, match=r"rules"):
        effect_of(store, policies(tmp_path, RULES), text, NOW_MS, opens=True)


def short(text: str) -> str:
    return text[: RULES_BYTES_MAX - 100]


HOSTILE = {
    "flow maps": short("plugins: [" + "{a: b}, " * 5_000),
    "flow lists": short("plugins: [" + ("[" * 50 + "]" * 50 + ",") * 400),
    "short values": short("plugins: [" + "a," * 20_000),
    "empty maps": short("plugins: [" + "{}," * 20_000),
    "keys": short("\n".join(f"k{number}: v" for number in range(5_000))),
    "comments": short("- a #c\n" * 5_000),
    "address settings": "address_settings: ["
    + ",".join(f"{{match: '*.*.{number}.#'}}" for number in range(660))
    + "]",
    "dead-letter addresses": "address_settings: ["
    + ",".join(f"{{match: '*.*.{n}.#', dead_letter_address: 'a.b.{n}'}}" for n in range(390))
    + "]",
}
CALLS_MAX = 4_000_000
"""Functions that are called to answer, about a second of processor time."""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_rules_that_a_viewer_tries_take_long(
    store: SqliteStore, tmp_path: Path, text: str
) -> None:
    assert len(text) <= RULES_BYTES_MAX
    acting = policies(tmp_path, RULES)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    sys.setprofile(count)
    try:
        with suppress(ConfigError):
            effect_of(store, acting, text, NOW_MS, opens=True)
    finally:
        sys.setprofile(None)
    assert calls < CALLS_MAX


def test_rules_of_too_many_values_are_refused(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rules.yaml:1: .*more than 2000 keys and values"):
        effect_of(store, policies(tmp_path, RULES), HOSTILE["flow maps"], NOW_MS, opens=True)
