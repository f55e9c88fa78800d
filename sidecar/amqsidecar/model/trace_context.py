"""Trace contexts: the producer's on a message, and the sidecar's own, which follows from its id."""

import re
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

TRACEPARENT: Final = "traceparent"
B3: Final = "b3"

CONTEXT_PROPERTIES: Final = (TRACEPARENT, B3)
"""Application properties with a producer's context, the preferred first."""

_W3C = re.compile(
    r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?", re.ASCII
)
_B3 = re.compile(r"([0-9a-f]{32}|[0-9a-f]{16})-([0-9a-f]{16})(?:-([01d]))?(?:-[0-9a-f]{16})?")


class TraceContext(NamedTuple):
    """A span of a trace, in lower-case hexadecimal digits."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The context as W3C writes it."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the context that W3C's `traceparent` names; None = it names none."""
    found = _W3C.fullmatch(text)
    return _context(found[1], found[2], is_sampled=bool(int(found[3], 16) & 1)) if found else None


def parse_b3(text: str) -> TraceContext | None:
    """Return the context that a single `b3` header names; None = it names none."""
    found = _B3.fullmatch(text)
    return _context(found[1].zfill(32), found[2], is_sampled=found[3] != "0") if found else None


def _context(trace_id: str, span_id: str, *, is_sampled: bool) -> TraceContext | None:
    is_valid = trace_id.strip("0") and span_id.strip("0")
    return TraceContext(trace_id, span_id, is_sampled) if is_valid else None


def own_context(redelivery_id: str) -> TraceContext:
    """Return the context of a message's first attempt; the same in each process and for ever."""
    digits = blake2b(_bytes(redelivery_id), digest_size=24, person=b"amqsidecar").hexdigest()
    return TraceContext(digits[:32], digits[32:])


def sampling_limit(share: float) -> int:
    """Return the bound for `is_sampled` that takes a share of all messages, from 0 to 1."""
    return round(share * 2**32)


def is_sampled(redelivery_id: str, limit: int) -> bool:
    """Return whether the attempts of a message are traced: all of them or none."""
    try:
        return crc32(redelivery_id.encode()) < limit
    except UnicodeEncodeError:
        return crc32(_bytes(redelivery_id)) < limit


def _bytes(redelivery_id: str) -> bytes:
    return redelivery_id.encode("utf-8", "surrogatepass")
