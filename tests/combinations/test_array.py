"""Combinations of features on real brokers: each message is in the one place that is named."""

from __future__ import annotations

from itertools import product
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
from combinations.covering import covering_rows, pairs_in
from combinations.play import Brokers, play
from support.sidecar.logs import show_sidecar_logs  # noqa: F401 - autouse

ALL_PAIRS = 260
"""So many rows cover all pairs."""


def test_each_row_is_of_values_that_exist_and_none_is_twice() -> None:
    rows = list(array(2_000, 0).values())
    assert len({*rows}) == 2_000
    assert {*rows} <= {*rows_that_exist()}


@pytest.mark.parametrize("seed", range(3))
def test_each_two_values_meet(seed: int) -> None:
    """Those that can, and of the dresses each; a small array is the beginning of a large one."""
    numbered = array(ALL_PAIRS, seed)
    rows = list(numbered.values())
    assert pairs_in(rows) == pairs_in(rows_that_exist())
    assert list(array(20, seed).values()) == rows[:20]
    found = dressed(numbered, seed).values()
    assert all(map(exists, found))
    for name, values in DRESSES.items():
        assert {getattr(row, name) for row in found} == {*values}


def test_a_covering_array_is_much_smaller_than_the_product() -> None:
    """As good as others: 3 values on each of 13 axes in at most 27 rows (known: 15)."""
    product_of_few = [tuple(map(str, row)) for row in product(range(3), repeat=7)]
    rows = covering_rows(product_of_few, len(product_of_few), 0)
    covering = next(
        count for count in range(1, len(rows)) if pairs_in(rows[:count]) == pairs_in(product_of_few)
    )
    assert covering <= 21


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
