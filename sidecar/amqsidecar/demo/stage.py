"""One broker of the demo with its applications, its messages and its sidecar."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from amqsidecar.clock import SystemClock
from amqsidecar.demo.accounts import Count, count
from amqsidecar.demo.applications import BackgroundConsumer, ConsumedMessage, WireApplications
from amqsidecar.demo.sidecar import Sidecar
from amqsidecar.demo.waiting import eventually
from amqsidecar.errors import SidecarError, StoreError
from amqsidecar.model.event import Discarded, Received, Resent
from amqsidecar.model.schedule import RowFilter, RowState, RowView
from amqsidecar.model.sidecar_names import FINAL_SUFFIX
from amqsidecar.schedule import Schedule
from amqsidecar.stores.sqlite.store import SqliteStore


class DemoSchedule:
    """Reads the store of one sidecar; never writes. Any thread may call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: set[str] = set()
        self._discarded: set[str] = set()
        self._lock = Lock()

    def rows(self) -> list[RowView]:
        """Return waiting messages, without exhausted messages."""
        with self._opened() as store:
            rows = [] if store is None else store.list_rows(RowFilter(), 10_000)
        return [one for one in rows if one.state is not RowState.EXHAUSTED]

    def discarded(self) -> frozenset[str]:
        """Return the JMSMessageIDs of which the history says that a rule discarded them."""
        with self._lock, self._opened() as store:
            if store is None:
                return frozenset()
            for redelivery_id in self._redelivery_ids() - self._read:
                told = store.history(redelivery_id)
                # Why once is enough: it is decided when a message is received.
                if told:
                    self._read.add(redelivery_id)
                if any(isinstance(event, Discarded) for event in told):
                    self._discarded.update(
                        str(event.message_id) for event in told if isinstance(event, Received)
                    )
            return frozenset(self._discarded)

    def survivor(self) -> str | None:
        """Return the redelivery id of a message that came back more than once, to the end."""
        with self._opened() as store:
            if store is None:
                return None
            for redelivery_id in sorted(self._read):
                told = store.history(redelivery_id)
                resends = sum(isinstance(event, Resent) for event in told)
                if resends > 1 and isinstance(told[-1], Resent):
                    return redelivery_id
        return None

    @contextmanager
    def _opened(self) -> Iterator[Schedule | None]:
        """Open the store; None = it is not there yet."""
        with closing(SqliteStore(self._path, clock=SystemClock(), read_only=True)) as schedule:
            try:
                schedule.open()
            except StoreError:
                yield None
                return
            yield schedule

    def _redelivery_ids(self) -> set[str]:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
            return {row[0] for row in database.execute("SELECT redelivery_id FROM event_key")}


LEFT = "demo.payments"
"""Where messages die that are left for a person."""
# Why: dying and coming back take milliseconds, too short for the eye.
AFTERGLOW_MS = 600


@dataclass(frozen=True)
class Batch:
    """Messages of one queue with one fate."""

    queue: str
    failures: int
    why: str
    messages: int

    @property
    def ids(self) -> list[str]:
        """The ids of the messages."""
        return ids_of(self.queue, self.messages)


def ids_of(queue: str, messages: int) -> list[str]:
    """Return the ids of the messages of a queue."""
    return [f"{queue}-{number}" for number in range(messages)]


class Fate(Enum):
    """Where a message is now."""

    QUEUED = auto()
    DEAD = auto()
    WAITING = auto()
    RETURNING = auto()
    RECOVERED = auto()
    EXHAUSTED = auto()
    DISCARDED = auto()


@dataclass(frozen=True)
class Tile:
    """One message in the view.

    Attributes:
        seconds: WAITING: how long until it comes back; 0 and less: it is late.
    """

    fate: Fate
    seconds: float = 0


class SidecarLooks(NamedTuple):
    """The process of the sidecar in the view."""

    words: str
    is_running: bool = False
    is_dead: bool = False


@dataclass(frozen=True)
class Snapshot:
    """A stage as it looks now."""

    title: str
    rules: str
    groups: Sequence[tuple[Batch, Sequence[Tile]]]
    sidecar: SidecarLooks

    def number(self, fate: Fate) -> int:
        """Return how many messages are there."""
        return sum(tile.fate is fate for _, tiles in self.groups for tile in tiles)


class StageOccupied(SidecarError):
    """A running broker holds messages that are not the demo's."""


class Stage:
    """A broker, applications that fail on purpose, and one sidecar."""

    def __init__(
        self,
        *,
        title: str,
        broker: AbstractContextManager[object],
        applications: WireApplications,
        sidecar: Sidecar,
        rules: str,
        dead_letter_queue: str,
        groups: Sequence[Batch],
    ) -> None:
        self.title = title
        self.groups = groups
        self.sidecar = sidecar
        self.console_line = f"Console of {title}: {sidecar.console}"
        self.schedule = DemoSchedule(sidecar.store)
        self._broker = broker
        self._applications = applications
        self._rules = rules
        self._final_queue = f"{dead_letter_queue}{FINAL_SUFFIX}"
        self._queues = [*(group.queue for group in groups), dead_letter_queue]
        self._looks = SidecarLooks("not started yet")
        self._consumers: list[BackgroundConsumer] = []
        self._final: BackgroundConsumer | None = None
        self._had_row: set[tuple[str, int]] = set()

    # ------------------------------------------------------------------ what happens

    @contextmanager
    def open(self) -> Iterator["Stage"]:
        """Start the broker and the applications; end everything afterwards.

        Raises:
            StageOccupied: dead letters of others are on the broker already.
        """
        with ExitStack() as stack:
            stack.enter_context(self._broker)
            stack.callback(self.sidecar.stop)
            for queue in (*self._queues, self._final_queue):
                if not self._applications.is_empty(queue):
                    raise StageOccupied(
                        f"{queue} already holds messages. The demo takes all messages in it, so "
                        "it needs a broker of its own: empty that queue, or omit --broker"
                    )
            # Why not a stack for the consumers: they wait for a broker that may be gone by then.
            self._consumers += [
                self._applications.consume(group.queue, group.failures) for group in self.groups
            ]
            self._final = self._applications.consume(self._final_queue, 0)
            yield self

    def start_sidecar(self) -> None:
        """Start `amqsidecar run` and wait until it reads dead letters."""
        self._looks = self._looks._replace(words="starting")
        pid = self.sidecar.start()
        self._looks = SidecarLooks(f"amqsidecar run, process {pid}", is_running=True)

    def produce(self, within_s: float) -> None:
        """Send all messages, spread over some seconds."""

        def send(group: Batch) -> None:
            self._applications.fill(group.queue, group.ids, group.messages / within_s)

        with ThreadPoolExecutor(len(self.groups)) as pool:
            list(pool.map(send, self.groups))

    def kill_sidecar(self) -> None:
        """Kill the sidecar with SIGKILL."""
        self._looks = SidecarLooks("kill -9", is_dead=True)
        self.sidecar.kill()

    def finish(self, within_s: float) -> None:
        """Wait until every message has ended and nothing is left on its way, then stop."""
        everything = sum(group.messages for group in self.groups)
        with suppress(TimeoutError):
            eventually(
                lambda: self._ended() >= everything,
                within_s=within_s,
                what="every message ends",
                every_s=0.1,
            )
            eventually(lambda: not self._left(), within_s=10, what="nothing is left", every_s=0.2)
        self.sidecar.stop()
        self._looks = SidecarLooks("stopped with SIGTERM")
        for consumer in (*self._consumers, self._final):
            if consumer is not None:
                consumer.stop()

    def leave_a_group(self, messages: int) -> None:
        """Start the sidecar again, and make messages die that then wait for an hour.

        Their consumer works by now, so a message that a person retries is consumed.
        """
        self.start_sidecar()
        self._applications.consume(LEFT, 1)
        self._applications.fill(LEFT, ids_of(LEFT, messages), None)
        eventually(
            lambda: len(self.schedule.rows()) == messages, within_s=60, what="the messages wait"
        )

    def _ended(self) -> int:
        result = self.result()
        return len({*result.recovered, *result.exhausted, *result.discarded})

    def _left(self) -> bool:
        return bool(self.schedule.rows()) or not all(
            self._applications.is_empty(queue) for queue in self._queues
        )

    # ------------------------------------------------------------------ what is seen

    def result(self) -> Count:
        """Count by message id the applications' deliveries and the recorded discards."""
        return count(
            (one for group in self.groups for one in group.ids),
            self._deliveries(),
            self._exhausted(),
            self._discarded(),
        )

    @property
    def deaths(self) -> int:
        """How often a consumer failed."""
        return sum(one.outcome == "failed" for one in self._deliveries())

    def snapshot(self) -> Snapshot:
        """Return how everything stands now."""
        last: dict[str, ConsumedMessage] = {one.id: one for one in self._deliveries() if one.id}
        exhausted = set(self._exhausted())
        discarded = self._discarded()
        rows = {_key(row): row for row in self.schedule.rows()}
        self._had_row.update(rows)
        now_ms = time.time() * 1000

        def tile(test_id: str) -> Tile:
            seen = last.get(test_id)
            if test_id in exhausted:
                return Tile(Fate.EXHAUSTED)
            if test_id in discarded:
                return Tile(Fate.DISCARDED)
            if seen is None:
                return Tile(Fate.QUEUED)
            is_fresh = now_ms - seen.at_ms < AFTERGLOW_MS
            if seen.outcome in ("succeeding", "succeeded"):
                return Tile(Fate.RETURNING if is_fresh else Fate.RECOVERED)
            death = (seen.message_id, seen.delivery)
            if death in rows and not is_fresh:
                return Tile(Fate.WAITING, (rows[death].due_at_ms - now_ms) / 1000)
            has_left = death in self._had_row and death not in rows
            return Tile(Fate.RETURNING if has_left else Fate.DEAD)

        return Snapshot(
            title=self.title,
            rules=self._rules,
            groups=[(group, [tile(one) for one in group.ids]) for group in self.groups],
            sidecar=self._looks,
        )

    def _deliveries(self) -> list[ConsumedMessage]:
        return [one for consumer in self._consumers for one in consumer.events()]

    def _exhausted(self) -> list[str]:
        events = () if self._final is None else self._final.events()
        return [one.id for one in events if one.outcome == "succeeded"]

    def _discarded(self) -> set[str]:
        ids = {one.message_id: one.id for one in self._deliveries()}
        return {ids.get(message_id, message_id) for message_id in self.schedule.discarded()}


def _key(row: RowView) -> tuple[str, int]:
    """Return which death of which message a row is about: its id and its number of deliveries."""
    return str(row.message_id), row.redelivery_count
