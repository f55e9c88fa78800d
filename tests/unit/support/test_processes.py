"""A process that is stopped, from outside or at its own crash point, does nothing more."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.machine.processes import freeze, is_stopped
from support.waiting import eventually

CHILD = """
import os, sys, threading, time
from amqsidecar.wiring.app import CRASH_POINT_VARIABLE, crash_point_of

hit = crash_point_of({CRASH_POINT_VARIABLE: sys.argv[1]})

is_late = threading.Event()

def write():
    is_late.wait()
    time.sleep(0.05)
    hit("sent")
    while True:
        os.write(1, b"x")

# Why: the first thread gets the signals of a process, and here it gets the processor last.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
threading.Thread(target=write).start()
os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
is_late.set()
time.sleep(60)
"""


@contextmanager
def child(crash_point: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process whose second thread reaches a crash point, then writes without an end."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, crash_point], stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def written(process: "subprocess.Popen[bytes]") -> bytes:
    """Return all that a stopped process has written."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process.stdout.read() or b""


def test_a_thread_does_not_pass_the_crash_point_that_stops_its_process() -> None:
    with child("sent:1:SIGSTOP") as process:
        eventually(lambda: is_stopped(process.pid), what="it stops at its crash point")
        assert written(process) == b""
        process.send_signal(signal.SIGCONT)
        eventually(lambda: written(process), what="it goes on")


def test_no_thread_of_a_frozen_process_runs_on() -> None:
    with child("") as process:
        eventually(lambda: written(process), what="it writes")
        freeze(process.pid)
        written(process)
        assert written(process) == b""
        process.kill()
        process.wait()
        with pytest.raises(ProcessLookupError):
            freeze(process.pid)
