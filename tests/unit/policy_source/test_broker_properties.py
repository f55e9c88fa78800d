"""Reading broker.properties and ArkMQ's custom resource over a broker.xml."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.policy.artemis_rules import AddressSettings, ArtemisRules
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.load import load_policy
from amqsidecar.policy_source.properties_file import read_properties

XML = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><address-settings>
<address-setting match="#"><dead-letter-address>DLQ</dead-letter-address>
<max-delivery-attempts>7</max-delivery-attempts></address-setting>
</address-settings></core></configuration>"""
RESOURCE = """apiVersion: broker.amq.io/v1beta1
kind: ActiveMQArtemis
metadata: {name: ex-aao}
spec:
  addressSettings:
    applyRule: merge_all
    addressSetting:
    - match: 'orders.#'
      redeliveryDelay: 2000
      redeliveryDelayMultiplier: "1.5"
      autoCreateDeadLetterResources: true
      maxSizeBytes: 10m
  brokerProperties:
  - 'addressSettings."orders.#".maxDeliveryAttempts=3'
  - broker-1.addressSettings."#".maxDeliveryAttempts=1
"""


def _read(folder: Path, text: str, name: str = "broker.properties", xml: str = XML) -> ArtemisRules:
    path = folder / name
    path.write_text(text)
    if xml:
        path.with_name("broker.xml").write_text(xml)
    rules = load_policy(path, {}, {"ATTEMPTS": "4"})
    assert isinstance(rules, ArtemisRules)
    return rules


def _by_match(rules: ArtemisRules) -> Mapping[str, AddressSettings]:
    return {entry.match: entry.settings for entry in rules.entries}


def test_properties_win_setting_by_setting(tmp_path: Path) -> None:
    text = (
        'addressSettings."#".maxDeliveryAttempts=3\n'
        'addressSettings."orders.#".redeliveryDelay=2k\n'
        "addressSettings.eu.sendToDLAOnNoRoute=yes\n"
        "addressSettings.eu.maxDeliveryAttempts=${ATTEMPTS}\n"
    )
    rules = _read(tmp_path, text)
    assert _by_match(rules) == {
        "#": AddressSettings(dead_letter_address="DLQ", max_delivery_attempts=3),
        "orders.#": AddressSettings(redelivery_delay_ms=2048),
        "eu": AddressSettings(send_to_dla_on_no_route=True, max_delivery_attempts=4),
    }
    assert rules.entries[1].source == RuleSource(str(tmp_path / "broker.properties"), 2)


def test_matches_and_syntax(tmp_path: Path) -> None:
    text = (
        "key.surround=$$\nremove.value=gone\n"
        "addressSettings.$$a.b$$.deadLetterAddress=-\n"
        'addressSettings."#"=gone\naddressSettings.#=gone\n'
        "wildcardConfiguration.delimiter=/\nliteralMatchMarkers=()\n"
    )
    rules = _read(tmp_path, text)
    assert _by_match(rules) == {"a.b": AddressSettings(dead_letter_address="-")}
    assert (rules.wildcards.delimiter, rules.literal_match_markers) == ("/", "()")
    assert not _read(tmp_path, "addressSettings=-").entries


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('addressSettings."#".maxDeliveryAttempt=1', "did you mean maxDeliveryAttempts?"),
        ("addressSettings.a.b.noExpiry=1", "b.noExpiry is no setting"),
        ("adressSettings.a.noExpiry=1", "did you mean addressSettings?"),
        ('addressSettings."#".expiryAddress=${nobody}', "${nobody} is not in the environment"),
    ],
)
def test_what_the_broker_ignores_is_named(tmp_path: Path, line: str, words: str) -> None:
    rules = _read(tmp_path, f"\n{line}\nacceptorConfigurations.a.params.host=${{other}}\n")
    place = f"{tmp_path / 'broker.properties'}:2: "
    found = [one for one in rules.warnings if one.startswith(place)]
    assert any(words in one for one in found)
    assert not any("other" in one for one in rules.warnings)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("addressSettings.a.maxDeliveryAttempts=3x", "expected a whole number"),
        ("addressSettings.a.redeliveryDelay=9007199254740993g", "expected a whole number"),
        ("addressSettings.a.expiryDelay=2k", "expected a whole number"),
        ("addressSettings.a.redeliveryMultiplier=two", "expected a number"),
        ("addressSettings.a.redeliveryCollisionAvoidanceFactor=1.5", "a number from 0 to 1"),
        ("addressSettings.a.noExpiry=maybe", "expected true or false"),
        ("addressSettings.a(b).noExpiry=true", "put the match in quotes"),
        ("literalMatchMarkers=abc", "expected exactly two characters"),
        ("addressSettings.a.deadLetterAddress=\\u12", "needs four digits"),
    ],
)
def test_what_the_broker_misreads_is_refused(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _read(tmp_path, f"# first\n{line}")
    assert str(caught.value.problems[0]).startswith(f"{tmp_path / 'broker.properties'}:2: ")
    assert words in str(caught.value.problems[0])


def test_a_custom_resource(tmp_path: Path) -> None:
    rules = _read(tmp_path, RESOURCE, "broker.yaml", xml="")
    assert _by_match(rules) == {
        "orders.#": AddressSettings(
            redelivery_delay_ms=2000,
            redelivery_delay_multiplier=1.5,
            auto_create_dead_letter_resources=True,
            max_delivery_attempts=3,
        )
    }
    assert rules.entries[0].source.line == 14
    for words in ("broker.yaml:15: broker-1.… is", "no broker.xml stands beside it"):
        assert any(words in one for one in rules.warnings), words
    with pytest.raises(ConfigError, match=r"broker.yaml:8: redeliveryDelays: there is no such"):
        _read(tmp_path, RESOURCE.replace("redeliveryDelay:", "redeliveryDelays:"), "broker.yaml")


def test_properties_as_java_reads_them() -> None:
    text = "# comment \\\na = 1\r\n ! other\nb\\\n   c:2 \\u00e9\\t\nd\ne\\:\\ f \\=g\n"
    text += "  h=\\ud83d\\ude00 \n\n "
    assert read_properties(text) == {"a": "1", "bc": "2 é\t", "d": "", "e: f": "=g", "h": "😀 "}
