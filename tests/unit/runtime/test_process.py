"""The settings of a service's interpreter and C library."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event

import msgspec
import pytest

from amqsidecar.clock import SystemClock
from amqsidecar.http.serving import HttpServer
from amqsidecar.runtime.process import COLLECTED_AFTER, collect_seldom
from amqsidecar.runtime.service_clock import ServiceClock
from amqsidecar.runtime.worker import Worker
from support.machine.processes import run_program
from support.waiting import PATIENCE_S


@pytest.fixture
def collector() -> Iterator[None]:
    """Restore the collector's settings."""
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


class Loop:
    """A reference cycle that counts those that were not freed yet."""

    alive = 0

    def __init__(self) -> None:
        self.itself = self
        Loop.alive += 1

    def __del__(self) -> None:
        Loop.alive -= 1


@pytest.mark.usefixtures("collector")
def test_reference_cycles_stay_bounded_where_they_are_looked_for_seldom() -> None:
    collect_seldom()
    most = 0
    for _ in range(4 * COLLECTED_AFTER):
        Loop()
        most = max(most, Loop.alive)
    assert most <= COLLECTED_AFTER + 1


CYCLES = """
import resource
from amqsidecar.runtime.process import tune_heap
tune_heap()
for cycle in range(20):
    if cycle == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [bytes(1_300) for _ in range(4_000)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_a_cycle_uses_the_memory_of_the_cycle_before() -> None:
    """Each would take 1,300 pages anew."""
    assert int(run_program([sys.executable, "-c", CYCLES]).stdout) < 1_300


DECODING = """
import sys, threading, typing
import msgspec
from amqsidecar.runtime.process import prepare_structs
sys.setswitchinterval(1e-6)
for number in range(200):
    fields = [
        (f"f{i}", typing.Annotated[typing.Literal[f"a{number}", f"b{i}"], msgspec.Meta(title="t")])
        for i in range(20)
    ]
    kind = msgspec.defstruct(f"Kind{number}", fields)
    prepare_structs()
    together = threading.Barrier(4)
    def decode():
        together.wait()
        msgspec.convert({f"f{i}": f"b{i}" for i in range(20)}, kind)
    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_may_decode_a_struct_for_the_first_time_at_once() -> None:
    """Without `prepare_structs` the first round dies by SIGSEGV."""
    run_program([sys.executable, "-c", DECODING], code=0)


looked_at: list[str] = []


def field_type() -> type[int]:
    """Return the type of a field, and note that a struct was made ready."""
    looked_at.append("field")
    return int


def test_structs_are_ready_before_a_server_answers() -> None:
    async def answer(_scope: object, _receive: object, _send: object) -> None:
        """Answer nothing: nobody asks."""

    class Late(msgspec.Struct):
        field: field_type()  # type: ignore[valid-type]

    server = HttpServer(answer)
    try:
        server.start("127.0.0.1", 0)
        assert looked_at == ["field"]
        assert msgspec.convert({"field": 1}, Late).field == 1
        assert looked_at == ["field"]
    finally:
        server.stop()


@contextmanager
def work_of_the_clock(work: Callable[[], float]) -> Iterator[None]:
    clock = ServiceClock(lambda: None, SystemClock())

    def run() -> None:
        work()

    clock.every(60, "work", run)
    clock.start()
    try:
        yield
    finally:
        clock.stop()


@contextmanager
def work_of_a_worker(work: Callable[[], float]) -> Iterator[None]:
    with Worker("journal", work, first_pause_s=0.0):
        yield


@pytest.mark.parametrize("in_thread", [work_of_a_worker, work_of_the_clock])
def test_structs_are_ready_before_a_thread_of_the_service_works(
    in_thread: Callable[[Callable[[], float]], AbstractContextManager[None]],
) -> None:
    """Also where HTTP is off, and for structs that only some services import."""
    looked_at.clear()
    has_run = Event()

    class Later(msgspec.Struct):
        field: field_type()  # type: ignore[valid-type]

    def work() -> float:
        assert looked_at == ["field"]
        assert msgspec.convert({"field": 1}, Later).field == 1
        has_run.set()
        return 60.0

    with in_thread(work):
        assert has_run.wait(PATIENCE_S)
