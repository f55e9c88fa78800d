"""Where Classic would copy a re-send, read from the selectors and flags of its interceptors."""

from typing import Any

import pytest

from amqsidecar.engine.judging.resend_copies import (
    classic_resend_problem,
    composite_line,
    resend_warnings,
    takes_first_sends_only,
)
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.model.send_terms import ResendEffect
from amqsidecar.policy.classic_rules import (
    CompositeDestination,
    DestinationInterceptors,
    ForwardTo,
    MirroredQueues,
)

FIRST = "amqsidecarRedeliveryCount IS NULL"
ORDERS = (queue("orders"),)


def composite(*selectors: str | None, **flags: Any) -> CompositeDestination:
    forward_to = tuple(
        ForwardTo(destination=queue(f"copy{number}"), selector=selector)
        for number, selector in enumerate(selectors)
    )
    return CompositeDestination(destinations=ORDERS, forward_to=forward_to, **flags)


def problem(
    one: CompositeDestination, where: Destination = ORDERS[0], *allowed: ResendEffect
) -> str | None:
    return classic_resend_problem(DestinationInterceptors(composites=(one,)), allowed)(where)


@pytest.mark.parametrize(
    "selector",
    [
        FIRST,
        "amqsidecarRedeliveryId is null",
        f"type = 'a' AND {FIRST}",
        f"type = 'a OR b' and {FIRST}",
        f"(a = 1 OR b = 2) AND ({FIRST})",
        f"( (a = 1) AND {FIRST} )",
        f"n BETWEEN 1 AND 2 AND {FIRST}",
    ],
)
def test_a_selector_that_leaves_redeliveries_out_is_recognised(selector: str) -> None:
    assert takes_first_sends_only(selector)


@pytest.mark.parametrize(
    "selector",
    [
        None,
        "",
        "type = 'a'",
        f"type = 'a' OR {FIRST}",
        f"NOT {FIRST}",
        f"NOT ({FIRST})",
        "amqsidecarRedeliveryCount IS NOT NULL",
        "amqsidecarredeliverycount IS NULL",
        f"note = ' AND {FIRST}'",
        f"a = 1 AND ({FIRST} OR b = 2)",
        f"({FIRST}) = (a)",
        ") OR (",
    ],
)
def test_any_other_selector_may_match_a_redelivery(selector: str | None) -> None:
    assert not takes_first_sends_only(selector)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (composite(None, forward_only=False), "to queue://copy0 once more"),
        (composite("a = 1", FIRST, forward_only=False), "to queue://copy0 once more"),
        (composite(None), "to queue://copy0, and not to the queue itself"),
        (composite(FIRST), "nowhere, and not to the queue itself"),
        (composite(None, "a = 1", send_when_not_matched=True), "to queue://copy0 instead"),
        (composite(FIRST, forward_only=False), None),
        (composite(forward_only=False), None),
        (composite("a = 1", send_when_not_matched=True), None),
    ],
)
def test_what_a_composite_does_with_a_re_send(one: CompositeDestination, words: str | None) -> None:
    found = problem(one)
    assert found is None if words is None else words in (found or "")


def test_only_what_the_pattern_matches_is_copied_and_only_unless_allowed() -> None:
    wild = CompositeDestination(
        destinations=(queue("a.>"),), forward_to=(ForwardTo(destination=topic("t")),)
    )
    assert problem(wild, queue("a.b")) is not None
    assert problem(wild, queue("b")) is None
    assert problem(wild, topic("a.b")) is None
    assert problem(wild, queue("a.b"), ResendEffect.MIRROR) is not None
    assert problem(wild, queue("a.b"), ResendEffect.COMPOSITE) is None


def test_the_line_keeps_the_selector_and_is_xml() -> None:
    one = composite("n < 3", None, FIRST, forward_only=False)
    assert composite_line(one) == (
        f'<filteredDestination selector="(n &lt; 3) AND {FIRST}" queue="copy0"/> '
        f'<filteredDestination selector="{FIRST}" queue="copy1"/>'
    )


def test_a_start_warns_of_what_lets_messages_die_and_parks_them() -> None:
    """A composite that keeps nothing, which is the default, is no reason for a warning."""
    found = DestinationInterceptors(
        composites=(composite(None), composite(None, forward_only=False), composite(FIRST)),
        mirrored_queues=MirroredQueues(),
    )
    assert [one.partition("; ")[2][:20] for one in resend_warnings(found, ())] == [
        "write there <filtere",
        "no filter prevents i",
    ]
    assert list(resend_warnings(found, tuple(ResendEffect))) == []
    assert "; redirect it, or allow it by" in (problem(composite(None)) or "")


def test_every_queue_is_mirrored_and_no_topic() -> None:
    mirror = MirroredQueues(prefix="m.", postfix=".x", temporary=False)
    found = classic_resend_problem(DestinationInterceptors(mirrored_queues=mirror), ())
    assert "topic://m.orders.x once more" in (found(queue("orders")) or "")
    assert found(topic("orders")) is None
    assert found(Destination(DestinationKind.TEMP_QUEUE, "ID:1")) is None
    allowed = classic_resend_problem(
        DestinationInterceptors(mirrored_queues=mirror), (ResendEffect.MIRROR,)
    )
    assert allowed(queue("orders")) is None
