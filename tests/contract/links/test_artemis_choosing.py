"""Over the wires of Artemis chosen messages leave a long queue by a selector, and nothing else."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final

import pytest

from amqsidecar.broker import Delivery, IntakeQueue, Resend, TakeSession
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.model.destination import queue
from support.brokers.artemis_manager import ArtemisManager
from support.brokers.real import ArtemisBroker
from support.jms.message import JmsMessage
from support.jms.peer import JmsPeer
from support.links.amqp_artemis import AmqpArtemisHarness
from support.links.artemis import ArtemisHarness
from support.links.core_artemis import CoreArtemisHarness
from support.links.stomp_artemis import StompArtemisHarness
from support.tier import at_length
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.broker

CHOSEN: Final = 500
HARNESSES: Final[dict[str, type[ArtemisHarness]]] = {
    "stomp": StompArtemisHarness,
    "core": CoreArtemisHarness,
    "amqp": AmqpArtemisHarness,
}
PARAMETERS = ["stomp", *(pytest.param(one, marks=pytest.mark.proof) for one in ("core", "amqp"))]


@pytest.fixture(params=PARAMETERS)
def harness(
    request: pytest.FixtureRequest, artemis: ArtemisBroker, unique: str
) -> Iterator[ArtemisHarness]:
    with closing(HARNESSES[request.param](artemis, unique)) as made:
        yield made


def received(link: TakeSession) -> list[Delivery]:
    link.wait(0.5)
    return link.receive(100)


def fill(harness: ArtemisHarness, link: TakeSession, name: str, ids: list[str]) -> None:
    """Put final dead letters with these redelivery ids into a queue."""
    harness.put_dead_letters(f"{harness.prefix}.orders", 1)
    link.attach([harness.intake()], 1)
    [died] = eventually(lambda: received(link))
    for cycle, begin in enumerate(range(0, len(ids), 500), start=1):
        sends = [
            Resend(
                destination=queue(name),
                message=died.message,
                is_final=True,
                redelivery_id=one,
                redelivery_count=3,
                redelivery_delay_ms=0,
                encoding=died.encoding,
            )
            for one in ids[begin : begin + 500]
        ]
        link.commit_cycle([died] if cycle == 1 else [], sends, cycle)


class SecondLook:
    """Counts what a queue holds and nobody has in hand, again and again.

    Attributes:
        fewest: messages at least.
        looks: how many times it has counted.
    """

    def __init__(self, broker: ArtemisBroker, name: str) -> None:
        self.fewest, self.looks = 1_000_000, 0
        self._broker, self._name = broker, name
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        resource = f"queue.{self._name}"
        with closing(ArtemisManager(self._broker)) as management:
            while not self._ends.is_set():
                # Why in this order: what is accepted between the two counts is in both.
                held = management.ask(ManagementQuestion(resource, attribute="MessageCount"))
                handed = management.ask(ManagementQuestion(resource, attribute="DeliveringCount"))
                self.fewest = min(self.fewest, int(held.value) - int(handed.value))
                self.looks += 1

    def __enter__(self) -> "SecondLook":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def browsed(
    harness: ArtemisHarness, broker: ArtemisBroker, name: str, count: int
) -> list[JmsMessage]:
    # Why: to a client of Core the broker shows another message id of AMQP's each time.
    provider = "qpid" if isinstance(harness, AmqpArtemisHarness) else "core"
    found = JmsPeer.of(broker, provider).browse(name, count=count)
    return [replace(one, received_at_ms=0) for one in found]


@pytest.mark.parametrize(
    "where",
    ["end", *(pytest.param(one, marks=pytest.mark.proof) for one in ("front", "scattered"))],
)
def test_all_others_stay_and_are_unchanged(
    harness: ArtemisHarness, artemis: ArtemisBroker, where: str
) -> None:
    """The ids have quotes, and one selector names as many as a take-back chooses at once."""
    count, name = at_length(5_700, otherwise=1_500), f"{harness.prefix}.exhausted"
    ids = [f"it's-0123456789abcdef-{number:012d}" for number in range(count)]
    first = {"front": 0, "end": count - CHOSEN}.get(where)
    wanted = ids[:: count // CHOSEN][:CHOSEN] if first is None else ids[first : first + CHOSEN]
    harness.management.create_queue(name, name, is_anycast=True)
    with closing(harness.make_link("choosing").take(f"{harness.prefix}.token")) as link:
        link.token.create(0)
        assert link.token.take(PATIENCE_S) == 0
        fill(harness, link, name, ids)
        before = browsed(harness, artemis, name, count)
        taken: list[str] = []

        def have_all() -> bool:
            if found := received(link):
                link.commit_cycle(found, [], 1_000 + len(taken))
                taken.extend(str(one.provenance.redelivery_id) for one in found)
            return len(taken) >= CHOSEN

        choosing = link.features.choosing
        assert choosing is not None
        with SecondLook(artemis, name) as look:
            eventually(lambda: look.looks > 0)
            link.attach(
                [IntakeQueue(queue(name), is_final=True, redelivery_ids=tuple(wanted))], 400
            )
            eventually(have_all)
            assert taken == wanted
            eventually(lambda: choosing.holds_chosen(queue(name), wanted) is False)
            others = [one for one in ids if one not in set(wanted)]
            assert choosing.holds_chosen(queue(name), others[-1:]) is True
            assert choosing.holds_chosen(queue(f"{name}.gone"), wanted) is False
            link.attach([], 400)
        assert look.fewest == count - CHOSEN
    kept = set(others)
    assert browsed(harness, artemis, name, count - CHOSEN) == [
        one for one, redelivery_id in zip(before, ids, strict=True) if redelivery_id in kept
    ]
