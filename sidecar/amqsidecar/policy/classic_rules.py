"""The rules of an `activemq.xml` that concern dead letters, as values.

Names and defaults are the broker's own (`spec-classic.md` 11). The importers produce these values,
and the deciders compile them.
"""

from dataclasses import dataclass, field

from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.policy.option_table import INT, LIMIT, SHORT
from amqsidecar.policy.rule_source import DEFAULTS, RuleSource


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """How often and after which delays a message is redelivered.

    Attributes:
        maximum_redeliveries: None = for ever (the broker writes -1); 0 and negative = never.
        initial_redelivery_delay_ms: delay before the first redelivery, used verbatim.
        redelivery_delay_ms: delay before later redeliveries without back-off.
        maximum_redelivery_delay_ms: cap with back-off; None = no cap (the broker writes -1).
        use_exponential_back_off: whether `back_off_multiplier` acts.
        back_off_multiplier: acts only above 1.
        use_collision_avoidance: whether delays after the first are varied by chance.
        collision_avoidance_percent: half width of that variation, 15 = plus or minus 15 %.

    Source: org.apache.activemq.RedeliveryPolicy.
    """

    maximum_redeliveries: int | None = field(default=6, metadata={**INT, **LIMIT})
    initial_redelivery_delay_ms: int = 1000
    redelivery_delay_ms: int = 1000
    maximum_redelivery_delay_ms: int | None = field(default=None, metadata=LIMIT)
    use_exponential_back_off: bool = False
    back_off_multiplier: float = 5.0
    use_collision_avoidance: bool = False
    collision_avoidance_percent: int = field(default=15, metadata=SHORT)
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryEntry:
    """One entry of a redelivery policy map: a destination pattern and its policy.

    Attributes:
        destinations: the pattern, one element; a composite (`A,B`) has several.
    """

    destinations: tuple[Destination, ...]
    policy: RedeliveryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryRules:
    """A `redeliveryPlugin`.

    Attributes:
        default_entry: the policy of destinations that no entry matches; None = there is none.

    Source: org.apache.activemq.broker.util.RedeliveryPlugin.
    """

    entries: tuple[RedeliveryEntry, ...] = ()
    default_entry: RedeliveryPolicy | None = None
    fallback_to_dead_letter: bool = True
    send_to_dlq_if_max_retries_exceeded: bool = True
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardingRules:
    """A `discardingDLQBrokerPlugin`.

    Attributes:
        drop_all, drop_temporary_topics, drop_temporary_queues: None = not written; the broker takes
            it as true.
        drop_only: Java regular expressions separated by blanks; None = not given.
        report_interval: drops per log line; 0 = no log lines.

    Source: org.apache.activemq.plugin.DiscardingDLQBrokerPlugin.
    """

    drop_all: bool | None = None
    drop_temporary_topics: bool | None = None
    drop_temporary_queues: bool | None = None
    drop_only: str | None = None
    report_interval: int = field(default=1000, metadata=INT)
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class _StrategyCommon:
    process_expired: bool = True
    process_non_persistent: bool = False
    enable_audit: bool = True
    expiration_ms: int = 0
    max_producers_to_audit: int = field(default=64, metadata=INT)
    max_audit_depth: int = field(default=2048, metadata=INT)
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDeadLetterStrategy(_StrategyCommon):
    """One dead-letter queue (or topic) for all; `ActiveMQ.DLQ` unless named.

    Source: org.apache.activemq.broker.region.policy.SharedDeadLetterStrategy.
    """

    dead_letter_queue: Destination = field(default_factory=lambda: queue("ActiveMQ.DLQ"))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndividualDeadLetterStrategy(_StrategyCommon):
    """A dead-letter queue (or topic) for each destination, named after it.

    Source: org.apache.activemq.broker.region.policy.IndividualDeadLetterStrategy.
    """

    queue_prefix: str = "ActiveMQ.DLQ.Queue."
    queue_suffix: str = ""
    topic_prefix: str = "ActiveMQ.DLQ.Topic."
    topic_suffix: str = ""
    use_queue_for_queue_messages: bool = True
    use_queue_for_topic_messages: bool = True
    destination_per_durable_subscriber: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardingDeadLetterStrategy(_StrategyCommon):
    """Never keeps a dead letter.

    Source: org.apache.activemq.broker.region.policy.DiscardingDeadLetterStrategy.
    """


DeadLetterStrategy = (
    SharedDeadLetterStrategy | IndividualDeadLetterStrategy | DiscardingDeadLetterStrategy
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """The part of an entry of the destination policy map that concerns dead letters.

    Attributes:
        destinations: the pattern, one element; a composite has several.
        dead_letter_strategy: None = the broker's shared default.
    """

    destinations: tuple[Destination, ...]
    dead_letter_strategy: DeadLetterStrategy | None = None
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRules:
    """The innermost rules: which dead-letter strategy acts on which destination.

    Attributes:
        default_entry: the policy map's own default entry; None = there is none.
        is_known: False = the broker's strategies are not given, so it may have others.
    """

    entries: tuple[PolicyEntry, ...] = ()
    default_entry: PolicyEntry | None = None
    source: RuleSource = DEFAULTS
    is_known: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardTo:
    """A destination to which a composite destination forwards.

    Attributes:
        selector: JMS selector of the forwarded messages; None = all messages.

    Source: org.apache.activemq.broker.region.virtual.FilteredDestination.
    """

    destination: Destination
    selector: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeDestination:
    """A `compositeQueue` or `compositeTopic`, which forwards each message that is sent to it.

    Attributes:
        destinations: the pattern of its name; several where the name is a list.
        forward_only: the destination itself gets no message.
        send_when_not_matched: the destination itself gets only messages that match no selector.

    Source: org.apache.activemq.broker.region.virtual.CompositeDestinationFilter.
    """

    destinations: tuple[Destination, ...]
    forward_to: tuple[ForwardTo, ...] = ()
    forward_only: bool = True
    send_when_not_matched: bool = False
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredQueues:
    """A `mirroredQueue`, or `useMirroredQueues`: each message of a queue goes to a topic as well.

    Attributes:
        prefix, postfix: of the topic's name, around the queue's.
        temporary: queues that are temporary are mirrored, too.

    Source: org.apache.activemq.broker.region.virtual.MirroredQueue.
    """

    prefix: str = "VirtualTopic.Mirror."
    postfix: str = ""
    temporary: bool = True
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualTopic:
    """A `virtualTopic`: copies messages sent to the topic to the queue of each consumer.

    Attributes:
        destinations: the pattern of its name; several where the name is a list.
        prefix, postfix: of the consumers' queues, around the topic's name.
        set_original_destination: copies name their own queue; else the topic.

    Source: org.apache.activemq.broker.region.virtual.VirtualTopic.
    """

    destinations: tuple[Destination, ...] = (topic("VirtualTopic.>"),)
    prefix: str = "Consumer.*."
    postfix: str = ""
    set_original_destination: bool = True
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationInterceptors:
    """The interceptors that may copy a message that is sent to a destination.

    Attributes:
        virtual_topics: they copy messages sent to a topic; a re-send goes to the queue of one
            consumer, which they don't see.
        mirrored_queues: None = queues have no mirrors.
        are_known: False = they are not given, so the broker may have interceptors.
    """

    composites: tuple[CompositeDestination, ...] = ()
    virtual_topics: tuple[VirtualTopic, ...] = ()
    mirrored_queues: MirroredQueues | None = None
    are_known: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRules:
    """One link of the chain: the plugin's name and its options.

    Attributes:
        name: name in the entry-point group `amqsidecar.plugins`: `redelivery`, `discarding`, or a
            third party's.
        options: RedeliveryRules, DiscardingRules, or the result of a third party's parser.
    """

    name: str
    options: object
    source: RuleSource = DEFAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicRules:
    """Everything in an `activemq.xml` that decides about dead letters.

    Attributes:
        plugins: in the order of the file; the last is the outermost and is asked first.
        interceptors: they copy messages that are sent to a destination.
        warnings: one sentence each about these rules, with place.
        scheduler_support: the broker's own switch; the in-broker plugin needs it, the sidecar not.
    """

    plugins: tuple[PluginRules, ...] = ()
    dead_letter: DeadLetterRules = field(default_factory=DeadLetterRules)
    interceptors: DestinationInterceptors = DestinationInterceptors(are_known=False)
    scheduler_support: bool = False
    warnings: tuple[str, ...] = ()
    source: RuleSource = DEFAULTS


BROKER_DEFAULTS = ClassicRules(
    plugins=(
        PluginRules(
            name="redelivery",
            options=RedeliveryRules(default_entry=RedeliveryPolicy()),
        ),
    ),
    source=RuleSource("the broker's default redelivery policy for all, since none is given"),
)
"""The broker's own default redelivery policy, for Classic without a policy."""
