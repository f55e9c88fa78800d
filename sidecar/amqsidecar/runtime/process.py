"""Settings of the C library and of the interpreter for a service."""

import ctypes
import gc
import sys

LARGE_BYTES = 1024 * 1024

SWITCH_S = 0.0005
"""After this time a busy thread gives way to one that has waited for the broker or the disk."""

COLLECTED_AFTER = 50_000
"""Excess of containers made over containers freed that starts the search for reference cycles."""

KEPT_BYTES = 16 * LARGE_BYTES
"""Free bytes at the end of the heap that are kept for the next cycle."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # Source: malloc.h of glibc.


def tune_heap() -> None:
    """Return blocks from 1 MiB on to the system as soon as they are freed, and others rarely.

    Quirk (glibc): once a large one was freed it takes the next ones from its heap, where they leave
    holes: after some large messages the process kept 300 MiB for good. And it returns what is free
    at the end of the heap from 128 KiB on: each cycle would pay for the same pages again, 2 µs per
    message. Elsewhere this does nothing.
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


def collect_seldom() -> None:
    """Look for cycles of references less often, and never among what the start has made.

    By default Python looks after each 700 containers, at all that a cycle has in hand, and at times
    at everything: 6 % of the processor time, and pauses. Objects of a cycle are freed without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AFTER)
