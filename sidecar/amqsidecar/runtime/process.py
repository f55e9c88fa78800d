"""Settings of the C library and of the interpreter for a service."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import suppress

import msgspec

LARGE_BYTES = 1024 * 1024

SWITCH_S = 0.0005
"""After this time a busy thread gives way to one that has waited for the broker or the disk."""

COLLECTED_AFTER = 50_000
"""Excess of containers made over containers freed that starts the search for reference cycles."""

KEPT_BYTES = 16 * LARGE_BYTES
"""Free bytes at the end of the heap that are kept for the next cycle."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # Source: malloc.h of glibc.


def tune_heap() -> None:
    """Return freed blocks from 1 MiB on to the system at once, and others rarely.

    Quirk (glibc): after freeing a large block it takes the next large blocks from its heap, where
    they leave holes: after some large messages the process kept 300 MiB for good. And it returns
    free space at the heap's end from 128 KiB on: each cycle would pay for the same pages again, 2
    µs per message. Elsewhere this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def give_way_soon() -> None:
    """Shorten the time that the cycle's thread waits for another thread that works.

    By default it would wait up to 5 ms each time, several times in each cycle, while the journal is
    written or a page is made.
    """
    sys.setswitchinterval(SWITCH_S)


def prepare_structs() -> None:
    """Make each imported struct ready to be decoded, before several threads decode it.

    Quirk (msgspec 0.22): a struct's fields are read when it is first decoded; another thread that
    decodes it meanwhile finds half of them, and the process dies (SIGSEGV).
    """
    for kind in set(_subclasses_of(msgspec.Struct)):
        # Why: settings and frames have fields that can't be decoded, so nobody decodes them.
        with suppress(TypeError):
            msgspec.json.Decoder(kind)


def _subclasses_of(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses_of(one)


def collect_seldom() -> None:
    """Collect reference cycles less often, and never among the start's objects.

    By default Python collects after every 700 containers, at times everything: 6 % of the processor
    time, and pauses. Objects of an engine cycle are freed without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER)
