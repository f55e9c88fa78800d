"""YAML policies: reading, refusing, and the round trip from the brokers' XML."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqsidecar.broker import BrokerKind
from amqsidecar.cli.init_command import STARTING_POLICIES
from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_decider import ArtemisDecider
from amqsidecar.policy.artemis_rules import (
    AddressSettingEntry,
    AddressSettings,
    ArtemisRules,
    WildcardSyntax,
)
from amqsidecar.policy.chain import Chain
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    CompositeDestination,
    DeadLetterRules,
    DestinationInterceptors,
    DiscardingDeadLetterStrategy,
    DiscardingRules,
    ForwardTo,
    IndividualDeadLetterStrategy,
    MirroredQueues,
    PluginRules,
    PolicyEntry,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    SharedDeadLetterStrategy,
    VirtualTopic,
)
from amqsidecar.policy.rule_source import DEFAULTS, RuleSource
from amqsidecar.policy_source.load import compile_policy, load_policy, parse_policy
from amqsidecar.policy_source.yaml_writer import write_yaml

POLICIES = Path(__file__).parents[1] / "policies"
PLUGINS = load_plugins()


def _read(text: str) -> ClassicRules | ArtemisRules:
    return parse_policy("p.yaml", text.encode(), PLUGINS, {})


def _problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _read(text)
    return [str(problem) for problem in caught.value.problems]


def _without_sources(value: object) -> object:
    """Return rules without places and warnings, which a round trip changes."""
    if isinstance(value, tuple):
        return tuple(_without_sources(item) for item in value)
    if not is_dataclass(value) or isinstance(value, type | Destination):
        return value
    changes = {
        field.name: DEFAULTS
        if field.name == "source"
        else ()
        if field.name == "warnings"
        else _without_sources(getattr(value, field.name))
        for field in fields(value)
    }
    return replace(value, **changes)


@pytest.mark.parametrize("name", ["full.activemq.xml", "spring.activemq.xml", "full.broker.xml"])
def test_xml_to_yaml_and_back_gives_equal_rules(name: str) -> None:
    """Sources and warnings aside."""
    rules = load_policy(POLICIES / name, PLUGINS, {})
    assert _without_sources(_read(write_yaml(rules))) == _without_sources(rules)


def test_options_of_a_third_party_are_written_as_they_are() -> None:
    """A mapping as it is, a dataclass by its fields."""
    rules = ClassicRules(
        plugins=(
            PluginRules(name="pacing", options={"per_second": 5, "queues": ("a",)}),
            PluginRules(name="other", options=WildcardSyntax()),
        )
    )
    text = write_yaml(rules)
    assert '  - pacing:\n      per_second: 5\n      queues:\n        - "a"\n' in text
    assert '  - other:\n      delimiter: "."\n' in text


def test_classic_policy_with_lines() -> None:
    rules = _read(
        "plugins:\n"
        "  - redelivery:\n"
        "      entries:\n"
        "        - queue: orders.>\n"
        "          maximum_redeliveries: -1\n"
        "  - discarding:\n"
        "      drop_all: false\n"
        "dead_letter:\n"
        "  entries:\n"
        "    - queue: '>'\n"
        "      dead_letter_strategy: {kind: individual, queue_prefix: DLQ.}\n"
    )
    assert isinstance(rules, ClassicRules)
    redelivery = rules.plugins[0].options
    assert isinstance(redelivery, RedeliveryRules)
    assert rules.plugins[0].source == RuleSource("p.yaml", 2)
    assert redelivery.entries[0].policy.source == RuleSource("p.yaml", 4)
    assert redelivery.entries[0].policy.maximum_redeliveries is None
    assert rules.dead_letter.entries[0].source == RuleSource("p.yaml", 10)
    assert isinstance(compile_policy(rules, PLUGINS), Chain)


def test_only_what_is_said_of_strategies_is_known(tmp_path: Path) -> None:
    """A file of the broker says all of them, also by silence; rules in YAML may leave them out."""
    files = {
        "silent.yaml": "plugins: []\n",
        "told.yaml": "plugins: []\ndead_letter: {entries: []}\n",
        "silent.xml": "<beans><broker xmlns='http://activemq.apache.org/schema/core'/></beans>",
    }
    known = {}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        rules = load_policy(tmp_path / name, PLUGINS)
        assert isinstance(rules, ClassicRules)
        known[name] = rules.dead_letter.is_known
    assert known == {"silent.yaml": False, "told.yaml": True, "silent.xml": True}


def test_interceptors_are_known_only_where_something_is_said_of_them() -> None:
    said = _read("plugins: []\ndestination_interceptors: {}\n")
    silent = _read("plugins: []\n")
    assert isinstance(said, ClassicRules)
    assert isinstance(silent, ClassicRules)
    assert (said.interceptors.are_known, silent.interceptors.are_known) == (True, False)


def test_what_is_wrong_with_interceptors_is_refused_with_its_line() -> None:
    text = """\
plugins: []
destination_interceptors:
  composites:
    - queue: orders
      forward_only: maybe
      forward_to:
        - selector: a = 1
  mirrored_queues: {prefx: m}
"""
    assert _problems(text) == [
        "p.yaml:7: queue, topic, temp_queue, temp_topic: expected exactly one of these, found "
        "none of them",
        "p.yaml:4: forward_only: expected true or false, found 'maybe'",
        "p.yaml:8: prefx: there is no such option; known here: postfix, prefix, temporary",
    ]
    assert "expected a mapping" in _problems("plugins: []\ndestination_interceptors: 1\n")[0]


def test_artemis_policy_with_lines() -> None:
    """Keys are the broker's words in snake case, with units."""
    rules = _read(
        "literal_match_markers: '()'\n"
        "wildcard_addresses: {delimiter: /}\n"
        "address_settings:\n"
        "  - match: '#'\n"
        "    max_delivery_attempts: 3\n"
        "    redelivery_delay_multiplier: 2\n"
        "    redelivery_delay_ms: 1000\n"
        "  - match: '#'\n"
        "    max_delivery_attempts: 4\n"
    )
    assert isinstance(rules, ArtemisRules)
    assert rules.entries == (
        AddressSettingEntry(
            match="#",
            settings=AddressSettings(
                max_delivery_attempts=3, redelivery_delay_multiplier=2.0, redelivery_delay_ms=1000
            ),
            source=RuleSource("p.yaml", 4),
        ),
    )
    assert rules.wildcards == WildcardSyntax(delimiter="/")
    assert rules.literal_match_markers == "()"
    assert "second entry" in rules.warnings[0]
    assert isinstance(compile_policy(rules, PLUGINS), ArtemisDecider)


def test_every_problem_of_an_artemis_policy_is_reported_at_once() -> None:
    problems = _problems(
        "address_settings:\n"
        "  - match: a\n"
        "    max_delivery_attemps: 3\n"
        "    redelivery_delay_ms: 5s\n"
        "    max_delivery_attempts: 3000000000\n"
        "    no_expiry: 1\n"
        "    redelivery_collision_avoidance_factor: 2\n"
        "    dead_letter_address: 7\n"
        "  - no_expiry: true\n"
        "  - just text\n"
        "literal_match_markers: abc\n"
        "wildcard_addresses: {delimiter: '..', joker: x}\n"
        "other: 1\n"
    )
    starts = [problem.split(": ")[0] for problem in problems]
    assert starts.count("p.yaml:3") == 1
    for line in (3, 4, 5, 6, 7, 8, 9, 11, 12, 13):
        assert f"p.yaml:{line}" in starts
    assert "did you mean max_delivery_attempts?" in "".join(problems)


def test_every_problem_of_a_classic_policy_is_reported_at_once() -> None:
    """Unknown plugins, wrong shapes, and what the plugins themselves refuse."""
    problems = _problems(
        "plugins:\n"
        "  - redelivry: {}\n"
        "  - redelivery: {maximum: 3}\n"
        "  - discarding: [1]\n"
        "  - deadletter: {}\n"
        "  - text\n"
        "dead_leter: {}\n"
        "scheduler_support: 1\n"
    )
    text = "\n".join(problems)
    for words in (
        "did you mean redelivery?",
        "maximum",
        "expected a mapping of options",
        "stands outside of plugins",
        "plugins[4]",
        "did you mean dead_letter?",
        "scheduler_support: expected true or false",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("scheduler_support: true\naddress_settings: []\n", "mixes"),
        ("x: 1\n", "is no policy"),
        ("- 1\n", "expected a mapping"),
        ("a: [1\n", "is not YAML"),
        ("a: 1\na: 2\n", "is not YAML"),
        ("plugins: 1\n", "expected a list"),
        ("address_settings: {}\n", "expected a list"),
        ("address_settings: []\nwildcard_addresses: 1\n", "expected a mapping"),
        ("address_settings:\n  - match: a.#.b\n", "last character"),
        ("plugins:\n  - redelivery: !!python/object:os.system {}\n", ""),
    ],
)
def test_files_that_are_no_policy_are_refused(text: str, words: str) -> None:
    if words:
        assert any(words in problem for problem in _problems(text))
    else:
        assert isinstance(_read(text), ClassicRules)


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path: Path) -> None:
    """The path and what to look at are in the message."""
    with pytest.raises(ConfigError, match=r"path of the policy \(policy\.source\)"):
        load_policy(tmp_path / "gone.yaml", PLUGINS, {})
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_policy(tmp_path / "bytes.yaml", PLUGINS, {})
    (tmp_path / "big.yaml").write_bytes(b"#" * 9_000_000)
    with pytest.raises(ConfigError, match="at most"):
        load_policy(tmp_path / "big.yaml", PLUGINS, {})


def test_inline_rules_have_the_key_path_as_place() -> None:
    rules = load_policy({"address_settings": [{"match": "a"}]}, PLUGINS, {})
    assert isinstance(rules, ArtemisRules)
    assert str(rules.entries[0].source) == "policy.rules"
    with pytest.raises(ConfigError, match=r"policy\.rules: mach"):
        load_policy({"address_settings": [{"mach": "a"}]}, PLUGINS, {})


_INT64 = st.integers(-(2**63), 2**63 - 1)
_SETTINGS = st.builds(
    AddressSettings,
    max_delivery_attempts=st.none() | st.integers(-(2**31), 2**31 - 1),
    redelivery_delay_ms=st.none() | _INT64,
    redelivery_delay_multiplier=st.none() | st.floats(allow_nan=False),
    redelivery_collision_avoidance_factor=st.none() | st.floats(0, 1),
    dead_letter_address=st.none() | st.text(max_size=8),
    no_expiry=st.none() | st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text("ab./ é'\"\\:-", max_size=6), _SETTINGS), max_size=4))
def test_round_trip_of_artemis_rules(entries: list[tuple[str, AddressSettings]]) -> None:
    matches = dict(entries)
    rules = ArtemisRules(
        entries=tuple(
            AddressSettingEntry(match=match, settings=one) for match, one in matches.items()
        )
    )
    assert _without_sources(_read(write_yaml(rules))) == _without_sources(rules)


_DESTINATIONS = st.one_of(
    st.sampled_from(["A.>", "B", ">", "queue://A", "a b", "#1", "no", "12"]).map(queue),
    st.sampled_from(["T", "T.*"]).map(topic),
    st.just(Destination(DestinationKind.TEMP_QUEUE, ">")),
)
_PATTERNS = st.lists(_DESTINATIONS, min_size=1, max_size=3, unique=True).map(tuple)
_REDELIVERY = st.builds(
    RedeliveryPolicy,
    maximum_redeliveries=st.none() | st.integers(-5, 100).filter(lambda n: n != -1),
    initial_redelivery_delay_ms=_INT64,
    redelivery_delay_ms=_INT64,
    maximum_redelivery_delay_ms=st.none() | st.integers(0, 2**63 - 1),
    use_exponential_back_off=st.booleans(),
    back_off_multiplier=st.floats(allow_nan=False, allow_infinity=False),
    use_collision_avoidance=st.booleans(),
    collision_avoidance_percent=st.integers(-(2**15), 2**15 - 1),
)
_STRATEGIES = st.one_of(
    st.builds(
        SharedDeadLetterStrategy,
        dead_letter_queue=_DESTINATIONS,
        expiration_ms=_INT64,
        source=st.just(DEFAULTS),
    ),
    st.builds(
        IndividualDeadLetterStrategy,
        queue_prefix=st.text("D. :", max_size=3),
        topic_suffix=st.text(max_size=3),
        destination_per_durable_subscriber=st.booleans(),
        source=st.just(DEFAULTS),
    ),
    st.builds(DiscardingDeadLetterStrategy, enable_audit=st.booleans(), source=st.just(DEFAULTS)),
)
_PLUGIN_RULES = st.one_of(
    st.builds(
        RedeliveryRules,
        entries=st.lists(
            st.builds(RedeliveryEntry, destinations=_PATTERNS, policy=_REDELIVERY), max_size=3
        ).map(tuple),
        default_entry=st.none() | _REDELIVERY,
        fallback_to_dead_letter=st.booleans(),
    ).map(lambda rules: PluginRules(name="redelivery", options=rules)),
    st.builds(
        DiscardingRules,
        drop_all=st.booleans(),
        drop_only=st.none() | st.sampled_from(["A\\..* B", " x ", "#"]),
        report_interval=st.integers(0, 5),
    ).map(lambda rules: PluginRules(name="discarding", options=rules)),
)
_POLICY_ENTRIES = st.builds(
    PolicyEntry,
    destinations=_PATTERNS,
    dead_letter_strategy=st.none() | _STRATEGIES,
    source=st.just(DEFAULTS),
)


_INTERCEPTORS = st.builds(
    DestinationInterceptors,
    composites=st.lists(
        st.builds(
            CompositeDestination,
            destinations=_PATTERNS,
            forward_to=st.lists(
                st.builds(
                    ForwardTo,
                    destination=_DESTINATIONS,
                    selector=st.none() | st.sampled_from(["a = 'b: c'", "n < 3 AND x IS NULL"]),
                ),
                max_size=3,
            ).map(tuple),
            forward_only=st.booleans(),
            send_when_not_matched=st.booleans(),
            source=st.just(DEFAULTS),
        ),
        max_size=3,
    ).map(tuple),
    virtual_topics=st.lists(
        st.builds(
            VirtualTopic,
            destinations=_PATTERNS,
            prefix=st.sampled_from(["Consumer.*.", "", "A."]),
            postfix=st.sampled_from(["", ".q"]),
            set_original_destination=st.booleans(),
            source=st.just(DEFAULTS),
        ),
        max_size=2,
    ).map(tuple),
    mirrored_queues=st.none()
    | st.builds(MirroredQueues, prefix=st.text("M.", max_size=2), source=st.just(DEFAULTS)),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(_PLUGIN_RULES, max_size=3).map(tuple),
    st.lists(_POLICY_ENTRIES, max_size=3).map(tuple),
    _INTERCEPTORS,
    st.booleans(),
)
def test_round_trip_of_classic_rules(
    plugins: tuple[PluginRules, ...],
    entries: tuple[PolicyEntry, ...],
    interceptors: DestinationInterceptors,
    scheduler_support: bool,
) -> None:
    rules = ClassicRules(
        plugins=plugins,
        dead_letter=DeadLetterRules(entries=entries),
        interceptors=interceptors,
        scheduler_support=scheduler_support,
    )
    assert _without_sources(_read(write_yaml(rules))) == _without_sources(rules)


@pytest.mark.parametrize("kind", BrokerKind)
def test_a_policy_to_start_with_has_no_warnings(kind: BrokerKind) -> None:
    """Warnings that are always there are not read."""
    assert _read(STARTING_POLICIES[kind]).warnings == ()
