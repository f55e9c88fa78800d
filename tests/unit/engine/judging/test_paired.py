"""Of a dead letter and a copy of one delivery the first is taken, whatever else comes."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.engine.judging.dead_letter_names import TrueOrigin, named_origin
from amqsidecar.engine.judging.judge import Judge, Judgement, Readers
from amqsidecar.engine.judging.paired import IS_REPEATED, IS_TWIN, PairedJudge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Redeliver
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.event import Discarded, Received
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.sidecar_names import INTERCEPTED
from amqsidecar.plugin import Chance

DEAD, COPY = "DLQ", INTERCEPTED


class Rules:
    def decide(self, _dead_letter: DeadLetter, _chance: Chance | None) -> Redeliver:
        return Redeliver(0, 1, "rule")


class History:
    """Takes deliveries in cycles, and keeps the lives of what a cycle took."""

    def __init__(self, true_origin: TrueOrigin = named_origin) -> None:
        self.lives: set[str] = set()
        self.unfinished: set[str] = set()
        names = SendRules(BrokerKind.ARTEMIS, lambda one: one.name in (DEAD, COPY), ".exhausted")
        self._judge = PairedJudge(
            Judge(Rules(), names, lambda: 0.5, Readers(true_origin=true_origin)), self.known
        )

    def known(self, lives: Collection[str]) -> dict[str, bool]:
        known = (self.lives | self.unfinished) & set(lives)
        return {one: one in self.lives for one in known}

    def cycle(self, *found: tuple[str, str], origin: str = "orders") -> list[Judgement]:
        deliveries = [
            Delivery(
                None, queue(source), b"x", Provenance(origin=queue(origin), number=number), "e/1"
            )
            for source, number in found
        ]
        ready = self._judge.prepare(deliveries)
        judged = [self._judge.judge(one, "i", 1, 1, is_backlog=False) for one in ready]
        events = (event for one in judged for event in one.events)
        self.lives |= {one.life for one in events if isinstance(one, Received)} - {""}
        return judged


def is_discarded(judged: Judgement, rule: str = IS_TWIN) -> bool:
    event = judged.events[-1]
    return judged.row is None and isinstance(event, Discarded) and event.rule == rule


@given(st.permutations([DEAD, COPY]), st.booleans())
def test_the_second_is_discarded_in_any_order_and_also_in_one_cycle(
    order: list[str], is_one_cycle: bool
) -> None:
    history = History()
    found = [(source, "7-1") for source in order]
    judged = (
        history.cycle(*found)
        if is_one_cycle
        else [one for pair in found for one in history.cycle(pair)]
    )
    assert judged[0].row is not None
    assert is_discarded(judged[1])


@given(st.permutations([DEAD, COPY]))
def test_the_second_is_discarded_where_the_message_names_another_origin(order: list[str]) -> None:
    """The dead letter names its virtual topic, the copy the consumer's queue."""

    def find(origin: Destination, source: Destination) -> Destination:
        return queue("Consumer.A.orders") if source.name == DEAD else origin

    history = History(find)
    names = {DEAD: "orders", COPY: "Consumer.A.orders"}
    first, second = order
    assert history.cycle((first, "7-1"), origin=names[first])[0].row is not None
    assert is_discarded(history.cycle((second, "7-1"), origin=names[second])[0])


def test_another_number_queue_or_no_number_is_no_pair() -> None:
    history = History()
    history.cycle((COPY, "7-1"))
    for judged in (
        history.cycle((DEAD, "8-1"), (DEAD, "7-2"), (DEAD, ""), (COPY, "")),
        history.cycle((DEAD, "7-1"), origin="others"),
    ):
        assert all(one.row is not None for one in judged)


def test_what_was_discarded_stands_for_nothing() -> None:
    """A person may put the dead letter that was taken back into its queue."""
    history = History()
    history.cycle((DEAD, "7-1"))
    assert is_discarded(history.cycle((COPY, "7-1"))[0])
    assert history.cycle((DEAD, "7-1"))[0].row is not None


def test_a_copy_that_comes_again_is_discarded() -> None:
    history = History()
    history.cycle((COPY, "7-1"))
    [again] = history.cycle((COPY, "7-1"))
    assert is_discarded(again, IS_REPEATED)


@pytest.mark.parametrize("taken", [DEAD, COPY])
@pytest.mark.parametrize("found", [DEAD, COPY])
def test_what_another_instance_may_still_undo_waits(taken: str, found: str) -> None:
    """Else both reports of the delivery could be discarded."""
    other, history = History(), History()
    other.cycle((taken, "7-1"))
    history.unfinished = other.lives
    assert len(history.cycle((found, "7-1"), (DEAD, "8-1"))) == 1
    history.unfinished = set()
    assert history.cycle((found, "7-1"))[0].row is not None
