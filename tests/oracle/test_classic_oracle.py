"""The real broker's classes beside our deciders, on generated configurations, line by line.

Each configuration is an `activemq.xml` that the broker's own factory reads. The broker's chain of
plugins stands around its real region broker, which writes down what it would store. Its random
numbers are given, so delays with collision avoidance are compared exactly too.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from io import BytesIO, TextIOWrapper
from itertools import cycle
from pathlib import Path
from typing import TypeVar
from xml.sax.saxutils import quoteattr

import pytest

from amqsidecar.cli.main import run_command_line
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Exhaust, Redeliver
from amqsidecar.model.destination import Destination, DestinationKind
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.chain import compile_classic
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DeadLetterRules,
    DeadLetterStrategy,
    DestinationInterceptors,
    DiscardingDeadLetterStrategy,
    DiscardingRules,
    IndividualDeadLetterStrategy,
    PluginRules,
    PolicyEntry,
    RedeliveryEntry,
    RedeliveryPolicy,
    RedeliveryRules,
    SharedDeadLetterStrategy,
    VirtualTopic,
)
from amqsidecar.policy.destination_map import DestinationMap, list_ambiguities
from amqsidecar.policy.rule_source import RuleSource
from amqsidecar.policy_source.load import load_policy
from support import maven, versions
from support.machine.processes import run_program
from support.tier import at_length

pytestmark = pytest.mark.oracle

HERE = Path(__file__).parent
CONFIGURATIONS = at_length(240, otherwise=30)
CASES = 300
PROCESSES = at_length(8, otherwise=2)
"""Configurations that also go through the command as a process of its own."""

REGRESSIONS = (101462, 101743)
"""Seeds that found a difference once."""

EXPIRATION_SLACK_MS = 60_000
"""The broker reads its own clock; a strategy's expiration is compared up to this."""

V = TypeVar("V")
SOURCE = RuleSource("oracle.xml", 1)
Q, T = DestinationKind.QUEUE, DestinationKind.TOPIC
TQ, TT = DestinationKind.TEMP_QUEUE, DestinationKind.TEMP_TOPIC
LONGS = (
    0,
    1,
    -1,
    -5,
    999,
    1000,
    1001,
    1500,
    30_000,
    3_600_000,
    2**53 + 1,
    2**62,
    2**63 - 1,
    -(2**63),
)
MULTIPLIERS = (5.0, 2.0, 1.5, 1.1, 1.0, 0.5, 0.0, -2.0, 1.000001, 1e300, 3.3333333)
PATTERN_TEXTS = (
    r"A\..*",
    "[AB]+",
    ".*C",
    r"(A|B)\.C",
    "A",
    ".",
    r"A\.[^B]+",
    r"(?i)a\.b",
    "ActiveMQ.*",
    "x{2,3}|A.B",
)


@dataclass(frozen=True)
class Case:
    """A dead letter, and what the broker's random numbers are for it."""

    dead_letter: DeadLetter
    coin: float
    distance: float


class Generator:
    """Makes configurations and cases of one seed."""

    def __init__(self, seed: int, *, with_chance: bool) -> None:
        self.random = random.Random(seed)
        self.with_chance = with_chance
        # Why: three patterns that beat each other in a circle are rare unless all overlap.
        self.is_dense = self.maybe(0.2)

    def maybe(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def pick(self, values: Sequence[V]) -> V:
        return self.random.choice(values)

    def name(self, segments: Sequence[str]) -> str:
        return ".".join(self.pick(segments) for _ in range(self.pick((1, 2, 2, 3, 3, 4)))) or "A"

    def pattern(self) -> tuple[Destination, ...]:
        kind = self.pick((Q,) * 14 + (T,) * 4 + (TQ, TT))
        if kind in (TQ, TT):
            return (Destination(kind, ">"),)
        segments = ("A", "B", "C", "*", "*", ">") if self.maybe(0.8) else ("A", "B", "", "A*", "é")
        parts = [Destination(kind, self.pattern_text(segments))]
        while self.maybe(0.15):
            part = Destination(self.pick((kind, kind, Q, T)), self.pattern_text(segments))
            if part not in parts:
                parts.append(part)
        return tuple(parts)

    def pattern_text(self, segments: Sequence[str]) -> str:
        if self.is_dense:
            return ".".join(self.pick(("*", "*", "A", "B", "C")) for _ in range(3))
        if self.maybe(0.3):
            return self.name(("A", "B", "C"))
        text = self.name(segments)
        if self.maybe(0.25):
            text += ".>"
        return text

    def destination(self, rules: ClassicRules) -> Destination:
        kind = self.pick((Q,) * 14 + (T,) * 4 + (TQ, TT))
        choice = self.random.random()
        if choice < 0.03:
            return Destination(Q, self.pick(("ActiveMQ.DLQ", "DLQ.A", "ActiveMQ.DLQ.Queue.A")))
        if choice < 0.06:
            return Destination(T, "ActiveMQ.Advisory.Consumer.Queue.A")
        if choice < 0.15:
            return Destination(kind, self.name(("A", "", "A*", "é", "b")))
        if self.is_dense:
            return Destination(kind, ".".join(self.pick(("A", "B", "C")) for _ in range(3)))
        return Destination(kind, self.name(("A", "B", "C")))

    def policy(self) -> RedeliveryPolicy:
        delays = LONGS if self.maybe(0.2) else tuple(ms for ms in LONGS if ms >= 1000)
        return RedeliveryPolicy(
            maximum_redeliveries=self.pick((None, 0, 1, 2, 3, 6, 6, 40, -3, 2**31 - 1)),
            initial_redelivery_delay_ms=self.pick(delays),
            redelivery_delay_ms=self.pick(delays),
            maximum_redelivery_delay_ms=self.pick(
                # Why: the broker's -1 is None here.
                (None, None, *(ms for ms in LONGS if ms != -1), 10_000, 60_000)
            ),
            use_exponential_back_off=self.maybe(0.7),
            back_off_multiplier=self.pick(MULTIPLIERS),
            use_collision_avoidance=self.with_chance and self.maybe(0.7),
            collision_avoidance_percent=self.pick((15, 0, 1, 50, 100, -20, 250)),
        )

    def redelivery(self) -> RedeliveryRules:
        return RedeliveryRules(
            entries=tuple(
                RedeliveryEntry(destinations=self.pattern(), policy=self.policy())
                for _ in range(self.pick((0, 1, 2, 3, 4, 6, 8)))
            ),
            default_entry=self.policy() if self.maybe() else None,
            fallback_to_dead_letter=self.maybe(),
            send_to_dlq_if_max_retries_exceeded=self.maybe(),
            source=SOURCE,
        )

    def discarding(self) -> DiscardingRules:
        patterns = self.pick((" ", "  ")).join(
            self.pick(PATTERN_TEXTS) for _ in range(self.pick((1, 1, 2, 4)))
        )
        return DiscardingRules(
            drop_all=None if self.maybe(0.05) else self.maybe(0.15),
            drop_temporary_topics=self.pick((True, False, None)),
            drop_temporary_queues=self.pick((True, False, None)),
            drop_only=patterns if self.maybe(0.8) else None,
            report_interval=self.pick((1000, 0, 1)),
            source=SOURCE,
        )

    def strategy(self) -> DeadLetterStrategy | None:
        common = {
            "process_expired": self.maybe(0.7),
            "process_non_persistent": self.maybe(),
            "enable_audit": self.maybe(0.3),
            "expiration_ms": self.pick((0, 0, 4000, 10**10, -1, 2**63 - 1)),
        }
        kind = self.pick(("shared", "individual", "individual", "discarding", None))
        if kind == "shared":
            queue = Destination(self.pick((Q, Q, T)), self.pick(("DLQ.A", "ActiveMQ.DLQ", "A.B")))
            return SharedDeadLetterStrategy(dead_letter_queue=queue, **common)  # type: ignore[arg-type]
        if kind == "discarding":
            return DiscardingDeadLetterStrategy(source=SOURCE, **common)  # type: ignore[arg-type]
        if kind is None:
            return None
        return IndividualDeadLetterStrategy(
            queue_prefix=self.pick(("ActiveMQ.DLQ.Queue.", "DLQ.", "", " x.")),
            queue_suffix=self.pick(("", "", ".dlq", "?a=b", "é")),
            topic_prefix=self.pick(("ActiveMQ.DLQ.Topic.", "DLQ.", "")),
            topic_suffix=self.pick(("", "", ".dlq", " ")),
            use_queue_for_queue_messages=self.maybe(0.7),
            use_queue_for_topic_messages=self.maybe(0.7),
            destination_per_durable_subscriber=self.maybe(),
            **common,  # type: ignore[arg-type]
        )

    def rules(self) -> ClassicRules:
        plugins = []
        for _ in range(self.pick((0, 1, 1, 2, 2, 2, 3))):
            if self.maybe(0.7):
                plugins.append(PluginRules(name="redelivery", options=self.redelivery()))
            else:
                plugins.append(PluginRules(name="discarding", options=self.discarding()))
        entries = tuple(
            PolicyEntry(destinations=self.pattern(), dead_letter_strategy=self.strategy())
            for _ in range(self.pick((0, 1, 2, 3, 4, 6)))
        )
        default = PolicyEntry(destinations=(), dead_letter_strategy=self.strategy())
        return ClassicRules(
            plugins=tuple(plugins),
            dead_letter=DeadLetterRules(
                entries=entries, default_entry=default if self.maybe(0.4) else None
            ),
            scheduler_support=True,
        )

    def case(self, rules: ClassicRules) -> Case:
        destination = self.destination(rules)
        count = self.pick((0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 12, 39, 40, 60))
        return Case(
            DeadLetter(
                destination,
                count,
                persistent=self.maybe(0.7),
                expired=self.maybe(0.1),
                is_store_duplicate=self.maybe(0.05),
                subscription="client:sub.1" if destination.kind == T and self.maybe(0.4) else None,
            ),
            coin=self.pick((0.25, 0.75)),
            distance=self.pick((0.0, 0.25, 0.5, 0.999999)) if self.with_chance else 0.0,
        )


def _attributes(pairs: Iterable[tuple[str, object]]) -> str:
    def text(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return "".join(f" {name}={quoteattr(text(value))}" for name, value in pairs)


def _pattern_attribute(destinations: Sequence[Destination]) -> list[tuple[str, object]]:
    kind = destinations[0].kind
    if kind in (TQ, TT):
        return [("tempQueue" if kind == TQ else "tempTopic", True)]
    texts = [part.name if part.kind == kind else str(part) for part in destinations]
    return [(kind.value, ",".join(texts))]


def _policy_xml(policy: RedeliveryPolicy, pattern: list[tuple[str, object]]) -> str:
    def limit(value: int | None) -> int:
        return -1 if value is None else value

    fields = [
        ("maximumRedeliveries", limit(policy.maximum_redeliveries)),
        ("initialRedeliveryDelay", policy.initial_redelivery_delay_ms),
        ("redeliveryDelay", policy.redelivery_delay_ms),
        ("maximumRedeliveryDelay", limit(policy.maximum_redelivery_delay_ms)),
        ("useExponentialBackOff", policy.use_exponential_back_off),
        ("backOffMultiplier", policy.back_off_multiplier),
        ("useCollisionAvoidance", policy.use_collision_avoidance),
        ("collisionAvoidancePercent", policy.collision_avoidance_percent),
    ]
    default = RedeliveryPolicy()
    defaults = [
        limit(default.maximum_redeliveries),
        default.initial_redelivery_delay_ms,
        default.redelivery_delay_ms,
        -1,
        default.use_exponential_back_off,
        default.back_off_multiplier,
        default.use_collision_avoidance,
        default.collision_avoidance_percent,
    ]
    written = [pair for pair, value in zip(fields, defaults, strict=True) if pair[1] != value]
    return f"<redeliveryPolicy{_attributes([*pattern, *written])}/>"


def _redelivery_xml(rules: RedeliveryRules) -> list[str]:
    flags = _attributes(
        [
            ("fallbackToDeadLetter", rules.fallback_to_dead_letter),
            ("sendToDlqIfMaxRetriesExceeded", rules.send_to_dlq_if_max_retries_exceeded),
        ]
    )
    lines = [f"<redeliveryPlugin{flags}>", "<redeliveryPolicyMap>", "<redeliveryPolicyMap>"]
    if rules.entries:
        lines.append("<redeliveryPolicyEntries>")
        lines += [
            _policy_xml(entry.policy, _pattern_attribute(entry.destinations))
            for entry in rules.entries
        ]
        lines.append("</redeliveryPolicyEntries>")
    if rules.default_entry is not None:
        lines += ["<defaultEntry>", _policy_xml(rules.default_entry, []), "</defaultEntry>"]
    return [*lines, "</redeliveryPolicyMap>", "</redeliveryPolicyMap>", "</redeliveryPlugin>"]


def _discarding_xml(rules: DiscardingRules) -> str:
    pairs: list[tuple[str, object]] = [
        ("dropAll", rules.drop_all),
        ("dropTemporaryTopics", rules.drop_temporary_topics),
        ("dropTemporaryQueues", rules.drop_temporary_queues),
        ("reportInterval", rules.report_interval),
    ]
    if rules.drop_only is not None:
        pairs.append(("dropOnly", rules.drop_only))
    pairs = [(name, value) for name, value in pairs if value is not None]
    # Why: operators write line feeds; an XML parser turns those of an attribute into spaces.
    return f"<discardingDLQBrokerPlugin{_attributes(pairs)}/>".replace("  ", "\n ")


def _strategy_xml(strategy: DeadLetterStrategy) -> str:
    pairs: list[tuple[str, object]] = [
        ("processExpired", strategy.process_expired),
        ("processNonPersistent", strategy.process_non_persistent),
        ("enableAudit", strategy.enable_audit),
        ("expiration", strategy.expiration_ms),
    ]
    match strategy:
        case SharedDeadLetterStrategy():
            queue = strategy.dead_letter_queue
            child = f"<{queue.kind.value}{_attributes([('physicalName', queue.name)])}/>"
            return (
                f"<sharedDeadLetterStrategy{_attributes(pairs)}><deadLetterQueue>{child}"
                "</deadLetterQueue></sharedDeadLetterStrategy>"
            )
        case DiscardingDeadLetterStrategy():
            return f"<discarding{_attributes(pairs)}/>"
        case IndividualDeadLetterStrategy():
            own = [
                ("queuePrefix", strategy.queue_prefix),
                ("queueSuffix", strategy.queue_suffix),
                ("topicPrefix", strategy.topic_prefix),
                ("topicSuffix", strategy.topic_suffix),
                ("useQueueForQueueMessages", strategy.use_queue_for_queue_messages),
                ("useQueueForTopicMessages", strategy.use_queue_for_topic_messages),
                ("destinationPerDurableSubscriber", strategy.destination_per_durable_subscriber),
            ]
            return f"<individualDeadLetterStrategy{_attributes([*pairs, *own])}/>"


def _entry_xml(entry: PolicyEntry) -> str:
    pattern = _pattern_attribute(entry.destinations) if entry.destinations else []
    inner = ""
    if entry.dead_letter_strategy is not None:
        inner = (
            f"<deadLetterStrategy>{_strategy_xml(entry.dead_letter_strategy)}</deadLetterStrategy>"
        )
    return f"<policyEntry{_attributes(pattern)}>{inner}</policyEntry>"


def write_activemq_xml(rules: ClassicRules) -> str:
    """Return an activemq.xml that says what the rules say."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<beans xmlns="http://www.springframework.org/schema/beans"',
        '  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"',
        '  xsi:schemaLocation="http://www.springframework.org/schema/beans'
        " http://www.springframework.org/schema/beans/spring-beans.xsd"
        " http://activemq.apache.org/schema/core"
        ' http://activemq.apache.org/schema/core/activemq-core.xsd">',
        '<broker xmlns="http://activemq.apache.org/schema/core" brokerName="oracle"',
        '  persistent="false" useJmx="false" schedulerSupport="true">',
    ]
    if rules.dead_letter.entries or rules.dead_letter.default_entry is not None:
        lines += ["<destinationPolicy>", "<policyMap>"]
        if rules.dead_letter.entries:
            lines += ["<policyEntries>"]
            lines += [_entry_xml(entry) for entry in rules.dead_letter.entries]
            lines += ["</policyEntries>"]
        if rules.dead_letter.default_entry is not None:
            lines += ["<defaultEntry>", _entry_xml(rules.dead_letter.default_entry)]
            lines += ["</defaultEntry>"]
        lines += ["</policyMap>", "</destinationPolicy>"]
    if rules.plugins:
        lines.append("<plugins>")
        for plugin in rules.plugins:
            if isinstance(plugin.options, RedeliveryRules):
                lines += _redelivery_xml(plugin.options)
            elif isinstance(plugin.options, DiscardingRules):
                lines.append(_discarding_xml(plugin.options))
        lines.append("</plugins>")
    return "\n".join([*lines, "</broker>", "</beans>", ""])


def _case_line(case: Case) -> str:
    dead = case.dead_letter
    flags = [dead.persistent, dead.expired, dead.is_store_duplicate]
    fields = [
        "case",
        str(dead.destination),
        str(dead.redelivery_count),
        *("true" if flag else "false" for flag in flags),
        dead.subscription or "",
        repr(case.coin),
        repr(case.distance),
    ]
    return "\t".join(fields)


def _class_path(version: str) -> str:
    jars = maven.broker_jars(versions.TESTED["classic_6"])
    classes = maven.compiled(str(HERE / "ClassicOracle.java"), jars)
    return f"{classes}:{maven.broker_class_path(versions.classic(version))}"


def ask_broker(version: str, lines: Sequence[str]) -> list[str]:
    """Return the broker's answer to each line."""
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g", "-Dlog4j2.level=OFF"]
    done = run_program(
        [maven.tool("java"), *options, "-cp", _class_path(version), "ClassicOracle"],
        input="\n".join(lines) + "\n",
    )
    answers = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(answers) == len(lines), done.stderr[-4000:]
    return answers


@dataclass(frozen=True)
class Configuration:
    """Generated rules, the file that says them, and cases for them."""

    rules: ClassicRules
    path: Path
    cases: list[Case]


def generate(folder: Path, *, with_chance: bool, first_seed: int = 0) -> list[Configuration]:
    """Return configurations whose files lie in a folder."""
    configurations = []
    for seed in (*range(first_seed, first_seed + CONFIGURATIONS), *REGRESSIONS):
        generator = Generator(seed, with_chance=with_chance)
        rules = generator.rules()
        path = folder / f"activemq-{seed}.xml"
        path.write_text(write_activemq_xml(rules), encoding="utf-8")
        cases = [generator.case(rules) for _ in range(CASES)]
        configurations.append(Configuration(rules, path, cases))
    return configurations


def ask_about(version: str, configurations: Sequence[Configuration]) -> list[list[str]]:
    """Return the broker's answers, one list for each configuration."""
    lines = []
    for configuration in configurations:
        lines.append(f"config\t{configuration.path}")
        lines += [_case_line(case) for case in configuration.cases]
    answers = iter(ask_broker(version, lines))
    grouped = []
    for configuration in configurations:
        assert next(answers) == "configured", configuration.path.read_text(encoding="utf-8")
        grouped.append([next(answers) for _ in configuration.cases])
    return grouped


def describe(decision: Decision | None) -> str:
    """Return a decision as the broker program writes it."""
    match decision:
        case Redeliver():
            return f"redeliver\t{decision.delay_ms}\t{decision.redelivery_count}"
        case DeadLetterTo():
            return f"dead_letter\t{decision.destination}\t{decision.expiration_ms}"
        case Discard() | Exhaust(is_discard_of_broker=True):
            return "discard"
        case _:
            return "nobody answered"


def is_equal(expected: str, actual: str) -> bool:
    """Whether two lines say the same, leaving the broker's clock some slack."""
    if expected == actual:
        return True
    one, two = expected.split("\t"), actual.split("\t")
    return (
        one[0] == two[0] == "dead_letter"
        and one[1] == two[1]
        and 0 < int(two[2]) <= int(one[2]) <= int(two[2]) + EXPIRATION_SLACK_MS
    )


def is_listed_as_ambiguous(rules: ClassicRules, destination: Destination) -> bool:
    """Whether the import warning names entries that match a destination."""
    maps = [
        [entry.destinations for entry in plugin.options.entries]
        for plugin in rules.plugins
        if isinstance(plugin.options, RedeliveryRules)
    ]
    maps.append([entry.destinations for entry in rules.dead_letter.entries])
    for patterns in maps:
        matching = {
            index
            for index, pattern in enumerate(patterns)
            if DestinationMap([(pattern, index)]).find_index(destination) is not None
        }
        if any(set(group) <= matching for group in list_ambiguities(patterns)):
            return True
    return False


@dataclass
class Tally:
    """What a comparison saw."""

    equal: int = 0
    ambiguous: int = 0
    different: list[str] = field(default_factory=list)

    def add(self, configuration: Configuration, case: Case, answer: str, actual: str) -> None:
        """Compare one case."""
        expected, _, _ = answer.partition("\tambiguous")
        if expected != answer:
            self.ambiguous += 1
            if not is_listed_as_ambiguous(configuration.rules, case.dead_letter.destination):
                self.different.append(f"ambiguous, not listed: {configuration.path} {case}")
        elif is_equal(expected, actual):
            self.equal += 1
        else:
            self.different.append(
                f"{configuration.path.name} {case}: broker {expected!r}, sidecar {actual!r}"
            )


def _without_sources(value: object) -> object:
    """Return rules without places, warnings and fields that equality leaves out."""
    if is_dataclass(value) and not isinstance(value, type):
        cleaned = {
            item.name: _without_sources(getattr(value, item.name))
            for item in fields(value)
            if item.compare and item.name not in ("source", "warnings")
        }
        return (type(value).__name__, cleaned)
    if isinstance(value, tuple):
        return tuple(_without_sources(item) for item in value)
    return value


@pytest.mark.parametrize(
    ("with_chance", "version"),
    [
        pytest.param(False, versions.CLASSIC_6, id=f"fixed-{versions.CLASSIC_6}"),
        pytest.param(True, versions.CLASSIC_5, id=f"varied-{versions.CLASSIC_5}"),
        pytest.param(
            False, versions.CLASSIC_5, id=f"fixed-{versions.CLASSIC_5}", marks=pytest.mark.proof
        ),
        pytest.param(
            True, versions.CLASSIC_6, id=f"varied-{versions.CLASSIC_6}", marks=pytest.mark.proof
        ),
    ],
)
def test_decisions_equal_the_real_brokers(version: str, with_chance: bool, tmp_path: Path) -> None:
    """Action, delay, count, destination and expiration are the broker's, case by case."""
    configurations = generate(tmp_path, with_chance=with_chance)
    began = time.monotonic()
    answers = ask_about(version, configurations)
    broker_seconds = time.monotonic() - began
    plugins = load_plugins()
    tally = Tally()
    began = time.monotonic()
    for configuration, lines in zip(configurations, answers, strict=True):
        chain = compile_classic(configuration.rules, plugins)
        for case, line in zip(configuration.cases, lines, strict=True):
            draws = cycle((case.coin, case.distance))
            decision = chain.decide(case.dead_letter, draws.__next__)
            tally.add(configuration, case, line, describe(decision))
    print(
        f"Classic {version}: {len(configurations)} configurations x {CASES} cases, "
        f"{tally.equal} equal, {tally.ambiguous} ambiguous in the broker and listed, "
        f"{len(tally.different)} different; broker {broker_seconds:.1f} s, "
        f"sidecar with comparison {time.monotonic() - began:.1f} s"
    )
    assert tally.different[:10] == []
    assert tally.equal > 0.7 * len(configurations) * CASES


def _as_batch(case: Case) -> Case:
    """Return the nearest case that a line of a batch can say."""
    plain = replace(case.dead_letter, is_store_duplicate=False, subscription=None)
    return replace(case, dead_letter=plain)


def _batch(cases: Iterable[Case]) -> bytes:
    lines = [
        {
            "destination": str(case.dead_letter.destination),
            "redelivery_count": case.dead_letter.redelivery_count,
            "persistent": case.dead_letter.persistent,
            "expired": case.dead_letter.expired,
        }
        for case in cases
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _arguments(path: Path) -> list[str]:
    return ["explain", "--set", f"policy.source={path}", "--batch", "--no-collision-avoidance"]


def _explain_here(configuration: Configuration) -> bytes:
    """Return what the command prints, run in this process."""
    out = TextIOWrapper(BytesIO(), "utf-8", write_through=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", TextIOWrapper(BytesIO(_batch(configuration.cases)), "utf-8"))
        patch.setattr("sys.stdout", out)
        assert run_command_line(_arguments(configuration.path)) == 0
        return out.buffer.getvalue()


def _explain_outside(configuration: Configuration) -> bytes:
    """Return what the installed command prints, run as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "amqsidecar", *_arguments(configuration.path)],
        input=_batch(configuration.cases),
        capture_output=True,
        check=True,
    )
    return done.stdout


def _as_oracle(line: bytes, path: Path) -> str:
    """Return a printed line as the broker program writes it."""
    answer = json.loads(line)
    keys = {
        "redeliver": ("delay_ms", "redelivery_count"),
        "dead_letter": ("destination", "expiration_ms"),
        "discard": (),
    }[answer["action"]]
    assert str(path) in answer["rule"] or "(defaults)" in answer["rule"]
    return "\t".join([answer["action"], *(str(answer[key]) for key in keys)])


def test_explain_batch_equals_the_real_broker(tmp_path: Path) -> None:
    """The command, given the broker's file, prints the broker's decisions in order."""
    configurations = [
        replace(configuration, cases=[_as_batch(case) for case in configuration.cases])
        for configuration in generate(tmp_path, with_chance=False)
    ]
    answers = ask_about(versions.CLASSIC_6, configurations)
    began = time.monotonic()
    tally = Tally()
    for index, (configuration, lines) in enumerate(zip(configurations, answers, strict=True)):
        printed = _explain_here(configuration)
        if index < PROCESSES:
            assert _explain_outside(configuration) == printed
        for case, line, ours in zip(configuration.cases, lines, printed.splitlines(), strict=True):
            tally.add(configuration, case, line, _as_oracle(ours, configuration.path))
    print(
        f"explain --batch: {len(configurations)} files x {CASES} cases, {tally.equal} equal, "
        f"{tally.ambiguous} ambiguous, {len(tally.different)} different; "
        f"{time.monotonic() - began:.1f} s"
    )
    assert tally.different[:10] == []


def test_imported_file_says_what_was_written(tmp_path: Path) -> None:
    """The importer reads from the file exactly the rules that the broker reads from it."""
    plugins = load_plugins()
    for configuration in generate(tmp_path, with_chance=True):
        imported = load_policy(configuration.path, plugins)
        # Why: where a file names no interceptors, the broker has its own virtual topic.
        interceptors = DestinationInterceptors(virtual_topics=(VirtualTopic(),))
        written = replace(configuration.rules, interceptors=interceptors)
        assert _without_sources(imported) == _without_sources(written)
