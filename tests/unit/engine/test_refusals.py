"""A message is at fault where later ones to its destination got through."""

import pytest

from amqsidecar.engine import refusals
from amqsidecar.engine.refusals import Refusals, refused_before_others


@pytest.mark.parametrize(
    ("destinations", "refused", "found"),
    [
        (["a", "a"], {0}, {0}),
        (["a", "a"], {1}, set()),
        (["a", "a", "a"], {0, 2}, {0}),
        (["a", "b"], {0}, set()),
        (["a", "b", "a", "b"], {0, 3}, {0}),
        (["a"], {0}, set()),
    ],
)
def test_one_that_others_passed_is_refused_for_its_own_sake(
    destinations: list[str], refused: set[int], found: set[int]
) -> None:
    assert refused_before_others(destinations, refused) == found


def test_only_its_own_refusals_count_until_it_is_forgotten() -> None:
    counts = Refusals()
    assert [counts.count(7, is_its_own=own) for own in (True, False, True)] == [1, 1, 2]
    assert (counts.of(7), counts.of(8), len(counts)) == (2, 0, 1)
    counts.forget(7)
    assert (counts.of(7), len(counts)) == (0, 0)


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "COUNTED_MAX", 2)
    counts = Refusals()
    for key in (1, 2, 2, 3):
        counts.count(key, is_its_own=True)
    assert (counts.of(2), counts.of(3), len(counts)) == (0, 1, 1)
