"""What would become of a message now, and should each re-send fail, by the rules' own deciders."""

from collections.abc import Mapping

import pytest

from amqsidecar.broker import BrokerKind
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import queue, topic
from amqsidecar.model.event import AnyEvent, Received, Returned, Scheduled
from amqsidecar.operations.explain import SENDS_MAX, Explainer, last_death
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy, load_policy

CLASSIC = {
    "plugins": [
        {
            "redelivery": {
                "default_entry": {
                    "maximum_redeliveries": 3,
                    "initial_redelivery_delay_ms": 1000,
                    "redelivery_delay_ms": 1000,
                    "use_exponential_back_off": True,
                    "back_off_multiplier": 3,
                    "use_collision_avoidance": True,
                }
            }
        }
    ]
}
ENDLESS = {"address_settings": [{"match": "#", "max_delivery_attempts": -1}]}


def explainer(rules: Mapping[str, object], *, parks_topics: bool = True) -> Explainer:
    plugins = load_plugins()
    return Explainer(
        compile_policy(load_policy(rules, plugins), plugins),
        SendRules(
            BrokerKind.CLASSIC,
            lambda destination: destination == queue("ActiveMQ.DLQ"),
            ".final",
            parks_topics=parks_topics,
        ),
    )


def test_a_forecast_goes_on_until_the_message_is_given_up() -> None:
    forecast = explainer(CLASSIC).forecast(DeadLetter(queue("orders")))
    assert [(one.redelivery_count, one.delay_ms, one.after_ms) for one in forecast.sends] == [
        (1, 1000, 1000),
        (2, 3000, 4000),
        (3, 9000, 13000),
    ]
    assert "policy.rules" in forecast.sends[0].rule
    assert forecast.now.delay_ms == 1000
    assert forecast.end is not None
    assert (forecast.end.action, forecast.end.destination) == (
        "dead_letter",
        "queue://ActiveMQ.DLQ",
    )
    assert forecast.end.differs == (
        "no rule names the dead-letter queue: the final dead letter goes to the name of "
        "the queue that it was read from, plus .final, such as queue://ActiveMQ.DLQ.final"
    )


def test_a_forecast_begins_where_the_message_stands() -> None:
    forecast = explainer(CLASSIC).forecast(DeadLetter(queue("orders"), redelivery_count=2))
    assert [one.redelivery_count for one in forecast.sends] == [3]
    assert forecast.now.delay_ms == 9000


def test_what_is_never_given_up_is_shown_for_a_while() -> None:
    forecast = explainer(ENDLESS, parks_topics=False).forecast(DeadLetter(queue("orders")))
    assert (len(forecast.sends), forecast.end) == (SENDS_MAX, None)


def test_what_the_sidecar_does_otherwise_is_said() -> None:
    parked = explainer(CLASSIC).forecast(DeadLetter(topic("prices")))
    assert "would reach every subscriber" in str(parked.now.differs)
    assert (parked.now.is_parked, parked.sends, parked.end) == (True, [], parked.now)
    sent = explainer(CLASSIC, parks_topics=False).forecast(DeadLetter(topic("prices")))
    assert (sent.now.is_parked, len(sent.sends)) == (False, 3)
    expired = explainer(CLASSIC).forecast(DeadLetter(queue("orders"), expired=True))
    assert (expired.now.action, expired.sends) == ("dead_letter", [])


@pytest.mark.parametrize("origin", ["queue://orders", None])
def test_the_latest_death_is_asked_about(origin: str | None) -> None:
    history: list[AnyEvent] = [
        Received(at_ms=1, source="queue://DLQ", origin="queue://first"),
        Returned(
            at_ms=2, source="queue://DLQ", origin=origin, redelivery_count=4, persistent=False
        ),
        Scheduled(
            at_ms=2, destination="queue://x", delay_ms=1, due_at_ms=3, redelivery_count=5, rule=""
        ),
    ]
    told = None if origin is None else DeadLetter(queue("orders"), 4, persistent=False)
    assert last_death(history) == told
    assert last_death([]) is None
