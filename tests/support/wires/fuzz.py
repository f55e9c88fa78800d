"""How much the fuzz tests try, and how they damage what is whole."""

import os
from itertools import pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))

# Why the same examples each time unless asked for more: `make check` must not fail by chance.
fuzz = settings(
    max_examples=_EXAMPLES or 15,
    derandomize=not _EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
"""Put above `@given`: as many examples as `FUZZ_EXAMPLES` says, few unless it does."""


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Return something whole with a few bytes changed, put in, cut out or doubled."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 8))
        match draw(st.sampled_from(("change", "put", "cut", "double", "end"))):
            case "change":
                data[at : at + size] = draw(st.binary(min_size=size, max_size=size))
            case "put":
                data[at:at] = draw(st.binary(max_size=8))
            case "cut":
                del data[at : at + size]
            case "double":
                data[at:at] = data[at : at + 40]
            case "end":
                del data[at:]
    return bytes(data)


@st.composite
def pieces(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Return data cut into pieces, as a network may hand it over."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    edges = [0, *cuts, len(data)]
    return [data[start:end] for start, end in pairwise(edges)]
