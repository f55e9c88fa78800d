"""One simulated history: a seed decides everything that happens in it."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from unittest import mock

from amqsidecar.broker import Resend
from amqsidecar.engine.cycle_size import CycleLimits
from amqsidecar.engine.gates import NO_GATES
from amqsidecar.errors import LinkLost, StoreUnavailable
from amqsidecar.model import row_changes
from amqsidecar.model.destination import queue
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.operation import Action, Operation, Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.operations.act import act_of
from amqsidecar.store import Store
from simulation.checkers import CHECKERS, End, History, Violation
from simulation.faults import Faults, cycle_in_flight
from simulation.gated import GATE_CHECKERS, GateMaker, group_of
from simulation.rules import DLQ, CountingRules, TableRules
from simulation.sidecar import Sidecar, Surroundings
from support.brokers.memory import (
    ENCODING,
    AckLaterLink,
    Killed,
    MemoryBroker,
    MemoryLink,
    Session,
    StoredMessage,
)
from support.brokers.memory_pair import OTHER_ENCODING, MemoryPair
from support.stores.memory import Medium, MemoryStore
from support.stores.unsynced import UnsyncedStore
from support.virtual_clock import VirtualClock

ALL = RowFilter()
ORIGINS = ("orders", "invoices", "discard.me")
SQLITE_EVERY = 250
"""One seed in this many runs on the real store."""

IDLE_TIMEOUT_MS = 30_000
_TICKS = 30
_DRAIN_TURNS = 600
_GATED_DRAIN_TURNS = 6_000
_ACTED_ON = (RowState.WAITING, RowState.HELD, RowState.PARKED)
_LATE_MS = 60_000


class Run:
    """A world of broker, store, clock and one or two sidecars of one name; `go` runs it."""

    def __init__(
        self,
        seed: int,
        *,
        traces: bool = False,
        on_sqlite: bool | None = None,
        has_gates: bool = False,
        has_two_wires: bool = False,
        has_table: bool = False,
    ) -> None:
        self.seed = seed
        self.trace: list[str] = []
        self._traces = traces
        self._drain_turns = _GATED_DRAIN_TURNS if has_gates else _DRAIN_TURNS
        chance = self._chance = random.Random(seed)
        is_chosen = seed % SQLITE_EVERY == SQLITE_EVERY - 1
        self.is_sqlite = is_chosen if on_sqlite is None else on_sqlite
        self.acks_later = chance.random() < 0.4 and not has_two_wires
        self._wires = (ENCODING, OTHER_ENCODING) if has_two_wires else (ENCODING,)
        self._wire_chance = random.Random(f"wires {seed}")
        # Why no heir of gates: each process has a pace of its own.
        self.has_heir = chance.random() < 0.25 and not self.is_sqlite and not has_gates
        backlog = 0 if self.has_heir or chance.random() < 0.8 else chance.randrange(3, 9)
        self._clock = VirtualClock()
        # Why a chance of its own: the other histories stay as they were.
        room_chance = random.Random(f"room {seed}")
        self._full = room_chance.choice(ORIGINS[:2])
        self.faults = Faults(
            chance,
            self._clock,
            may_purge=not self.is_sqlite,
            hold_up=0.0 if self.acks_later else room_chance.choice([0.0, 0.0, 0.1]),
        )
        rules = (TableRules if has_table else CountingRules)(
            chance.randrange(4), chance.choice([0, 10, 700, 40_000])
        )
        self._poison: set[bytes] = set()
        checkers = (*CHECKERS, *GATE_CHECKERS) if has_gates else CHECKERS
        self.history = History(self._clock, rules.delay_ms, backlog, checkers)
        make_gates = GateMaker(seed, self.history).make if has_gates else lambda: NO_GATES
        self.broker = MemoryBroker(
            refuse_send=self._refuse_send,
            refuse_commit=self._refuse_commit,
            watcher=self.history,
            tells_tokens=chance.random() < 0.8 or bool(self.faults.purge_token),
        )
        self._orphans: list[tuple[int, Session]] = []
        self._told: list[AnyEvent] = []
        self._consumed: list[str] = []
        self._born = 0
        self._depth = 0
        self._held_up = 0
        self._folder: Path | None = None
        self._media = [Medium(chance), *([Medium(chance)] if self.has_heir else [])]
        around = [
            Surroundings(
                make_link=self._make_link,
                make_store=self._store_maker(medium),
                rules=rules,
                clock=self._clock,
                faults=self.faults,
                limits=CycleLimits(
                    max_taken=chance.choice([1, 3, 10]), max_sent=chance.choice([1, 3, 10])
                ),
                backlog_threshold=2 if backlog else 1_000_000,
                step=self._step,
                observe=self._observe,
                lost=self._lost,
                doubt=self.history.doubted.update,
                fell=self.history.fell,
                began=self.history.began,
                make_gates=make_gates,
                group_of=group_of if has_gates else None,
            )
            for medium in self._media
        ]
        for _ in range(backlog):
            self._bear()
        self._sidecars = [Sidecar(name, one) for name, one in zip("AB", around, strict=False)]
        self.history.sidecar_now_ms = self._sidecar_now_ms

    def _make_link(self) -> MemoryLink | MemoryPair:
        if len(self._wires) > 1:
            return MemoryPair(self.broker, self._clock)
        return (AckLaterLink if self.acks_later else MemoryLink)(self.broker)

    def _sidecar_now_ms(self) -> int:
        """Return what the clock of the first sidecar's process says; each process has its own."""
        return self._sidecars[0].clock.now_ms()

    def _store_maker(self, medium: Medium) -> Callable[[], Store]:
        def make() -> Store:
            if self._folder is None:
                return MemoryStore(medium)
            return UnsyncedStore(self._folder / "schedule.db", clock=self._clock, busy_timeout_ms=1)

        return make

    def go(self) -> Sequence[Violation]:
        """Run the whole history; return which claims did not hold."""
        if self._traces:
            self.history.note = self._note
        with self._medium():
            for _ in range(_TICKS):
                self._tick()
                if self.history.violations:
                    return self.history.violations
            self._end()
        return self.history.violations

    @contextmanager
    def _medium(self) -> Iterator[None]:
        if not self.is_sqlite:
            yield
            return
        chance = mock.Mock()
        chance.token_hex = lambda size: f"{self._chance.getrandbits(8 * size):0{2 * size}x}"
        chance.randbelow = self._chance.randrange
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch("amqsidecar.stores.sqlite.transaction.secrets", chance),
            mock.patch("amqsidecar.stores.sqlite.database.secrets", chance),
        ):
            self._folder = Path(folder)
            for sidecar in self._sidecars:
                sidecar.store.inner = sidecar.around.make_store()
            yield
            for sidecar in self._sidecars:
                sidecar.store.close()

    def done(self) -> Counter[str]:
        """Return counts of what the sidecars did."""
        told = Counter(type(event).__name__ for event in self._told)
        return Counter(
            {
                "(messages)": self._born,
                "(messages that were in doubt)": len(self.history.doubted),
                "(broker commits)": self.broker.commits,
                "(links that were held up)": self._held_up,
                "(cycles recovered)": told["CycleRecovered"],
                "(cycles in doubt)": told["CycleInDoubt"],
            }
        )

    # What the world does.

    def _tick(self) -> None:
        chance, broker = self._chance, self.broker
        for _ in range(chance.choice([0, 0, 1, 3])):
            self._bear()
        for name in ORIGINS:
            if broker.queues.get(name) and chance.random() < 0.4:
                self._consume(name)
        if self._orphans:
            self._give_up()
        if broker.is_down and chance.random() < 0.4:
            self._say("the broker is up again")
            broker.is_down = False
        self._disturb()
        sidecar = chance.choice(self._sidecars)
        for _ in range(chance.randrange(1, 4)):
            if self._depth == 0 or sidecar not in self._stopped:
                sidecar.turn(0.5)

    _stopped: tuple[Sidecar, ...] = ()

    def _disturb(self) -> None:
        """Change what the broker's destinations take, and its token, perhaps."""
        faults, broker = self.faults, self.broker
        for name in ORIGINS:
            if faults.happens("block", faults.block):
                broker.unroutable ^= {name}
        for name in ORIGINS:
            if faults.happens("hold_up", faults.hold_up):
                self._fill_or_free(name)
        is_free = broker.owner_of_token() is None
        if is_free and faults.happens("purge_token", faults.purge_token):
            self._purge()

    def _bear(self) -> None:
        one, origin = f"m{self._born}", self._chance.choice(ORIGINS[: 3 if self._born % 7 else 2])
        self._born += 1
        self.history.origins[one] = origin
        self._say("died", one, origin)
        encoding = self._wire_chance.choice(self._wires)
        self.broker.die(DLQ, StoredMessage(one.encode(), encoding=encoding), queue(origin))

    def _consume(self, name: str) -> None:
        waiting = self.broker.queue(name)
        while waiting:
            message = waiting.popleft()
            one = message.body.decode()
            if self.faults.is_on and self._chance.random() < 0.7:
                self._say("died again", one)
                self.broker.die(DLQ, message, queue(name))
            else:
                self._say("consumed", one)
                self._consumed.append(one)

    def _give_up(self, *, at_once: bool = False) -> None:
        """Make the broker notice that links are gone."""
        for since_ms, session in list(self._orphans):
            is_late = self._clock.current_ms >= since_ms + IDLE_TIMEOUT_MS
            if at_once or is_late or self._chance.random() < 0.1:
                self._orphans.remove((since_ms, session))
                self._say("the broker gives a link up")
                self.broker.end(session, executes_request=self._chance.random() < 0.5)

    def _fill_or_free(self, name: str) -> None:
        room = self.broker.room
        if room.pop(name, None) is None:
            room[name] = self._chance.choice([0, 1, 3])
        self._say(name, "has room for", room.get(name, "all"))

    def _purge(self) -> None:
        """Remove the token, and with it the names of what it accepts."""
        named = {number for token in self.broker.tokens for number in token.accepted}
        lying = self.broker.queue(DLQ)
        self.history.doubted |= {one.body.decode() for one in lying if one.number in named}
        self.broker.tokens.clear()
        self.history.purged()

    def _operate(self, _sidecar: Sidecar, _name: str) -> None:
        """Act as a person with the command line: with a store object of its own."""
        chance = self._chance
        store = chance.choice(self._sidecars).around.make_store()
        action = chance.choice([Action.RETRY, Action.CANCEL, Action.HOLD, Action.RELEASE])
        row_filter = chance.choice(
            [
                ALL,
                RowFilter(state=chance.choice(_ACTED_ON)),
                RowFilter(destination="queue://orders"),
            ]
        )
        with suppress(StoreUnavailable):
            store.reopen()
            rows = [row for row in store.list_rows(row_filter, 1_000) if not row.in_flight]
            ids = [(store.message(row.id) or b"").decode() for row in rows]
            now_ms = self._clock.now_ms()
            chosen = Selection(rows=row_filter)
            wanted = Operation(
                id=0,
                action=action,
                selection=chosen,
                actor="ann",
                reason="",
                created_at_ms=now_ms,
                until_id=0,
            )
            store.change(row_filter, act_of(wanted, now_ms, ".exhausted"))
            self.history.operated(action, ids, [row.id for row in rows])
        store.close()

    def _refuse_send(self, resend: Resend) -> str | None:
        """Refuse it, or end all links because of it, which the same message will do again."""
        if self.faults.happens("end_link", self.faults.end_link):
            self._poison.add(resend.message)
        if self.faults.is_on and resend.message in self._poison:
            self.broker.restart()
            return None
        return "no room" if self.faults.happens("refuse_send", self.faults.refuse_send) else None

    def _refuse_commit(self, _sends: Sequence[Resend]) -> str | None:
        is_refused = self.faults.happens("refuse_commit", self.faults.refuse_commit)
        return "the journal is full" if is_refused else None

    # What goes wrong at a step of a sidecar.

    def _step(self, sidecar: Sidecar, name: str) -> None:
        kind = self.faults.pick()
        if kind is not None:
            self._say(f"{sidecar.name}: {kind} at", name)
            getattr(self, f"_{kind}")(sidecar, name)
        elif self._traces:
            self._say(f"{sidecar.name}:", name)

    def _kill(self, sidecar: Sidecar, name: str) -> None:
        self.faults.died_at[name] += 1
        sidecar.die(is_noticed=True)
        raise Killed(name)

    def _vanish(self, sidecar: Sidecar, name: str) -> None:
        self.faults.died_at[name] += 1
        self._orphan(sidecar.die(is_noticed=False))
        raise Killed(name)

    def _cut(self, sidecar: Sidecar, _name: str) -> None:
        if sidecar.link is not None:
            sidecar.link.close()

    def _half_open(self, sidecar: Sidecar, _name: str) -> None:
        if sidecar.link is not None:
            self._orphan(sidecar.link.cut_off())

    def _orphan(self, sessions: Sequence[Session]) -> None:
        for session in sessions:
            if not session.is_over:
                self._orphans.append((self._clock.current_ms, session))

    def _restart(self, _sidecar: Sidecar, _name: str) -> None:
        self._orphans.clear()
        self.broker.restart()

    def _go_down(self, sidecar: Sidecar, name: str) -> None:
        self._restart(sidecar, name)
        self.broker.is_down = True

    def _reorder(self, sidecar: Sidecar, name: str) -> None:
        self._restart(sidecar, name)
        for waiting in self.broker.queues.values():
            self._chance.shuffle(waiting)

    def _set_clock(self, _sidecar: Sidecar, _name: str) -> None:
        before_ms = self._clock.now_ms()
        self._clock.jump(self._chance.choice([-3_600_000, -5_000, -300, 300, 5_000, 3_600_000]))
        self.history.jumped(before_ms, self._clock.now_ms())

    def _stop(self, sidecar: Sidecar, _name: str) -> None:
        """Stop the process while the world goes on; perhaps the broker gives its link up."""
        if self._depth:
            return
        self._depth, self._stopped = 1, (sidecar,)
        if sidecar.link is not None and self._chance.random() < 0.6:
            self._orphan(sidecar.link.sessions)
        for _ in range(self._chance.randrange(2, 12)):
            self._clock.advance(self._chance.choice([1, 500, 10_000]))
            self._tick()
        self._depth, self._stopped = 0, ()

    def _slow(self, sidecar: Sidecar, _name: str) -> None:
        self._clock.advance(took_ms := self._chance.choice([20, 900, 45_000]))
        if took_ms > IDLE_TIMEOUT_MS and sidecar.link is not None:
            sidecar.link.close()

    # The report.

    def _observe(self, sidecar: Sidecar, events: Sequence[AnyEvent]) -> None:
        self._told += events
        self.history.told(events)
        for event in events:
            self._say(f"{sidecar.name} tells", event)

    def _lost(self, sidecar: Sidecar, lost: LinkLost) -> None:
        if lost.held_up_by:
            self._held_up += 1
            return
        begun = [] if sidecar.link is None else sidecar.link.begun_sends
        in_flight = cycle_in_flight(sidecar.store.inner)
        self.history.lost(sorted({*in_flight, *(one.message.decode() for one in begun)}))

    def _say(self, *words: object) -> None:
        if self._traces:
            at = f"{self._clock.current_ms:>12} "
            self.trace.append(at + "  " * self._depth + " ".join(map(str, words)))

    def _note(self, name: str, *values: object) -> None:
        self._say("world:", name, *map(_brief, values))

    # How it ends.

    def _end(self) -> None:
        """Stop all faults, wait until all is drained, and check what is left."""
        self.faults.is_on = False
        self._say("all faults are over")
        self.broker.is_down = False
        self.broker.unroutable.clear()
        self._give_up(at_once=True)
        for sidecar in self._sidecars:
            sidecar.stop()
        self.broker.room.clear()
        if self.faults.hold_up:
            self._drain_beside(self._full)
        is_quiet = [self._drain(sidecar) for sidecar in self._sidecars]
        stores = [sidecar.around.make_store() for sidecar in self._sidecars]
        places = self._places()
        rows, lying = [], list[str]()
        for store in stores:
            store.reopen()
            views = store.list_rows(ALL, 10_000)
            lying += [row.redelivery_id for row in views if row.is_in_final_queue]
            views = [row for row in views if not row.is_in_final_queue]
            rows.append([(row, (store.message(row.id) or b"").decode()) for row in views])
            for row, one in rows[-1]:
                places.setdefault(one, []).append("a store")
                self.history.names[one].add(row.redelivery_id)
        for one, origin in self.history.origins.items():
            if origin.startswith("discard") and one not in places:
                places[one] = ["discarded"]
        journals = [_journal(store) for store in stores]
        self.history.ended(End(places, journals, rows, lying, self._told, all(is_quiet)))
        for store in stores:
            store.close()

    def _drain_beside(self, full: str) -> None:
        """Send everything but messages for a full queue, and check what is left."""
        self.broker.room[full] = 0
        for sidecar in self._sidecars:
            store = sidecar.around.make_store()
            store.reopen()
            turns = 0
            while turns < self._drain_turns and self._waiting_beside(full, store):
                store.change(ALL, row_changes.release(sidecar.clock.now_ms(), "ann"))
                sidecar.turn(3600.0)
                turns += 1
                for name in ORIGINS:
                    self._consume(name)
            late = self._waiting_beside(full, store, since_ms=sidecar.clock.now_ms() - _LATE_MS)
            self.history.stood(full, late)
            sidecar.stop()
            store.close()
        self.broker.room.clear()

    def _waiting_beside(self, full: str, store: Store, since_ms: float = inf) -> list[str]:
        """Return what is due since a time, or before, and goes elsewhere; dead letters, too."""
        rows = [
            (store.message(row.id) or b"").decode()
            for row in store.list_rows(ALL, 10_000)
            if row.state not in (RowState.PARKED, RowState.EXHAUSTED)
            and row.goes_to != str(queue(full))
            and row.due_at_ms <= since_ms
        ]
        return rows + [one.body.decode() for one in self.broker.queue(DLQ)]

    def _drain(self, sidecar: Sidecar) -> bool:
        """Run one sidecar alone until nothing is left to do; return whether it got there."""
        store = sidecar.around.make_store()
        store.reopen()
        turns = 0
        while turns < self._drain_turns and not self._is_quiet(sidecar, store):
            # Why each time: a sidecar that finds its token of another time holds what waits.
            held = RowFilter(state=RowState.HELD)
            store.change(held, row_changes.release(sidecar.clock.now_ms(), "ann"))
            self._decide(sidecar, store)
            sidecar.turn(3600.0)
            turns += 1
            for name in ORIGINS:
                self._consume(name)
        sidecar.stop()
        store.close()
        return turns < self._drain_turns

    def _decide(self, sidecar: Sidecar, store: Store) -> None:
        """Retry parked messages as a person, where their message group waits for that."""
        waiting = store.list_rows(RowFilter(state=RowState.WAITING), 10_000)
        if any("is parked: a person must decide" in (row.reason or "") for row in waiting):
            parked = RowFilter(state=RowState.PARKED)
            rows = store.list_rows(parked, 10_000)
            store.change(parked, row_changes.retry(sidecar.clock.now_ms(), "ann"))
            ids = [(store.message(row.id) or b"").decode() for row in rows]
            self.history.operated(Action.RETRY, ids, [row.id for row in rows])

    def _is_quiet(self, sidecar: Sidecar, store: Store) -> bool:
        if not sidecar.is_owner or self.broker.count(DLQ) or store.next_due_ms() is not None:
            return False
        if store.count_rows(RowFilter(state=RowState.HELD)):
            return False
        return store.reopen().unfinished is None

    def _places(self) -> dict[str, list[str]]:
        places: dict[str, list[str]] = {}
        for one in self._consumed:
            places.setdefault(one, []).append("consumed")
        for name, waiting in self.broker.queues.items():
            for message in waiting:
                places.setdefault(message.body.decode(), []).append(name)
        for session in self.broker.sessions:
            for name, message in session.in_hand.values():
                places.setdefault(message.body.decode(), []).append(f"in hand of {name}")
        return places


def _journal(store: Store) -> Callable[[str], Sequence[AnyEvent]]:
    """Return the source of the events of a redelivery id."""
    if not isinstance(store, MemoryStore):
        return store.history
    events: dict[str, list[AnyEvent]] = {}
    for event in store.events():
        events.setdefault(event.redelivery_id, []).append(event)
    return lambda name: events.get(name, [])


def _brief(value: object) -> object:
    if isinstance(value, StoredMessage):
        return value.body.decode()
    if isinstance(value, Resend):
        to, count = value.destination.name, value.redelivery_count
        return f"{value.message.decode()} to {to} with count {count}"
    return value
