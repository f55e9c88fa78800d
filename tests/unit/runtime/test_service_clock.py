"""Recurring work and the wake-up go on when somebody sets the wall clock."""

from collections.abc import Iterator
from functools import partial
from threading import Event

import pytest

from amqsidecar.clock import SteadyClock, SystemClock
from amqsidecar.runtime.service_clock import ServiceClock
from support.waiting import PATIENCE_S, eventually

HOUR_MS = 3_600_000


@pytest.fixture
def woken() -> Event:
    return Event()


class Machine:
    """A wall clock and an uptime that a test sets."""

    wall_ms, uptime_ms = 10 * HOUR_MS, 0


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(woken: Event, machine: Machine) -> Iterator[ServiceClock]:
    steady = SteadyClock(lambda: machine.wall_ms, lambda: machine.uptime_ms)
    made = ServiceClock(woken.set, SystemClock(), steady)
    made.start()
    yield made
    made.stop()


def test_all_jobs_run_when_the_wall_clock_was_set(
    clock: ServiceClock, machine: Machine, woken: Event
) -> None:
    """By the wall clock the next run of each may now be an hour away."""
    has_run = Event()
    clock.every(3_600, "hourly", has_run.set)
    assert has_run.wait(PATIENCE_S)
    has_run.clear()
    clock.wake_at(SystemClock().now_ms() + HOUR_MS)
    machine.uptime_ms += 2_000
    machine.wall_ms += 2_000
    clock.look()
    assert not has_run.is_set()
    machine.uptime_ms += 2_000
    machine.wall_ms -= HOUR_MS
    clock.look()
    assert has_run.wait(PATIENCE_S)
    assert woken.wait(PATIENCE_S)


def test_the_wake_up_goes_by_the_clock_of_the_schedule(woken: Event) -> None:
    """That clock is an hour ahead of the wall clock; what it says is due wakes at once."""
    ahead = SteadyClock(wall_ms=lambda: SystemClock().now_ms() + HOUR_MS)
    clock = ServiceClock(woken.set, ahead)
    clock.start()
    try:
        clock.wake_at(ahead.now_ms() + 10)
        assert woken.wait(PATIENCE_S)
        # Why: APScheduler removes the job after its run, and not while it is shut down.
        eventually(lambda: not clock._scheduler.get_jobs(), what="the wake-up is removed")
    finally:
        clock.stop()


def test_long_work_delays_no_wake_up(clock: ServiceClock, woken: Event) -> None:
    """Housekeeping may take ten seconds, and does several things at once."""
    may_end, begun = Event(), [Event() for _ in range(3)]

    def work(has_begun: Event) -> None:
        has_begun.set()
        may_end.wait()

    try:
        for number, one in enumerate(begun):
            clock.every(3_600, f"work {number}", partial(work, one))
        eventually(lambda: sum(one.is_set() for one in begun) == 2, what="no thread is free")
        clock.wake_at(SystemClock().now_ms())
        assert woken.wait(PATIENCE_S)
    finally:
        may_end.set()
