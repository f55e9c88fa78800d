"""Reading broker.xml: the rules of FileConfigurationParser."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.policy.artemis_rules import (
    AddressSettingEntry,
    AddressSettings,
    ArtemisRules,
    WildcardSyntax,
)
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.broker_xml import read_broker_xml
from amqsidecar.policy_source.load import load_policy

POLICIES = Path(__file__).parents[1] / "policies"


def _read(core: str, environment: Mapping[str, str] | None = None) -> ArtemisRules:
    text = (
        '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core" '
        f'xmlns:xi="http://www.w3.org/2001/XInclude">{core}</core></configuration>'
    )
    return read_broker_xml("b.xml", text.encode(), environment or {})


def _setting(children: str, match: str = "#") -> str:
    return (
        f'<address-settings><address-setting match="{match}">{children}</address-setting>'
        "</address-settings>"
    )


def _settings(children: str, environment: Mapping[str, str] | None = None) -> AddressSettings:
    return _read(_setting(children), environment).entries[0].settings


def _problems(core: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _read(core)
    return [str(problem) for problem in caught.value.problems]


def test_a_file_with_everything() -> None:
    """Values, empty elements, the first of two equal matches."""
    name = "full.broker.xml"
    rules = read_broker_xml(name, (POLICIES / name).read_bytes(), {})
    assert rules.entries == (
        AddressSettingEntry(
            match="#",
            settings=AddressSettings(
                dead_letter_address="DLQ", expiry_address="ExpiryQueue", redelivery_delay_ms=100
            ),
            source=RuleSource(name, 5),
        ),
        AddressSettingEntry(
            match="orders.#",
            settings=AddressSettings(
                max_delivery_attempts=3,
                redelivery_delay_multiplier=2.0,
                redelivery_collision_avoidance_factor=0.5,
                max_redelivery_delay_ms=5500,
                auto_create_dead_letter_resources=True,
                dead_letter_queue_prefix="",
                dead_letter_queue_suffix=".dlq",
            ),
            source=RuleSource(name, 11),
        ),
        AddressSettingEntry(
            match="lost",
            settings=AddressSettings(dead_letter_address="", max_delivery_attempts=1),
            source=RuleSource(name, 21),
        ),
    )
    assert rules.literal_match_markers == "()"
    assert rules.wildcards == WildcardSyntax()
    second, limited, destroyed = rules.warnings
    assert second.startswith(f'{name}:20: a second address-setting match="orders.#"')
    assert destroyed.startswith(f"{name}:5: the dead-letter address DLQ is itself limited to 10")
    assert limited.startswith(f"{name}:21: no dead-letter-address")


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ("<max-delivery-attempts>3x</max-delivery-attempts>", "whole number"),
        ("<max-delivery-attempts></max-delivery-attempts>", "whole number"),
        ("<max-delivery-attempts>1_0</max-delivery-attempts>", "whole number"),
        ("<max-delivery-attempts>3000000000</max-delivery-attempts>", "32 bits"),
        ("<redelivery-delay>5s</redelivery-delay>", "whole number"),
        ("<max-redelivery-delay>9223372036854775808</max-redelivery-delay>", "64 bits"),
        ("<redelivery-delay-multiplier>two</redelivery-delay-multiplier>", "number such as"),
        ("<redelivery-delay-multiplier>1_0</redelivery-delay-multiplier>", "number such as"),
        ("<redelivery-delay-multiplier>2f</redelivery-delay-multiplier>", "number such as"),
        ("<redelivery-delay-multiplier>0x1p3</redelivery-delay-multiplier>", "number such as"),
        ("<redelivery-delay-multiplier>Infinity</redelivery-delay-multiplier>", "number such as"),
        ("<no-expiry>TRUE</no-expiry>", "expected true or false"),
        ("<redelivery-multiplier>2</redelivery-multiplier>", "did you mean <redelivery-delay-mult"),
        (
            "<redelivery-collision-avoidance-factor>1.01</redelivery-collision-avoidance-factor>",
            "from 0 to 1",
        ),
        (
            "<redelivery-collision-avoidance-factor>-0.1</redelivery-collision-avoidance-factor>",
            "from 0 to 1",
        ),
    ],
)
def test_bad_numbers_are_fatal(element: str, words: str) -> None:
    """As in the broker."""
    (problem,) = _problems(_setting(element))
    assert problem.startswith("b.xml:1: <")
    assert words in problem


def test_every_problem_is_reported_at_once() -> None:
    problems = _problems(
        '<address-settings><address-setting match="a.#.b"/>'
        "<address-setting/>"
        '<address-setting match="x"><redelivery-delay>?</redelivery-delay></address-setting>'
        "</address-settings><literal-match-markers>(</literal-match-markers>"
        "<wildcard-addresses><delimiter></delimiter></wildcard-addresses>"
    )
    assert len(problems) == 5
    for words in ("last character", "no attribute match", "whole number", "two char", "is empty"):
        assert any(words in problem for problem in problems)


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("${dla}", {"dla": "DLQ"}, "DLQ"),
        ("${dla:D}", {}, "D"),
        ("${dla : D }.x", {}, "D.x"),
        ("${a:${b:c}}", {}, "c"),
        ("${a}${a}", {"a": "x"}, "xx"),
        ("${a", {"a": "x"}, "${a"),
    ],
)
def test_placeholders(text: str, environment: Mapping[str, str], expected: str) -> None:
    """Environment, default after the colon, nested."""
    element = f"<dead-letter-address>{text}</dead-letter-address>"
    assert _settings(element, environment).dead_letter_address == expected


def test_an_unknown_placeholder_is_empty_with_a_warning() -> None:
    """The broker takes an unknown property as empty; that is worth a word."""
    rules = _read(_setting("<dead-letter-address>${gone}</dead-letter-address>"))
    assert rules.entries[0].settings.dead_letter_address == ""
    assert "${gone} is not in the environment" in rules.warnings[0]


def test_placeholders_without_end_are_refused() -> None:
    """A value that names itself does not hang the reader."""
    with pytest.raises(ConfigError, match="without end"):
        _settings("<dead-letter-address>${a}</dead-letter-address>", {"a": "x${a}"})


def test_warnings_about_what_is_ignored() -> None:
    """A UUID namespace, elements with a prefix, a setting of a later release."""
    rules = _read(
        "<uuid-namespace>temp</uuid-namespace>"
        + _setting(
            '<c:redelivery-delay xmlns:c="urn:activemq:core">2</c:redelivery-delay>'
            "<later>1</later><max-size-bytes>1</max-size-bytes>"
        )
    )
    assert rules.entries[0].settings == AddressSettings()
    prefixed, later, *_ = rules.warnings
    assert "ignores <c:redelivery-delay>: it has a prefix" in prefixed
    assert "<later> is not known here" in later
    assert any("uuid-namespace" in one for one in rules.warnings)


@pytest.mark.parametrize("core", ["c:core", "nothing"])
def test_a_file_without_core_has_no_settings(core: str) -> None:
    text = (
        f'<configuration xmlns="urn:activemq" xmlns:c="urn:activemq:core"><{core}>'
        f"{_setting('<max-delivery-attempts>3</max-delivery-attempts>')}</{core}></configuration>"
    )
    rules = read_broker_xml("b.xml", text.encode(), {})
    assert rules.entries == ()
    assert "has no <core> without a prefix" in rules.warnings[0]


def test_what_ends_the_start_of_a_broker_is_refused() -> None:
    """A second list, an unknown attribute, another namespace, a byte order mark."""
    assert any("a second <address-settings>" in one for one in _problems(_setting("") * 2))
    twice = _setting("<no-expiry>true</no-expiry>" * 2)
    assert any("a second <no-expiry>" in one for one in _problems(twice))
    other = '<address-settings><address-setting match="a" other="b"/></address-settings>'
    assert any("has no attribute other" in one for one in _problems(other))
    text = "<configuration><core/></configuration>"
    with pytest.raises(ConfigError, match='has not the namespace "urn:activemq:core"'):
        read_broker_xml("b.xml", text.encode(), {})
    with pytest.raises(ConfigError, match="byte order mark"):
        read_broker_xml("b.xml", text.encode("utf-8-sig"), {})


@pytest.mark.parametrize(
    ("children", "match", "words"),
    [
        ("<max-delivery-attempts>0</max-delivery-attempts>", "#", "without limit, not never"),
        ("<max-delivery-attempts>3</max-delivery-attempts>", "a.*", "at delivery 3"),
        ("<dead-letter-address/>", "(a.#)", "at delivery 10"),
        (
            "<redelivery-delay-multiplier>2</redelivery-delay-multiplier>",
            "a",
            "act only with a redelivery-delay above 0",
        ),
        (
            "<redelivery-delay>5</redelivery-delay><max-redelivery-delay>0</max-redelivery-delay>",
            "a",
            "makes every redelivery immediate",
        ),
        (
            "<redelivery-delay>5</redelivery-delay>"
            "<redelivery-delay-multiplier>2</redelivery-delay-multiplier>",
            "a.#",
            "stops growing at ten times the redelivery-delay, 50 ms",
        ),
        ("<dead-letter-address>D</dead-letter-address>", "#", "D is itself limited to 10"),
        (
            "<dead-letter-address>D</dead-letter-address><redelivery-delay>5</redelivery-delay>"
            "<max-delivery-attempts>-1</max-delivery-attempts>",
            "#",
            "dead letters on D are delayed by 5 ms",
        ),
    ],
)
def test_surprises_are_named_in_a_warning(children: str, match: str, words: str) -> None:
    rules = _read(_setting(children, match) + "<literal-match-markers>()</literal-match-markers>")
    assert [True for warning in rules.warnings if words in warning] == [True]
    assert all(warning.startswith("b.xml:1: ") for warning in rules.warnings)


def test_settings_without_surprises_have_no_warnings() -> None:
    rules = _read(
        "<address-settings>"
        '<address-setting match="#"><dead-letter-address>D</dead-letter-address>'
        "<max-delivery-attempts>5</max-delivery-attempts><redelivery-delay>5</redelivery-delay>"
        "<max-redelivery-delay>9</max-redelivery-delay></address-setting>"
        '<address-setting match="D"><max-delivery-attempts>-1</max-delivery-attempts>'
        "<redelivery-delay>0</redelivery-delay></address-setting></address-settings>"
    )
    assert rules.warnings == ()


def test_included_files(tmp_path: Path) -> None:
    """The settings may stand in a file of their own; places name that file."""
    (tmp_path / "settings.xml").write_text(
        '<address-settings xmlns="urn:activemq:core">\n<address-setting match="a">'
        "<max-delivery-attempts>2</max-delivery-attempts></address-setting></address-settings>"
    )
    main = tmp_path / "broker.xml"
    main.write_text(
        '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">'
        '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="${f:settings.xml}"/>'
        "</core></configuration>"
    )
    rules = load_policy(main, {}, {})
    assert isinstance(rules, ArtemisRules)
    assert rules.entries[0].source == RuleSource("settings.xml", 2)
    with pytest.raises(
        ConfigError, match=r"could not load gone\.xml.*put the included file beside"
    ):
        load_policy(main, {}, {"f": "gone.xml"})
    (tmp_path / "settings.xml").write_text("<address-settings>")
    with pytest.raises(ConfigError, match=r"settings\.xml:1.*not well-formed"):
        load_policy(main, {}, {})
    with pytest.raises(ConfigError, match="xi:include fails"):
        _read('<xi:include href="http://example.org/a.xml"/>')


def test_includes_without_end_are_refused(tmp_path: Path) -> None:
    main = tmp_path / "broker.xml"
    main.write_text(
        '<core xmlns="urn:activemq:core"><xi:include xmlns:xi="http://www.w3.org/2001/XInclude" '
        'href="broker.xml"/></core>'
    )
    with pytest.raises(ConfigError, match="local recursion"):
        load_policy(main, {}, {})
