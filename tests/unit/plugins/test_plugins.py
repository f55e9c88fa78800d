"""The built-in plugins: options of a YAML policy, in and out."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import queue, topic
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.classic_rules import (
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    DiscardingRules,
    IndividualDeadLetterStrategy,
    PolicyEntry,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.rule_source import RuleSource

SOURCE = RuleSource("policy.yaml", 3)
TEXTS = st.text("A[. >*", max_size=4)


def _parse(name: str, options: dict[str, object]) -> object:
    return load_plugins()[name].parse_options(options, SOURCE)


def _problems(name: str, options: dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _parse(name, options)
    return [str(problem) for problem in caught.value.problems]


def test_nothing_written_means_the_brokers_defaults() -> None:
    """Empty options are the broker's empty element."""
    assert _parse("redelivery", {}) == RedeliveryRules(source=SOURCE)
    assert _parse("discarding", {}) == DiscardingRules(source=SOURCE)
    assert _parse("deadletter", {}) == DeadLetterRules(source=SOURCE)


def test_redelivery_options_carry_every_field() -> None:
    """Each option of a policy has the broker's name in snake case, with its unit."""
    fields: dict[str, object] = {
        "maximum_redeliveries": 3,
        "initial_redelivery_delay_ms": 1,
        "redelivery_delay_ms": 2,
        "maximum_redelivery_delay_ms": 4,
        "use_exponential_back_off": True,
        "back_off_multiplier": 2,
        "use_collision_avoidance": True,
        "collision_avoidance_percent": 7,
    }
    policy = RedeliveryPolicy(source=SOURCE, **fields)  # type: ignore[arg-type]
    options: dict[str, object] = {
        "entries": [{"queue": "A.>, topic://B", **fields}, {"topic": ["T"], **fields}],
        "default_entry": fields,
        "fallback_to_dead_letter": False,
        "send_to_dlq_if_max_retries_exceeded": False,
    }
    assert _parse("redelivery", options) == RedeliveryRules(
        entries=(
            RedeliveryEntry(destinations=(queue("A.>"), topic("B")), policy=policy),
            RedeliveryEntry(destinations=(topic("T"),), policy=policy),
        ),
        default_entry=policy,
        fallback_to_dead_letter=False,
        send_to_dlq_if_max_retries_exceeded=False,
        source=SOURCE,
    )


@pytest.mark.parametrize("written", [None, -1])
def test_no_limit_is_null_or_minus_one(written: int | None) -> None:
    fields = {"maximum_redeliveries": written, "maximum_redelivery_delay_ms": written}
    rules = _parse("redelivery", {"default_entry": fields})
    assert isinstance(rules, RedeliveryRules)
    assert rules.default_entry == RedeliveryPolicy(maximum_redeliveries=None, source=SOURCE)


def test_discarding_patterns_are_a_text_or_a_list() -> None:
    for written in ("A.* B", ["A.*", "B"]):
        rules = _parse("discarding", {"drop_all": False, "drop_only": written})
        assert rules == DiscardingRules(drop_all=False, drop_only="A.* B", source=SOURCE)


def test_strategies_carry_every_field() -> None:
    """All three kinds, with what they have in common and their own."""
    common: dict[str, object] = {
        "process_expired": False,
        "process_non_persistent": True,
        "enable_audit": False,
        "expiration_ms": 5,
        "max_producers_to_audit": 6,
        "max_audit_depth": 7,
    }
    own: dict[str, object] = {
        "queue_prefix": "a",
        "queue_suffix": "b",
        "topic_prefix": "c",
        "topic_suffix": "d",
        "use_queue_for_queue_messages": False,
        "use_queue_for_topic_messages": False,
        "destination_per_durable_subscriber": True,
    }
    at = {"source": SOURCE}
    strategies: dict[str, DeadLetterStrategy] = {
        "individual": IndividualDeadLetterStrategy(**common, **own, **at),  # type: ignore[arg-type]
        "shared": SharedDeadLetterStrategy(dead_letter_queue=topic("D"), **common, **at),  # type: ignore[arg-type]
        "discarding": DiscardingDeadLetterStrategy(**common, **at),  # type: ignore[arg-type]
    }
    extra: dict[str, dict[str, object]] = {
        "individual": own,
        "shared": {"dead_letter_queue": "topic://D"},
        "discarding": {},
    }
    options: dict[str, object] = {
        "entries": [
            {"queue": kind, "dead_letter_strategy": {"kind": kind, **common, **extra[kind]}}
            for kind in strategies
        ],
        "default_entry": {},
    }
    assert _parse("deadletter", options) == DeadLetterRules(
        entries=tuple(
            PolicyEntry(destinations=(queue(kind),), dead_letter_strategy=strategy, source=SOURCE)
            for kind, strategy in strategies.items()
        ),
        default_entry=PolicyEntry(destinations=(), source=SOURCE),
        source=SOURCE,
    )


def test_every_problem_is_found_at_once() -> None:
    """Wrong types, unknown keys, missing patterns and impossible numbers, all in one go."""
    problems = _problems(
        "redelivery",
        {
            "entries": [{"maximum_redeliveries": "3"}, 7, {"queue": "A", "topic": "B"}],
            "default_entry": {"queue": "A", "collision_avoidance_percent": 2**15},
            "fallback_to_dead_letter": 1,
            "fallbackToDeadLetter": True,
        },
    )
    text = "\n".join(problems)
    assert len(problems) == 8
    assert all(problem.startswith("policy.yaml:3: ") for problem in problems)
    for expected in (
        "maximum_redeliveries: expected an integer, found '3'",
        "found none of them",
        "entries[1]: expected a mapping, found 7",
        "found queue and topic",
        "queue: there is no such option",
        "from -32768 to 32767, found 32768",
        "fallback_to_dead_letter: expected true or false, found 1",
        "fallbackToDeadLetter: there is no such option",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("discarding", {"drop_only": ["A B"]}),
        ("discarding", {"drop_only": 7}),
        ("deadletter", {"entries": [{"queue": "A", "dead_letter_strategy": {"kind": "mine"}}]}),
        ("deadletter", {"entries": [{"queue": " , "}]}),
        ("deadletter", {"entries": {"queue": "A"}}),
        ("deadletter", {"default_entry": 3}),
        ("deadletter", {"default_entry": {"dead_letter_strategy": {"dead_letter_queue": ""}}}),
    ],
)
def test_wrong_option_is_one_problem(name: str, options: dict[str, object]) -> None:
    assert len(_problems(name, options)) == 1


def test_entry_knows_its_own_line() -> None:
    class Lines:
        line = 6

    class Mapping(dict[str, object]):
        lc = Lines()

    rules = _parse("redelivery", {"entries": [Mapping(queue="A")]})
    assert isinstance(rules, RedeliveryRules)
    assert rules.entries[0].policy.source == replace(SOURCE, line=7)


@given(
    st.sampled_from(["redelivery", "discarding", "deadletter"]),
    st.dictionaries(
        st.sampled_from(["entries", "default_entry", "drop_only", "drop_all", "x"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text() | st.none()),
    ),
)
def test_options_are_accepted_or_refused_but_never_crash(
    name: str, options: dict[str, object]
) -> None:
    plugin = load_plugins()[name]
    with suppress(ConfigError):
        plugin.compile(plugin.parse_options(options, SOURCE))


@pytest.mark.parametrize("name", ["redelivery", "discarding", "deadletter"])
def test_foreign_options_are_a_bug(name: str) -> None:
    with pytest.raises(TypeError):
        load_plugins()[name].compile({})
