"""The settings of a service's interpreter and C library."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator

import msgspec
import pytest

from amqsidecar.http.serving import HttpServer
from amqsidecar.runtime.process import COLLECTED_AFTER, collect_seldom
from support.machine.processes import run_program


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
