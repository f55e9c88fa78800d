"""How late messages come back, at a steady rate of dead letters.

Due time: what the sidecar wrote into its history when it took the message. Arrival: when a JMS
consumer of the original destination was handed it, by the clock of the same machine.
"""

import itertools
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

from amqsidecar.model.event import Resent, Scheduled
from amqsidecar.stores.packing import unpack_events
from bench.dead_letters import application_peer, dead_letters
from bench.sidecar_watch import measured_sidecar
from support.brokers.real import Broker
from support.jms.peer import Delivery
from support.waiting import eventually

DELAY_MS = 2000
_numbers = itertools.count(1)


class Spread(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: list[int]) -> "Spread":
        ordered = sorted(values)
        return cls(
            ordered[len(ordered) // 2],
            ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
            ordered[-1],
        )


class Lateness(NamedTuple):
    """What was found.

    Attributes:
        at_consumer: from the due time to the arrival at the consumer.
        by_metric: what the sidecar feeds `amqsidecar_lateness_seconds` with: until the cycle began.
        of_machine: how late a process that only sleeps woke up meanwhile.
        per_second: how fast the dead letters were really taken in.
    """

    at_consumer: Spread
    by_metric: Spread
    of_machine: Spread
    per_second: float


def bench_lateness(
    broker: Broker,
    folder: Path,
    *,
    per_second: int,
    seconds: float,
    warm_up_s: float,
    wire: str | None = None,
) -> Lateness:
    queue = f"bench.late.{next(_numbers)}"
    count, unmeasured = int(per_second * (warm_up_s + seconds)), int(per_second * warm_up_s)
    run = folder / queue
    peer = application_peer(broker)
    with (
        dead_letters(broker, queue) as dead,
        measured_sidecar(run, broker, DELAY_MS, wire) as sidecar,
    ):
        # Why: a listener acknowledges without waiting, so the consumer itself adds no delay.
        with peer.start_flaky_consumer(queue, how="listener") as consumer:
            sidecar.start()
            with _Sleeper() as sleeper:
                dead.put(count, per_second=per_second)
            eventually(
                lambda: len(consumer.events("succeeded")) >= count,
                within_s=60,
                every_s=0.5,
                what=f"{count} messages come back",
            )
            arrived = consumer.events("succeeding")
        sidecar.stop()
    assert len({delivery.message_id for delivery in arrived}) == count
    return _evaluate(run / "schedule.db", arrived, unmeasured, sleeper.late_ms())


def _evaluate(
    path: Path, arrived: list[Delivery], unmeasured: int, machine_ms: list[int]
) -> Lateness:
    """Compare arrivals with due times, both in order: one queue and one consumer keep it."""
    at_ms = sorted(delivery.at_ms for delivery in arrived)[unmeasured:]
    scheduled, resent = _history(path)
    due_ms = sorted(event.due_at_ms for event in scheduled)[unmeasured:]
    taken_ms = sorted(event.at_ms for event in scheduled)[unmeasured:]
    span_s = max(1, taken_ms[-1] - taken_ms[0]) / 1000
    return Lateness(
        Spread.of([arrival - due for arrival, due in zip(at_ms, due_ms, strict=True)]),
        Spread.of([event.lateness_ms for event in resent[unmeasured:]]),
        Spread.of(machine_ms),
        len(taken_ms) / span_s,
    )


def _history(path: Path) -> tuple[list[Scheduled], list[Resent]]:
    """Return the events of both kinds in the store's whole history, in order."""
    scheduled, resent = [], []
    with closing(sqlite3.connect(path)) as database:
        for packing, body in database.execute("SELECT packing, body FROM event_block ORDER BY seq"):
            for event in unpack_events(packing, body):
                if isinstance(event, Scheduled):
                    scheduled.append(event)
                elif isinstance(event, Resent):
                    resent.append(event)
    return scheduled, resent


_SLEEPER = """
import sys, threading, time
late, stopped = [], threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
while not stopped.is_set():
    due = time.monotonic() + 0.005
    time.sleep(0.005)
    late.append(int((time.monotonic() - due) * 1000))
print(*late)
"""


class _Sleeper:
    """A process that sleeps 5 ms again and again: what the machine itself adds to lateness."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SLEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_exception: object) -> None:
        self._said, _ = self._process.communicate("", timeout=30)

    def late_ms(self) -> list[int]:
        return [int(word) for word in self._said.split()]
