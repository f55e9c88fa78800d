"""Combinations of features on real brokers: each message is in the one place that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from combinations.axes import AXES, DRESSES, exists
from combinations.combinations import (
    ROWS_OF_A_CHANGE,
    SEED_OF_A_CHANGE,
    array,
    dressed,
    rows_that_exist,
    told,
)
from combinations.covering import pairs_in
from combinations.play import Brokers, play
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse
from support.tier import at_length

ALL_PAIRS = 260
"""So many rows cover all pairs."""


@pytest.mark.parametrize("seed", range(at_length(3, otherwise=1)))
def test_each_two_values_meet(seed: int) -> None:
    """Those that can, and of the dresses each; a small array is the beginning of a large one."""
    numbered = array(ALL_PAIRS, seed)
    rows, existing = list(numbered.values()), rows_that_exist()
    assert len({*rows}) == ALL_PAIRS
    assert {*rows} <= {*existing}
    assert pairs_in(rows) == pairs_in(existing)
    assert list(array(20, seed).values()) == rows[:20]
    found = dressed(numbered, seed).values()
    assert all(map(exists, found))
    for name, values in DRESSES.items():
        assert {getattr(row, name) for row in found} == {*values}


def test_each_value_is_in_the_rows_of_each_change() -> None:
    rows = array(ROWS_OF_A_CHANGE, SEED_OF_A_CHANGE).values()
    for number, values in enumerate(AXES.values()):
        assert {row[number] for row in rows} == {*values}


@pytest.mark.broker
@pytest.mark.timeout(900)
def test_each_message_is_in_the_one_place_that_its_history_names(tmp_path: Path) -> None:
    """And status, broker and bytes say the same; a row that fails prints how to repeat it."""
    with Brokers() as brokers:
        red = [
            one
            for one in play(array(ROWS_OF_A_CHANGE, SEED_OF_A_CHANGE), brokers, tmp_path)
            if one.problems
        ]
    assert not red, "\n".join(map(told, red))
