"""Which test file begins first, so that no worker is left alone with a long one at the end."""

from collections.abc import Sequence
from typing import Final

LONGEST: Final[Sequence[str]] = (
    "tests/end_to_end/crashes/test_kills.py",
    "tests/end_to_end/crashes/test_shared_schedule.py",
    "tests/end_to_end/operators/test_exhausted.py",
    "tests/oracle/test_whole_broker.py",
    "tests/matrix/test_matrix.py",
    "tests/field/test_field.py",
    "tests/end_to_end/crashes/test_failover.py",
    "tests/end_to_end/operators/test_demo.py",
    "tests/contract/links/test_stomp_artemis_link.py",
    "tests/contract/test_link_contract.py",
)
"""Files that take longer than most, longest first (`make test-times` has the numbers)."""


def rank_of(nodeid: str) -> int:
    """Return where the file of a test comes: the lowest number first, equal ones as they were."""
    path = nodeid.partition("::")[0]
    return LONGEST.index(path) if path in LONGEST else len(LONGEST)
