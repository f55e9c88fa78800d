"""What the process tells the C library about memory."""

import ctypes

LARGE_BYTES = 1024 * 1024

_M_MMAP_THRESHOLD = -3  # Source: malloc.h of glibc.


def give_large_blocks_back() -> None:
    """Let blocks from 1 MiB on go back to the system as soon as they are freed.

    Quirk (glibc): once one was freed it takes the next ones from its heap, where they leave holes:
    after some large messages the process kept 300 MiB for good. Elsewhere this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
