"""Many dead letters of twelve seeded faults give twelve groups, give or take one."""

from pathlib import Path

from support.histories.fault_groups import dead_letters, groups_of
from support.histories.faults import FAULTS
from support.tier import at_length

COUNT = at_length(100_000, otherwise=3_000)


def test_many_dead_letters_of_twelve_faults_are_twelve_groups(tmp_path: Path) -> None:
    deliveries, _ = dead_letters(COUNT, seed=8)

    groups = groups_of(deliveries, tmp_path)

    assert abs(len(groups) - len(FAULTS)) <= 1
    assert sum(groups) == COUNT
