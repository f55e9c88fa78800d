"""Any pattern: translated, or refused with its place; none compiles or matches without end.

That a translation means what Java means, `oracle/test_java_regex_oracle.py` compares.
"""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.policy.java_regex.java_regex import (
    JavaRegexError,
    JavaRegexTimeout,
    compile_java_regex,
)
from support.wires.fuzz import fuzz

pytestmark = pytest.mark.timeout(120)

TOKENS = (
    *(
        "a",
        "B",
        ".",
        "é",
        "😀",
        "\ud83d",
        "\n",
        "(",
        ")",
        "(?:",
        "(?>",
        "(?=",
        "(?!",
        "(?<=",
        "(?<!",
    ),
    *(
        "(?<n>",
        "(?i)",
        "(?iu:",
        "(?x)",
        "(?-s)",
        "(?z",
        "[",
        "]",
        "[^",
        "&&",
        "-",
        "|",
        "*",
        "+",
        "?",
    ),
    *("{2}", "{1,}", "{3,1}", "{99999}", "*+", "+?", "^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"),
    *(
        r"\G",
        r"\1",
        r"\2",
        r"\k<n>",
        r"\Q",
        r"\E",
        r"\R",
        r"\X",
        r"\N{DIGIT ONE}",
        r"\p{L}",
        r"\P{",
    ),
    *(r"\p{IsGreek}", r"\d", r"\W", r"\x41", r"\x{110000}", r"\u00", r"\0", r"\c", "\\", "#", "{"),
)
patterns = st.lists(st.sampled_from(TOKENS), max_size=14).map("".join) | st.text(max_size=12)
names = st.text("aAbé😀\n.1 ", max_size=30)
CATASTROPHIC = (
    *("(a+)+b", "(a|aa)+$", "(a|a?)+b", "(.*)*x", "(a*)*b", r"(\w+\s?)*!", "(.*a){12}b"),
    *("(a?){30}a{30}", r"(a+)\1+b", "(?=(a+)+b)a", "((a|b)*c|(a|b)*d)*e", "(?<=a{1,255})b"),
)


@fuzz
@given(patterns, names)
@example("(" * 59 + ")" * 59, "")
@example(r"\Q" * 5000, "")
@example("[" * 10_000, "")
def test_any_pattern_is_translated_or_refused_with_its_place(pattern: str, name: str) -> None:
    refusal = None
    try:
        regex = compile_java_regex(pattern, timeout_ms=20)
    except JavaRegexError as error:
        refusal = error
    if refusal is not None:
        assert 0 <= refusal.position <= len(pattern.encode("utf-16-le", "surrogatepass")) // 2
        assert refusal.reason
        assert len(str(refusal)) < 15_000
        return
    try:
        assert regex.matches(name) in (True, False)
    except JavaRegexTimeout:
        return


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_match_without_end_is_given_up(pattern: str) -> None:
    regex = compile_java_regex(pattern, timeout_ms=20)
    with suppress(JavaRegexTimeout):
        assert not regex.matches("a" * 2_000 + "!é")
