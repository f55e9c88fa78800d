"""Patterns of destinations: which cover others, and which overlap."""

import itertools
import random
import tracemalloc

import pytest

from amqsidecar.model.destination import covers, overlap, parse_destination, parse_pattern
from amqsidecar.policy.destination_map import DestinationMap

WORDS = ("a", "b", "*", ">")


@pytest.mark.parametrize("seed", range(20))
def test_they_agree_with_the_names_that_the_map_of_the_policies_matches(seed: int) -> None:
    chance = random.Random(seed)
    names = [".".join(one) for n in (1, 2, 3, 4) for one in itertools.product("ab", repeat=n)]

    def pattern() -> str:
        words = [chance.choice(WORDS[:3]) for _ in range(chance.randint(1, 3))]
        return ".".join([*words, ">"] if chance.random() < 0.4 else words)

    def matched(text: str) -> set[str]:
        found = DestinationMap([((parse_pattern(text),), True)])
        return {name for name in names if found.find(parse_pattern(name))}

    for _ in range(200):
        one, other = pattern(), pattern()
        of_one, of_other = matched(one), matched(other)
        if covers(one, other):
            assert of_one >= of_other, (one, other)
        assert overlap(one, other) == bool(of_one & of_other), (one, other)
        for name in names:
            assert covers(one, name) == (name in of_one), (one, name)


@pytest.mark.parametrize("pattern", ["orders", ">", "orders.>"])
def test_all_is_covered_by_all_only(pattern: str) -> None:
    assert covers("", pattern)
    assert not covers(pattern, "")
    assert overlap("", pattern)
    assert overlap(pattern, "")


def test_a_topic_is_no_queue_and_a_queue_is_of_its_address() -> None:
    assert not covers("topic://news.>", "queue://news.a")
    assert not overlap("topic://news.>", "queue://news.a")
    assert covers("orders.#", "queue://orders.eu::late")


def test_long_names_are_not_remembered() -> None:
    """A stranger writes them into the `to` of a message, up to the size of a message."""
    tracemalloc.start()
    try:
        for number in range(20):
            text = f"topic://{number}.{1_000_000 * 'x'}"
            assert str(parse_destination(text)) == text
        assert tracemalloc.get_traced_memory()[0] < 5_000_000
    finally:
        tracemalloc.stop()
