"""Reading activemq.xml: what the broker accepts means the same, what it refuses is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.plugin_loader import load_plugins
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
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.activemq_xml import read_activemq_xml
from amqsidecar.policy_source.load import load_policy, read_jms_uri

POLICIES = Path(__file__).parents[1] / "policies"


def _read(text: str, environment: Mapping[str, str] | None = None) -> ClassicRules:
    return read_activemq_xml("a.xml", text.encode(), environment or {})


def _file(name: str, environment: Mapping[str, str] | None = None) -> ClassicRules:
    return read_activemq_xml(name, (POLICIES / name).read_bytes(), environment or {})


def _broker(plugins: str = "", policies: str = "", attributes: str = "") -> str:
    """Return a broker with plugins and policy entries, all on one line."""
    policy_map = "<destinationPolicy><policyMap><policyEntries>"
    policy_map += policies + "</policyEntries></policyMap></destinationPolicy>"
    return (
        f'<broker xmlns="http://activemq.apache.org/schema/core" {attributes}>'
        f"{policy_map}<plugins>{plugins}</plugins></broker>"
    )


def _redelivery(policies: str, attributes: str = "") -> str:
    return (
        f"<redeliveryPlugin {attributes}><redeliveryPolicyMap><redeliveryPolicyMap>"
        f"<redeliveryPolicyEntries>{policies}</redeliveryPolicyEntries>"
        "</redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>"
    )


def _dropping(patterns: str) -> str:
    return f'<discardingDLQBrokerPlugin dropAll="false" dropOnly="{patterns}"/>'


def _destinations(policy: str) -> tuple[Destination, ...]:
    options = _read(_broker(_redelivery(policy))).plugins[0].options
    assert isinstance(options, RedeliveryRules)
    return options.entries[0].destinations


def _problems(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _read(text, environment)
    return [str(problem) for problem in caught.value.problems]


def _at(line: int, name: str = "full.activemq.xml") -> RuleSource:
    return RuleSource(name, line)


_VIRTUAL = "org.apache.activemq.broker.region.virtual."


def _interceptors(content: str, attributes: str = "") -> DestinationInterceptors:
    text = _broker(attributes=attributes)
    inside = f"<destinationInterceptors>{content}</destinationInterceptors>"
    return _read(text.replace("<destinationPolicy>", f"{inside}<destinationPolicy>")).interceptors


def _virtual(destinations: str) -> str:
    return (
        "<virtualDestinationInterceptor><virtualDestinations>"
        f"{destinations}</virtualDestinations></virtualDestinationInterceptor>"
    )


def test_composites_and_mirrors_arrive_with_file_and_line() -> None:
    """All that a redelivery may meet, whatever else stands there."""
    found = _interceptors(
        _virtual(
            '<virtualTopic name="VirtualTopic.>"/>'
            '<virtualTopic name="News.*" prefix="To.*." postfix=".q"'
            ' setOriginalDestination="false"/>'
            '<compositeQueue name="orders.>" forwardOnly="false" sendWhenNotMatched="true">'
            '<forwardTo><queue physicalName="copy"/><topic physicalName="news"/>'
            '<filteredDestination selector="a = \'b\'" queue="filtered"/>'
            '<filteredDestination queue="never"/></forwardTo></compositeQueue>'
            '<compositeTopic name="prices"/>'
        )
        + '<mirroredQueue prefix="M." postfix=".x"/>',
        'useTempMirroredQueues="false" useMirroredQueues="true"',
    )
    at = RuleSource("a.xml", 1)
    assert found == DestinationInterceptors(
        composites=(
            CompositeDestination(
                destinations=(queue("orders.>"),),
                forward_to=(
                    ForwardTo(destination=queue("copy")),
                    ForwardTo(destination=topic("news")),
                    ForwardTo(destination=queue("filtered"), selector="a = 'b'"),
                ),
                forward_only=False,
                send_when_not_matched=True,
                source=at,
            ),
            CompositeDestination(destinations=(topic("prices"),), source=at),
        ),
        virtual_topics=(
            VirtualTopic(source=at),
            VirtualTopic(
                destinations=(topic("News.*"),),
                prefix="To.*.",
                postfix=".q",
                set_original_destination=False,
                source=at,
            ),
        ),
        mirrored_queues=MirroredQueues(prefix="M.", postfix=".x", temporary=False, source=at),
    )
    assert found.are_known


@pytest.mark.parametrize(
    ("attribute", "is_mirrored"), [("", False), ('useMirroredQueues="true"', True)]
)
def test_queues_are_mirrored_by_an_attribute_of_the_broker(
    attribute: str, is_mirrored: bool
) -> None:
    """Only where no interceptors are written: these take its place."""
    without = _read(_broker(attributes=attribute)).interceptors
    assert (without.mirrored_queues is not None) is is_mirrored
    assert _interceptors(_virtual(""), attribute).mirrored_queues is None


def test_a_broker_has_one_virtual_topic_where_no_interceptors_are_written() -> None:
    assert _read(_broker()).interceptors.virtual_topics == (VirtualTopic(),)
    assert _read(_broker(attributes='useVirtualTopics="false"')).interceptors.virtual_topics == ()
    assert _interceptors(_virtual(""), "").virtual_topics == ()


def test_interceptors_may_be_spring_beans() -> None:
    found = _interceptors(
        _virtual(
            '<bean xmlns="http://www.springframework.org/schema/beans" '
            f'class="{_VIRTUAL}CompositeQueue"><property name="name" value="orders"/>'
            '<property name="forwardTo"><list><bean class="org.apache.activemq.command.'
            'ActiveMQQueue"><constructor-arg value="copy"/></bean></list></property></bean>'
        )
    )
    [composite] = found.composites
    assert composite.destinations == (queue("orders"),)
    assert composite.forward_to == (ForwardTo(destination=queue("copy")),)


def test_an_interceptor_that_is_not_known_is_named_in_a_warning() -> None:
    text = _broker().replace(
        "<destinationPolicy>",
        "<destinationInterceptors><ownInterceptor/></destinationInterceptors><destinationPolicy>",
    )
    assert any("interceptor ownInterceptor" in one for one in _read(text).warnings)


def test_a_file_with_everything() -> None:
    rules = _file("full.activemq.xml")
    assert rules.scheduler_support
    assert rules.plugins == (
        PluginRules(
            name="redelivery",
            options=RedeliveryRules(
                entries=(
                    RedeliveryEntry(
                        destinations=(queue("orders.>"),),
                        policy=RedeliveryPolicy(
                            maximum_redeliveries=None,
                            initial_redelivery_delay_ms=5000,
                            redelivery_delay_ms=2000,
                            maximum_redelivery_delay_ms=60000,
                            use_exponential_back_off=True,
                            back_off_multiplier=1.5,
                            use_collision_avoidance=True,
                            collision_avoidance_percent=20,
                            source=_at(33),
                        ),
                    ),
                    RedeliveryEntry(
                        destinations=(topic("prices.>"), queue("A"), topic("B")),
                        policy=RedeliveryPolicy(maximum_redeliveries=0, source=_at(36)),
                    ),
                    RedeliveryEntry(
                        destinations=(Destination(DestinationKind.TEMP_QUEUE, "x.*"),),
                        policy=RedeliveryPolicy(maximum_redeliveries=2, source=_at(37)),
                    ),
                ),
                default_entry=RedeliveryPolicy(maximum_redeliveries=4, source=_at(39)),
                fallback_to_dead_letter=False,
                source=_at(29),
            ),
            source=_at(29),
        ),
        PluginRules(
            name="discarding",
            options=DiscardingRules(
                drop_all=False,
                drop_temporary_topics=False,
                drop_only="A\\..*           B",
                report_interval=10,
                source=_at(43),
            ),
            source=_at(43),
        ),
    )
    assert rules.dead_letter == DeadLetterRules(
        entries=(
            PolicyEntry(
                destinations=(queue(">"),),
                dead_letter_strategy=IndividualDeadLetterStrategy(
                    process_non_persistent=True,
                    expiration_ms=60000,
                    queue_prefix="DLQ.",
                    queue_suffix=".dead",
                    source=_at(10),
                ),
                source=_at(8),
            ),
            PolicyEntry(
                destinations=(topic("prices.*"),),
                dead_letter_strategy=SharedDeadLetterStrategy(
                    process_expired=False,
                    enable_audit=False,
                    dead_letter_queue=queue("DLQ.prices"),
                    source=_at(16),
                ),
                source=_at(14),
            ),
            PolicyEntry(
                destinations=(queue("trash"),),
                dead_letter_strategy=DiscardingDeadLetterStrategy(source=_at(21)),
                source=_at(21),
            ),
            PolicyEntry(
                destinations=(Destination(DestinationKind.TEMP_TOPIC, ">"),), source=_at(22)
            ),
        ),
        default_entry=PolicyEntry(destinations=(), source=_at(24)),
        source=_at(6),
    )


def test_spring_beans_mean_the_same_as_elements() -> None:
    """Beans, properties, references by id, lists, the p namespace, Spring's spellings of values."""
    rules = _file("spring.activemq.xml")
    redelivery, discarding = (plugin.options for plugin in rules.plugins)
    assert isinstance(redelivery, RedeliveryRules)
    assert [entry.destinations for entry in redelivery.entries] == [
        (queue("orders.>"),),
        (topic("prices"),),
    ]
    first, second = (entry.policy for entry in redelivery.entries)
    assert (first.maximum_redeliveries, first.use_exponential_back_off) == (3, True)
    assert second.redelivery_delay_ms == 2000
    assert redelivery.default_entry is not None
    assert redelivery.default_entry.initial_redelivery_delay_ms == 1500
    assert not redelivery.fallback_to_dead_letter
    assert isinstance(discarding, DiscardingRules)
    assert not discarding.drop_all
    (entry,) = rules.dead_letter.entries
    assert isinstance(entry.dead_letter_strategy, SharedDeadLetterStrategy)
    assert entry.dead_letter_strategy.dead_letter_queue == queue("DLQ.all")
    assert entry.dead_letter_strategy.process_non_persistent


def test_every_problem_is_reported_at_once_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        _file("bad.activemq.xml")
    assert [str(problem) for problem in caught.value.problems] == [
        'bad.activemq.xml:1: broker schedulerSupport="yes": expected true or false',
        "bad.activemq.xml:7: individualDeadLetterStrategy has no attribute maxDestinationsToAudit",
        "bad.activemq.xml:7: individualDeadLetterStrategy has no attribute queueprefix; "
        "did you mean queuePrefix?",
        "bad.activemq.xml:14: redeliveryPlugin has no attribute fallbackToDeadletter; "
        "did you mean fallbackToDeadLetter?",
        'bad.activemq.xml:18: redeliveryPolicy maximumRedeliveries="3x": expected a whole number '
        "without a unit",
        'bad.activemq.xml:18: redeliveryPolicy redeliveryDelay="5s": expected a whole number '
        "without a unit",
        "bad.activemq.xml:19: redeliveryPolicy has no destination (queue, topic, tempQueue, "
        "tempTopic or destination): the broker fails to start",
        'bad.activemq.xml:19: redeliveryPolicy maximumRedeliveries="3000000000": expected a number '
        "that fits into 32 bits",
        'bad.activemq.xml:20: redeliveryPolicy backOffMultiplier="two": expected a number such as '
        "2 or 1.5",
        'bad.activemq.xml:20: redeliveryPolicy collisionAvoidancePercent="${percent}": expected a '
        "whole number: the broker's schema takes no placeholder here; use a <bean>",
        "bad.activemq.xml:26: <redeliveryPolicyMap> is only the property; inside it stands "
        "<redeliveryPolicyMap>, found <redeliveryPolicyEntries>",
    ]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ('queue=" A.B "', (queue("A.B"),)),
        ('queue="A?consumer.prefetchSize=1"', (queue("A"),)),
        ('topic="T" queue="Q"', (topic("T"),)),
        ('queue="Q" topic="T"', (topic("T"),)),
        ('queue="Q" tempQueue="true"', (Destination(DestinationKind.TEMP_QUEUE, ">"),)),
        ('tempTopic="false"', (Destination(DestinationKind.TEMP_TOPIC, ">"),)),
        ('queue="queue://A"', (queue("queue://A"),)),
        ('queue="A,,A, topic://B"', (queue("A"), topic("B"))),
        ('queue="A..B"', (queue("A..B"),)),
        ('tempTopic="true" tempQueue="true"', (Destination(DestinationKind.TEMP_TOPIC, ">"),)),
        ('topic="T" tempTopic="true"', (topic("T"),)),
    ],
)
def test_destinations_as_the_broker_takes_them(
    attributes: str, expected: tuple[Destination, ...]
) -> None:
    """Trimming, options, composites, and which attribute wins."""
    assert _destinations(f"<redeliveryPolicy {attributes}/>") == expected


def test_a_child_destination_wins_over_attributes() -> None:
    """Elements are applied after attributes."""
    policy = '<redeliveryPolicy topic="T"><destination><queue physicalName="Q"/></destination>'
    assert _destinations(policy + "</redeliveryPolicy>") == (queue("Q"),)


@pytest.mark.parametrize(
    ("plugins", "policies", "words"),
    [
        (_redelivery('<redeliveryPolicy queue="Q" topic="T"/>'), "", "takes topic only"),
        (_redelivery('<redeliveryPolicy tempQueue="false"/>'), "", "selects every temp-queue"),
        (_redelivery('<redeliveryPolicy queue="queue://A"/>'), "", 'write queue="A"'),
        (_redelivery('<redeliveryPolicy queue="A" redeliveryDelay="999"/>'), "", "below 1000"),
        (_redelivery('<redeliveryPolicy topic="A"/>'), "", "redelivers to a topic"),
        (
            _redelivery('<redeliveryPolicy queue="A" initialRedeliveryDelay="9000"/>'),
            "",
            "every later one 1000 ms",
        ),
        (
            _redelivery(
                '<redeliveryPolicy queue="A" useExponentialBackOff="true" backOffMultiplier="1"/>'
            ),
            "",
            "switches the back-off off",
        ),
        (
            _redelivery('<redeliveryPolicy queue="A" maximumRedeliveryDelay="5000"/>'),
            "",
            "acts only with exponential back-off",
        ),
        (
            _redelivery('<redeliveryPolicy queue="A.*"/><redeliveryPolicy queue="A.&gt;"/>'),
            "",
            "chooses by chance",
        ),
        ("<redeliveryPlugin/>", "", "no redeliveryPolicyMap"),
        ("<redeliveryPlugin/>", "", "schedulerSupport"),
        ("<redeliveryPlugin/>", "", "processNonPersistent"),
        ('<discardingDLQBrokerPlugin dropOnly="A"/>', "", "dropOnly has no effect"),
        ("<redeliveryPlugin/><discardingDLQBrokerPlugin/>", "", "nothing is ever redelivered"),
        (_dropping("orders.&gt;"), "", 'dropOnly="orders.>" discards nothing'),
        (_dropping("a,b"), "", 'dropOnly="a,b" discards nothing'),
        (_dropping("queue://a"), "", 'dropOnly="queue://a" discards nothing'),
        (_dropping("a orders.*"), "", 'dropOnly="orders.*" also discards orders2'),
        (_dropping(".*"), "", 'dropOnly=".*" also discards any name'),
        ('<bean class="com.example.Mine"/>', "", "com.example.Mine is not known"),
        (
            "<redeliveryPlugin/>",
            '<policyEntry queue="A"><deadLetterStrategy><discarding/></deadLetterStrategy>'
            "</policyEntry>",
            "discarding keeps no dead letters",
        ),
        (
            "<redeliveryPlugin/>",
            '<policyEntry queue="A"><deadLetterStrategy><individualDeadLetterStrategy '
            'useQueueForQueueMessages="false"/></deadLetterStrategy></policyEntry>',
            "dead letters of queues go to a topic",
        ),
        (
            "",
            '<policyEntry queue="A"><deadLetterStrategy><sharedDeadLetterStrategy expiration="5"/>'
            "</deadLetterStrategy></policyEntry>",
            "hides the original time to live",
        ),
        (
            "",
            '<policyEntry queue="A"/><policyEntry queue="B"><x><compositeQueue/></x></policyEntry>',
            "keeps only the first dead letter of an id",
        ),
        (
            "",
            '<policyEntry queue="A"><deadLetterStrategy><sharedDeadLetterStrategy '
            'enableAudit="false"/></deadLetterStrategy><x><virtualTopic/></x></policyEntry>',
            "keeps only the first dead letter of an id",
        ),
    ],
)
def test_surprises_are_named_in_a_warning(plugins: str, policies: str, words: str) -> None:
    warnings = _read(_broker(plugins, policies)).warnings
    (found,) = [warning for warning in warnings if words in warning]
    assert found.startswith("a.xml:1: ")


def test_plain_rules_have_no_warnings() -> None:
    text = _broker(
        _redelivery('<redeliveryPolicy queue="A"/>') + _dropping(r"A\..* B a{1,2}\w+"),
        '<policyEntry queue="A"><deadLetterStrategy>'
        '<individualDeadLetterStrategy processNonPersistent="true"/></deadLetterStrategy>'
        "</policyEntry>",
        'schedulerSupport="true"',
    )
    assert _read(text).warnings == ()


def _with_beans(*parts: str) -> str:
    return (
        '<beans xmlns="http://www.springframework.org/schema/beans">' + "".join(parts) + "</beans>"
    )


CONFIGURER = "org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"
BEAN = (
    '<bean class="org.apache.activemq.RedeliveryPolicy"><property name="queue" value="{}"/></bean>'
)
LOCATED = f'<bean class="{CONFIGURER}"><property name="location" value="file:s.properties"/></bean>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            _with_beans(_broker(_redelivery(BEAN.format("#{1 + 1}")))),
            "a.xml:1: #{1 + 1} is an expression (SpEL), which is not read: write its value",
        ),
        (
            _with_beans(LOCATED, _broker(_redelivery(BEAN.format("${q:x}")))),
            "a.xml:1: placeholder ${q} may be in file:s.properties (a.xml:1), which can't be read: "
            "put that file beside this file, or set the environment variable Q",
        ),
        (
            _with_beans('<list id="x"/><import resource="o.xml"/>', _broker('<ref bean="x"/>')),
            "a.xml:1: refers to #x: the imported file o.xml (a.xml:1) may define that bean again, "
            "which can't be read: put that file beside this file",
        ),
        (
            _with_beans('<import resource="o.xml"/>'),
            "a.xml:1: has no <broker> element, and the imported file o.xml can't be read: put it "
            "beside this file; a policy needs exactly one",
        ),
        (
            _with_beans('<list id="all"/>', '<list id="all"/>', _broker()),
            "a.xml:1: the name all is used twice here: the broker fails to start",
        ),
    ],
)
def test_what_another_file_or_an_expression_says_is_never_guessed(text: str, words: str) -> None:
    assert words in _problems(text)


def test_what_the_broker_leaves_alone_is_named() -> None:
    """Attributes of a namespace in a place where the broker ignores them, literal placeholders."""
    bean = (
        '<bean xmlns="http://www.springframework.org/schema/beans" class="org.apache.activemq.'
        'RedeliveryPolicy" xmlns:p="http://www.springframework.org/schema/p" p:queue="x">'
        '<property name="queue" value="${q}"/></bean>'
    )
    entry = "<policyEntry queue='A' queuePrefech='1'><invented/></policyEntry>"
    rules = _read(_broker(_redelivery(bean), entry))
    for words in (
        "the broker ignores the attributes p:… of a <bean> that stands directly inside an xbean",
        "${q} stays as it is written, as in the broker",
        "a.xml:1: invented is not known in <policyEntry>",
        "queuePrefech is not known in <policyEntry>: a broker whose schema lacks it fails to "
        "start; did you mean queuePrefetch?",
    ):
        assert any(words in warning for warning in rules.warnings), words


def test_placeholders_come_from_the_environment() -> None:
    """By name, by Spring's spelling in capitals, or by the default after the colon."""
    values = {"queue": "${my.queue}", "maximumRedeliveries": "${MAX:7}"}
    values["redeliveryDelay"] = "${delay:1000}"
    rows = "".join(f'<property name="{name}" value="{one}"/>' for name, one in values.items())
    policy = f'<bean class="org.apache.activemq.RedeliveryPolicy">{rows}</bean>'
    text = _with_beans(
        '<bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"/>',
        _broker(_redelivery(policy), attributes='brokerName="${nobody.knows}"'),
    )
    options = _read(text, {"MY_QUEUE": "A.B", "delay": "2000"}).plugins[0].options
    assert isinstance(options, RedeliveryRules)
    (entry,) = options.entries
    assert entry.destinations == (queue("A.B"),)
    assert entry.policy.maximum_redeliveries == 7
    assert entry.policy.redelivery_delay_ms == 2000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<broker><", "not well-formed"),
        ('<!DOCTYPE broker SYSTEM "x"><broker/>', "DOCTYPE"),
        ("<beans/>", "no <broker> element"),
        ("<beans><broker/><broker/></beans>", "<broker> number 2 of 2"),
        (_broker().replace("<plugins>", '<plugins><ref bean="gone"/>'), "no bean has that id"),
        (
            '<beans xmlns="http://www.springframework.org/schema/beans"><import resource="o.xml"/>'
            + _broker(attributes='plugins="#gone"').replace("<plugins></plugins>", "")
            + "</beans>",
            "imported file o.xml (a.xml:1)",
        ),
        (_broker('<redeliveryPlugin><x y="1"/></redeliveryPlugin>'), "<x> can't stand inside"),
        (_broker(_redelivery('<redeliveryPolicy queue=" "/>')), "empty name"),
        (_broker('<discardingDLQBrokerPlugin dropOnly="A ("/>'), "("),
        (_broker(_redelivery('<redeliveryPolicy destination="A"/>')), "can't be written as text"),
        (
            _broker(_redelivery("<redeliveryPolicy><destination/></redeliveryPolicy>")),
            "can't be written as text",
        ),
        (
            _broker(
                _redelivery("<redeliveryPolicy><destination><x/></destination></redeliveryPolicy>")
            ),
            "expected one of <queue",
        ),
        (
            "<beans><list id='a'><ref bean='a'/></list>" + _broker("<ref bean='a'/>") + "</beans>",
            "in a circle",
        ),
    ],
)
def test_files_that_say_nothing_usable_are_refused(text: str, words: str) -> None:
    assert any(words in problem for problem in _problems(text))


def test_entities_are_never_expanded() -> None:
    """An entity needs a DOCTYPE, and that is refused in any encoding."""
    text = '<!DOCTYPE b [<!ENTITY x SYSTEM "file:///etc/hostname">]><broker a="1">&x;</broker>'
    assert any("DOCTYPE" in problem for problem in _problems(text))
    with pytest.raises(ConfigError, match="DOCTYPE"):
        read_activemq_xml("a.xml", text.encode("utf-16"), {})


def test_a_file_above_the_size_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most"):
        read_activemq_xml("a.xml", b"<broker>" + b" " * 9_000_000 + b"</broker>", {})


@pytest.mark.parametrize(
    "uri",
    [
        "tcp://host:61616?jms.redeliveryPolicy.maximumRedeliveries=3&"
        "jms.redeliveryPolicy.useExponentialBackOff=true&jms.prefetchPolicy.all=1",
        "failover:(tcp://a:1?x=1,tcp://b:2)?jms.redeliveryPolicy.maximumRedeliveries=3&"
        "jms.redeliveryPolicy.useExponentialBackOff=true",
    ],
)
def test_a_connection_uri_gives_a_default_entry(uri: str) -> None:
    """The options replace the defaults of a fresh policy."""
    policy = read_jms_uri(uri)
    assert policy.maximum_redeliveries == 3
    assert policy.use_exponential_back_off
    rules = load_policy(uri, load_plugins(), {})
    assert isinstance(rules, ClassicRules)
    assert rules.plugins[0].options == RedeliveryRules(default_entry=policy, source=policy.source)


def test_a_connection_uri_keeps_no_password_in_messages() -> None:
    """Names and passwords are cut from what is shown; every bad option is named."""
    with pytest.raises(ConfigError) as caught:
        read_jms_uri(
            "tcp://me:secret@host?jms.redeliveryPolicy.maximumRedelivery=3&"
            "jms.redeliveryPolicy.redeliveryDelay=1s&jms.redeliveryPolicy.useCollisionAvoidance=1&"
            "jms.redeliveryPolicy.maximumRedeliveries=3000000000&"
            "jms.redeliveryPolicy.backOffMultiplier=x"
        )
    text = str(caught.value)
    assert "secret" not in text
    uri = "tcp:/me:secret@host?jms.redeliveryPolicy.maximumRedeliveries=3"
    assert "secret" not in str(read_jms_uri(uri).source)
    assert len(caught.value.problems) == 5
    assert "did you mean maximumRedeliveries?" in text


def test_no_limit_in_a_uri_is_none() -> None:
    policy = read_jms_uri(
        "tcp://h?jms.redeliveryPolicy.maximumRedeliveries=-1&"
        "jms.redeliveryPolicy.maximumRedeliveryDelay=-1&jms.redeliveryPolicy.backOffMultiplier=2.5"
    )
    assert policy.maximum_redeliveries is None
    assert policy.maximum_redelivery_delay_ms is None
    assert policy.back_off_multiplier == 2.5
