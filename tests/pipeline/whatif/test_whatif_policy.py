"""What whatif asks policies, and how it writes one."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Exhaust
from amqsidecar.model.destination import parse_destination
from amqsidecar.pipeline.whatif.policy import (
    Setting,
    load_candidates,
    plan_of,
    unmatched_entries,
    with_settings,
)
from amqsidecar.pipeline.whatif.whatif import _write_proposal
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.load import compile_policy, load_policy
from amqsidecar.policy_source.yaml_writer import to_mapping

PLUGINS = load_plugins()
CLASSIC = {
    "plugins": [
        {
            "redelivery": {
                "entries": [
                    {"queue": "orders.>", "maximum_redeliveries": 2},
                    {"queue": "mail", "maximum_redeliveries": 1},
                    {"queue": "gone", "maximum_redeliveries": 1},
                ],
                "default_entry": {
                    "maximum_redeliveries": -1,
                    "redelivery_delay_ms": 50,
                    "use_collision_avoidance": True,
                },
            }
        }
    ],
    "dead_letter": {
        "entries": [
            {"queue": ">", "dead_letter_strategy": {"kind": "individual", "queue_prefix": "DLQ."}}
        ]
    },
}
ARTEMIS = {
    "address_settings": [
        {"match": "#", "max_delivery_attempts": 3, "redelivery_delay_ms": 100},
        {"match": "mail", "dead_letter_address": "DLA", "max_delivery_attempts": 2},
        {"match": "gone.#", "max_delivery_attempts": 1},
    ]
}
SETTING = Setting(5000, 2.0, 60_000, 4)


def rules_of(mapping: Mapping[str, object]) -> Rules:
    return load_policy(mapping, PLUGINS, {})


def delays(rules: Rules, destination: str, *, expired: bool = False) -> tuple[int, ...]:
    decider = compile_policy(rules, PLUGINS)
    dead = DeadLetter(parse_destination(destination), expired=expired)
    plan = plan_of(decider, dead, most_attempts=6)
    return plan.delays_ms


def test_a_plan_is_what_the_policy_decides_death_by_death() -> None:
    classic = rules_of(CLASSIC)

    assert delays(classic, "queue://orders.eu") == (1000, 1000)
    assert delays(classic, "queue://orders.eu", expired=True) == ()
    assert delays(rules_of(ARTEMIS), "queue://anything") == (100, 100)


@pytest.mark.parametrize("expired", [False, True])
def test_a_partial_policy_ends_with_a_message_that_is_kept(expired: bool) -> None:
    """`run` has no answer for it but to keep it, so the plan ends where that one does."""
    mapping = {"address_settings": [{"match": "orders.#", "max_delivery_attempts": 3}]}
    decider = compile_policy(rules_of(mapping), PLUGINS)
    for place, sends in (("queue://orders.eu", 2), ("queue://w.q", 6)):
        dead = DeadLetter(parse_destination(place), expired=expired)
        plan = plan_of(decider, dead, most_attempts=6)
        assert len(plan.delays_ms) == (0 if expired else sends)
        last = decider.decide(replace(dead, redelivery_count=9), None)
        assert isinstance(last, Exhaust)
        assert last.is_discard_of_broker


def test_a_policy_without_an_end_goes_on_and_chance_has_no_part() -> None:
    decider = compile_policy(rules_of(CLASSIC), PLUGINS)

    plan = plan_of(decider, DeadLetter(parse_destination("queue://x")), most_attempts=3)

    assert (plan.delays_ms, plan.goes_on) == ((1000, 50, 50), True)


def test_entries_that_act_on_nothing_in_history_are_named() -> None:
    seen = ["queue://orders.eu", "queue://mail"]

    assert unmatched_entries(rules_of(CLASSIC), seen) == [
        'redeliveryPolicy queue="gone" (policy.rules)'
    ]
    assert unmatched_entries(rules_of(ARTEMIS), seen) == [
        'address-setting match="gone.#" (policy.rules)'
    ]


@pytest.mark.parametrize("mapping", [CLASSIC, ARTEMIS, {"plugins": []}])
def test_settings_act_on_their_destination_and_on_no_other(mapping: dict[str, object]) -> None:
    old = rules_of(mapping)

    new = with_settings(old, {"queue://orders.eu": SETTING, "queue://mail": SETTING})

    for destination in ("queue://orders.eu", "queue://mail"):
        assert delays(new, destination) == (5000, 10_000, 20_000, 40_000)
    for destination in ("queue://orders.us", "queue://gone", "queue://gone.far"):
        assert delays(new, destination) == delays(old, destination)
    assert delays(rules_of(to_mapping(new)), "queue://mail") == delays(new, "queue://mail")


def test_what_else_is_written_for_a_destination_stays() -> None:
    classic = with_settings(rules_of(CLASSIC), {"queue://mail": SETTING})
    artemis = with_settings(rules_of(ARTEMIS), {"queue://mail": SETTING})

    assert to_mapping(classic)["dead_letter"] == CLASSIC["dead_letter"]
    written = to_mapping(artemis)["address_settings"]
    assert isinstance(written, list)
    (mail,) = (one for one in written if one["match"] == "mail")
    assert (mail["dead_letter_address"], mail["max_delivery_attempts"]) == ("DLA", 5)


def test_a_policy_that_can_not_be_loaded_is_reported_in_the_loaders_words(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("plugins:\n  - redelivery:\n      default_entry: {maximum_redelivery: 1}\n")
    good = tmp_path / "good.yaml"
    good.write_text("plugins: []\n")

    with pytest.raises(ConfigError) as error:
        load_candidates([str(bad), f"history={good}", f"a={good}", f"a={good}"], PLUGINS)

    told = str(error.value)
    assert f"{bad}:3: " in told
    assert "maximum_redeliveries" in told
    assert "the name 'history' is taken" in told
    assert "the name 'a' is taken" in told


def test_a_destination_writes_no_line_of_the_proposal(tmp_path: Path) -> None:
    given = tmp_path / "today.yaml"
    given.write_text("plugins: []\n")
    (base,) = load_candidates([f"today={given}"], PLUGINS)
    row = {
        "destination": "queue://a\nplugins: [{discarding: {}}]\r#",
        "is_written": False,
        "doubt": "beyond what history tried",
        "history_share": 0.5,
    }
    _write_proposal(str(tmp_path), base, [row], PLUGINS)
    (written,) = load_candidates([f"new={tmp_path / 'proposal' / 'policy.yaml'}"], PLUGINS)
    assert to_mapping(written.rules) == to_mapping(base.rules)
    values = (tmp_path / "proposal" / "values.yaml").read_text()
    assert all(one.lstrip().startswith("#") for one in values.splitlines() if "discarding" in one)
