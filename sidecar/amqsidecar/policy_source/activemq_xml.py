"""Reads an `activemq.xml`: its redelivery and discarding plugins and its dead-letter strategies.

What the broker accepts is accepted and means the same; where it means something that an operator
may not expect there is a warning. Source: ActiveMQ Classic, schema activemq-core (xbean).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches

from lxml import etree

from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import Destination, DestinationKind, parse_destination, queue
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
from amqsidecar.policy_source.classic_warnings import list_warnings
from amqsidecar.policy_source.spring_beans import CONSTRUCTOR_ARGUMENT, Bean, BeanReader, Value
from amqsidecar.policy_source.xml_file import (
    line_of,
    local_name,
    namespace,
    read_xml,
    whole_number,
)

_WRAPPERS = {
    "broker": frozenset({"plugins", "destinationPolicy"}),
    "redeliveryPlugin": frozenset({"redeliveryPolicyMap"}),
    "redeliveryPolicyMap": frozenset({"redeliveryPolicyEntries", "defaultEntry", "entries"}),
    "redeliveryPolicy": frozenset({"destination"}),
    "policyMap": frozenset({"policyEntries", "defaultEntry", "entries"}),
    "policyEntry": frozenset({"deadLetterStrategy", "destination"}),
    "sharedDeadLetterStrategy": frozenset({"deadLetterQueue"}),
    "discarding": frozenset({"deadLetterQueue"}),
}
_DESTINATION_KINDS = {
    "queue": DestinationKind.QUEUE,
    "topic": DestinationKind.TOPIC,
    "tempQueue": DestinationKind.TEMP_QUEUE,
    "tempTopic": DestinationKind.TEMP_TOPIC,
}
_DESTINATION_NAMES = frozenset({*_DESTINATION_KINDS, "destination"})
_POLICY_NAMES = _DESTINATION_NAMES | {
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
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_HEXADECIMAL = re.compile(r"-?(?:0[xX]|#)[0-9a-fA-F]+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN", re.ASCII)
_XBEAN_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SPRING_BOOLEANS = _XBEAN_BOOLEANS | {"on": True, "yes": True, "off": False, "no": False}


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


class _ActiveMqXml:
    def __init__(self, path: str, root: etree._Element, environment: Mapping[str, str]) -> None:
        self._path = path
        self._root = root
        self._warnings: list[str] = []
        self.beans = BeanReader(root, path, environment, _WRAPPERS)

    def read(self) -> ClassicRules:
        brokers = [element for element in self._root.iter() if _is_broker(element)]
        if len(brokers) != 1:
            found = (
                f"has {len(brokers)} <broker> elements" if brokers else "has no <broker> element"
            )
            self.beans.problem(1, f"{found}; a policy needs exactly one")
            return ClassicRules()
        broker = self.beans.read(brokers[0])
        scheduler_support = self._boolean(broker, "schedulerSupport", default=False)
        plugins = tuple(self._plugins(broker))
        dead_letter = self._destination_policy(broker)
        self._warn_about_composites(dead_letter)
        if not scheduler_support and any(plugin.name == "redelivery" for plugin in plugins):
            self._warn(
                broker.line,
                'schedulerSupport="true" is missing: the broker itself refuses to start with a '
                "redeliveryPlugin then; the sidecar does not need it",
            )
        return ClassicRules(
            plugins=plugins,
            dead_letter=dead_letter,
            scheduler_support=scheduler_support,
            warnings=tuple(self._warnings),
            source=RuleSource(self._path),
        )

    def _source(self, bean: Bean) -> RuleSource:
        return RuleSource(self._path, bean.line)

    def _warn(self, line: int, what: str) -> None:
        self._warnings.append(f"{self._path}:{line}: {what}")

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
            self._warn(
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
                    name="redelivery", options=self._redelivery(bean), source=self._source(bean)
                )
            elif bean.kind == "discardingDLQBrokerPlugin":
                yield PluginRules(
                    name="discarding", options=self._discarding(bean), source=self._source(bean)
                )
            elif bean.kind not in _HARMLESS_PLUGINS:
                self._warn(
                    bean.line,
                    f"plugin {bean.kind or 'without a class'} is not known here and left out; "
                    "whether it acts on dead letters can't be told",
                )

    def _redelivery(self, bean: Bean) -> RedeliveryRules:
        self._check_names(bean, _PLUGIN_NAMES)
        entries: list[RedeliveryEntry] = []
        default_entry: RedeliveryPolicy | None = None
        policy_map = self._only(bean, "redeliveryPolicyMap", {"redeliveryPolicyMap"})
        if policy_map is None:
            self._warn(
                bean.line,
                "redeliveryPlugin has no redeliveryPolicyMap: no destination has a policy, so "
                "fallbackToDeadLetter decides for every dead letter",
            )
        else:
            self._check_names(
                policy_map, frozenset({"redeliveryPolicyEntries", "defaultEntry", "entries"})
            )
            for policy in self._listed(
                policy_map, ("entries", "redeliveryPolicyEntries"), "redeliveryPolicy"
            ):
                destinations = self._destinations(policy)
                entry = RedeliveryEntry(destinations=destinations, policy=self._policy(policy))
                entries.append(entry)
                if not all(destination.is_temporary for destination in destinations):
                    self._warn_about_short_delays(policy, entry.policy)
            default = self._only(policy_map, "defaultEntry", {"redeliveryPolicy"})
            if default is not None:
                default_entry = self._policy(default)
                self._warn_about_short_delays(default, default_entry)
        return RedeliveryRules(
            entries=tuple(entries),
            default_entry=default_entry,
            fallback_to_dead_letter=self._boolean(bean, "fallbackToDeadLetter", default=True),
            send_to_dlq_if_max_retries_exceeded=self._boolean(
                bean, "sendToDlqIfMaxRetriesExceeded", default=True
            ),
            source=self._source(bean),
        )

    def _warn_about_short_delays(self, bean: Bean, policy: RedeliveryPolicy) -> None:
        for name, delay_ms in (
            ("initialRedeliveryDelay", policy.initial_redelivery_delay_ms),
            ("redeliveryDelay", policy.redelivery_delay_ms),
        ):
            if delay_ms < 1000:
                self._warn(
                    bean.line,
                    f"{name}={delay_ms} is below 1000: the broker itself refuses to start with it; "
                    "the sidecar redelivers after that delay",
                )

    def _policy(self, bean: Bean) -> RedeliveryPolicy:
        self._check_names(bean, _POLICY_NAMES)
        self._boolean(bean, "preDispatchCheck", default=True)
        maximum = self._integer(bean, "maximumRedeliveries", 6, 32)
        cap_ms = self._integer(bean, "maximumRedeliveryDelay", -1, 64)
        return RedeliveryPolicy(
            maximum_redeliveries=None if maximum == -1 else maximum,
            initial_redelivery_delay_ms=self._integer(bean, "initialRedeliveryDelay", 1000, 64),
            redelivery_delay_ms=self._integer(bean, "redeliveryDelay", 1000, 64),
            maximum_redelivery_delay_ms=None if cap_ms == -1 else cap_ms,
            use_exponential_back_off=self._boolean(bean, "useExponentialBackOff", default=False),
            back_off_multiplier=self._double(bean, "backOffMultiplier", 5.0),
            use_collision_avoidance=self._boolean(bean, "useCollisionAvoidance", default=False),
            collision_avoidance_percent=self._integer(bean, "collisionAvoidancePercent", 15, 16),
            source=self._source(bean),
        )

    def _discarding(self, bean: Bean) -> DiscardingRules:
        self._check_names(bean, _DISCARDING_NAMES)
        rules = DiscardingRules(
            drop_all=self._boolean(bean, "dropAll", default=True),
            drop_temporary_topics=self._boolean(bean, "dropTemporaryTopics", default=True),
            drop_temporary_queues=self._boolean(bean, "dropTemporaryQueues", default=True),
            drop_only=self._text(bean, "dropOnly"),
            report_interval=self._integer(bean, "reportInterval", 1000, 32),
            source=self._source(bean),
        )
        try:
            DiscardingDecider(rules)
        except ConfigError as error:
            self.beans.problems.extend(error.problems)
        return rules

    def _destination_policy(self, broker: Bean) -> DeadLetterRules:
        policy_map = self._only(broker, "destinationPolicy", {"policyMap"})
        if policy_map is None:
            return DeadLetterRules(source=self._source(broker))
        default = self._only(policy_map, "defaultEntry", {"policyEntry"})
        return DeadLetterRules(
            entries=tuple(
                self._policy_entry(bean, self._destinations(bean))
                for bean in self._listed(policy_map, ("entries", "policyEntries"), "policyEntry")
            ),
            default_entry=None if default is None else self._policy_entry(default, ()),
            source=self._source(policy_map),
        )

    def _policy_entry(self, bean: Bean, destinations: tuple[Destination, ...]) -> PolicyEntry:
        strategy = self._only(
            bean,
            "deadLetterStrategy",
            {"sharedDeadLetterStrategy", "individualDeadLetterStrategy", "discarding"},
        )
        return PolicyEntry(
            destinations=destinations,
            dead_letter_strategy=None if strategy is None else self._strategy(strategy),
            source=self._source(bean),
        )

    def _strategy(self, bean: Bean) -> DeadLetterStrategy:
        shared_names = _STRATEGY_NAMES | {"deadLetterQueue"}
        self._check_names(
            bean,
            _INDIVIDUAL_NAMES if bean.kind == "individualDeadLetterStrategy" else shared_names,
        )
        process_expired = self._boolean(bean, "processExpired", default=True)
        process_non_persistent = self._boolean(bean, "processNonPersistent", default=False)
        enable_audit = self._boolean(bean, "enableAudit", default=True)
        expiration_ms = self._integer(bean, "expiration", 0, 64)
        max_producers_to_audit = self._integer(bean, "maxProducersToAudit", 64, 32)
        max_audit_depth = self._integer(bean, "maxAuditDepth", 2048, 32)
        if bean.kind == "individualDeadLetterStrategy":
            return IndividualDeadLetterStrategy(
                process_expired=process_expired,
                process_non_persistent=process_non_persistent,
                enable_audit=enable_audit,
                expiration_ms=expiration_ms,
                max_producers_to_audit=max_producers_to_audit,
                max_audit_depth=max_audit_depth,
                queue_prefix=self._text_or(bean, "queuePrefix", "ActiveMQ.DLQ.Queue."),
                queue_suffix=self._text_or(bean, "queueSuffix", ""),
                topic_prefix=self._text_or(bean, "topicPrefix", "ActiveMQ.DLQ.Topic."),
                topic_suffix=self._text_or(bean, "topicSuffix", ""),
                use_queue_for_queue_messages=self._boolean(
                    bean, "useQueueForQueueMessages", default=True
                ),
                use_queue_for_topic_messages=self._boolean(
                    bean, "useQueueForTopicMessages", default=True
                ),
                destination_per_durable_subscriber=self._boolean(
                    bean, "destinationPerDurableSubscriber", default=False
                ),
                source=self._source(bean),
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
                source=self._source(bean),
            )
        return SharedDeadLetterStrategy(
            process_expired=process_expired,
            process_non_persistent=process_non_persistent,
            enable_audit=enable_audit,
            expiration_ms=expiration_ms,
            max_producers_to_audit=max_producers_to_audit,
            max_audit_depth=max_audit_depth,
            dead_letter_queue=dead_letter_queue,
            source=self._source(bean),
        )

    def _text_or(self, bean: Bean, name: str, default: str) -> str:
        text = self._text(bean, name)
        return default if text is None else text

    def _dead_letter_queue(self, bean: Bean) -> Destination:
        value = bean.values.get("deadLetterQueue")
        if value is None:
            return queue("ActiveMQ.DLQ")
        found = self._destination_of(bean, value)
        return found[0] if found else queue("ActiveMQ.DLQ")

    def _destinations(self, bean: Bean) -> tuple[Destination, ...]:
        """Return the pattern of an entry.

        Quirk (Classic 5.x): attributes are applied in alphabetical order and the last one wins, so
        topic wins over queue; a child element is applied after all attributes.
        """
        names = [name for name in bean.values if name in _DESTINATION_NAMES]
        if not bean.is_spring:
            names.sort(key=lambda name: (not bean.values[name].is_attribute, name))
        if not names:
            self.beans.problem(
                bean.line,
                f"{bean.kind} has no destination (queue, topic, tempQueue, tempTopic or "
                "destination): the broker fails to start",
            )
            return (queue(">"),)
        winner = names[-1]
        if len(names) > 1:
            self._warn(
                bean.line,
                f"{bean.kind} has {' and '.join(names)}: the broker takes {winner} only",
            )
        value = bean.values[winner]
        if winner == "destination":
            return self._destination_of(bean, value) or (queue(">"),)
        kind = _DESTINATION_KINDS[winner]
        if winner in ("tempQueue", "tempTopic"):
            if not self._boolean(bean, winner, default=True):
                self._warn(
                    bean.line,
                    f'{winner}="false" selects every {kind.value} all the same, as in the broker; '
                    "remove the attribute to select none",
                )
            return (Destination(kind, ">"),)
        return self._named(kind, self.beans.text_of(value) or "", value.line)

    def _destination_of(self, bean: Bean, value: Value) -> tuple[Destination, ...]:
        text = self.beans.text_of(value)
        kinds = ", ".join(f"<{kind} physicalName=…>" for kind in _DESTINATION_KINDS)
        if text is not None and not text.startswith("#"):
            self.beans.problem(
                value.line,
                f'{bean.kind}: a destination can\'t be written as text ("{text}"), the broker '
                f"fails to start; write one of {kinds} inside",
            )
            return ()
        found = self.beans.beans_of(value)
        if len(found) != 1 or found[0].kind not in _DESTINATION_KINDS:
            self.beans.problem(value.line, f"{bean.kind}: expected one of {kinds}")
            return ()
        (destination,) = found
        self._check_names(destination, frozenset({"physicalName", CONSTRUCTOR_ARGUMENT}))
        name = self._text(destination, "physicalName") or self._text(
            destination, CONSTRUCTOR_ARGUMENT
        )
        return self._named(_DESTINATION_KINDS[destination.kind], name or "", destination.line)

    def _named(self, kind: DestinationKind, text: str, line: int) -> tuple[Destination, ...]:
        """Return the destinations of a physical name, which may be a composite.

        Source: org.apache.activemq.command.ActiveMQDestination, setPhysicalName.
        """
        name = text.strip().split("?", 1)[0]
        if "," in name:
            parts = [part.strip() for part in name.split(",")]
            return tuple(
                dict.fromkeys(parse_destination(part, kind) for part in parts if part)
            ) or (Destination(kind, name),)
        if not name:
            self.beans.problem(line, f"{kind.value} has an empty name; the broker fails to start")
            return (Destination(kind, ">"),)
        if any(name.startswith(f"{other.value}://") for other in DestinationKind):
            self._warn(
                line,
                f'{kind.value}="{name}" is taken literally by the broker, prefix included, and '
                f'matches nothing that clients use; write {kind.value}="{name.split("://", 1)[1]}"',
            )
        return (Destination(kind, name),)

    def _listed(self, bean: Bean, names: tuple[str, ...], kind: str) -> Iterator[Bean]:
        for name in names:
            value = bean.values.get(name)
            for found in self.beans.beans_of(value) if value else ():
                if found.kind == kind:
                    yield found
                else:
                    self.beans.problem(
                        found.line, f"{name}: expected <{kind}>, found <{found.kind}>"
                    )

    def _only(self, bean: Bean, name: str, kinds: set[str]) -> Bean | None:
        value = bean.values.get(name)
        if value is None:
            return None
        found = self.beans.beans_of(value)
        names = " or ".join(f"<{kind}>" for kind in sorted(kinds))
        if value.text is None and any(child.kind not in kinds for child in found):
            wrong = ", ".join(f"<{child.kind}>" for child in found if child.kind not in kinds)
            self.beans.problem(
                value.line,
                f"<{name}> is only the property; inside it stands {names}, found {wrong}",
            )
            return None
        if len(found) > 1:
            self.beans.problem(value.line, f"{name}: expected one {names}, found {len(found)}")
        if not found and value.text is not None and value.text.strip() == "":
            self.beans.problem(value.line, f"<{name}> is empty; inside it stands {names}")
        return found[0] if found else None

    def _check_names(self, bean: Bean, known: frozenset[str]) -> None:
        for name, value in bean.values.items():
            if name not in known and name != CONSTRUCTOR_ARGUMENT:
                self.beans.problem(
                    value.line, f"{bean.kind} has no attribute {name}{_suggest(name, known)}"
                )
        for name, line in bean.strays:
            self.beans.problem(
                line, f"<{name}> can't stand inside <{bean.kind}>{_suggest(name, known)}"
            )

    def _text(self, bean: Bean, name: str) -> str | None:
        value = bean.values.get(name)
        return None if value is None else self.beans.text_of(value)

    def _boolean(self, bean: Bean, name: str, *, default: bool) -> bool:
        text = self._text(bean, name)
        if text is None:
            return default
        spellings = _SPRING_BOOLEANS if bean.is_spring else _XBEAN_BOOLEANS
        value = spellings.get(text.strip().lower() if bean.is_spring else text.strip())
        if value is None:
            self._refuse(bean, name, text, "true or false")
            return default
        return value

    def _integer(self, bean: Bean, name: str, default: int, bits: int) -> int:
        text = self._text(bean, name)
        if text is None:
            return default
        if _INTEGER.fullmatch(text.strip()):
            value = whole_number(text, bits)
        elif bean.is_spring and _HEXADECIMAL.fullmatch(text.strip()):
            digits = text.strip().lower().replace("#", "0x").replace("0x", "")
            value = whole_number(digits, bits, base=16)
        else:
            self._refuse(bean, name, text, "a whole number without a unit")
            return default
        if value is None:
            self._refuse(bean, name, text, f"a number that fits into {bits} bits")
            return default
        return value

    def _double(self, bean: Bean, name: str, default: float) -> float:
        text = self._text(bean, name)
        if text is None:
            return default
        if not _DOUBLE.fullmatch(text.strip()):
            self._refuse(bean, name, text, "a number such as 2 or 1.5")
            return default
        return float(text)

    def _refuse(self, bean: Bean, name: str, text: str, expected: str) -> None:
        self.beans.problem(
            bean.values[name].line, f'{bean.kind} {name}="{text}": expected {expected}'
        )


def _is_broker(element: etree._Element) -> bool:
    if local_name(element) == "broker":
        return not namespace(element).startswith("http://www.springframework.org/")
    return local_name(element) == "bean" and str(element.get("class", "")).strip() in (
        "org.apache.activemq.broker.BrokerService",
        "org.apache.activemq.xbean.XBeanBrokerService",
    )


def _suggest(name: str, known: frozenset[str]) -> str:
    close = get_close_matches(name, sorted(known - {CONSTRUCTOR_ARGUMENT}), 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""
