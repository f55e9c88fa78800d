"""How fast dead letters go back: the sidecar, a Java JMS client, the broker's own retry.

Every mover gets as many messages in the same dead-letter queue of the same broker process; the
order changes from round to round; each round gives one ratio.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.clock import SystemClock
from bench.bare_mover import move_bare
from bench.dead_letters import DeadLetters, dead_letter_queue, dead_letters
from bench.sidecar_watch import Moved, measured_sidecar, moved, watch
from support.brokers.real import ArtemisBroker, Broker

JAVA_BATCHES = (100, 500)
_folder_numbers = itertools.count(1)


class Moving(NamedTuple):
    """Medians over the rounds; `ratio` is the median of the rounds' ratios.

    Attributes:
        sidecar: of redeliveries without a delay, which the cycle that takes them sends.
        stored: of redeliveries with a delay of 1 ms, each a row of the schedule.
        java: the better batch size of each round.
        by_broker: the broker's own retry; None = it has none that moves in bulk.
        bare_cpu_us: of a mover in Python over Core or OpenWire, without store and policy.
    """

    sidecar: float
    cpu_us: float
    stored: float
    stored_cpu_us: float
    java: float
    ratio: float
    by_broker: float | None
    bare_cpu_us: float


def bench_moving(
    broker: Broker,
    folder: Path,
    *,
    count: int,
    rounds: int,
    warm_up: int,
    wire: str | None = None,
) -> tuple[Moving, list[str]]:
    """Return the figures, and remarks on what went unlike the plan."""
    remarks: list[str] = []
    with dead_letters(broker, "bench.moved") as dead:
        _round(dead, folder, warm_up, wire, order=0, remarks=[])
        results = [
            _round(dead, folder, count, wire, order=number, remarks=remarks)
            for number in range(rounds)
        ]
        bare_cpu_us = median(_bare_cpu_us(dead, count) for _ in range(rounds))
        by_broker = None
        if isinstance(broker, ArtemisBroker):
            by_broker = median(_by_broker(dead, count) for _ in range(rounds))
    moving = Moving(
        sidecar=median(one.sidecar.per_second for one in results),
        cpu_us=median(one.sidecar.cpu_us for one in results),
        stored=median(one.stored.per_second for one in results),
        stored_cpu_us=median(one.stored.cpu_us for one in results),
        java=median(one.java for one in results),
        ratio=median(one.sidecar.per_second / one.java for one in results),
        by_broker=by_broker,
        bare_cpu_us=bare_cpu_us,
    )
    return moving, remarks


class _Round(NamedTuple):
    """What moved in one round; `java` as in `Moving`."""

    sidecar: Moved
    stored: Moved
    java: float


def _round(
    dead: DeadLetters,
    folder: Path,
    count: int,
    wire: str | None,
    *,
    order: int,
    remarks: list[str],
) -> _Round:
    by_delay: dict[int, Moved] = {}
    java: list[float] = []

    def by_sidecar(delay_ms: int) -> Callable[[], None]:
        def move() -> None:
            by_delay[delay_ms] = _by_sidecar(dead, folder, count, wire, delay_ms)

        return move

    def by_java(batch: int) -> Callable[[], None]:
        return lambda: java.append(_by_java(dead, count, batch, remarks))

    movers = [by_sidecar(0), by_sidecar(1), *(by_java(batch) for batch in JAVA_BATCHES)]
    first = order % len(movers)
    for mover in movers[first:] + movers[:first]:
        dead.put(count)
        mover()
        arrived = dead.peer.drain(dead.origin, count, wait_ms=10_000)
        assert arrived.count == count, f"{arrived.count} of {count} messages arrived"
    return _Round(by_delay[0], by_delay[1], max(java))


def _by_sidecar(
    dead: DeadLetters, folder: Path, count: int, wire: str | None, delay_ms: int
) -> Moved:
    run = folder / f"moving-{next(_folder_numbers)}"
    with measured_sidecar(run, dead.broker, delay_ms=delay_ms, wire=wire) as sidecar:
        sidecar.start()
        samples = watch(sidecar, count)
        sidecar.stop()
    return moved(samples)


def _by_java(dead: DeadLetters, count: int, batch: int, remarks: list[str]) -> float:
    source = dead_letter_queue(dead.broker)
    rate = dead.peer.move(source, dead.origin, count, batch=batch)
    if rate.count == count:
        return rate.per_second
    # Quirk (Classic): a transacted consumer may stall at multiples of a page (wire facts 9).
    remarks.append(
        f"{dead.broker.version}: the Java client stalled at {rate.count} messages of {count} in "
        f"transactions of {batch}; the run does not count"
    )
    dead.peer.move(source, dead.origin, count - rate.count, batch=100)
    return 0.0


def _by_broker(dead: DeadLetters, count: int) -> float:
    dead.put(count)
    clock = SystemClock()
    connection = AmqpConnection(dead.broker.endpoint("PORT"), clock, "bench-retry")
    management = ArtemisManagement(connection)
    began_s = clock.monotonic_s()
    answer = management.ask(ManagementQuestion("queue.DLQ", operation="retryMessages"))
    elapsed_s = clock.monotonic_s() - began_s
    connection.close()
    assert answer.value == count, answer
    arrived = dead.peer.drain(dead.origin, count, wait_ms=10_000)
    assert arrived.count == count, f"{arrived.count} of {count} messages arrived"
    return count / elapsed_s


def _bare_cpu_us(dead: DeadLetters, count: int) -> float:
    dead.put(count)
    bare = move_bare(dead.broker, dead_letter_queue(dead.broker), dead.origin, count)
    arrived = dead.peer.drain(dead.origin, count, wait_ms=10_000)
    assert arrived.count == count, f"{arrived.count} of {count} messages arrived"
    return bare.cpu_us
