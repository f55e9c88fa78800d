"""JMS selectors; what Artemis answers to many is compared in `oracle/test_selector_oracle.py`."""

import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.policy.selector import UNKNOWN, NarrowInt, Selector, parse_selector

PROPERTIES: dict[str, Any] = {
    "color": "red",
    "size": 3,
    "weight": 2.5,
    "flag": True,
    "short": NarrowInt(3),
    "secret": UNKNOWN,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("color = 'red'", True),
        ("color <> 'red' OR size BETWEEN 1 AND 3", True),
        ("NOT (gone = 'x')", False),
        ("gone IS NULL AND color IS NOT NULL", True),
        ("gone <> 'x'", False),
        ("size = '3'", False),
        ("size = 3.0", True),
        ("size + 1 > weight * 1", True),
        ("flag", True),
        ("gone", False),
        ("color LIKE 'r_%'", True),
        ("color LIKE 'r!%' ESCAPE '!'", False),
        ("color NOT IN ('blue', 'O''Brien')", True),
        ("3 = short", False),
        ("short = 3", True),
        ("\"color\" = 'red'", True),
        ("hyphenated_props:my-prop IS NULL", True),
        ("secret = 'x'", None),
        ("color = 'red' OR secret = 'x'", True),
        ("XPATH '//a'", None),
        ("convert_string_expressions:size = '3'", None),
        ("not a selector (", None),
        ("color * 2 = 4", None),
        ("size / 0 = 1", None),
        ("size * 5000000000 > 1", None),
        ("(" * 300 + "size = 3" + ")" * 300, None),
    ],
)
def test_a_selector(text: str, expected: bool | None) -> None:
    assert parse_selector(text).matches(PROPERTIES.get) is expected


@pytest.mark.timeout(30)
@pytest.mark.parametrize("end", ["b", "_b", "b%", "_"])
def test_a_like_of_many_wildcards_is_decided_for_a_text_that_nearly_matches(end: str) -> None:
    selector = parse_selector(f"color LIKE '%{'a%' * 8}{end}'")
    assert selector.matches({"color": "a" * 5_000}.get) is (end == "_")


@given(st.text(alphabet="ab%_", max_size=8), st.text(alphabet="ab", max_size=8))
def test_a_like_is_what_its_wildcards_mean(pattern: str, text: str) -> None:
    plain = re.compile(pattern.replace("%", ".*").replace("_", "."))
    found = parse_selector(f"color LIKE '{pattern}'").matches({"color": text}.get)
    assert found is (plain.fullmatch(text) is not None)


@given(st.text(alphabet=[*string.printable, "ä", "\0"], max_size=60))
def test_no_text_is_more_than_undecided(text: str) -> None:
    assert Selector(text).matches(PROPERTIES.get) in (True, False, None)


@given(st.lists(st.sampled_from(["(", ")", "NOT", "AND", "OR", "=", "-", "color", "'x'", "1"])))
def test_no_words_are_more_than_undecided(words: list[str]) -> None:
    assert Selector(" ".join(words)).matches(PROPERTIES.get) in (True, False, None)
