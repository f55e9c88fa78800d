"""Reads an `activemq.xml`: its redelivery and discarding plugins and its dead-letter strategies.

It accepts whatever the broker accepts, with the broker's meaning, and warns of meanings that an
operator may not expect. Source: ActiveMQ Classic, schema activemq-core (xbean).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches

from lxml import etree

from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import Destination, queue
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DeadLetterStrategy,
    DiscardingDeadLetterStrategy,
    DiscardingRules,
    IndividualDeadLetterStrategy,
    PluginRules,
    PolicyEntry,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.discarding_decider import DiscardingDecider
from amqsidecar.policy.option_table import names_of, read_options
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.bean_definitions import BeanDefinitions
from amqsidecar.policy_source.bean_values import DESTINATION_NAMES, BeanValues
from amqsidecar.policy_source.classic_warnings import list_warnings
from amqsidecar.policy_source.destination_interceptors import (
    INTERCEPTOR_WRAPPERS,
    read_interceptors,
)
from amqsidecar.policy_source.spring_beans import BeanReader
from amqsidecar.policy_source.xml_file import (
    ReadFile,
    local_name,
    namespace,
    read_xml,
)

_WRAPPERS = {
    "broker": frozenset({"plugins", "destinationPolicy", "destinationInterceptors"}),
    "redeliveryPlugin": frozenset({"redeliveryPolicyMap"}),
    "redeliveryPolicyMap": frozenset({"redeliveryPolicyEntries", "defaultEntry", "entries"}),
    "redeliveryPolicy": frozenset({"destination"}),
    "policyMap": frozenset({"policyEntries", "defaultEntry", "entries"}),
    "policyEntry": frozenset({"deadLetterStrategy", "destination"}),
    "sharedDeadLetterStrategy": frozenset({"deadLetterQueue"}),
    "discarding": frozenset({"deadLetterQueue"}),
    **INTERCEPTOR_WRAPPERS,
}
_POLICY_NAMES = names_of(RedeliveryPolicy) | DESTINATION_NAMES | {"preDispatchCheck"}
_PLUGIN_NAMES = names_of(RedeliveryRules) | {
    "redeliveryPolicyMap",
    "adminConnectionContext",
    "next",
}
_STRATEGIES: dict[str, type[DeadLetterStrategy]] = {
    "sharedDeadLetterStrategy": SharedDeadLetterStrategy,
    "individualDeadLetterStrategy": IndividualDeadLetterStrategy,
    "discarding": DiscardingDeadLetterStrategy,
}
_HARMLESS_NAMES = """
authorizationPlugin connectionDotFilePlugin destinationDotFilePlugin
destinationPathSeparatorPlugin destinationsPlugin forcePersistencyModeBrokerPlugin
jaasAuthenticationPlugin jaasCertificateAuthenticationPlugin jaasDualAuthenticationPlugin
loggingBrokerPlugin partitionBrokerPlugin runtimeConfigurationPlugin simpleAuthenticationPlugin
statisticsBrokerPlugin timeStampingBrokerPlugin traceBrokerPathPlugin
virtualSelectorCacheBrokerPlugin
"""
_HARMLESS_PLUGINS = frozenset(_HARMLESS_NAMES.split())
_ENTRY_NAMES = """
advancedMessageStatisticsEnabled advancedNetworkStatisticsEnabled advisoryForConsumed
advisoryForDelivery advisoryForDiscardingMessages advisoryForDispatched advisoryForFastProducers
advisoryForSlowConsumers advisoryWhenFull allConsumersExclusiveByDefault
allowTempDestinationStealing alwaysRetroactive blockedProducerWarningInterval
consumersBeforeDispatchStarts cursorMemoryHighWaterMark deadLetterStrategy destination
dispatchPolicy doOptimzeMessageStorage durableTopicPrefetch enableAudit expireMessagesPeriod
gcInactiveDestinations gcWithNetworkConsumers inactiveTimeoutBeforeGC inactiveTimoutBeforeGC
includeBodyForAdvisory lazyDispatch maxAuditDepth maxBrowsePageSize maxDestinations
maxExpirePageSize maxPageSize maxProducersToAudit maxQueueAuditDepth memoryLimit
messageEvictionStrategy messageGroupMapFactory messageGroupMapFactoryType
messageInterceptorStrategy minimumMessageSize networkBridgeFilterFactory
optimizeMessageStoreInFlightLimit optimizedDispatch pendingDurableSubscriberPolicy
pendingMessageLimitStrategy pendingQueuePolicy pendingSubscriberPolicy persistJMSRedelivered
prioritizedMessages producerFlowControl queue queueBrowserPrefetch queuePrefetch
reduceMemoryFootprint sendAdvisoryIfNoConsumers sendDuplicateFromStoreToDLQ sendFailIfNoSpace
sendFailIfNoSpaceAfterTimeout slowConsumerStrategy storeUsageHighWaterMark strictOrderDispatch
subscriptionRecoveryPolicy tempQueue tempTopic timeBeforeDispatchStarts topic topicPrefetch
useCache useConsumerPriority usePrefetchExtension useTopicSubscriptionInflightStats
"""
_POLICY_ENTRY = frozenset(_ENTRY_NAMES.split())
"""Source: activemq.xsd of 5.18.3 and 6.3.1."""
_COMPOSITES = frozenset({"compositeQueue", "compositeTopic", "virtualTopic"})


def read_activemq_xml(
    path: str,
    data: bytes,
    environment: Mapping[str, str],
    read_file: ReadFile | None = None,
) -> ClassicRules:
    """Return the rules of an `activemq.xml`.

    Args:
        path: file name for messages and rule sources.
        data: the file's bytes.
        environment: where `${…}` is looked up beside the properties that the file names.
        read_file: reads imports and properties, relative to the file; None = they can't be read.

    Raises:
        ConfigError: with every problem found.
    """
    definitions = BeanDefinitions(read_xml(path, data), path, environment, read_file)
    rules = _ActiveMqXml(BeanReader(definitions, _WRAPPERS), path).read()
    if definitions.problems:
        raise ConfigError(sorted(set(definitions.problems), key=_by_line))
    return replace(rules, warnings=(*rules.warnings, *list_warnings(rules)))


def _by_line(problem: object) -> tuple[int, str]:
    text = str(problem)
    found = re.search(r":(\d+): ", text)
    return (int(found[1]) if found else 0, text)


class _ActiveMqXml:
    def __init__(self, beans: BeanReader, path: str) -> None:
        self._beans = beans
        self._definitions = beans.definitions
        self._path = path
        self._elements = [element for root in self._definitions.roots for element in root.iter("*")]

    def read(self) -> ClassicRules:
        brokers = [element for element in self._elements if _is_broker(element)]
        if len(brokers) != 1:
            found = "has no <broker> element"
            source = RuleSource(self._path, 1)
            if brokers:
                found = f"is <broker> number 2 of {len(brokers)}"
                source = self._definitions.source_of(brokers[1])
            elif unread := self._definitions.unread_imports():
                found += (
                    f", and the imported file {unread[0]} can't be read: put it beside this file"
                )
            self._definitions.problem(source, f"{found}; a policy needs exactly one")
            return ClassicRules()
        broker = BeanValues(self._beans, self._beans.read(brokers[0]))
        scheduler_support = broker.flag("schedulerSupport", default=False) is True
        plugins = tuple(self._plugins(broker))
        dead_letter = self._destination_policy(broker)
        self._warn_about_composites(dead_letter)
        if not scheduler_support and any(plugin.name == "redelivery" for plugin in plugins):
            broker.warn(
                'schedulerSupport="true" is missing: the broker itself refuses to start with a '
                "redeliveryPlugin then; the sidecar does not need it",
            )
        return ClassicRules(
            plugins=plugins,
            dead_letter=dead_letter,
            scheduler_support=scheduler_support,
            interceptors=read_interceptors(broker),
            warnings=tuple(self._definitions.warnings),
            source=RuleSource(self._path),
        )

    def _warn_about_composites(self, rules: DeadLetterRules) -> None:
        strategies = [
            entry.dead_letter_strategy
            for entry in (*rules.entries, rules.default_entry)
            if entry is not None
        ]
        is_shared = not strategies or any(
            strategy is None or isinstance(strategy, SharedDeadLetterStrategy)
            for strategy in strategies
        )
        composite = next(
            (element for element in self._elements if local_name(element) in _COMPOSITES), None
        )
        if is_shared and composite is not None:
            # Why also without enableAudit: the message store refuses a second one of an id.
            self._definitions.warn(
                self._definitions.source_of(composite),
                f"{local_name(composite)} copies messages under one id, and a shared dead-letter "
                'queue keeps only the first dead letter of an id, also with enableAudit="false": '
                "use an individualDeadLetterStrategy",
            )

    def _plugins(self, broker: BeanValues) -> Iterator[PluginRules]:
        for bean in broker.of("plugins"):
            kind = bean.bean.kind
            if kind == "redeliveryPlugin":
                yield PluginRules(
                    name="redelivery", options=self._redelivery(bean), source=bean.source
                )
            elif kind == "discardingDLQBrokerPlugin":
                yield PluginRules(
                    name="discarding", options=self._discarding(bean), source=bean.source
                )
            elif kind not in _HARMLESS_PLUGINS:
                bean.warn(
                    f"plugin {kind or 'without a class'} is not known here and left out; "
                    "whether it acts on dead letters is unknown",
                )

    def _redelivery(self, bean: BeanValues) -> RedeliveryRules:
        bean.check_names(_PLUGIN_NAMES)
        entries: list[RedeliveryEntry] = []
        default_entry: RedeliveryPolicy | None = None
        policy_map = bean.only("redeliveryPolicyMap", {"redeliveryPolicyMap"})
        if policy_map is None:
            bean.warn(
                "redeliveryPlugin has no redeliveryPolicyMap: no destination has a policy, so "
                "fallbackToDeadLetter decides for every dead letter",
            )
        else:
            policy_map.check_names(
                frozenset({"redeliveryPolicyEntries", "defaultEntry", "entries"})
            )
            for policy in policy_map.listed(
                ("entries", "redeliveryPolicyEntries"), "redeliveryPolicy"
            ):
                destinations = policy.destinations()
                entry = RedeliveryEntry(destinations=destinations, policy=self._policy(policy))
                entries.append(entry)
                if not all(destination.is_temporary for destination in destinations):
                    self._warn_about_short_delays(policy, entry.policy)
            default = policy_map.only("defaultEntry", {"redeliveryPolicy"})
            if default is not None:
                default_entry = self._policy(default)
                self._warn_about_short_delays(default, default_entry)
        return read_options(
            RedeliveryRules,
            bean,
            entries=tuple(entries),
            default_entry=default_entry,
            source=bean.source,
        )

    def _warn_about_short_delays(self, bean: BeanValues, policy: RedeliveryPolicy) -> None:
        for name, delay_ms in (
            ("initialRedeliveryDelay", policy.initial_redelivery_delay_ms),
            ("redeliveryDelay", policy.redelivery_delay_ms),
        ):
            if delay_ms < 1000:
                bean.warn(
                    f"{name}={delay_ms} is below 1000: the broker itself refuses to start with it; "
                    "the sidecar redelivers after that delay",
                )

    def _policy(self, bean: BeanValues) -> RedeliveryPolicy:
        bean.check_names(_POLICY_NAMES)
        bean.flag("preDispatchCheck", default=True)
        return read_options(RedeliveryPolicy, bean, source=bean.source)

    def _discarding(self, bean: BeanValues) -> DiscardingRules:
        bean.check_names(names_of(DiscardingRules))
        rules = read_options(
            DiscardingRules,
            bean,
            drop_only=bean.given("dropOnly"),
            source=bean.source,
        )
        try:
            DiscardingDecider(rules)
        except ConfigError as error:
            self._definitions.problems.extend(error.problems)
        return rules

    def _destination_policy(self, broker: BeanValues) -> DeadLetterRules:
        policy_map = broker.only("destinationPolicy", {"policyMap"})
        if policy_map is None:
            return DeadLetterRules(source=broker.source)
        default = policy_map.only("defaultEntry", {"policyEntry"})
        return DeadLetterRules(
            entries=tuple(
                self._policy_entry(bean, bean.destinations())
                for bean in policy_map.listed(("entries", "policyEntries"), "policyEntry")
            ),
            default_entry=None if default is None else self._policy_entry(default, ()),
            source=policy_map.source,
        )

    def _policy_entry(self, bean: BeanValues, destinations: tuple[Destination, ...]) -> PolicyEntry:
        attributes = ((name, value.source) for name, value in bean.bean.values.items())
        for name, source in (*bean.bean.strays, *attributes):
            if name not in _POLICY_ENTRY:
                close = get_close_matches(name, sorted(_POLICY_ENTRY), 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self._definitions.warn(
                    source,
                    f"{name} is not known in <policyEntry>: a broker whose schema lacks it fails "
                    f"to start{hint}",
                )
        strategy = bean.only(
            "deadLetterStrategy",
            set(_STRATEGIES),
        )
        return PolicyEntry(
            destinations=destinations,
            dead_letter_strategy=None if strategy is None else self._strategy(strategy),
            source=bean.source,
        )

    def _strategy(self, bean: BeanValues) -> DeadLetterStrategy:
        kind = _STRATEGIES[bean.bean.kind]
        given: dict[str, object] = {"source": bean.source}
        names = names_of(kind)
        if kind is not IndividualDeadLetterStrategy:
            names |= {"deadLetterQueue"}
            dead_letter_queue = self._dead_letter_queue(bean)
            if kind is SharedDeadLetterStrategy:
                given["dead_letter_queue"] = dead_letter_queue
        bean.check_names(names)
        return read_options(kind, bean, **given)

    def _dead_letter_queue(self, bean: BeanValues) -> Destination:
        value = bean.bean.values.get("deadLetterQueue")
        if value is None:
            return queue("ActiveMQ.DLQ")
        found = bean.destination_of(value)
        return found[0] if found else queue("ActiveMQ.DLQ")


def _is_broker(element: etree._Element) -> bool:
    if local_name(element) == "broker":
        return not namespace(element).startswith("http://www.springframework.org/")
    return local_name(element) == "bean" and str(element.get("class", "")).strip() in (
        "org.apache.activemq.broker.BrokerService",
        "org.apache.activemq.xbean.XBeanBrokerService",
    )
