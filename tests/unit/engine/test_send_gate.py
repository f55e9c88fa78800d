"""The gate's answers from the broker's terms and a message's properties."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from amqsidecar.broker import BrokerKind, Resend
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.send_gate import GateAction, SendGate
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.schedule import DueRow
from amqsidecar.model.send_terms import BoundQueue, ResendEffect, SendTerms, SideEffect
from amqsidecar.policy.selector import UNKNOWN, PropertyOf
from support.brokers.memory import MemoryBroker, MemoryLink

RED = "color = 'red'"
LOSES = SideEffect(ResendEffect.DROP, "it drops", "PAGE")
COPIES = SideEffect(ResendEffect.DIVERT, "it copies", "a filter", loses=False)
ROW = DueRow(
    id=1,
    due_at_ms=0,
    destination="queue://orders",
    is_final=False,
    redelivery_id="i-1",
    redelivery_count=1,
    delay_ms=0,
    expiration_ms=0,
    encoding="memory/1",
    message=b"m",
)


class Link(MemoryLink):
    """Answers with given terms, and shows given properties."""

    def __init__(self, terms: SendTerms, properties: dict[str, Any]) -> None:
        super().__init__(MemoryBroker())
        self.terms = terms
        self.properties = properties

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        return self.terms

    def filter_view(self, resend: Resend) -> PropertyOf:
        return self.properties.get

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        """It makes no request."""


def action(terms: SendTerms, *, is_final: bool = False, **properties: Any) -> GateAction:
    """Return what becomes of a message with these properties."""
    link = Link(terms, properties)
    gate = SendGate(link, SendRules(BrokerKind.ARTEMIS, lambda _: False, ".exhausted"))
    answer = gate.ask(queue("orders"), is_final=is_final)
    if answer.action is not GateAction.SEND:
        assert answer.reason
        return answer.action
    found = gate.admit(msgspec.structs.replace(ROW, is_final=is_final), answer)
    if isinstance(found, Resend):
        return GateAction.SEND
    assert found.reason
    assert found.cure
    return found.action


SEND, WAIT, PARK = GateAction.SEND, GateAction.WAIT, GateAction.PARK


@pytest.mark.parametrize(
    ("terms", "redelivery", "final"),
    [
        (SendTerms(), SEND, SEND),
        (SendTerms("it is disabled"), WAIT, WAIT),
        (SendTerms(effects=(LOSES,)), PARK, WAIT),
        (SendTerms(effects=(COPIES,)), PARK, SEND),
        (SendTerms(queues=(BoundQueue("a"), BoundQueue("b", RED))), SEND, SEND),
    ],
)
def test_terms_that_no_property_changes(
    terms: SendTerms, redelivery: GateAction, final: GateAction
) -> None:
    """A final queue that would lose messages is waited for: nobody has to act on each of them."""
    assert action(terms) is redelivery
    assert action(terms, is_final=True) is final


@pytest.mark.parametrize("is_final", [False, True])
def test_a_message_passes_if_one_queue_takes_it(*, is_final: bool) -> None:
    terms = SendTerms(queues=(BoundQueue("a", RED), BoundQueue("b", "size > 3")))
    assert action(terms, is_final=is_final, color="red") is SEND
    assert action(terms, is_final=is_final, size=4) is SEND
    assert action(terms, is_final=is_final, size=3) is PARK


def test_a_filter_that_can_not_be_decided_counts_as_one_that_does_not_match() -> None:
    terms = SendTerms(queues=(BoundQueue("a", RED),))
    assert action(terms, color=UNKNOWN) is PARK
    assert action(SendTerms(queues=(BoundQueue("a", "XPATH '//a'"),))) is PARK
    trusted = msgspec.structs.replace(terms, trusts_filters=True)
    assert action(trusted, color=UNKNOWN) is SEND
    assert action(trusted, color="blue") is PARK


def test_an_effect_on_what_matches_a_filter() -> None:
    """What can't be decided counts as one that matches."""
    loses, copies = LOSES._replace(filter=RED), COPIES._replace(filter=RED)
    for effect in (loses, copies):
        assert action(SendTerms(effects=(effect,)), color="red") is PARK
        assert action(SendTerms(effects=(effect,)), color=UNKNOWN) is PARK
        assert action(SendTerms(effects=(effect,)), color="blue") is SEND
    assert action(SendTerms(effects=(copies,)), is_final=True, color="red") is SEND


def test_an_answer_names_the_filters_that_decide() -> None:
    terms = SendTerms(
        exists=True, queues=(BoundQueue("a", RED),), effects=(LOSES._replace(filter="size > 3"),)
    )
    gate = SendGate(Link(terms, {}), SendRules(BrokerKind.ARTEMIS, lambda _: False, ".exhausted"))
    answer = gate.ask(queue("orders"))
    assert answer.filters == ("NOT (size > 3)", f"({RED})")
    assert answer.terms is terms
    assert gate.ask(queue("orders")) is answer
