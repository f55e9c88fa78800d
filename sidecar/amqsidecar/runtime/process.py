"""What a service tells the C library and the interpreter about itself."""

import ctypes
import sys

LARGE_BYTES = 1024 * 1024

SWITCH_S = 0.0005
"""A thread that works gives way after so long to one that has waited for broker or disk."""

_M_MMAP_THRESHOLD = -3  # Source: malloc.h of glibc.


def give_large_blocks_back() -> None:
    """Let blocks from 1 MiB on go back to the system as soon as they are freed.

    Quirk (glibc): once one was freed it takes the next ones from its heap, where they leave holes:
    after some large messages the process kept 300 MiB for good. Elsewhere this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)


def give_way_soon() -> None:
    """Let the cycle's thread go on soon after it has waited, also while another thread works.

    By default it would wait up to 5 ms each time, several times in each cycle, while the journal is
    written or a page is made.
    """
    sys.setswitchinterval(SWITCH_S)
