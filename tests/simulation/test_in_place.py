"""The mode `in_place`: each message is always in exactly one queue of the broker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from amqsidecar.broker import Delivery, Features, IntakeQueue, Resend
from amqsidecar.engine.crash_points import NAMES
from amqsidecar.errors import CommitRefused, LinkLost, ManagementRefused
from amqsidecar.model import row_changes
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.provenance import lying_id
from amqsidecar.model.schedule import Recall, RowFilter, RowState
from amqsidecar.operations import fetch
from simulation.discards import discard_some, undo_all
from simulation.rules import DLQ, CountingRules
from simulation.world import World
from support.brokers.memory import Killed, MemoryBroker, MemoryLink, StoredMessage
from support.tier import at_length

COUNT = 12
SEEDS = at_length(10_000, otherwise=25)
LATER_MS = 3_600_000
FAULTS = (None, None, None, "lost_before", "lost_after", "killed_before", "killed_after")


class ChoosingLink(MemoryLink):
    """Hands out only messages that are chosen, as a link to Artemis does."""

    _items: Sequence[IntakeQueue] = ()
    is_paged = False
    """Hands out nothing that is chosen; only a read of the whole queue finds it."""

    @property
    def features(self) -> Features:
        return Features(background=self, choosing=self)

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        super().attach(queues, prefetch)
        self._items = tuple(queues)

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool:
        if self.is_paged:
            raise ManagementRefused("no right to manage")
        found = self.browse(IntakeQueue(queue), 1_000_000)
        return any(lying_id(one.provenance) in redelivery_ids for one in found)

    def receive(self, limit: int) -> list[Delivery]:
        session = self._check_open()
        found: list[Delivery] = []
        for item in self._items:
            name = item.destination.name
            waiting = self.broker.queue(name)
            for message in list(waiting):
                told = self._delivery(0, name, message)
                is_chosen = not item.redelivery_ids or (
                    not self.is_paged
                    and lying_id(told.provenance) in item.redelivery_ids
                    and (not item.except_count or message.redelivery_count != item.except_count)
                )
                if is_chosen and self._room() > 0 and len(found) < limit:
                    self._next_handle += 1
                    del waiting[next(at for at, one in enumerate(waiting) if one is message)]
                    session.in_hand[self._next_handle] = (name, message)
                    found.append(self._delivery(self._next_handle, name, message))
        return found


class Place:
    """A world whose consumers see each message once per attempt."""

    def __init__(self, folder: Path, **limits: int) -> None:
        self.rules = CountingRules()
        self.world = World(folder, self.rules, **limits)
        self.world.is_in_place = True
        self.world.link_type = ChoosingLink
        self.broker: MemoryBroker = self.world.broker
        self.seen: Counter[tuple[str, int]] = Counter()
        self.taken: list[str] = []
        self.bodies: list[str] = []
        self.is_calm = True
        self.world.start()

    @property
    def link(self) -> ChoosingLink:
        assert isinstance(self.world.link, ChoosingLink)
        return self.world.link

    def die(self, body: str, origin: str = "orders") -> None:
        self.bodies.append(body)
        message = StoredMessage(body.encode(), message_id=f"ID:{body}")
        self.broker.die(DLQ, message, queue(origin))

    def consume(self, origin: str, is_good: bool) -> None:
        """Consume what is in a queue, or let it die once more."""
        waiting = self.broker.queue(origin)
        while waiting:
            message = waiting.popleft()
            body = message.body.decode()
            self.seen[body, message.redelivery_count] += 1
            if is_good:
                self.taken.append(body)
            else:
                message.message_id = f"ID:{body}"
                self.broker.die(DLQ, message, queue(origin))

    def check(self) -> None:
        """Each message is in exactly one place of the broker, or was consumed once."""
        queues = [one.body.decode() for found in self.broker.queues.values() for one in found]
        in_hand = [
            one.body.decode() for each in self.broker.sessions for _, one in each.in_hand.values()
        ]
        assert sorted([*queues, *in_hand, *self.taken]) == sorted(self.bodies)
        assert all(count == 1 for count in self.seen.values())

    def run(self, turns: int = 1) -> None:
        """Run; a process that dies or loses its link goes on."""
        for _ in range(turns):
            self.is_calm = False
            try:
                self.world.run(1)
            except (CommitRefused, LinkLost):
                self.is_calm = True
                self.world.connect()
            except Killed:
                self.check()
                self.is_calm = True
                self.world.kill()
                self.world.start()
            self.is_calm = True
            self.check()

    def burn(self) -> None:
        """Kill the process, and remove its store."""
        self.world.kill()
        for path in self.world.path.parent.glob("schedule.db*"):
            path.unlink()
        self.world.start()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_all_is_redelivered_from_the_queue_and_exhausted_in_place(place: Place) -> None:
    for at in range(COUNT):
        place.die(f"m{at}")
    place.die("gone", "discard")
    place.bodies.remove("gone")
    place.world.run(1)
    assert len(place.world.store.recalled(Recall.RULES, 100)) == COUNT + 1
    place.world.run(30)
    for count in (1, 2):
        assert {one.redelivery_count for one in place.broker.queue("orders")} == {count}
        place.consume("orders", is_good=False)
        place.run(40)
    rows = place.world.store.list_rows(RowFilter(), 100)
    assert [(row.state, row.is_in_final_queue, row.recall) for row in rows] == [
        (RowState.EXHAUSTED, True, Recall.NONE)
    ] * COUNT
    assert len(place.broker.queue(DLQ)) == COUNT


def test_what_a_destination_refuses_stays_in_its_queue_until_it_takes(place: Place) -> None:
    def refuse(resend: Resend) -> str | None:
        return "it is full" if resend.destination.name == "full" else None

    place.broker.refuse_send = refuse
    for at in range(COUNT):
        place.die(f"m{at}", "full" if at % 2 else "orders")
    place.run(60)
    assert len(place.broker.queue("orders")) == COUNT // 2
    place.broker.refuse_send = lambda _resend: None
    place.run(400)
    assert len(place.broker.queue("full")) == COUNT // 2


@pytest.mark.parametrize("is_commit", [False, True])
def test_what_nothing_sends_is_left_to_a_person(place: Place, is_commit: bool) -> None:
    def refuse(sends: Sequence[Resend]) -> str | None:
        return "this one is bad" if any(one.message == b"m3" for one in sends) else None

    place.broker.refuse_commit = refuse if is_commit else place.broker.refuse_commit
    if not is_commit:
        place.broker.refuse_send = lambda one: refuse([one])
    for at in range(COUNT):
        place.die(f"m{at}")
    place.run(600)
    assert len(place.broker.queue("orders")) == COUNT - 1
    (row,) = place.world.store.list_rows(RowFilter(), 100)
    assert (row.recall, row.reason) == (Recall.HELD, "held by rule: this one is bad")
    place.broker.refuse_commit = lambda _sends: None
    place.broker.refuse_send = lambda _resend: None
    place.world.store.change(RowFilter(), row_changes.retry(0, "ann"))
    place.world.run(60)
    assert len(place.broker.queue("orders")) == COUNT


def test_a_held_message_stays_where_it_lies(place: Place) -> None:
    place.die("held")
    place.die("sent")
    place.run(1)
    ids = tuple(row.id for row in place.world.store.list_rows(RowFilter(), 9))[:1]
    assert place.world.store.change(RowFilter(ids=ids), row_changes.hold(0, "ann")) == 1
    place.run(60)
    assert [one.body for one in place.broker.queue("orders")] == [b"sent"]
    assert [one.body for one in place.broker.queue(DLQ)] == [b"held"]
    assert place.world.store.change(RowFilter(ids=ids), row_changes.release(0, "ann")) == 1
    place.run(60)
    assert [one.body for one in place.broker.queue("orders")] == [b"sent", b"held"]


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 60])
def test_an_undone_discard_leaves_a_message_to_the_rules_or_held_as_before(
    place: Place, turns: int, is_held: bool
) -> None:
    world = place.world
    place.rules.delay_ms = LATER_MS
    place.die("m")
    world.run(1)
    [before] = world.store.list_rows(RowFilter(), 9)
    if is_held:
        assert world.store.change(RowFilter(), row_changes.hold(0, "ann")) == 1
    number = discard_some(world, 1)
    world.run(turns)
    undo_all(world, number)
    world.run(60)
    [row] = world.store.list_rows(RowFilter(), 9)
    assert row.recall is (Recall.HELD if is_held else Recall.RULES)
    assert (row.is_in_final_queue, row.due_at_ms) == (True, before.due_at_ms)
    assert world.bodies(DLQ) == ["m"]
    world.store.change(RowFilter(), row_changes.release(0, "ann"))
    world.clock.advance(LATER_MS)
    world.run(60)
    print(
        world.store.list_rows(RowFilter(), 9),
        [*world.broker.queues.items()],
        world.events[-6:],
        place.world.finals.place.__dict__,
    )
    assert world.bodies("orders") == ["m"]


@pytest.mark.parametrize("turns", [0, 60])
def test_an_edit_that_is_not_made_leaves_a_message_to_the_rules_as_before(
    place: Place, turns: int
) -> None:
    world, store = place.world, place.world.store
    place.rules.delay_ms = LATER_MS
    place.die("m")
    world.run(1)
    [before] = store.list_rows(RowFilter(), 9)
    fetch.fetch(store, before.id, world.clock.now_ms(), "ann")
    world.run(turns)
    assert fetch.is_here(store, before.id) is bool(turns)
    assert fetch.put_back(store, before.id, world.clock.now_ms(), "ann", ".exhausted")
    world.run(60)
    [row] = store.list_rows(RowFilter(), 9)
    assert (row.recall, row.due_at_ms) == (Recall.RULES, before.due_at_ms)
    assert (row.is_in_final_queue, world.bodies(DLQ)) == (True, ["m"])


@pytest.mark.parametrize("is_stranger", [False, True])
def test_the_message_chosen_in_a_paged_queue_leaves_the_others_to_the_rules(
    place: Place, is_stranger: bool
) -> None:
    """The whole queue is taken, and what was not chosen is put back as it was."""
    world, store = place.world, place.world.store
    place.rules.delay_ms = LATER_MS
    for name in ("chosen", "held", "late"):
        place.die(name)
    world.run(1)
    chosen, held, late = store.list_rows(RowFilter(), 9)
    now_ms = world.clock.now_ms()
    store.change(RowFilter(ids=(held.id,)), row_changes.hold(now_ms, "ann"))
    store.change(RowFilter(ids=(chosen.id,)), row_changes.retry(now_ms, "ann"))
    place.link.is_paged = True
    for _ in range(60):
        world.run(1)
        if is_stranger and world.finals.place.whole:
            place.die("new")
            is_stranger = False
    assert world.bodies("orders") == ["chosen"]
    found = {row.id: row for row in store.list_rows(RowFilter(), 9)}
    assert found.pop(held.id).recall is Recall.HELD
    assert found[late.id].due_at_ms == late.due_at_ms
    assert {row.recall for row in found.values()} == {Recall.RULES}
    assert {row.due_at_ms > world.clock.now_ms() for row in found.values()} == {True}
    world.clock.advance(LATER_MS)
    place.link.is_paged = False
    world.run(60)
    assert sorted(world.bodies(DLQ)) == ["held"]
    place.check()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_fails_each_message_is_in_one_queue(tmp_path: Path, seed: int) -> None:
    """Kills, lost links, refusals, failed commits, and stores that burn."""
    chance = random.Random(seed)
    place = Place(tmp_path, max_taken=chance.choice((1, 3, 10)), max_sent=chance.choice((1, 3, 10)))
    calm = False

    def happens(share: float) -> bool:
        return not (calm or place.is_calm) and chance.random() < share

    place.broker.refuse_send = lambda _one: "full" if happens(0.02) else None
    place.broker.refuse_commit = lambda _all: "refused" if happens(0.02) else None
    place.broker.commit_fault = lambda: chance.choice(FAULTS) if happens(0.2) else None
    place.world.crash_at = lambda name: name in NAMES and happens(0.02)
    for at in range(60):
        if len(place.bodies) < COUNT and chance.random() < 0.5:
            place.die(f"m{at}", chance.choice(("orders", "bills")))
        place.run(chance.randrange(6))
        place.consume(chance.choice(("orders", "bills")), is_good=chance.random() < 0.3)
        if chance.random() < 0.1:
            place.burn()
        if chance.random() < 0.1:
            place.world.clock.advance(chance.randrange(3_000))
    calm = True
    for _ in range(300):
        place.run()
        for name in ("orders", "bills"):
            place.consume(name, is_good=True)
        place.world.clock.advance(1_000)
    left = [one for one in place.broker.queue(DLQ) if one.redelivery_count < 2]
    reasons = {row.reason for row in place.world.store.list_rows(RowFilter(), 99)}
    assert not left or reasons - {None}, (left, reasons)
    assert all(place.seen[body, 0] == 0 for body in place.bodies)
