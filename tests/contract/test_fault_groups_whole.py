"""100,000 dead letters of twelve seeded faults give twelve groups, give or take one."""

from pathlib import Path

from support.histories.fault_groups import dead_letters, groups_of
from support.histories.faults import FAULTS


def test_a_hundred_thousand_dead_letters_of_twelve_faults_are_twelve_groups(tmp_path: Path) -> None:
    deliveries, _ = dead_letters(100_000, seed=8)

    groups = groups_of(deliveries, tmp_path)

    assert abs(len(groups) - len(FAULTS)) <= 1
    assert sum(groups) == 100_000
