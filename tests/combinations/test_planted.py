"""The rows of each change find faults of the kinds that have been between two features."""

from __future__ import annotations

from pathlib import Path

import pytest

from combinations import planted
from combinations.awaited import AWAITED
from combinations.combinations import ROWS_OF_A_CHANGE, array
from combinations.play import Brokers, play
from support.sidecar.forked import BEFORE

pytestmark = [pytest.mark.broker, pytest.mark.proof]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", planted.FAULTS)
def test_the_rows_find_it(fault: str, tmp_path: Path) -> None:
    environ = {BEFORE: f"{planted.__name__}:{fault}"}
    rows = array(ROWS_OF_A_CHANGE, 0)
    expected = {number for number, row in rows.items() if any(may(row) for may in AWAITED.values())}
    with Brokers() as brokers:
        verdicts = play(rows, brokers, tmp_path, environ=environ)
    found = [one for one in verdicts if one.problems and one.case.number not in expected]
    for one in found:
        print(one.case.row, *one.problems, sep="\n  ")
    assert found
