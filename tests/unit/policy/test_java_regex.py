"""Claims about our java.util.regex that need no JVM; the oracle tests hold the rest to Java."""

from contextlib import suppress

import pytest

from amqsidecar.policy.java_regex.java_regex import (
    JavaRegexError,
    JavaRegexTimeout,
    compile_java_regex,
)

MATCHES = [
    ("foo", "foo"),
    ("foo.*", "foo.bar"),
    ("ORDERS\\.(EU|US)\\.[0-9]{1,3}", "ORDERS.EU.42"),
    (r"\QORDERS.*\E", "ORDERS.*"),
    (r"[\Qa-c\E]+", "a-c"),
    ("[a-z&&[^bc]]", "d"),
    ("[a-z&&[b-d]&&c-e]", "c"),
    ("[a[bc]]+", "abc"),
    (r"\p{Lower}+\p{javaUpperCase}\p{IsGreek}\p{InCyrillic}", "abÉΩд"),
    (r"\p{L}+", "日本"),
    ("(?i)abc", "ABC"),
    ("(?iu)é", "É"),
    ("(?iu)k", "\u212a"),
    (r"(?U)\w+", "été"),
    ("(?x) a b # c", "ab"),
    ("(?s).", "\n"),
    ("(?d).", "\r"),
    ("foo$\\r\\n", "foo\r\n"),
    ("(?m)foo$\\n^bar", "foo\nbar"),
    (r"\R\n", "\r\n"),
    (r"\x{1F600}\uD83D\uDE00\0141\cA\e", "😀😀a\x01\x1b"),
    (r"(a)(b)(?<n>c)\2\k<n>", "abcbc"),
    (r"(a)\11", "aa1"),
    ("(?>a|ab)c", "ac"),
    (".*(?<=a{1,3})", "ba"),
    ("a{2}{3}", "aa"),
    (r"\bé\b", "é"),
    ("(?!ActiveMQ\\.).*", "ORDERS"),
    ("😀.", "😀😀"),
    ("", ""),
]

DIFFERS = [
    ("foo", "foobar"),
    (".", "\u0085"),
    (".", "\r"),
    (r"\d", "٣"),
    (r"\w", "é"),
    (r"\s", "\u00a0"),
    ("(?i)é", "É"),
    ("(?i)k", "\u212a"),
    (r"\R+\n", "\r\n"),
    ("(?>a|ab)c", "abc"),
    ("(?:a|ab){2}+", "aba"),
    (r"\1", ""),
    (r"(a)|\1", ""),
    ("[a&&b]*", "a"),
    ("(?m)^", ""),
    ("(?<!a)b", "ab"),
    (".*(?<=b[^a])", "b😀"),
]


@pytest.mark.parametrize(("pattern", "text"), MATCHES)
def test_matches_as_java_does(pattern: str, text: str) -> None:
    assert compile_java_regex(pattern).matches(text)


@pytest.mark.parametrize(("pattern", "text"), DIFFERS)
def test_refrains_as_java_does(pattern: str, text: str) -> None:
    assert not compile_java_regex(pattern).matches(text)


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("foo(", 3),
        ("foo)", 3),
        ("[a", 0),
        ("a**", 2),
        ("*", 0),
        ("{", 0),
        ("a{2,1}", 1),
        ("a{99999999999}", 1),
        ("[z-a]", 2),
        (r"[a-\d]", 2),
        (r"[\b]", 1),
        (r"a\y", 1),
        ("a\\", 2),
        (r"\0", 2),
        (r"\x{110000}", 9),
        (r"\x{41", 5),
        (r"\u12", 4),
        (r"\c", 2),
        (r"\p", 2),
        (r"\p{L", 0),
        (r"\p{Nope}", 0),
        (r"\p{x=y}", 0),
        (r"\k<n>", 0),
        (r"\kn", 0),
        ("(?<1>a)", 3),
        ("(?<n", 4),
        ("(?<n>a)(?<n>b)", 7),
        ("(?z)", 2),
        ("(?<=a*)b", 0),
        (r"(?<=(a)\1)b", 0),
        ("(?<=(?:a|b){2})c", 0),
    ],
)
def test_refuses_what_java_refuses_with_the_position(pattern: str, position: int) -> None:
    """An invalid pattern is an error with pattern, position and reason in one sentence."""
    with pytest.raises(JavaRegexError) as refusal:
        compile_java_regex(pattern)
    assert refusal.value.position == position
    assert refusal.value.pattern == pattern
    assert refusal.value.reason in str(refusal.value)
    assert f"index {position}" in str(refusal.value)


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        (r"a\X", 1),
        (r"\b{g}", 0),
        (r"\N{SPACE}", 2),
        ("(?c)a", 2),
        ("[a&&]", 2),
        ("[a&&[b]&c]", 7),
        (r"(?x)\x4 1", 8),
        ("(?x)( ?i )a", 8),
        ("(?x)[a& &b]", 6),
        ("(?x)[a- b]", 7),
        (r"(?x)(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\1 0", 34),
        (r"\p{\QL\E}", 5),
        (r"\uD83D", 0),
        ("\ud83d", 0),
        ("a\0", 1),
        ("a{9999}", 1),
        ("((a{900}){900})", 0),
        ("(" * 61 + ")" * 61, 60),
        ("a" * 10_001, 10_000),
        (r"(?iu)(a)\1", 8),
        (r"(?iu)ß", 5),
        (r"(?:(a)b)*\1", 9),
        (r"(\1a)*", 1),
        (r"(?=(a))\1", 7),
        (r"(?>(a))\1", 7),
        (r"(?:^|a)*", 7),
        (r"(?>(?:|a)*)", 9),
        (".*(?<=a?+b)", 7),
        (".*(?<=(?>a|b))", 2),
        (".*(?<=a{300})", 2),
        (".*(?<=a.{1,2})", 2),
        (r".*(?<=[a\x{DC00}-\x{DC01}])", 8),
    ],
)
def test_refuses_what_it_cannot_keep_with_the_position(pattern: str, position: int) -> None:
    with pytest.raises(JavaRegexError, match="not supported by amqsidecar") as refusal:
        compile_java_regex(pattern)
    position = min(position, len(pattern))
    assert refusal.value.position == position


@pytest.mark.timeout(30)
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*a){20}"])
def test_known_catastrophes_end(pattern: str) -> None:
    with suppress(JavaRegexTimeout):
        compile_java_regex(pattern).matches("a" * 60 + "!")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?:a|aa)+$", "a" * 60 + "!"),
        ("(a|b|ab)*(?=c)", "ab" * 60),
        ("([a-c]|[a-d])*e?", "a" * 60 + "!"),
        ("(?:é|éé)+$", "é" * 60 + "!"),
    ],
)
def test_no_pattern_hangs(pattern: str, text: str) -> None:
    """A match without an answer in time raises, and names the pattern and the limit."""
    regex = compile_java_regex(pattern, timeout_ms=30)
    with pytest.raises(JavaRegexTimeout, match="30 ms"):
        regex.matches(text)


def test_halves_of_a_pair_are_one_character() -> None:
    """Two surrogates in a text are the one code point that Java sees."""
    assert compile_java_regex(".").matches("\ud83d\ude00")


def test_pattern_can_be_read_back() -> None:
    regex = compile_java_regex("foo.*")
    assert regex.pattern == "foo.*"
    assert repr(regex) == "JavaRegex('foo.*')"
