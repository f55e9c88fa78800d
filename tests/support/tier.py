"""How long a test goes on: enough for each change, or at length in `make proof`."""

import os
from typing import Final, TypeVar

VARIABLE: Final = "PROOF"
"""Set and not empty: at length."""

T = TypeVar("T")


def at_length(proof: T, *, otherwise: T) -> T:
    """Return the first value in `make proof`, else the other one."""
    return proof if os.environ.get(VARIABLE) else otherwise
