"""The rows of each change find faults of the kinds that have been between two features."""

from __future__ import annotations

from pathlib import Path

import pytest

from combinations import planted
from combinations.combinations import ROWS_OF_A_CHANGE, SEED_OF_A_CHANGE, array, told
from combinations.play import ENDED, Brokers, play
from support.sidecar.forked import BEFORE

pytestmark = [pytest.mark.broker, pytest.mark.proof]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", planted.FAULTS)
def test_the_rows_find_it(fault: str, tmp_path: Path) -> None:
    environ = {BEFORE: f"{planted.__name__}:{fault}"}
    with Brokers() as brokers:
        verdicts = play(
            array(ROWS_OF_A_CHANGE, SEED_OF_A_CHANGE), brokers, tmp_path, environ=environ
        )
    found = [told(one) for one in verdicts if one.problems]
    print(*found, sep="\n")
    assert found
    assert not [one for one in found if ENDED in one], "the fault is no mistake but a crash"
