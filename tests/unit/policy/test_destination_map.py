"""Destination maps: what matches, what wins, where the broker itself is not decided."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.model.destination import Destination, parse_destination, queue, topic
from amqsidecar.policy.destination_map import (
    MAX_LISTED_CIRCLES,
    MAX_LISTED_PAIRS,
    DestinationMap,
    describe_pattern,
    list_ambiguities,
)

SEGMENTS = st.sampled_from(["A", "B", "C", ""])
PATTERN_SEGMENTS = st.sampled_from(["A", "B", "C", "*", ">", "A*", ""])
NAMES = st.lists(SEGMENTS, min_size=1, max_size=4).map(".".join).filter(bool)
PATTERNS = st.lists(PATTERN_SEGMENTS, min_size=1, max_size=4).map(".".join).filter(bool)
ENTRIES = st.lists(
    st.lists(PATTERNS.map(queue), min_size=1, max_size=2, unique=True).map(tuple),
    min_size=1,
    max_size=6,
)


def _winner(patterns: list[str], destination: str) -> str | None:
    entries = [
        ([parse_destination(part) for part in pattern.split(",")], pattern) for pattern in patterns
    ]
    return DestinationMap(entries).find(parse_destination(destination))


@pytest.mark.parametrize(
    ("patterns", "destination", "expected"),
    [
        ([">", "A.>", "A.B"], "A.B", "A.B"),
        ([">", "A.>", "A.B.>"], "A.B.C", "A.B.>"),
        (["A.>", "A.*.C"], "A.B.C", "A.*.C"),
        (["A.>", "*.B.>"], "A.B.C", "*.B.>"),
        (["A.*", "*.B"], "A.B", "*.B"),
        (["A.B.*", "A.*.C"], "A.B.C", "A.*.C"),
        ([">", "A,B"], "A", "A,B"),
        (["A", "A,B"], "A", "A"),
        (["A.*", "C,A.B"], "A.B", "A.*"),
        (["A.*", "A.B,C"], "A.B", "A.B,C"),
    ],
)
def test_winner_where_the_broker_is_decided(
    patterns: list[str], destination: str, expected: str
) -> None:
    """The winner does not depend on the order of the entries (spec 3.3; row 7: earlier star)."""
    for order in permutations(patterns):
        assert _winner(list(order), destination) == expected
    assert list_ambiguities([[parse_destination(p) for p in x.split(",")] for x in patterns]) == ()


@pytest.mark.parametrize(
    ("patterns", "destination", "expected"),
    [
        (["A.>", "A.*"], "A.B", "A.*"),
        (["A.>", "A.*.>"], "A.B.C", "A.*.>"),
        (["A.*.*", "A.B.>"], "A.B.C", "A.B.>"),
        (["*.B.*", "A.B.*", "A.*.C"], "A.B.C", "A.*.C"),
    ],
)
def test_row_6_chance_becomes_a_rule_and_a_warning(
    patterns: list[str], destination: str, expected: str
) -> None:
    """Where the broker orders by chance, most literal segments win, then `*` over `>`."""
    for order in permutations(patterns):
        assert _winner(list(order), destination) == expected
        listed = list_ambiguities([[queue(pattern)] for pattern in order])
        assert listed == (tuple(range(len(patterns))),)


def test_row_6_two_entries_of_one_name_are_ambiguous() -> None:
    for name in ("A.B", "A.*", "A.>"):
        twice = DestinationMap([([queue(name)], 1), ([queue(name)], 2)])
        assert twice.find(queue("A.B")) == 1
        assert list_ambiguities([[queue(name)], [queue(name)]]) == ((0, 1),)


def test_an_exact_entry_ends_an_ambiguity() -> None:
    """Two composites that share only a destination with an entry of its own are not ambiguous."""
    shared = [[queue("A"), queue("A.X")], [queue("A"), queue("A.Y")], [queue("A")]]
    assert list_ambiguities(shared) == ()


def test_names_are_ordered_by_utf_16_units() -> None:
    """A character beyond 16 bits sorts before U+FFFD, as in Java and unlike code points."""
    beyond, replacement = "\U0001f600,A", "�,A"
    assert _winner([replacement, beyond], "A") == beyond


def test_pattern_is_described_as_an_operator_writes_it() -> None:
    assert describe_pattern([queue("A.>")]) == 'queue="A.>"'
    assert describe_pattern([topic("A"), queue("B")]) == 'topic="A,queue://B"'
    assert describe_pattern([parse_destination("temp-queue://>")]) == 'tempQueue=">"'


def test_number_of_listed_groups_is_bounded() -> None:
    circles = [[queue(f"{first}.B{n}.*")] for n in range(80) for first in ("*", "A")]
    circles += [[queue("A.*.C")], [queue("A.*.D")]]
    assert {len(group) for group in list_ambiguities(circles)} == {3}
    assert len(list_ambiguities(circles)) == MAX_LISTED_CIRCLES
    assert len(list_ambiguities([[queue("A.>")]] * 400)) == MAX_LISTED_PAIRS


def test_many_matching_entries_are_compared_in_one_pass() -> None:
    """Where the broker is decided, the cost grows with the entries that match, not their square."""
    deep = [".".join(["A"] * depth) + ".>" for depth in range(1, 500)]
    entries = [([queue(pattern)], pattern) for pattern in deep]
    assert DestinationMap(entries).find(queue(".".join(["A"] * 900))) == deep[-1]


@given(ENTRIES, NAMES)
def test_every_match_is_found_and_nothing_else(
    entries: list[tuple[Destination, ...]], name: str
) -> None:
    destination = queue(name)
    alone = [
        i for i, e in enumerate(entries) if DestinationMap([(e, i)]).find(destination) is not None
    ]
    winner = DestinationMap([(e, i) for i, e in enumerate(entries)]).find(destination)
    assert (winner in alone) if alone else winner is None


@given(ENTRIES, NAMES)
def test_order_of_entries_only_matters_where_it_is_listed(
    entries: list[tuple[Destination, ...]], name: str
) -> None:
    destination = queue(name)
    forward = DestinationMap([(e, i) for i, e in enumerate(entries)]).find(destination)
    backward = DestinationMap([(e, i) for i, e in reversed(list(enumerate(entries)))])
    if forward != backward.find(destination):
        assert list_ambiguities(entries)


@given(ENTRIES, NAMES)
def test_listed_groups_cover_every_undecided_destination(
    entries: list[tuple[Destination, ...]], name: str
) -> None:
    """When no matching entry beats all others, a listed group is among those that match."""
    destination = queue(name)
    alone = [
        i for i, e in enumerate(entries) if DestinationMap([(e, i)]).find(destination) is not None
    ]
    winners = {
        frozenset(p): DestinationMap([(entries[i], i) for i in p]).find(destination)
        for p in permutations(alone, 2)
    }
    decided = [i for i in alone if all(w == i for p, w in winners.items() if i in p)]
    if alone and not decided:
        groups = [set(group) for group in list_ambiguities(entries)]
        assert any(group <= set(alone) for group in groups)


def test_cost_does_not_grow_with_the_number_of_rules() -> None:
    entries = [([queue(f"S{n}.*.X")], n) for n in range(2000)]
    assert DestinationMap(entries).find(queue("S7.B.X")) == 7
    assert list_ambiguities([patterns for patterns, _ in entries]) == ()
