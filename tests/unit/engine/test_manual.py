"""What is left to a person: the same for a row and for the broker's filter."""

from typing import cast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from amqsidecar.broker import (
    BrokerDescription,
    BrokerKind,
    Delivery,
    Features,
    IntakeQueue,
    LookSession,
)
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.engine.manual import ALL, Manual, selector_without
from amqsidecar.errors import QueueRefused
from amqsidecar.model.destination import parse_pattern, queue
from amqsidecar.model.provenance import Provenance
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    IndividualDeadLetterStrategy,
    PolicyEntry,
)
from amqsidecar.policy.selector import parse_selector

WORDS = st.sampled_from(["pay", "pa_y", "p%", "card", "it's", "x"])
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.one_of(
    NAMES,
    NAMES.map("{}.#".format),
    st.lists(st.one_of(WORDS, st.just("*")), min_size=1, max_size=4).map(".".join),
)


class Link:
    """A wire to a broker, as far as `Manual` asks it."""

    def __init__(self, kind: BrokerKind, *, selects: bool = False, names: tuple[str, ...] = ()):
        self.description = BrokerDescription(kind, "", ())
        self._names = names
        self.features = Features(
            selects_origins=selects,
            listing=self if names else None,  # type: ignore[arg-type]
        )

    def queue_names(self) -> tuple[str, ...]:
        return self._names

    def as_session(self) -> LookSession:
        return cast(LookSession, self)


def delivery(origin: str | None, source: str = "DLQ") -> Delivery:
    provenance = Provenance(origin=None if origin is None else queue(origin))
    return Delivery(None, queue(source), b"", provenance, "")


@given(st.lists(PATTERNS, min_size=1, max_size=3), NAMES, st.booleans(), st.booleans())
def test_the_filter_of_artemis_leaves_what_gets_a_row(
    patterns: list[str], origin: str, is_qualified: bool, is_amqp: bool
) -> None:
    manual = Manual(patterns)
    assume(not manual.leaves_queue(queue("DLQ")))
    name = "amqp" if is_amqp else "_AMQ_ORIG_ADDRESS"
    text = selector_without([queue(parse_pattern(one).name) for one in patterns])
    is_read = parse_selector(text.replace('"m.x-opt-ORIG-ADDRESS"', "amqp")).matches(
        {name: f"{origin}::q" if is_qualified else origin}.get
    )
    assert is_read == (not manual.leaves(delivery(origin)))


@pytest.mark.parametrize("origin", ["pay", "orders", None])
def test_all_and_nothing(origin: str | None) -> None:
    assert Manual([ALL]).leaves(delivery(origin))
    assert not Manual().leaves(delivery(origin))
    assert Manual(["DLQ"]).leaves(delivery(origin))


def test_a_pattern_of_an_artemis_names_a_queue_by_address_or_by_name() -> None:
    manual = Manual(["DLA.pay.#"])
    assert manual.leaves_queue(queue("DLA.pay::x"))
    assert manual.leaves_queue(queue("dead::DLA.pay.card"))
    assert not manual.leaves_queue(queue("DLA.payments"))


def test_a_wildcard_is_read_without_the_queues_that_are_left() -> None:
    strategy = IndividualDeadLetterStrategy(queue_prefix="DLQ.")
    entry = PolicyEntry(destinations=(queue(">"),), dead_letter_strategy=strategy)
    rules = ClassicRules(dead_letter=DeadLetterRules(entries=(entry,)))
    manual = Manual(["pay.>"], names=DeadLetterNames(rules))
    names = ("DLQ.orders", "DLQ.pay.card", "other", "DLQ.a.b")
    link = Link(BrokerKind.CLASSIC, names=names).as_session()
    assert manual.problem(link) == ""
    read = manual.automatic(link, [IntakeQueue(queue("DLQ.>")), IntakeQueue(queue("DLQ.pay.x"))])
    assert [one.destination.name for one in read] == ["DLQ.orders", "DLQ.a.b"]
    with pytest.raises(QueueRefused, match="does not list queues"):
        manual.automatic(Link(BrokerKind.CLASSIC).as_session(), [IntakeQueue(queue("DLQ.>"))])


def test_a_part_of_a_shared_queue_is_refused_where_the_wire_cannot_leave_it() -> None:
    manual = Manual(["pay.>", "ActiveMQ.DLQ"], known=[IntakeQueue(queue("ActiveMQ.DLQ"))])
    problem = manual.problem(Link(BrokerKind.CLASSIC).as_session())
    assert problem.startswith("pay.> is no dead-letter queue")
    assert not manual.problem(Link(BrokerKind.ARTEMIS, selects=True).as_session())
    whole = Manual(["ActiveMQ.>"], known=[IntakeQueue(queue("ActiveMQ.DLQ"))])
    assert not whole.problem(Link(BrokerKind.CLASSIC).as_session())
