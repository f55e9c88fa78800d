"""Address settings: which entries act on an address, in which order, merged to what.

The tables are the ones taken from the real HierarchicalObjectRepository
(`spec-artemis.md` 1.1).
"""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.errors import ConfigError
from amqsidecar.policy.address_settings import (
    CompiledAddressSettings,
    _java_hash_map_order,
    compile_address_settings,
)
from amqsidecar.policy.artemis_rules import (
    AddressSettingEntry,
    AddressSettings,
    ArtemisRules,
    WildcardSyntax,
)
from amqsidecar.policy.rule_source import RuleSource


def _compiled(
    *matches: str, wildcards: WildcardSyntax | None = None, markers: str | None = None
) -> CompiledAddressSettings:
    """Compile entries that each name themselves as dead-letter address."""
    return compile_address_settings(
        ArtemisRules(
            entries=tuple(
                AddressSettingEntry(
                    match=match,
                    settings=AddressSettings(dead_letter_address=match),
                    source=RuleSource("broker.xml", line),
                )
                for line, match in enumerate(matches, 1)
            ),
            wildcards=wildcards or WildcardSyntax(),
            literal_match_markers=markers,
        )
    )


def _order(compiled: CompiledAddressSettings, address: str) -> list[str]:
    return [entry.match for entry in compiled.entries_of(address)]


_MANY = ["#", "a.#", "a.b.#", "a.*", "a.*.c", "*.b", "*.b.c", "a.b", "a.b.c", "*.*.c", "a#"]
_MANY += ["qu*", "a.b*"]


def test_exact_comes_before_literal() -> None:
    assert _order(_compiled("(a)", "a", "#", markers="()"), "a") == ["a", "(a)", "#"]


def _entry(match: str, **settings: object) -> AddressSettingEntry:
    return AddressSettingEntry(match=match, settings=AddressSettings(**settings))  # type: ignore[arg-type]


def test_an_address_without_a_match_has_the_defaults() -> None:
    """Ten attempts, no delay, no dead-letter address."""
    settings = _compiled("a").effective("b")
    assert settings.max_delivery_attempts == 10
    assert settings.redelivery_delay_ms == 0
    assert settings.dead_letter_address is None
    assert settings.dead_letter_queue is None
    assert settings.decided_by == {}
    assert settings.rule("max_delivery_attempts") == "broker default max-delivery-attempts=10"


@pytest.mark.parametrize("match", ["a.#.c", "#.a", "a.##", "a\\#b", "(a.#.b)"])
def test_any_words_inside_a_match_is_refused(match: str) -> None:
    """The broker refuses to start; the text says where and why."""
    with pytest.raises(ConfigError) as caught:
        _compiled("ok", match, markers="()")
    (problem,) = caught.value.problems
    assert problem.where == "broker.xml:2"
    assert "last character" in problem.what
    assert match in problem.what


def test_all_illegal_matches_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        _compiled("#.a", "fine", "a.##")
    assert [problem.where for problem in caught.value.problems] == ["broker.xml:1", "broker.xml:3"]


def test_an_empty_match_is_refused_only_with_markers() -> None:
    """The broker looks at its first character only when markers are on."""
    assert _order(_compiled(""), "") == [""]
    with pytest.raises(ConfigError, match="empty match"):
        _compiled("", markers="()")


@pytest.mark.parametrize(
    ("syntax", "match", "address", "applies"),
    [
        (WildcardSyntax(delimiter="/", single_word="."), "a.", "a[^/]", False),
        (WildcardSyntax(delimiter="/", single_word="."), "a.", "ab", False),
        (WildcardSyntax(any_words="+"), "a.+", "a.b", True),
        (WildcardSyntax(delimiter="/", any_words="."), ".", "anything", True),
        (WildcardSyntax(delimiter="|"), "a|b*", "bx", True),
        (WildcardSyntax(single_word="$"), "a.$", "a.b", True),
        (WildcardSyntax(), "a.#", "a.b\nc", False),
        (WildcardSyntax(), "#", "a\nb", False),
        (WildcardSyntax(), "a.*", "a.b\nc", True),
    ],
)
def test_odd_wildcards_are_read_as_the_broker_replaces_them(
    syntax: WildcardSyntax, match: str, address: str, applies: bool
) -> None:
    """The broker replaces text by text; a character of the syntax may get into its own way."""
    assert bool(_order(_compiled(match, wildcards=syntax), address)) is applies


def test_shorter_wins_among_equal_words_and_words_at_the_end_may_be_empty() -> None:
    """java.lang.String.split drops empty words at the end; then the length decides."""
    assert _order(_compiled("[a].*", "a.*"), "a.b") == ["a.*", "[a].*"]
    assert _order(_compiled("a*.", "*.."), "ab.") == ["a*."]
    assert _order(_compiled("a*b?.", "a*"), "axb.") == ["a*b?."]
    assert _order(_compiled("*.b?.?c?", "*.b"), "a.b") == ["*.b", "*.b?.?c?"]
    assert _order(_compiled("*.b(c.c)?", "a.b*"), "a.bc.c") == ["*.b(c.c)?"]
    assert _order(_compiled("x*(.y)?(.z)?", "x*"), "xa") == ["x*(.y)?(.z)?", "x*"]


def test_a_single_marker_is_no_literal_match() -> None:
    with pytest.raises(ConfigError, match="nothing stands between"):
        _compiled("|", markers="||")


def test_rules_show_booleans_as_the_file_has_them() -> None:
    compiled = compile_address_settings(ArtemisRules(entries=(_entry("#", no_expiry=True),)))
    assert "no-expiry=true" in compiled.effective("a").rule("no_expiry")


def test_two_equal_wild_matches_come_in_the_order_of_the_hash_map() -> None:
    """Texts of equal rank follow java.util.HashMap, whatever the order of the file.

    The expected order is what a java.util.HashMap of these keys prints (Java 17).
    """
    matches = ["qu*e", "q*ue", "*que", "que*"]
    for order in (matches, matches[::-1]):
        assert _order(_compiled(*order), "quxue") == ["qu*e", "q*ue"]
    keys = [*matches, "ü*\U0001f600", "a.*", "*.b", "x*", "y*", "z*", "w*"]
    printed = "z* y* x* *que w* qu*e que* a.* q*ue *.b ü*\U0001f600"
    assert " ".join(_java_hash_map_order(keys)) == printed


def test_lookup_needs_no_pass_over_a_thousand_entries() -> None:
    """Known addresses are answered from the memo."""
    compiled = _compiled(*(f"app{number}.#" for number in range(2000)), "#")
    first = [compiled.effective(f"app{number}.x") for number in range(100)]
    for _ in range(2):
        again = [compiled.effective(f"app{number}.x") for number in range(100)]
        assert all(one is known for one, known in zip(again, first, strict=True))


@pytest.mark.timeout(30)
def test_a_long_address_does_not_hang_a_match_with_many_stars() -> None:
    """Matching inside a word is linear."""
    compiled = _compiled("*a*a*a*a*a*a*a*a*b")
    assert _order(compiled, "a" * 20_000) == []


@pytest.mark.timeout(30)
def test_a_match_that_would_hang_the_broker_counts_as_none() -> None:
    """A live regular expression without end is stopped."""
    assert _order(_compiled("(a|aa)+(a|aa)+(a+)+b?x*", "#"), "a" * 60 + "!") == ["#"]


_WORDS = st.sampled_from(["a", "b", "", "aa", "ab"])
_ADDRESSES = st.lists(_WORDS, min_size=1, max_size=4).map(".".join)


@given(_ADDRESSES)
def test_merging_is_idempotent(address: str) -> None:
    """Asking twice gives the same object, and a queue name gives what its address gives."""
    effective = partial(_compiled(*_MANY).effective)
    assert effective(address) is effective(address)
    assert effective(address + "::q") == effective(address)
