"""Dead letters of twelve faults are twelve groups, from any source of the cause."""

from pathlib import Path

from support.histories.fault_groups import dead_letters, groups_of

DEAD_LETTERS = 3_000
"""`contract/test_fault_groups_whole.py` has 100,000."""


def test_twelve_faults_are_twelve_groups_in_the_store(tmp_path: Path) -> None:
    deliveries, by_fault = dead_letters(DEAD_LETTERS, seed=12)

    assert sorted(groups_of(deliveries, tmp_path)) == sorted(by_fault.values())
