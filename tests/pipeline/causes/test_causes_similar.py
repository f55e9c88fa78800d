"""Texts of the same classes with nearly the same words are one group; the index is exact."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqsidecar.model.cause import cause_classes
from amqsidecar.pipeline.causes.similar import similar_causes

PAY = "com.acme.PayException: payment refused by the bank because account of {} closed"


def test_ten_words_of_which_one_differs() -> None:
    """9 words in common of 11: 0.818."""
    adam, berta = PAY.format("Adam"), PAY.format("Berta")
    assert similar_causes({adam: 2, berta: 1}, 0.81) == {adam: berta, berta: berta}
    assert similar_causes({adam: 2, berta: 1}, 0.82) == {adam: adam, berta: berta}


def test_of_texts_that_are_as_old_the_first_by_letters_names_the_group() -> None:
    adam, berta = PAY.format("Adam"), PAY.format("Berta")
    assert similar_causes({berta: 1, adam: 1}, 0.8) == {adam: adam, berta: adam}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PAY.format("Adam"), PAY.format("Adam").replace("Pay", "Bank")),
        ("a.B: x; nested exception is a.C: y", "a.B: x; nested exception is a.D: y"),
        ("a.B: x Caused by: a.C: y", "a.B: x y Caused by"),
        (
            "java.net.ConnectException: Connection refused",
            "java.net.ConnectException: Connection reset",
        ),
        ("java.lang.IllegalStateException: order * is locked", "java.lang.IllegalStateException"),
        ("could not find order *", "could not find customer *"),
    ],
)
def test_never_one_group(one: str, other: str) -> None:
    assert similar_causes({one: 1, other: 1}, 0.8) == {one: one, other: other}


def test_marks_and_case_are_no_words() -> None:
    texts = {"a.B: value * too large": 1, "a.B: Value (*, *) too large!": 2, "a.C": 3, "a.C: *": 4}
    groups = similar_causes(texts, 1.0)
    assert groups["a.C: *"] == "a.C"
    assert groups["a.B: Value (*, *) too large!"] == "a.B: value * too large"


words = st.lists(st.sampled_from("abcdefgh"), max_size=8).map(" ".join)
texts = st.builds("{}: {}".format, st.sampled_from(("x.A", "x.B")), words)


@settings(deadline=None)
@given(
    st.dictionaries(texts, st.integers(0, 3), max_size=12),
    st.sampled_from((0.5, 0.6, 0.75, 0.8, 1.0)),
    st.randoms(use_true_random=False),
)
def test_groups_are_what_hangs_together_by_pairs(
    first_ms: dict[str, int], threshold: float, chance: random.Random
) -> None:
    """Compared with all pairs, looked at one by one; in whatever order the texts come."""
    expected = {text: text for text in first_ms}

    def tells(text: str) -> set[str]:
        return set(text.split()[1:]) or {""}

    for _ in first_ms:
        for one in first_ms:
            for other in first_ms:
                shared, both = tells(one) & tells(other), tells(one) | tells(other)
                if cause_classes(one) == cause_classes(other) and (
                    len(shared) >= threshold * len(both)
                ):
                    oldest = min(expected[one], expected[other], key=lambda it: (first_ms[it], it))
                    expected[one] = expected[other] = oldest
    shuffled = list(first_ms.items())
    chance.shuffle(shuffled)
    assert similar_causes(dict(shuffled), threshold) == expected
