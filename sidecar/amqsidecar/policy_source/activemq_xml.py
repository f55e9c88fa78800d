"""Reads an `activemq.xml`: its redelivery and discarding plugins and its dead-letter strategies.

What the broker accepts is accepted and means the same; where it means something that an operator
may not expect there is a warning. Source: ActiveMQ Classic, schema activemq-core (xbean).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

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
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.bean_values import DESTINATION_NAMES, BeanValues
from amqsidecar.policy_source.classic_warnings import list_warnings
from amqsidecar.policy_source.destination_interceptors import (
    INTERCEPTOR_WRAPPERS,
    read_interceptors,
)
from amqsidecar.policy_source.spring_beans import Bean, BeanReader
from amqsidecar.policy_source.xml_file import (
    line_of,
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
_POLICY_NAMES = DESTINATION_NAMES | {
    "maximumRedeliveries",
    "initialRedeliveryDelay",
    "redeliveryDelay",
    "maximumRedeliveryDelay",
    "useExponentialBackOff",
    "backOffMultiplier",
    "useCollisionAvoidance",
    "collisionAvoidancePercent",
    "preDispatchCheck",
}
_PLUGIN_NAMES = frozenset(
    {
        "fallbackToDeadLetter",
        "sendToDlqIfMaxRetriesExceeded",
        "redeliveryPolicyMap",
        "adminConnectionContext",
        "next",
    }
)
_DISCARDING_NAMES = frozenset(
    {"dropAll", "dropTemporaryTopics", "dropTemporaryQueues", "dropOnly", "reportInterval"}
)
_STRATEGY_NAMES = frozenset(
    {
        "processExpired",
        "processNonPersistent",
        "enableAudit",
        "expiration",
        "maxProducersToAudit",
        "maxAuditDepth",
    }
)
_INDIVIDUAL_NAMES = _STRATEGY_NAMES | {
    "queuePrefix",
    "queueSuffix",
    "topicPrefix",
    "topicSuffix",
    "useQueueForQueueMessages",
    "useQueueForTopicMessages",
    "destinationPerDurableSubscriber",
}
_HARMLESS_PLUGINS = frozenset(
    {
        "authorizationPlugin",
        "connectionDotFilePlugin",
        "destinationDotFilePlugin",
        "destinationPathSeparatorPlugin",
        "destinationsPlugin",
        "forcePersistencyModeBrokerPlugin",
        "jaasAuthenticationPlugin",
        "jaasCertificateAuthenticationPlugin",
        "jaasDualAuthenticationPlugin",
        "loggingBrokerPlugin",
        "partitionBrokerPlugin",
        "runtimeConfigurationPlugin",
        "simpleAuthenticationPlugin",
        "statisticsBrokerPlugin",
        "timeStampingBrokerPlugin",
        "traceBrokerPathPlugin",
        "virtualSelectorCacheBrokerPlugin",
    }
)
_COMPOSITES = frozenset({"compositeQueue", "compositeTopic", "virtualTopic"})


def read_activemq_xml(path: str, data: bytes, environment: Mapping[str, str]) -> ClassicRules:
    """Return the rules of an `activemq.xml`.

    Args:
        path: file name for messages and rule sources.
        data: the file's bytes.
        environment: where `${…}` is looked up.

    Raises:
        ConfigError: with every problem found.
    """
    reader = _ActiveMqXml(path, read_xml(path, data), environment)
    rules = reader.read()
    if reader.beans.problems:
        raise ConfigError(sorted(set(reader.beans.problems), key=_by_line))
    return replace(rules, warnings=(*rules.warnings, *list_warnings(rules)))


def _by_line(problem: object) -> tuple[int, str]:
    text = str(problem)
    found = re.search(r":(\d+): ", text)
    return (int(found[1]) if found else 0, text)


class _ActiveMqXml(BeanValues):
    def __init__(self, path: str, root: etree._Element, environment: Mapping[str, str]) -> None:
        super().__init__(path, BeanReader(root, path, environment, _WRAPPERS))
        self._root = root

    def read(self) -> ClassicRules:
        brokers = [element for element in self._root.iter() if _is_broker(element)]
        if len(brokers) != 1:
            found = (
                f"has {len(brokers)} <broker> elements" if brokers else "has no <broker> element"
            )
            self.beans.problem(1, f"{found}; a policy needs exactly one")
            return ClassicRules()
        broker = self.beans.read(brokers[0])
        scheduler_support = self.boolean(broker, "schedulerSupport", default=False)
        plugins = tuple(self._plugins(broker))
        dead_letter = self._destination_policy(broker)
        self._warn_about_composites(dead_letter)
        if not scheduler_support and any(plugin.name == "redelivery" for plugin in plugins):
            self.warn(
                broker.line,
                'schedulerSupport="true" is missing: the broker itself refuses to start with a '
                "redeliveryPlugin then; the sidecar does not need it",
            )
        return ClassicRules(
            plugins=plugins,
            dead_letter=dead_letter,
            scheduler_support=scheduler_support,
            interceptors=read_interceptors(self, broker),
            warnings=tuple(self.warnings),
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
            (element for element in self._root.iter() if local_name(element) in _COMPOSITES), None
        )
        if is_shared and composite is not None:
            # Why also without enableAudit: the message store refuses a second one of an id.
            self.warn(
                line_of(composite),
                f"{local_name(composite)} copies messages under one id, and a shared dead-letter "
                'queue keeps only the first dead letter of an id, also with enableAudit="false": '
                "use an individualDeadLetterStrategy",
            )

    def _plugins(self, broker: Bean) -> Iterator[PluginRules]:
        value = broker.values.get("plugins")
        for bean in self.beans.beans_of(value) if value else ():
            if bean.kind == "redeliveryPlugin":
                yield PluginRules(
                    name="redelivery", options=self._redelivery(bean), source=self.source(bean)
                )
            elif bean.kind == "discardingDLQBrokerPlugin":
                yield PluginRules(
                    name="discarding", options=self._discarding(bean), source=self.source(bean)
                )
            elif bean.kind not in _HARMLESS_PLUGINS:
                self.warn(
                    bean.line,
                    f"plugin {bean.kind or 'without a class'} is not known here and left out; "
                    "whether it acts on dead letters is unknown",
                )

    def _redelivery(self, bean: Bean) -> RedeliveryRules:
        self.check_names(bean, _PLUGIN_NAMES)
        entries: list[RedeliveryEntry] = []
        default_entry: RedeliveryPolicy | None = None
        policy_map = self.only(bean, "redeliveryPolicyMap", {"redeliveryPolicyMap"})
        if policy_map is None:
            self.warn(
                bean.line,
                "redeliveryPlugin has no redeliveryPolicyMap: no destination has a policy, so "
                "fallbackToDeadLetter decides for every dead letter",
            )
        else:
            self.check_names(
                policy_map, frozenset({"redeliveryPolicyEntries", "defaultEntry", "entries"})
            )
            for policy in self.listed(
                policy_map, ("entries", "redeliveryPolicyEntries"), "redeliveryPolicy"
            ):
                destinations = self.destinations(policy)
                entry = RedeliveryEntry(destinations=destinations, policy=self._policy(policy))
                entries.append(entry)
                if not all(destination.is_temporary for destination in destinations):
                    self._warn_about_short_delays(policy, entry.policy)
            default = self.only(policy_map, "defaultEntry", {"redeliveryPolicy"})
            if default is not None:
                default_entry = self._policy(default)
                self._warn_about_short_delays(default, default_entry)
        return RedeliveryRules(
            entries=tuple(entries),
            default_entry=default_entry,
            fallback_to_dead_letter=self.boolean(bean, "fallbackToDeadLetter", default=True),
            send_to_dlq_if_max_retries_exceeded=self.boolean(
                bean, "sendToDlqIfMaxRetriesExceeded", default=True
            ),
            source=self.source(bean),
        )

    def _warn_about_short_delays(self, bean: Bean, policy: RedeliveryPolicy) -> None:
        for name, delay_ms in (
            ("initialRedeliveryDelay", policy.initial_redelivery_delay_ms),
            ("redeliveryDelay", policy.redelivery_delay_ms),
        ):
            if delay_ms < 1000:
                self.warn(
                    bean.line,
                    f"{name}={delay_ms} is below 1000: the broker itself refuses to start with it; "
                    "the sidecar redelivers after that delay",
                )

    def _policy(self, bean: Bean) -> RedeliveryPolicy:
        self.check_names(bean, _POLICY_NAMES)
        self.boolean(bean, "preDispatchCheck", default=True)
        maximum = self.integer(bean, "maximumRedeliveries", 6, 32)
        cap_ms = self.integer(bean, "maximumRedeliveryDelay", -1, 64)
        return RedeliveryPolicy(
            maximum_redeliveries=None if maximum == -1 else maximum,
            initial_redelivery_delay_ms=self.integer(bean, "initialRedeliveryDelay", 1000, 64),
            redelivery_delay_ms=self.integer(bean, "redeliveryDelay", 1000, 64),
            maximum_redelivery_delay_ms=None if cap_ms == -1 else cap_ms,
            use_exponential_back_off=self.boolean(bean, "useExponentialBackOff", default=False),
            back_off_multiplier=self.double(bean, "backOffMultiplier", 5.0),
            use_collision_avoidance=self.boolean(bean, "useCollisionAvoidance", default=False),
            collision_avoidance_percent=self.integer(bean, "collisionAvoidancePercent", 15, 16),
            source=self.source(bean),
        )

    def _discarding(self, bean: Bean) -> DiscardingRules:
        self.check_names(bean, _DISCARDING_NAMES)
        rules = DiscardingRules(
            drop_all=self.boolean(bean, "dropAll", default=None),
            drop_temporary_topics=self.boolean(bean, "dropTemporaryTopics", default=None),
            drop_temporary_queues=self.boolean(bean, "dropTemporaryQueues", default=None),
            drop_only=self.text(bean, "dropOnly"),
            report_interval=self.integer(bean, "reportInterval", 1000, 32),
            source=self.source(bean),
        )
        try:
            DiscardingDecider(rules)
        except ConfigError as error:
            self.beans.problems.extend(error.problems)
        return rules

    def _destination_policy(self, broker: Bean) -> DeadLetterRules:
        policy_map = self.only(broker, "destinationPolicy", {"policyMap"})
        if policy_map is None:
            return DeadLetterRules(source=self.source(broker))
        default = self.only(policy_map, "defaultEntry", {"policyEntry"})
        return DeadLetterRules(
            entries=tuple(
                self._policy_entry(bean, self.destinations(bean))
                for bean in self.listed(policy_map, ("entries", "policyEntries"), "policyEntry")
            ),
            default_entry=None if default is None else self._policy_entry(default, ()),
            source=self.source(policy_map),
        )

    def _policy_entry(self, bean: Bean, destinations: tuple[Destination, ...]) -> PolicyEntry:
        strategy = self.only(
            bean,
            "deadLetterStrategy",
            {"sharedDeadLetterStrategy", "individualDeadLetterStrategy", "discarding"},
        )
        return PolicyEntry(
            destinations=destinations,
            dead_letter_strategy=None if strategy is None else self._strategy(strategy),
            source=self.source(bean),
        )

    def _strategy(self, bean: Bean) -> DeadLetterStrategy:
        shared_names = _STRATEGY_NAMES | {"deadLetterQueue"}
        self.check_names(
            bean,
            _INDIVIDUAL_NAMES if bean.kind == "individualDeadLetterStrategy" else shared_names,
        )
        process_expired = self.boolean(bean, "processExpired", default=True)
        process_non_persistent = self.boolean(bean, "processNonPersistent", default=False)
        enable_audit = self.boolean(bean, "enableAudit", default=True)
        expiration_ms = self.integer(bean, "expiration", 0, 64)
        max_producers_to_audit = self.integer(bean, "maxProducersToAudit", 64, 32)
        max_audit_depth = self.integer(bean, "maxAuditDepth", 2048, 32)
        if bean.kind == "individualDeadLetterStrategy":
            return IndividualDeadLetterStrategy(
                process_expired=process_expired,
                process_non_persistent=process_non_persistent,
                enable_audit=enable_audit,
                expiration_ms=expiration_ms,
                max_producers_to_audit=max_producers_to_audit,
                max_audit_depth=max_audit_depth,
                queue_prefix=self.text_or(bean, "queuePrefix", "ActiveMQ.DLQ.Queue."),
                queue_suffix=self.text_or(bean, "queueSuffix", ""),
                topic_prefix=self.text_or(bean, "topicPrefix", "ActiveMQ.DLQ.Topic."),
                topic_suffix=self.text_or(bean, "topicSuffix", ""),
                use_queue_for_queue_messages=self.boolean(
                    bean, "useQueueForQueueMessages", default=True
                ),
                use_queue_for_topic_messages=self.boolean(
                    bean, "useQueueForTopicMessages", default=True
                ),
                destination_per_durable_subscriber=self.boolean(
                    bean, "destinationPerDurableSubscriber", default=False
                ),
                source=self.source(bean),
            )
        dead_letter_queue = self._dead_letter_queue(bean)
        if bean.kind == "discarding":
            return DiscardingDeadLetterStrategy(
                process_expired=process_expired,
                process_non_persistent=process_non_persistent,
                enable_audit=enable_audit,
                expiration_ms=expiration_ms,
                max_producers_to_audit=max_producers_to_audit,
                max_audit_depth=max_audit_depth,
                source=self.source(bean),
            )
        return SharedDeadLetterStrategy(
            process_expired=process_expired,
            process_non_persistent=process_non_persistent,
            enable_audit=enable_audit,
            expiration_ms=expiration_ms,
            max_producers_to_audit=max_producers_to_audit,
            max_audit_depth=max_audit_depth,
            dead_letter_queue=dead_letter_queue,
            source=self.source(bean),
        )

    def _dead_letter_queue(self, bean: Bean) -> Destination:
        value = bean.values.get("deadLetterQueue")
        if value is None:
            return queue("ActiveMQ.DLQ")
        found = self.destination_of(bean, value)
        return found[0] if found else queue("ActiveMQ.DLQ")


def _is_broker(element: etree._Element) -> bool:
    if local_name(element) == "broker":
        return not namespace(element).startswith("http://www.springframework.org/")
    return local_name(element) == "bean" and str(element.get("class", "")).strip() in (
        "org.apache.activemq.broker.BrokerService",
        "org.apache.activemq.xbean.XBeanBrokerService",
    )
