"""A whole `activemq.xml` by seed, and what applications do with a broker that runs on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from xml.sax.saxutils import quoteattr

from amqsidecar.model.destination import queue
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterStrategy,
    RedeliveryPolicy,
    RedeliveryRules,
    SharedDeadLetterStrategy,
)
from amqsidecar.policy.dead_letter_decider import find_dead_letter_queue
from amqsidecar.policy.destination_map import DestinationMap, list_ambiguities
from amqsidecar.policy.redelivery_policy import DelayTable
from amqsidecar.policy_source.activemq_xml import read_activemq_xml
from support.brokers.broker_xml import classic_xml
from support.jms.message import Typed, typed
from support.jms.peer import ALL_TYPES
from support.versions import CLASSIC_5, CLASSIC_6

QUEUES = (
    "orders.eu",
    "orders.us",
    "orders.eu.late",
    "bills.eu",
    "bills.us.late",
    "stock",
    "a.b",
    "a.b.c",
    "pay$(x)+[1]",
    "Caf\u00e9.\u20ac",
)
IDLE = "idle.orders"
"""A queue without a consumer: what has a short time to live expires in it."""
VIRTUAL_TOPIC = "topic://VirtualTopic.news"
VIRTUAL_QUEUES = ("Consumer.A.VirtualTopic.news", "Consumer.B.VirtualTopic.news")
COPIED, FILTERED, UNMATCHED, FORWARDED = (
    f"Composite.{name}" for name in ("copied", "filtered", "unmatched", "forwarded")
)
"""Composite queues: what is sent there also goes, or goes instead, to the queue `copy_of` names."""
COMPOSITES = (COPIED, FILTERED, UNMATCHED, FORWARDED)
PERSISTED = "counted"
"""A queue whose `policyEntry` says `persistJMSRedelivered`."""
JOBS = "jobs"
"""A queue of this test, in which the broker lists what it has scheduled."""
DEAD_TOPICS = "DeadTopic."
"""How the names of dead-letter topics begin."""

PATTERNS = (
    *("orders.eu", "stock", "a.b", "pay$(x)+[1]", PERSISTED),
    *("orders.*", "*.eu", "*.us.*", "a.*.c", "Consumer.*.VirtualTopic.>", "*.*", "Composite.*"),
    *("orders.>", "bills.>", "a.>", "Caf\u00e9.>", "Consumer.>", ">"),
    *("stock,a.b", "bills.eu,queue://orders.us", "orders.eu.late,topic://news"),
)
EXPRESSIONS = (
    *(r"orders\.eu", r"bills\..*", r"[a-b](\.[a-c])+", r"(?i)STOCK", r"\Qpay$(x)+[1]\E"),
    *(r"\p{Lu}.*\x{20AC}", r".*\.late", r"Consumer\.A\..++", r"(?!orders)\w+\.eu", r"idle.*"),
    *(r"orders", r"queue://stock", r"nothing|at|all"),
)
LEFT_OVER: Sequence[Mapping[str, Any]] = (
    {"dlqDeliveryFailureCause": "java.lang.Throwable: old", "originalExpiration": 0},
    {"dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired. Expiration:12345"},
    {"originalExpiration": 4_000_000_000_000, "original-destination": "/queue/elsewhere"},
    {"originalDeliveryMode": "NON_PERSISTENT"},
    {"scheduledJobId": "old", "redeliveryDelay": 7, "amqsidecarRedeliveryCount": 5},
)
"""Properties that may be left from another death, or from an application's copy."""
OWN_KINDS = (*("individual",) * 8, "discarding", "dead-topic")
KINDS = (*("none", "shared", "named") * 3, *OWN_KINDS)
LIMITS = (0, 1, 1, 2, 2, 3, 3, 4, -1, -2)
LONGEST_MS = 9_000
"""All delays of one message together."""


@dataclass(frozen=True)
class Consumer:
    """An application that fails as often as each message says.

    Attributes:
        how: rollback, recover or listener.
        max_redeliveries: of its own `RedeliveryPolicy`, which counts before the broker's.
        fails: False = never, whatever the messages say.
    """

    queue: str
    how: str
    max_redeliveries: int
    fails: bool = True


@dataclass(frozen=True)
class Configuration:
    """Everything about one comparison that its seed decides.

    Attributes:
        plugins, destination_policy: XML, see `classic_xml`.
        interceptors: children of `<virtualDestinations>`, on both brokers.
        rules: what the file says, as the sidecar reads it.
        consumers: one for each queue but the idle one.
        messages: as `JmsPeer.produce_each` takes them.
        compresses: whether the producer does.
    """

    seed: int
    version: str
    plugins: str
    destination_policy: str
    interceptors: str
    rules: ClassicRules
    consumers: Sequence[Consumer]
    messages: Sequence[Mapping[str, Any]]
    compresses: bool = False

    def xml(self, *, has_plugins: bool) -> str:
        """Return the file: whole, or without the plugins, whose work the sidecar does then."""
        text = classic_xml(
            plugins=self.plugins if has_plugins else "",
            destination_policy=self.destination_policy,
            scheduler_support=True,
            connectors={"openwire": "tcp://127.0.0.1:@OPENWIRE_PORT@"},
        )
        # Why the topics, too: interceptors that are written replace those of every broker.
        interceptors = f"""<destinationInterceptors><virtualDestinationInterceptor>
      <virtualDestinations><virtualTopic name="VirtualTopic.>"/>{self.interceptors}
      </virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>
    """
        return text.replace("<destinationPolicy>", f"{interceptors}<destinationPolicy>", 1)

    def strategy_of(self, name: str) -> DeadLetterStrategy:
        """Return the dead-letter strategy of a queue."""
        entries = self.rules.dead_letter.entries
        entry = DestinationMap([(one.destinations, one) for one in entries]).find(queue(name))
        return (entry and entry.dead_letter_strategy) or SharedDeadLetterStrategy()

    def policies_of(self, name: str) -> list[RedeliveryPolicy]:
        """Return the policy of a queue in each redelivery plugin."""
        found = []
        for plugin in self.rules.plugins:
            if isinstance(plugin.options, RedeliveryRules):
                entries = [(one.destinations, one.policy) for one in plugin.options.entries]
                policy = DestinationMap(entries).find(queue(name)) or plugin.options.default_entry
                found += [policy] if policy is not None else []
        return found

    def dead_letter_queues(self) -> set[str]:
        """Return the names of the queues where what dies on a broker without plugins goes."""
        names = [*(consumer.queue for consumer in self.consumers), IDLE]
        found = {
            find_dead_letter_queue(self.strategy_of(name), queue(name), None) for name in names
        }
        return {one.name for one in found if one is not None and one.is_queue}


def copy_of(composite: str) -> str:
    """Return the queue to which a composite forwards."""
    return composite.replace("Composite.", "Copy.")


def places_of(sent_to: str, jms_type: object) -> Sequence[str]:
    """Return the queues that may get a message, the one that it was sent to first."""
    if sent_to == VIRTUAL_TOPIC:
        return VIRTUAL_QUEUES
    if sent_to == FORWARDED or (sent_to == UNMATCHED and jms_type is not None):
        return (copy_of(sent_to),)
    return (sent_to, copy_of(sent_to)) if sent_to in (COPIED, FILTERED) else (sent_to,)


def generate(seed: int) -> Configuration:
    """Return the configuration of a seed: even ones are Classic 5, odd ones Classic 6."""
    chance = Random(seed)
    version = (CLASSIC_5, CLASSIC_6)[seed % 2]
    while True:
        plugins = _plugins(chance)
        policy = _destination_policy(chance)
        text = classic_xml(plugins=plugins, destination_policy=policy, scheduler_support=True)
        rules = read_activemq_xml("activemq.xml", text.encode(), {})
        if 0 < _longest_ms(rules) <= LONGEST_MS and not _has_chance(rules):
            break
    # Why here: the messages depend on rules that may be endless.
    draft = Configuration(seed, version, plugins, policy, _composites(chance), rules, (), ())
    queues = [*chance.sample(QUEUES, 8), PERSISTED, *VIRTUAL_QUEUES]
    consumers = [_consumer(chance, name) for name in queues]
    for composite in COMPOSITES:
        consumers += [_consumer(chance, name) for name in (composite, copy_of(composite))]
    messages = [_message(chance, draft, name) for name in queues[:-2] for _ in range(8)]
    messages += [_message(chance, draft, VIRTUAL_TOPIC) for _ in range(5)]
    messages += [_message(chance, draft, name) for name in COMPOSITES for _ in range(4)]
    messages += [_expiring(chance) for _ in range(3)]
    for number, message in enumerate(messages):
        message["testIds"] = [f"m{number}"]
    return replace(
        draft,
        consumers=tuple(consumers),
        messages=tuple(messages),
        compresses=chance.random() < 0.3,
    )


def _longest_ms(rules: ClassicRules) -> int:
    """Return how long all redeliveries of one message wait, at worst."""
    total_ms = 0
    for plugin in rules.plugins:
        if not isinstance(plugin.options, RedeliveryRules):
            continue
        worst_ms = 0
        policies = [entry.policy for entry in plugin.options.entries]
        policies += [plugin.options.default_entry] if plugin.options.default_entry else []
        for policy in policies:
            limit = 4 if policy.maximum_redeliveries is None else policy.maximum_redeliveries
            table = DelayTable(policy)
            worst_ms = max(worst_ms, sum(table.delay_ms(count, None) for count in range(limit)))
        total_ms += worst_ms
    return total_ms


def _has_chance(rules: ClassicRules) -> bool:
    """Return whether the broker chooses a rule by chance (row 6): nothing can be compared then."""
    groups = [[entry.destinations for entry in rules.dead_letter.entries]]
    groups += [
        [entry.destinations for entry in plugin.options.entries]
        for plugin in rules.plugins
        if isinstance(plugin.options, RedeliveryRules)
    ]
    return any(list_ambiguities(group) for group in groups)


# Rules.


def _attributes(values: Mapping[str, Any]) -> str:
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
    return " ".join(f"{name}={quoteattr(text)}" for name, text in texts.items())


def _some(chance: Random, choices: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return a value for about half of the attributes; the others keep their default."""
    return {
        name: chance.choice(values) for name, values in choices.items() if chance.random() < 0.5
    }


def _plugins(chance: Random) -> str:
    """Return plugins in some order; the last one is asked first."""
    order = chance.choice(("R", "R", "RD", "DR", "DRD", "RR", "RDR"))
    makers = {"R": _redelivery_plugin, "D": _discarding_plugin}
    return "\n".join(makers[letter](chance) for letter in order)


def _redelivery_plugin(chance: Random) -> str:
    flags = _attributes(
        _some(
            chance,
            {
                "fallbackToDeadLetter": (True, False, True),
                "sendToDlqIfMaxRetriesExceeded": (True, False, True),
            },
        )
    )
    patterns = chance.sample(PATTERNS, chance.randint(1, 5))
    entries = "\n".join(_policy(chance, {"queue": pattern}) for pattern in patterns)
    default = f"<defaultEntry>{_policy(chance, {})}</defaultEntry>" if chance.random() < 0.6 else ""
    return f"""
    <redeliveryPlugin {flags}><redeliveryPolicyMap><redeliveryPolicyMap>
      <redeliveryPolicyEntries>
{entries}
      </redeliveryPolicyEntries>
      {default}
    </redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>"""


def _policy(chance: Random, destination: Mapping[str, str]) -> str:
    # Why written always: by default a message is tried six times.
    values = {**destination, "maximumRedeliveries": chance.choice(LIMITS)}
    values |= _some(
        chance,
        {
            # Why not below 1000: the broker refuses to start with less.
            "initialRedeliveryDelay": (1000, 1100, 1300, 1500, 4500),
            "redeliveryDelay": (1000, 1200, 1400),
            "maximumRedeliveryDelay": (-1, 0, 1250, 1600, 2000),
            "useExponentialBackOff": (True, True, False),
            "backOffMultiplier": (0.5, 1, 1.1, 1.35, 1.5, 2),
            "preDispatchCheck": (True, False),
        },
    )
    if chance.random() < 0.2:
        values |= {"useCollisionAvoidance": True}
        values |= _some(chance, {"collisionAvoidancePercent": (5, 20, 30)})
    return f"        <redeliveryPolicy {_attributes(values)}/>"


def _discarding_plugin(chance: Random) -> str:
    values = _some(
        chance,
        {
            "dropTemporaryTopics": (True, False),
            "dropTemporaryQueues": (True, False),
            "reportInterval": (0, 1, 1000),
        },
    )
    if chance.random() < 0.9:
        values["dropAll"] = False
    values["dropOnly"] = " ".join(chance.sample(EXPRESSIONS, chance.randint(0, 3)))
    return f"    <discardingDLQBrokerPlugin {_attributes(values)}/>"


def _destination_policy(chance: Random) -> str:
    patterns = chance.sample([one for one in PATTERNS if not one.startswith("Co")], 4)
    entries = [_policy_entry(_strategy(chance), queue=pattern) for pattern in patterns]
    if PERSISTED not in patterns:
        entries.append(
            _policy_entry(_strategy(chance), queue=PERSISTED, persistJMSRedelivered="true")
        )
    # Why one of its own: the broker looks for what has expired twice a minute unless told so.
    entries.append(_policy_entry(_strategy(chance), queue=IDLE))
    # Why never shared: of two copies of a virtual topic a queue keeps the one that dies first.
    entries.append(_policy_entry(_strategy(chance, OWN_KINDS), queue="Consumer.>"))
    # Why: copies of what has expired while it waited would come up as dead letters.
    entries.append(_policy_entry("<discarding/>", queue=JOBS))
    return "\n".join(entries)


def _policy_entry(strategy: str, **attributes: str) -> str:
    text = _attributes({**attributes, "expireMessagesPeriod": 500})
    return (
        f"<policyEntry {text}><deadLetterStrategy>{strategy}</deadLetterStrategy></policyEntry>"
        if strategy
        else f"<policyEntry {text}/>"
    )


def _strategy(chance: Random, kinds: Sequence[str] = KINDS) -> str:
    values = _some(
        chance,
        {
            "processNonPersistent": (True, True, True, False),
            "processExpired": (True, False),
            "enableAudit": (True, False),
            "maxAuditDepth": (1024, 4096),
        },
    )
    if chance.random() < 0.1:
        values["expiration"] = 600_000
    kind = chance.choice(kinds)
    if kind == "none":
        return ""
    if kind == "named":
        name = chance.choice(("My.DLQ", "orders-dead", "D\u00e9funts"))
        return (
            f"<sharedDeadLetterStrategy {_attributes(values)}><deadLetterQueue>"
            f'<queue physicalName="{name}"/></deadLetterQueue></sharedDeadLetterStrategy>'
        )
    if kind == "discarding":
        return "<discarding/>"
    if kind in ("individual", "dead-topic"):
        values |= chance.choice(
            (
                {},
                {"queuePrefix": "DLQ."},
                {"queuePrefix": "Dead.Letters.", "queueSuffix": ".failed"},
                {"queuePrefix": "", "queueSuffix": ".dead"},
                {"queuePrefix": "DLQ-", "topicPrefix": "unused."},
            )
        )
        if kind == "dead-topic":
            values |= {"queuePrefix": DEAD_TOPICS, "useQueueForQueueMessages": False}
        return f"<individualDeadLetterStrategy {_attributes(values)}/>"
    return f"<sharedDeadLetterStrategy {_attributes(values)}/>"


def _composites(chance: Random) -> str:
    """Return one composite of each kind; the first one also copies redeliveries."""
    every = chance.choice((None, "JMSPriority &gt;= 0"))
    first_sends = chance.choice(
        (
            "amqsidecarRedeliveryCount IS NULL",
            "amqsidecarRedeliveryId is null",
            "(JMSPriority &gt;= 0 OR JMSType IS NULL) AND amqsidecarRedeliveryCount IS NULL",
        )
    )
    return "".join(
        f"""
      <compositeQueue name="{name}" {attribute}><forwardTo>
        {_forward_to(copy_of(name), selector)}
      </forwardTo></compositeQueue>"""
        for name, attribute, selector in (
            (COPIED, 'forwardOnly="false"', every),
            (FILTERED, 'forwardOnly="false"', first_sends),
            (UNMATCHED, 'sendWhenNotMatched="true"', "JMSType IS NOT NULL"),
            (FORWARDED, 'forwardOnly="true"', None),
        )
    )


def _forward_to(name: str, selector: str | None) -> str:
    if selector is None:
        return f'<queue physicalName="{name}"/>'
    return f'<filteredDestination selector="{selector}" queue="{name}"/>'


# Applications.


def _consumer(chance: Random, name: str) -> Consumer:
    # Why 0 there: the client would count what the broker has counted already.
    limit = 0 if name == PERSISTED else chance.choice((0, 0, 0, 1, 3))
    # Why not these: two dead letters with one id; chance decides which of them the broker keeps.
    fails = name not in (copy_of(COPIED), copy_of(FILTERED))
    return Consumer(name, chance.choice(("rollback", "recover", "listener")), limit, fails)


def _message(chance: Random, draft: Configuration, destination: str) -> dict[str, Any]:
    queues = VIRTUAL_QUEUES if destination == VIRTUAL_TOPIC else (destination,)
    if destination in COMPOSITES:
        queues = (destination, copy_of(destination))
    is_endless = any(
        policy.maximum_redeliveries is None for name in queues for policy in draft.policies_of(name)
    )
    failures = chance.choice((0, 1, 2, 3)) if is_endless else chance.choice((0, 1, 2, 3, -1, -1))
    message: dict[str, Any] = {
        "destination": destination,
        "type": chance.choice((*ALL_TYPES, "EmptyBytes")),
        "persistent": chance.random() < 0.75,
        "priority": chance.randrange(10),
        "sampleProperties": chance.random() < 0.5,
        "bodySize": chance.choice((0, 0, 0, 5_000)),
    }
    if chance.random() < 0.25:
        # Why the first: a redelivery may wait longer than that, and has all of it again then.
        message["ttlMs"] = chance.choice((4_000, 60_000))
    if chance.random() < 0.3:
        message |= {"group": chance.choice(("g1", "g\u20ac")), "groupSeq": chance.randint(1, 9)}
    if chance.random() < 0.5:
        message |= {"correlationId": "c-\u00e9", "replyTo": "topic://replies", "jmsType": "t"}
    properties: dict[str, Any] = {"failures": failures, "note": f"n\u00f6te {chance.random()}"}
    if chance.random() < 0.1:
        properties["AMQ_SCHEDULED_DELAY"] = 700
    if chance.random() < 0.15:
        properties |= chance.choice(LEFT_OVER)
    if chance.random() < 0.2:
        properties |= {"short": Typed("Short", -7), "JMSXMine": 2.5, "Camel-Case_x": None}
    message["properties"] = typed(properties)
    return message


def _expiring(chance: Random) -> dict[str, Any]:
    return {
        "destination": IDLE,
        "type": "Text",
        "persistent": chance.random() < 0.6,
        "ttlMs": chance.randint(100, 300),
        "properties": typed({"failures": 0}),
    }
