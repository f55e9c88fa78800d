"""The laws of groups of causes: whatever is learned, and in whatever order."""

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.model.cause import cause_group
from amqsidecar.model.cause_groups import (
    ANY_TEXT,
    BYTES_MAX,
    FOUND_MAX,
    TEXTS_MAX,
    VALUES_MIN,
    CauseGroups,
)

PLACE = "queue://orders"
HEAD = "java.lang.IllegalArgumentException: "
NAMES = ("bob", "alice", "carol", "dave", "erin", "frank", "grace", "heidi")
LINES = (
    "user {} may not see this",
    "customer {} not found in region {}",
    "no rule for {} at all",
    "the field {} is required here",
)
words = st.sampled_from(NAMES)
texts = st.builds(lambda line, one, two: HEAD + line.format(one, two), st.sampled_from(LINES),
                  words, words)  # fmt: skip


def learned(found: Sequence[str]) -> CauseGroups:
    groups = CauseGroups()
    for text in found:
        groups.add(PLACE, cause_group(text))
    return groups


@pytest.mark.parametrize(
    "values",
    [
        ["customer Alice not found", "customer Bob not found", "customer Smith not found"],
        ["unknown currency XBA", "unknown currency XBB"],
        ["No enum constant shop.Status.OPENED", "No enum constant shop.Status.CLOSD"],
        [f"Customer not found: {name.title()}" for name in NAMES],
        [f"user {name} has no permission" for name in NAMES],
        [f"Missing field order.{name} in the message" for name in NAMES],
        [f"the file {name}-report.pdf is empty" for name in NAMES],
        [f"user {one} may not read {two}" for one in NAMES for two in NAMES],
    ],
)
def test_texts_of_one_line_of_code_are_one_group(values: list[str]) -> None:
    groups = learned([HEAD + value for value in values])
    assert len({groups.find(PLACE, cause_group(HEAD + value)) for value in values}) == 1


@pytest.mark.parametrize(
    "values",
    [
        ["Read timed out", "connect timed out", "accept timed out"],
        ["no stock for item 7", "no price for item 7"],
        ["Connection refused", "Connection reset"],
        ["Bad Gateway", "Access Denied", "Service Unavailable", "Internal Error", "Not Found"],
        ["reset", "refused", "closed", "lost", "broken", "gone"],
    ],
)
def test_few_different_words_do_not_make_one_group(values: list[str]) -> None:
    groups = learned([HEAD + value for value in values])
    found = {groups.find(PLACE, cause_group(HEAD + value)) for value in values}
    assert len(found) == len(values)


@given(st.lists(texts, max_size=60), st.lists(texts, max_size=60))
def test_what_is_learned_only_generalises(before: list[str], after: list[str]) -> None:
    groups = learned(before)
    seen = sorted({cause_group(text) for text in before})
    first = {text: groups.find(PLACE, text) for text in seen}
    for text in (*after, *before, *after):
        assert groups.add(PLACE, cause_group(text)) == groups.find(PLACE, cause_group(text))
    then = {text: groups.find(PLACE, text) for text in seen}
    for text in seen:
        assert groups.find(PLACE, first[text]) == then[text], "a former key leads to its group"


@given(st.randoms(use_true_random=False))
def test_the_order_of_texts_decides_nothing(chance: random.Random) -> None:
    found = [
        HEAD + line.format(one, two)
        for line in LINES
        for one in NAMES[: VALUES_MIN + 1]
        for two in NAMES[: VALUES_MIN + 1]
    ]
    chance.shuffle(found)
    groups = learned(found)
    assert {groups.find(PLACE, cause_group(text)) for text in found} == {
        HEAD + line.replace("{}", "*") for line in LINES
    }


@given(st.lists(texts, max_size=80))
def test_the_stored_keys_teach_the_same_groups_again(found: list[str]) -> None:
    groups, keys = CauseGroups(), dict[str, None]()
    for text in found:
        keys[groups.add(PLACE, cause_group(text))] = None
    again = CauseGroups()
    for key in keys:
        again.add(PLACE, key)
    assert {key: again.find(PLACE, key) for key in keys} == {
        key: groups.find(PLACE, key) for key in keys
    }


@given(st.lists(st.tuples(texts, st.sampled_from(["a1", "b2"])), min_size=1, max_size=30))
def test_the_stack_makes_the_group(found: list[tuple[str, str]]) -> None:
    groups = CauseGroups()
    keys = {
        (stack, groups.add(PLACE, f"{cause_group(text)} [stack={stack}]")) for text, stack in found
    }
    assert len(keys) == len({stack for _, stack in found})


def test_classes_destinations_and_fields_divide_groups() -> None:
    groups = CauseGroups()
    for name in NAMES:
        groups.add(PLACE, f"{HEAD}user {name} may not see this")
    for other in ("a.Other: ", HEAD.replace("java", "kava")):
        assert groups.find(PLACE, f"{other}user zoe may not see this").endswith(
            "zoe may not see this"
        )
    own = f"{HEAD}user zoe may not see this"
    assert groups.find("queue://else", own) == own
    assert groups.find(PLACE, f"{own} [code=7]") == f"{own} [code=7]"
    assert groups.find(PLACE, own) == f"{HEAD}user * may not see this"


def test_too_many_texts_of_one_class_are_one_group_in_bounded_memory() -> None:
    groups, chance = CauseGroups(), random.Random(1)

    def word() -> str:
        return "".join(chance.choices("abcdefgh", k=8))

    for place in range(30):
        for _ in range(TEXTS_MAX + 10):
            groups.add(f"queue://{place}", HEAD + " ".join(word() for _ in range(12)))
    assert groups.find("queue://7", HEAD + "anything at all") == HEAD + ANY_TEXT
    assert groups.size_bytes < BYTES_MAX


def test_the_oldest_destinations_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amqsidecar.model.cause_groups.BYTES_MAX", 10_000)
    groups = CauseGroups()
    for place in ("first", "second"):
        for name in NAMES:
            groups.add(place, f"{HEAD}user {name} may not see this")
    own = f"{HEAD}user zoe may not see this"
    assert [groups.find(place, own) for place in ("first", "second")] == [
        own,
        f"{HEAD}user * may not see this",
    ]


@pytest.mark.parametrize("fields", ["", " [stack=0123456789ab]"], ids=["texts", "stacks"])
def test_long_names_of_destinations_count(monkeypatch: pytest.MonkeyPatch, fields: str) -> None:
    """A stranger chooses them, up to 4 KiB each."""
    most, name = 1 << 20, 4_000 * "x"
    monkeypatch.setattr("amqsidecar.model.cause_groups.BYTES_MAX", most)
    groups = CauseGroups()
    tracemalloc.start()
    try:
        for number in range(2_000):
            groups.add(f"queue://{number}.{name}", f"a.Refused: no{fields}")
        # Why more: the last answers are cached.
        assert tracemalloc.get_traced_memory()[0] < 2 * most + FOUND_MAX * len(name) * 1.2
    finally:
        tracemalloc.stop()
    assert sum(map(len, (name for name in groups._texts))) <= most


def test_merged_groups_lead_to_one_and_a_circle_ends() -> None:
    groups = CauseGroups()
    assert groups.add(PLACE, "a") == "a"
    groups.merged = {(PLACE, "a"): "b", (PLACE, "b"): "c", (PLACE, "x"): "y", (PLACE, "y"): "x"}
    assert groups.add(PLACE, "a") == groups.find(PLACE, "b") == "c"
    assert groups.find(PLACE, "x") in ("x", "y")
