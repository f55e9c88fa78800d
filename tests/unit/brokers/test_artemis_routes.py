"""What is asked of an Artemis about destinations, how often, and in how many turns."""

from __future__ import annotations

import json
from collections.abc import Sequence

from amqsidecar.brokers.artemis.management import (
    ArtemisQuestions,
    ManagementAnswer,
    ManagementQuestion,
)
from amqsidecar.brokers.artemis.routes import ArtemisRoutes
from amqsidecar.model.destination import Destination, queue
from support.links.terms import effects_of
from support.virtual_clock import VirtualClock


class Management(ArtemisQuestions):
    """Answers for addresses, each with its queues, and for diverts; counts questions and turns."""

    def __init__(self) -> None:
        self.queues_of: dict[str, list[str]] = {}
        self.diverts: dict[str, str] = {}
        self.turns = 0
        self.questions = 0

    def ask_all(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
        self.turns += bool(questions)
        self.questions += len(questions)
        return [ManagementAnswer(self._value(one), is_ok=True) for one in questions]

    def _value(self, question: ManagementQuestion) -> object:
        kind, _, name = question.resource.partition(".")
        if question.operation == "listQueues":
            address = json.loads(str(question.arguments[0]))["value"]
            return json.dumps({"data": [_row(address, one) for one in self.queues_of[address]]})
        if question.operation == "getAddressSettingsAsJSON":
            return "{}"
        if question.attribute == "DivertNames":
            return list(self.diverts)
        if question.attribute == "BindingNames":
            return self.queues_of[name] + [one for one, at in self.diverts.items() if at == name]
        return {"divert": False, "address": '["ANYCAST"]'}[kind]


def _row(address: str, name: str) -> dict[str, str]:
    return {"name": name, "address": address, "routingType": "ANYCAST"}


def routes_of(management: Management, clock: VirtualClock) -> ArtemisRoutes:
    return ArtemisRoutes(management, clock, "token", ".exhausted")


def test_nothing_is_asked_again_for_some_seconds() -> None:
    management, clock = Management(), VirtualClock()
    management.queues_of["a"] = ["a"]
    routes = routes_of(management, clock)
    for _ in range(1000):
        assert routes.send_terms(queue("a")).problem is None
        assert effects_of(routes.send_terms(queue("a"))) is None
        assert routes.target(queue("a")) == "a"
    asked = management.questions
    clock.advance(4_999)
    routes.send_terms(queue("a"))
    assert management.questions == asked
    clock.advance(1)
    routes.send_terms(queue("a"))
    assert management.questions == 2 * asked


def test_a_changed_binding_is_asked_about_at_once() -> None:
    management = Management()
    management.queues_of |= {"a": ["a"], "b": ["b"]}
    routes = routes_of(management, VirtualClock())
    assert effects_of(routes.send_terms(queue("a"))) is None
    assert effects_of(routes.send_terms(queue("b"))) is None
    management.diverts["d"] = "a"
    management.queues_of["a"] += ["a2"]
    asked = management.questions
    routes.binding_changed("a")
    assert effects_of(routes.send_terms(queue("b"))) is None
    assert management.questions == asked
    assert "divert d" in str(effects_of(routes.send_terms(queue("a"))))
    assert routes.target(queue("a")) == "a::a"


def test_a_changed_binding_with_a_wildcard_is_asked_about_everywhere() -> None:
    management = Management()
    management.queues_of["x.a"] = ["x.a"]
    routes = routes_of(management, VirtualClock())
    assert effects_of(routes.send_terms(queue("x.a"))) is None
    management.diverts["d"] = "x.a"
    routes.binding_changed("x.#")
    assert "divert d" in str(effects_of(routes.send_terms(queue("x.a"))))


def test_thousands_are_asked_about_in_a_handful_of_turns() -> None:
    management = Management()
    names = [f"q{number}" for number in range(2_000)]
    management.queues_of |= {name: [name] for name in names}
    management.diverts["d"] = "q7"
    routes = routes_of(management, VirtualClock())
    destinations: list[Destination] = list(map(queue, names))
    routes.ask_ahead(destinations)
    assert management.turns <= 5
    assert management.questions <= 3 * len(names) + 5
    found = [one.name for one in destinations if effects_of(routes.send_terms(one)) is not None]
    assert found == ["q7"]
    assert management.turns <= 5
