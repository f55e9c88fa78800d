"""Over the wires of Classic chosen messages leave a long queue, and nothing else of it moves."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

import pytest

from amqsidecar.broker import Delivery, IntakeQueue, TakeSession
from amqsidecar.errors import LinkLost
from amqsidecar.model.destination import Destination, queue
from support.brokers.real import ClassicBroker
from support.links.amqp_classic import AmqpClassicHarness
from support.links.cycles import resend
from support.links.openwire import ClassicHarness, OpenWireHarness
from support.links.stomp_classic import StompClassicHarness
from support.versions import CLASSIC_5, CLASSIC_6
from support.waiting import PATIENCE_S, eventually
from support.wires.openwire import WireMessage, read_message

pytestmark = pytest.mark.broker

BROWSES_ALL = """
<policyEntry queue=">" maxBrowsePageSize="100000"/>
<policyEntry queue="narrow.>" maxBrowsePageSize="100000" memoryLimit="2mb"
             producerFlowControl="false"/>
"""
ALL: Final = 1_000_000
CHOSEN: Final = 300
OUT_OF_REACH: Final = 1_500
"""Messages of 2 KB: more than the narrow queue has memory for."""
HARNESSES: Final[dict[str, type[ClassicHarness]]] = {
    "openwire": OpenWireHarness,
    "amqp": AmqpClassicHarness,
    "stomp": StompClassicHarness,
}


@pytest.fixture(
    scope="module", params=[pytest.param(CLASSIC_5, marks=pytest.mark.proof), CLASSIC_6]
)
def broker(request: pytest.FixtureRequest) -> Iterator[ClassicBroker]:
    """A broker whose browsers see the whole of a queue."""
    with ClassicBroker(request.param, destination_policy=BROWSES_ALL) as started:
        yield started


@pytest.fixture(params=HARNESSES)
def harness(
    request: pytest.FixtureRequest, broker: ClassicBroker, unique: str
) -> Iterator[ClassicHarness]:
    with closing(HARNESSES[request.param](broker, unique)) as made:
        yield made


@pytest.fixture
def other(broker: ClassicBroker, unique: str) -> Iterator[OpenWireHarness]:
    """A second client."""
    with closing(OpenWireHarness(broker, f"{unique}.other")) as made:
        yield made


def received(link: TakeSession, limit: int = 100) -> list[Delivery]:
    link.wait(0.5)
    return link.receive(limit)


def fill(client: ClassicHarness, name: str, count: int, size_bytes: int = 2_000) -> None:
    """Put final dead letters into a queue, with redelivery ids r-0, r-1 and so on."""
    client.put_dead_letters(f"{client.prefix}.orders", 1, size_bytes=size_bytes)
    with closing(open_with_token(client)) as link:
        link.attach([client.intake()], 1)
        [died] = eventually(lambda: received(link))
        for cycle, begin in enumerate(range(0, count, 500), start=1):
            sends = [
                resend(died, 3, destination=queue(name), is_final=True, redelivery_id=f"r-{number}")
                for number in range(begin, min(count, begin + 500))
            ]
            link.commit_cycle([died] if cycle == 1 else [], sends, cycle)


def kept(harness: ClassicHarness, message: bytes) -> WireMessage:
    """Return what no take-back changes of a message.

    When a STOMP consumer ends, Classic counts all that it was handed as delivered once more.
    """
    found = read_message(message)
    is_stomp = isinstance(harness, StompClassicHarness)
    return found.with_(redelivery_counter=0) if is_stomp else found


def browsed(client: OpenWireHarness, name: str) -> list[bytes]:
    return [message for _, message in client._consumers.browse(queue(name), ALL)]


def open_with_token(harness: ClassicHarness) -> TakeSession:
    link = harness.make_link("choosing").take(f"{harness.prefix}.token")
    if not link.token.exists():
        link.token.create(0)
    assert link.token.take(PATIENCE_S) is not None
    return link


def choose(link: TakeSession, final: Destination, ids: Sequence[str], prefetch: int = 400) -> None:
    link.attach([IntakeQueue(final, is_final=True, redelivery_ids=tuple(ids))], prefetch)


def take(link: TakeSession, ids: Sequence[str], cycle: int = 1) -> list[str]:
    """Accept chosen messages until all have come, in cycles; return their ids in their order."""
    taken: list[str] = []

    def have_all() -> bool:
        if found := received(link):
            link.commit_cycle(found, [], cycle + len(taken))
            taken.extend(str(one.provenance.redelivery_id) for one in found)
        return len(taken) >= len(ids)

    eventually(have_all)
    return taken


class SecondBrowser:
    """Looks at a queue again and again.

    Attributes:
        fewest: messages that it saw at least.
        looks: how many times it has looked.
    """

    def __init__(self, client: OpenWireHarness, name: str) -> None:
        self.fewest, self.looks = ALL, 0
        self._client, self._name = client, name
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ends.is_set():
            self.fewest = min(self.fewest, len(browsed(self._client, self._name)))
            self.looks += 1

    def __enter__(self) -> "SecondBrowser":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def places(count: int, where: str) -> list[int]:
    chosen = min(CHOSEN, count // 5)
    first = {"front": 0, "middle": (count - chosen) // 2, "end": count - chosen}
    if where in first:
        return list(range(first[where], first[where] + chosen))
    return list(range(3, count, count // chosen))[:chosen]


proof = pytest.mark.proof


@pytest.mark.parametrize(
    ("count", "where"),
    [
        (100, "end"),
        (1_000, "scattered"),
        *(
            pytest.param(count, where, marks=proof)
            for count in (100, 1_000, 5_700, 15_000)
            for where in ("front", "middle", "end", "scattered")
            if (count, where) not in ((100, "end"), (1_000, "scattered"))
        ),
    ],
)
def test_a_second_browser_sees_all_others_and_finds_them_unchanged(
    harness: ClassicHarness, other: OpenWireHarness, unique: str, count: int, where: str
) -> None:
    name, numbers = f"{unique}.exhausted", places(count, where)
    fill(harness, name, count)
    before = browsed(other, name)
    assert len(before) == count
    wanted = [f"r-{one}" for one in numbers]
    with closing(open_with_token(harness)) as link, SecondBrowser(other, name) as browser:
        eventually(lambda: browser.looks > 0)
        choose(link, queue(name), wanted)
        assert take(link, wanted) == wanted
        seen = browser.looks
        eventually(lambda: browser.looks > seen + 1)
        link.attach([], 400)
    assert browser.fewest == count - len(wanted)
    left = set(range(count)) - set(numbers)
    after = [kept(harness, one) for one in browsed(other, name)]
    assert after == [kept(harness, before[one]) for one in sorted(left)]


def test_after_a_crash_all_others_are_at_their_place(
    harness: ClassicHarness, other: OpenWireHarness, unique: str
) -> None:
    """The broker counts what was handed over as delivered once; nothing else is different."""
    name, wanted = f"{unique}.exhausted", ["r-10", "r-500"]
    fill(harness, name, 600)
    before = browsed(other, name)
    link = open_with_token(harness)
    choose(link, queue(name), wanted)
    assert take(link, wanted) == wanted
    harness.drop(link)
    link.close()

    def is_let_in() -> bool:
        """Return whether the broker has given back what the link had: then it admits another."""
        try:
            open_with_token(harness).close()
        except LinkLost:
            return False
        return True

    eventually(is_let_in)
    after = [read_message(one).with_(redelivery_counter=0) for one in browsed(other, name)]
    assert after == [read_message(one) for at, one in enumerate(before) if at not in (10, 500)]


def test_without_counters_gone_messages_are_missed_where_no_other_is(
    harness: ClassicHarness, other: OpenWireHarness, unique: str
) -> None:
    """Else nothing shows the end of the queue: where its memory is full, a browse ends as well.

    STOMP counts nothing by a browse.
    """
    final = queue(f"{unique}.exhausted")
    fill(harness, final.name, 30)
    with closing(open_with_token(harness)) as link:
        choosing = link.features.choosing
        assert choosing is not None

        def answer(expected: bool | None) -> bool:
            assert received(link) == []
            return choosing.holds_chosen(final, ["r-gone"]) is expected

        wanted = [f"r-{one}" for one in range(29)]
        choose(link, final, [*wanted, "r-gone"])
        assert take(link, wanted) == wanted
        eventually(lambda: answer(None))
        choose(link, final, ["r-29", "r-gone"])
        assert choosing.holds_chosen(final, ["r-gone"])
        assert take(link, ["r-29"], cycle=1_000) == ["r-29"]
        eventually(lambda: answer(None if isinstance(harness, StompClassicHarness) else False))


# Why one wire: that memory is the broker's.
@pytest.mark.parametrize(
    ("harness", "is_narrow"),
    [
        pytest.param(wire, is_narrow, marks=[proof] if is_narrow and wire != "openwire" else [])
        for wire in HARNESSES
        for is_narrow in (False, True)
    ],
    indirect=["harness"],
)
def test_messages_out_of_reach_are_not_called_gone(
    harness: ClassicHarness,
    other: OpenWireHarness,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
    is_narrow: bool,
) -> None:
    """Behind more than the sidecar holds, or than the broker has memory for."""
    if not is_narrow:
        monkeypatch.setattr("amqsidecar.brokers.classic.choice.REACH_BYTES", 1_000_000)
        monkeypatch.setattr("amqsidecar.brokers.stomp_classic.intake._PASSED_MAX", 500)
    final = queue(f"narrow.{unique}" if is_narrow else unique)
    fill(harness, final.name, OUT_OF_REACH)
    last = f"r-{OUT_OF_REACH - 1}"
    with closing(open_with_token(harness)) as link:
        choosing = link.features.choosing
        assert choosing is not None
        choose(link, final, ["r-10", last])
        assert take(link, ["r-10"]) == ["r-10"]
        eventually(lambda: not received(link) and choosing.holds_chosen(final, [last]) is None)
        # What a service does then.
        link.attach([IntakeQueue(final, is_final=True)], 400)
        everything = [f"r-{one}" for one in range(OUT_OF_REACH) if one != 10]
        assert take(link, everything, cycle=1_000) == everything
