"""A worker outlives every failure of its step, and ends when its block ends."""

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from amqsidecar.errors import StoreError
from amqsidecar.runtime.worker import LEFT, STOP_S, Worker, all_running
from support.waiting import PATIENCE_S, eventually


def run_until_third_step(*failures: Exception) -> list[Any]:
    """Return the log of a worker whose steps fail so, and its releases as "released"."""
    left: Iterator[Exception] = iter(failures)
    seen: list[Any] = []
    is_through = threading.Event()

    def step() -> float:
        for failure in left:
            raise failure
        is_through.set()
        return 60.0

    worker = Worker(
        "watching",
        step,
        first_pause_s=0.0,
        retry_s=(0.01, 0.02),
        release=lambda: seen.append("released"),
    )
    with capture_logs() as logs, worker:
        assert is_through.wait(30)
    eventually(
        lambda: "watching" not in [one.name for one in threading.enumerate()], what="it ends"
    )
    return [*seen, *logs]


def test_failures_are_logged_released_and_tried_again_after_longer_pauses() -> None:
    *released, first, second, third = run_until_third_step(
        StoreError("no disk"), ZeroDivisionError(), StoreError("no disk")
    )
    assert released == ["released"] * 4
    assert [one["event"] for one in (first, second, third)] == ["watching_failed"] * 3
    assert [one["again_in_s"] for one in (first, second, third)] == [0.01, 0.02, 0.02]
    assert [one["log_level"] for one in (first, second, third)] == ["warning", "error", "warning"]
    assert (first["reason"], second["reason"]) == ("no disk", "a fault of amqsidecar")
    assert second["exc_info"]
    assert not first["exc_info"]


@pytest.mark.parametrize("stop_s", [None, 30.0])
def test_a_stop_wakes_the_step_and_waits_for_it(stop_s: float | None) -> None:
    begun, woken = threading.Event(), threading.Event()
    ended = []

    def step() -> float:
        begun.set()
        woken.wait(30)
        ended.append(True)
        return 0.0

    worker = Worker("watching", step, first_pause_s=0.0, wake=woken.set)
    worker.stop_s = stop_s
    with worker:
        assert begun.wait(30)
    assert ended == [True]


def test_workers_that_run_together_are_stopped_together() -> None:
    """A stop waited five seconds for each of the webhooks whose receiver hangs."""
    begun, heard = threading.Event(), []

    def step() -> float:
        begun.set()
        heard.append(first.stop.wait(PATIENCE_S))
        return 60.0

    first = Worker("webhook_a", lambda: 60.0, first_pause_s=0.0)
    last = Worker("webhook_b", step, first_pause_s=0.0, waits_for_step=True)
    with all_running([first, last]):
        assert begun.wait(PATIENCE_S)
    assert heard == [True]


def test_workers_that_hang_share_the_time_of_one() -> None:
    begun = [threading.Event() for _ in range(4)]
    release = threading.Event()

    def hang(one: threading.Event) -> float:
        one.set()
        release.wait()
        return 60.0

    workers = [
        Worker(f"hung_{at}", partial(hang, one), first_pause_s=0.0) for at, one in enumerate(begun)
    ]
    with all_running(workers):
        assert all(one.wait(PATIENCE_S) for one in begun)
        stops_s = time.monotonic()
    took_s = time.monotonic() - stops_s
    release.set()
    assert STOP_S <= took_s < 2 * STOP_S
    hung = {f"hung_{at}" for at in range(4)}
    assert hung <= LEFT
    LEFT.difference_update(hung)
