"""A default never discards, and a given policy is filled by the broker's own settings."""

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Discard, Exhaust, Redeliver
from amqsidecar.model.destination import Destination, DestinationKind, queue
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.address_settings import CompiledAddressSettings, compile_address_settings
from amqsidecar.policy.artemis_decider import ArtemisDecider, compile_artemis
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy.chain import compile_classic
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DiscardingRules,
    IndividualDeadLetterStrategy,
    PluginRules,
    PolicyEntry,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.live_settings import list_differences, live_entry
from amqsidecar.policy.rule_source import RuleSource

SOURCE = RuleSource("policy.yaml", 7)
NAMES = st.sampled_from(["w.q", "orders.a", "DLQ", "ActiveMQ.DLQ", "A"])
DEAD = st.builds(
    DeadLetter,
    st.builds(Destination, st.sampled_from(DestinationKind), NAMES),
    st.integers(0, 12),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
ADDRESS = st.sampled_from([None, "", "DLQ", "ExpiryQueue"])
SETTINGS = st.builds(
    AddressSettings,
    max_delivery_attempts=st.none() | st.integers(-1, 4),
    redelivery_delay_ms=st.none() | st.integers(-1, 1000),
    max_redelivery_delay_ms=st.none() | st.integers(-1, 1000),
    dead_letter_address=ADDRESS,
    expiry_address=ADDRESS,
)
MATCHES = st.sampled_from(["#", "orders.#", "w.q", "*.q"])
ARTEMIS = st.lists(
    st.builds(AddressSettingEntry, match=MATCHES, settings=SETTINGS, source=st.just(SOURCE)),
    max_size=4,
    unique_by=lambda entry: entry.match,
).map(lambda entries: ArtemisRules(entries=tuple(entries)))
POLICIES = st.builds(RedeliveryPolicy, maximum_redeliveries=st.none() | st.integers(-1, 3))
REFUSING = {
    "process_expired": st.booleans(),
    "process_non_persistent": st.booleans(),
    "source": st.just(SOURCE),
}
STRATEGIES = st.builds(SharedDeadLetterStrategy, **REFUSING) | st.builds(
    IndividualDeadLetterStrategy, **REFUSING
)
PATTERNS = st.builds(lambda name: (queue(name),), st.sampled_from(["A", "w.>", ">"]))
REDELIVERY = st.builds(
    RedeliveryRules,
    entries=st.lists(
        st.builds(RedeliveryEntry, destinations=PATTERNS, policy=POLICIES), max_size=2
    ).map(tuple),
    default_entry=st.none() | POLICIES,
    source=st.just(SOURCE),
)
# Why with a pattern: a plugin without any option is itself the order to drop all.
KEEPING = st.builds(
    DiscardingRules,
    drop_all=st.sampled_from([None, False]),
    drop_temporary_topics=st.sampled_from([None, False]),
    drop_temporary_queues=st.sampled_from([None, False]),
    drop_only=st.just("nothing.has.this.name"),
    source=st.just(SOURCE),
)
LINKS = st.one_of(
    REDELIVERY.map(lambda rules: PluginRules(name="redelivery", options=rules, source=SOURCE)),
    KEEPING.map(lambda rules: PluginRules(name="discarding", options=rules, source=SOURCE)),
)
CLASSIC = st.builds(
    lambda links, entries, default: ClassicRules(
        plugins=tuple(links),
        dead_letter=DeadLetterRules(entries=tuple(entries), default_entry=default),
    ),
    st.lists(LINKS, max_size=3),
    st.lists(
        st.builds(PolicyEntry, destinations=PATTERNS, dead_letter_strategy=st.none() | STRATEGIES),
        max_size=2,
    ),
    st.none()
    | st.builds(PolicyEntry, destinations=st.just(()), dead_letter_strategy=st.none() | STRATEGIES),
)


@given(CLASSIC, DEAD)
def test_classic_rules_without_a_discarding_line_discard_nothing(
    rules: ClassicRules, dead: DeadLetter
) -> None:
    decision = compile_classic(rules, load_plugins()).decide(dead, None)
    assert isinstance(decision, Redeliver | DeadLetterTo | Exhaust)


@given(ARTEMIS, st.none() | SETTINGS, DEAD)
def test_address_settings_discard_nothing(
    rules: ArtemisRules, live: AddressSettings | None, dead: DeadLetter
) -> None:
    if live is not None:
        name = dead.destination.name
        rules = replace(rules, live={name: AddressSettingEntry(match="#", settings=live)})
    assert not isinstance(compile_artemis(rules).decide(dead, None), Discard)


@given(ARTEMIS, SETTINGS, NAMES)
def test_each_setting_is_the_policys_or_else_the_brokers(
    rules: ArtemisRules, live: AddressSettings, name: str
) -> None:
    """As if the entries of the policy stood before all entries of the broker."""
    given_alone = compile_address_settings(rules)
    entry = AddressSettingEntry(match="#", settings=live)
    filled = given_alone.over({name: entry}).effective(name)
    alone = given_alone.effective(name)
    broker = CompiledAddressSettings.of_broker({name: entry}).effective(name)
    for field in fields(AddressSettings):
        if field.name == "max_redelivery_delay_ms" and field.name not in filled.decided_by:
            continue  # ten times the delay that acts
        origin = alone if field.name in alone.decided_by else broker
        assert getattr(filled, field.name) == getattr(origin, field.name)
    assert filled.is_live
    assert not filled.assumed


@given(ARTEMIS, SETTINGS, DEAD)
def test_without_a_difference_the_fate_is_the_brokers(
    rules: ArtemisRules, live: AddressSettings, dead: DeadLetter
) -> None:
    name = dead.destination.name
    entry = AddressSettingEntry(match="#", settings=live)
    given_alone = compile_address_settings(rules)
    if list(list_differences(name, given_alone, entry)):
        return
    ours = ArtemisDecider(given_alone.over({name: entry})).decide(dead, None)
    theirs = ArtemisDecider(CompiledAddressSettings.of_broker({name: entry})).decide(dead, None)
    assert not isinstance(ours, Discard)
    assert not isinstance(theirs, Discard)
    assert replace(ours, rule="") == replace(theirs, rule="")


def test_differences_name_the_line_that_ends_them() -> None:
    entry = AddressSettingEntry(
        match="#", settings=AddressSettings(max_delivery_attempts=4), source=SOURCE
    )
    live = live_entry("w.q", {"maxDeliveryAttempts": 1, "expiryAddress": "DLQ"})
    compiled = compile_address_settings(ArtemisRules(entries=(entry,)))
    attempts, expiry = list_differences("w.q", compiled, live)
    assert (attempts.given, attempts.live, attempts.is_place) == ("4", "1", False)
    assert "policy.yaml:7" in attempts.what
    assert (expiry.given, expiry.live, expiry.is_place) == (None, "DLQ", True)
    assert expiry.mend == 'address_settings: [{match: "w.q", expiry_address: DLQ}]'
    [_, in_xml] = list_differences("w.q", compiled, live, is_xml=True)
    assert in_xml.mend == (
        '<address-setting match="w.q"><expiry-address>DLQ</expiry-address></address-setting>'
    )
