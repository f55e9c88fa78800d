"""Covering arrays: rows such that each two values of different axes meet in one of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Final, TypeVar

R = TypeVar("R", bound=tuple[str, ...])

Pair = tuple[int, str, int, str]
"""Two values, each with the number of its axis."""

_CANDIDATES: Final = 40
"""Rows among which each next one is chosen."""


def pairs_of(row: Sequence[str]) -> set[Pair]:
    """Return all pairs of values that meet in a row."""
    return {(i, row[i], j, row[j]) for i, j in combinations(range(len(row)), 2)}


def pairs_in(rows: Iterable[Sequence[str]]) -> set[Pair]:
    """Return all pairs of values that meet in one of the rows."""
    return {pair for row in rows for pair in pairs_of(row)}


def all_rows(
    axes: Mapping[str, Sequence[str]], make: Callable[..., R], exists: Callable[[R], bool]
) -> list[R]:
    """Return every row that exists."""
    return [row for values in product(*axes.values()) if exists(row := make(*values))]


def covering_rows(rows: Sequence[R], count: int, seed: int) -> list[R]:
    """Return `count` of the rows, each chosen for the pairs that those before it lack.

    Once all pairs are covered, rows come that are not yet there, by chance. The same seed gives the
    same rows, and fewer are the beginning of more.

    Args:
        rows: all that exist, each once.
        count: at most so many.
        seed: of the choice.
    """
    chance = random.Random(seed)
    by_pair: dict[Pair, list[R]] = {}
    for row in rows:
        for pair in pairs_of(row):
            by_pair.setdefault(pair, []).append(row)
    order = sorted(by_pair)
    chance.shuffle(order)
    lacking = dict.fromkeys(order)
    chosen: dict[R, None] = {}
    while lacking and len(chosen) < min(count, len(rows)):
        # Why of the first lacking pair: so each step covers one, however few rows have it.
        having = by_pair[next(iter(lacking))]
        candidates = chance.sample(having, min(_CANDIDATES, len(having)))
        best = max(candidates, key=lambda row: sum(pair in lacking for pair in pairs_of(row)))
        chosen[best] = None
        for pair in pairs_of(best):
            lacking.pop(pair, None)
    others = [row for row in rows if row not in chosen]
    return [*chosen, *chance.sample(others, min(max(0, count - len(chosen)), len(others)))]
