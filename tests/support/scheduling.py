"""Which worker runs which tests: a file stays together, what shares a Spark session too.

The longest files begin first, so that no worker is left alone with one of them at the end.
"""

from collections.abc import Sequence
from typing import Final

from xdist.scheduler import LoadScopeScheduling

SPARK: Final = "tests/pipeline"
"""All its files are one group: a session takes seconds to start, and holds a gigabyte."""

LONGEST: Final[Sequence[str]] = (
    SPARK,
    "tests/end_to_end/crashes/test_kills.py",
    "tests/chaos/test_chaos_small.py",
    "tests/end_to_end/crashes/test_shared_schedule.py",
    "tests/end_to_end/operators/test_exhausted.py",
    "tests/oracle/test_whole_broker.py",
    "tests/chaos/test_token_kills.py",
    "tests/matrix/test_matrix.py",
    "tests/field/test_field.py",
    "tests/end_to_end/crashes/test_failover.py",
    "tests/end_to_end/operators/test_demo.py",
    "tests/contract/links/test_stomp_artemis_link.py",
    "tests/contract/test_link_contract.py",
    "tests/bench/test_bench_small.py",
)
"""Groups that take longer than most, longest first (`make test-times` has the numbers)."""


def group_of(nodeid: str) -> str:
    """Return what a test stays together with: its file, or the folder of all Spark tests."""
    path = nodeid.partition("::")[0]
    return SPARK if path.startswith(f"{SPARK}/") else path


def rank_of(nodeid: str) -> int:
    """Return where the group of a test comes: the lowest number first, equal ones as they were."""
    group = group_of(nodeid)
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives workers whole groups in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
