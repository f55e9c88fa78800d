"""Rules beyond the broker's act before whatever the broker's own come from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amqsidecar.broker import BrokerKind, Delivery, Features, LookSession
from amqsidecar.config.load import load_config
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.dead_letter import DeadLetter, KnownFacts
from amqsidecar.model.decision import DeadLetterTo, Exhaust, Park, Redeliver
from amqsidecar.model.destination import queue
from amqsidecar.model.provenance import Provenance
from amqsidecar.operations.active_rules import policies_of
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.wiring.rules import RunningRules
from support.send_rules import send_rules_of
from support.sidecar.listener import copy_keys
from support.virtual_clock import VirtualClock

PLUGINS = """
policy:
  plugins:
    - rules:
        rules:
          - {properties: {code: E1}, action: park}
"""
SOURCES = {
    "classic defaults": "",
    "live settings": "",
    "activemq.xml": '<beans xmlns="http://www.springframework.org/schema/beans">'
    '<broker xmlns="http://activemq.apache.org/schema/core"><plugins><redeliveryPlugin>'
    "<redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry><redeliveryPolicy/></defaultEntry>"
    "</redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins></broker></beans>",
    "broker.xml": '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">'
    '<address-settings><address-setting match="#"><max-delivery-attempts>9'
    "</max-delivery-attempts></address-setting></address-settings></core></configuration>",
}
ARTEMIS = ("live settings", "broker.xml")


class Settings:
    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        return [{"maxDeliveryAttempts": 9} for _ in addresses]


@pytest.mark.parametrize("name", SOURCES)
def test_rules_act_before_the_brokers_wherever_those_come_from(tmp_path: Path, name: str) -> None:
    config_file = tmp_path / "sidecar.yaml"
    config_file.write_text(PLUGINS)
    sets = []
    if SOURCES[name]:
        (tmp_path / name).write_text(SOURCES[name])
        sets = [f"policy.source={tmp_path / name}"]
    kind = BrokerKind.ARTEMIS if name in ARTEMIS else BrokerKind.CLASSIC
    link = cast(
        "LookSession",
        SimpleNamespace(
            description=SimpleNamespace(kind=kind), features=Features(settings=Settings())
        ),
    )
    running = RunningRules(load_config(config_file, sets, {}), VirtualClock())
    decider = running.decider(link)
    assert getattr(decider, "asks", ())
    bad = DeadLetter(queue("orders"), facts=KnownFacts(properties={"code": "E1"}))
    assert decider.decide(bad, None) == Park(f"rule 1 park ({config_file}:6)")
    assert isinstance(decider.decide(DeadLetter(queue("orders")), None), Redeliver)

    acting = policies_of(
        running.acting,
        load_plugins(),
        intake_queues=("DLQ",),
        send_rules_of=send_rules_of(),
        live_plugins=running.links,
    ).acting()
    forecast = acting.forecast(bad)
    assert forecast is not None
    assert (forecast.now.action, forecast.now.rule) == ("park", f"rule 1 park ({config_file}:6)")
    bare = RunningRules(load_config(None, sets, {}), VirtualClock())
    assert not getattr(bare.decider(link), "asks", ())
    assert bare.digest != running.digest


@pytest.mark.parametrize("has_keys", [True, False])
def test_lives_are_known_only_where_copies_can_be_proven(tmp_path: Path, has_keys: bool) -> None:
    """A known life lets a second message of it be discarded."""
    sets = [copy_keys(tmp_path)] if has_keys else []
    running = RunningRules(load_config(None, sets, {}), VirtualClock())
    link = cast(
        "LookSession",
        SimpleNamespace(
            description=SimpleNamespace(kind=BrokerKind.ARTEMIS),
            features=Features(settings=Settings()),
        ),
    )
    judge = running.judges(lambda: 0.5)(link, IntakeNames(BrokerKind.ARTEMIS))
    dead = Delivery(
        None, queue("DLQ"), b"x", Provenance(origin=queue("orders"), number="7-1"), "core/1"
    )
    judged = judge.judge(dead, "a", 1, 1, is_backlog=False)
    lives = {judge.life_of(dead), getattr(judged.events[0], "life", None)}
    assert len(lives) == 1
    assert lives.isdisjoint({""}) == has_keys


class Readable:
    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        return [{"maxDeliveryAttempts": 3, "expiryAddress": "DLQ"} for _ in addresses]


class Hidden:
    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        raise BrokerRefused(f"no permission to read {addresses}")


@pytest.mark.parametrize("asked", [Readable(), Hidden()])
def test_a_given_policy_is_filled_where_the_broker_shows_its_settings(
    tmp_path: Path, asked: Readable | Hidden
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('address_settings:\n  - {match: "orders.#", redelivery_delay_ms: 7}\n')
    link = cast(
        "LookSession",
        SimpleNamespace(
            description=SimpleNamespace(kind=BrokerKind.ARTEMIS), features=Features(settings=asked)
        ),
    )
    running = RunningRules(load_config(None, [f"policy.source={policy}"], {}), VirtualClock())
    decider = running.decider(link)
    expired = decider.decide(DeadLetter(queue("w.q"), expired=True), None)
    third = decider.decide(DeadLetter(queue("orders.a"), 2), None)
    if isinstance(asked, Hidden):
        assert isinstance(expired, Exhaust)
        assert expired.is_discard_of_broker
        assert isinstance(third, Redeliver)
        return
    assert isinstance(expired, DeadLetterTo)
    assert expired.destination == queue("DLQ")
    assert isinstance(third, Exhaust)
    acting = running.acting()
    assert isinstance(acting, ArtemisRules)
    assert set(acting.live) == {"w.q", "orders.a"}
    assert running.acting() is acting
