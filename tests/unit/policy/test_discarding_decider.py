"""The discarding decider: `spec-classic.md` 5."""

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Discard, Exhaust
from amqsidecar.model.destination import parse_destination, queue
from amqsidecar.policy import discarding_decider
from amqsidecar.policy.classic_rules import DiscardingRules
from amqsidecar.policy.discarding_decider import DiscardingDecider, split_patterns
from amqsidecar.policy.java_regex.java_regex import JavaRegexTimeout
from amqsidecar.policy.rule_source import RuleSource

SOURCE = RuleSource("activemq.xml", 10)
OFF = {"drop_all": False, "drop_temporary_topics": False, "drop_temporary_queues": False}


def _rule(name: str, **fields: object) -> str | None:
    rules = DiscardingRules(source=SOURCE, **fields)  # type: ignore[arg-type]
    decision = DiscardingDecider(rules).decide(DeadLetter(parse_destination(name)), None)
    assert decision is None or isinstance(decision, Discard)
    return None if decision is None else decision.rule


def test_row_17_everything_is_dropped_by_default() -> None:
    """The element alone orders to drop all; so does a written dropAll."""
    for fields in ({}, {"drop_all": True}, {"drop_all": True, "drop_only": "B"}):
        assert _rule("A", **fields) == "discardingDLQBrokerPlugin dropAll=true (activemq.xml:10)"


@pytest.mark.parametrize(
    ("fields", "name", "default"),
    [
        ({"drop_only": "B"}, "A", "dropAll"),
        ({"drop_all": False}, "temp-queue://A", "dropTemporaryQueues"),
        ({"drop_all": False, "drop_only": "B"}, "temp-topic://A", "dropTemporaryTopics"),
    ],
)
def test_row_17_what_only_a_default_drops_is_kept(
    fields: dict[str, object], name: str, default: str
) -> None:
    """A written dropOnly says what to drop; the broker's defaults drop more, silently [R]."""
    rules = DiscardingRules(source=SOURCE, **fields)  # type: ignore[arg-type]
    decision = DiscardingDecider(rules).decide(DeadLetter(parse_destination(name)), None)
    assert decision == Exhaust(
        f"discardingDLQBrokerPlugin {default}=true is the default (activemq.xml:10)",
        is_discard_of_broker=True,
    )
    if "drop_only" in fields:
        assert _rule("B", **fields) == 'discardingDLQBrokerPlugin dropOnly="B" (activemq.xml:10)'


def test_row_17_whole_name_must_match_without_its_prefix() -> None:
    """A pattern covers the whole physical name, of queues and topics alike."""
    fields = OFF | {"drop_only": r"A\..* B"}
    expected = r'discardingDLQBrokerPlugin dropOnly="A\..*" (activemq.xml:10)'
    assert _rule("A.X", **fields) == expected
    assert _rule("topic://A.X", **fields) == expected
    assert _rule("B", **fields) is not None
    for name in ("BB", "XA.X", "A", "b"):
        assert _rule(name, **fields) is None


def test_row_17_cause_makes_no_difference() -> None:
    decider = DiscardingDecider(DiscardingRules(source=SOURCE))
    for dead in (
        DeadLetter(queue("A"), expired=True),
        DeadLetter(queue("A"), is_store_duplicate=True, persistent=False, redelivery_count=9),
    ):
        assert isinstance(decider.decide(dead, None), Discard)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ()),
        ("", ()),
        ("   ", ()),
        ("A  B", ("A", "B")),
        ("A\tB C", ("A\tB", "C")),
        ("A \n\t B", ("A", "B")),
    ],
)
def test_patterns_are_split_at_the_space_only(text: str | None, expected: tuple[str, ...]) -> None:
    """Tabs and line feeds, which XML turns into spaces, do not separate patterns here."""
    assert split_patterns(text) == expected


def test_row_18_every_bad_pattern_is_refused_with_its_place() -> None:
    """Patterns that Java refuses stop the start, all at once, also when dropAll is on [R]."""
    with pytest.raises(ConfigError) as caught:
        DiscardingDecider(DiscardingRules(drop_only="A( ok B[", source=SOURCE))
    assert [problem.where for problem in caught.value.problems] == ["activemq.xml:10"] * 2
    assert all("dropOnly" in problem.what for problem in caught.value.problems)


def test_row_18_a_pattern_that_takes_too_long_does_not_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Too long is no match: the message is passed on, later patterns still count, it is said."""

    class Slow:
        calls = 0

        def matches(self, text: str) -> bool:
            Slow.calls += 1
            raise JavaRegexTimeout(text)

    class Matching:
        def matches(self, text: str) -> bool:
            return text == "B"

    monkeypatch.setattr(
        discarding_decider,
        "compile_java_regex",
        lambda pattern: Slow() if pattern == "slow" else Matching(),
    )
    decider = DiscardingDecider(DiscardingRules(**OFF, drop_only="slow B", source=SOURCE))
    for _ in range(3):
        assert decider.decide(DeadLetter(queue("A")), None) is None
    assert decider.passing_rule(DeadLetter(queue("A"))) == (
        'discardingDLQBrokerPlugin dropOnly="slow" took too long (activemq.xml:10)'
    )
    assert Slow.calls == 1
    assert isinstance(decider.decide(DeadLetter(queue("B")), None), Discard)
