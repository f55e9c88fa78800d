"""Settings, rules, clocks and schedules are judged by what they do to messages."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amqsidecar.broker import BrokerDescription, BrokerKind, IntakeQueue
from amqsidecar.diagnosis.artemis_layout import (
    copies_finding,
    dead_letter_findings,
    effect_findings,
    reject_finding,
    token_findings,
    unasked_findings,
)
from amqsidecar.diagnosis.classic_layout import interceptor_findings
from amqsidecar.diagnosis.finding import Check, Finding, Severity, has_problem, in_order
from amqsidecar.diagnosis.judging import (
    allowed_origins_findings,
    backlog_finding,
    clock_finding,
    counting_findings,
    difference_ms,
    exhausted_findings,
    kind_finding,
    loop_findings,
    unknown_origin_findings,
)
from amqsidecar.diagnosis.schedule import ScheduleFacts, place_problem, schedule_findings
from amqsidecar.diagnosis.transactions import transaction_findings
from amqsidecar.diagnosis.wires import version_finding, wire_findings
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.errors import CommitRefused, SendsRefused
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.outcome import Counters
from amqsidecar.model.schedule import ExhaustedTally
from amqsidecar.model.send_terms import ResendEffect, SideEffect
from amqsidecar.policy.artemis_rules import AddressSettingEntry, AddressSettings, ArtemisRules
from amqsidecar.policy.classic_rules import (
    ClassicRules,
    DestinationInterceptors,
    MirroredQueues,
    VirtualTopic,
)
from amqsidecar.policy.rule_source import RuleSource

STOCK = {"deadLetterAddress": "DLQ", "expiryAddress": "ExpiryQueue", "redeliveryDelay": 0}
DLQ = (IntakeQueue(queue("DLQ")),)


def severities(findings: Iterator[Finding] | tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(one.subject, one.severity.value) for one in findings]


@pytest.mark.parametrize(
    ("key", "value", "element"),
    [
        ("expiryDelay", 0, "<expiry-delay>-1<"),
        ("maxExpiryDelay", 5, "<max-expiry-delay>-1<"),
        ("minExpiryDelay", 5, "<min-expiry-delay>-1<"),
        ("defaultRingSize", 10, "<default-ring-size>-1<"),
        ("defaultLastValueQueue", True, "<default-last-value-queue>false<"),
        ("defaultNonDestructive", True, "<default-non-destructive>false<"),
        ("defaultPurgeOnNoConsumers", True, "<default-purge-on-no-consumers>false<"),
    ],
)
def test_what_may_take_the_token_away_is_a_problem(key: str, value: Any, element: str) -> None:
    [finding] = token_findings("amqsidecar.token.a", {**STOCK, key: value})
    assert finding.severity is Severity.PROBLEM
    assert element in finding.mend
    assert 'match="amqsidecar.token.#"' in finding.mend


def test_stock_settings_keep_the_token() -> None:
    assert severities(token_findings("amqsidecar.token.a", STOCK)) == [("amqsidecar.token.a", "ok")]


def test_what_acts_on_redeliveries_is_reported_once_for_all_addresses() -> None:
    """A warning, since a run parks such messages; a note where the operator allows it."""
    effects = {
        name: [
            SideEffect(ResendEffect.DROP, "it drops", f"mend {name}"),
            SideEffect(ResendEffect.RING, "it pushes out", "ring"),
        ]
        for name in ("orders", "invoices")
    }
    drop, ring = effect_findings(effects, [ResendEffect.RING])
    assert (drop.severity, drop.subject) == (Severity.WARNING, "invoices, orders")
    assert drop.mend == "mend orders"
    assert (ring.severity, ring.mend) == (Severity.NOTE, "")


def test_interceptors_that_are_not_configured_are_named_as_unknown() -> None:
    """No client can see them, so that silence would look like safety."""
    for rules in (None, ClassicRules()):
        [finding] = interceptor_findings(rules, ())
        assert (finding.subject, finding.severity) == ("policy.source", Severity.NOTE)
        assert finding.mend == "destination_interceptors: {}"
    known = ClassicRules(interceptors=DestinationInterceptors())
    assert list(interceptor_findings(known, ())) == []


def test_a_virtual_topic_is_named_and_warned_of_where_its_dead_letters_hide_the_queue() -> None:
    usual = VirtualTopic()
    hidden = VirtualTopic(destinations=(topic("Same.>"),), set_original_destination=False)
    rules = ClassicRules(interceptors=DestinationInterceptors(virtual_topics=(usual, hidden)))
    first, second = interceptor_findings(rules, ())
    assert (first.subject, first.severity) == ('topic="VirtualTopic.>"', Severity.OK)
    assert "Consumer.*.TOPIC" in first.what
    assert (second.subject, second.severity) == ('topic="Same.>"', Severity.NOTE)
    assert second.mend == 'setOriginalDestination="true"'


def test_a_mirror_is_a_warning_until_it_is_allowed() -> None:
    rules = ClassicRules(interceptors=DestinationInterceptors(mirrored_queues=MirroredQueues()))
    assert severities(interceptor_findings(rules, ())) == [('queue=">"', "warning")]
    allowed = (ResendEffect.MIRROR,)
    assert severities(interceptor_findings(rules, allowed)) == [('queue=">"', "note")]


def layout(settings_of: Mapping[str, Mapping[str, Any]], *origins: str) -> list[tuple[str, str]]:
    return severities(dead_letter_findings(settings_of, DLQ, origins))


def test_a_dead_letter_address_without_limit_is_right() -> None:
    unlimited = {**STOCK, "maxDeliveryAttempts": -1}
    assert layout({"#": STOCK, "DLQ": unlimited}) == [("DLQ", "ok")]
    assert layout({"#": STOCK, "DLQ": STOCK}) == [("DLQ", "warning")]
    assert layout({"#": STOCK, "DLQ": {**unlimited, "redeliveryDelay": 5}}) == [("DLQ", "warning")]


def test_messages_without_a_dead_letter_address_are_destroyed() -> None:
    """A problem where dead letters are known, else what somebody may have wanted."""
    unlimited = {**STOCK, "maxDeliveryAttempts": -1}
    settings: dict[str, dict[str, object]] = {
        "#": STOCK,
        "DLQ": unlimited,
        "a": {},
        "b": {"maxDeliveryAttempts": 0},
    }
    assert layout(settings) == [("a", "warning"), ("DLQ", "ok")]
    assert layout(settings, "a") == [("a", "problem"), ("DLQ", "ok")]
    assert ("#", "problem") in layout({"#": {}})


def test_the_reject_of_amqp_is_named_with_the_addresses_that_lose_it() -> None:
    assert not list(reject_finding([], {"#": {}}))
    (kept,) = reject_finding(["artemis"], {"#": STOCK, "amqsidecar.token": {}})
    (lost,) = reject_finding(["artemis"], {"#": STOCK, "orders": {"maxDeliveryAttempts": -1}})
    assert "destroys" not in kept.what
    assert "destroys the message on orders," in lost.what
    assert "amqsidecar listen" in lost.what


def test_roles_that_may_write_copies_are_named_where_a_run_reads_them() -> None:
    copies = [IntakeQueue(queue("amqsidecar.intercepted"))]
    roles = [{"name": "apps", "send": True}, {"name": "own", "send": False, "consume": True}]
    assert not list(copies_finding([IntakeQueue(queue("DLQ"))], roles, has_keys=False))
    (known,) = copies_finding(copies, roles, has_keys=True)
    assert "send: apps, consume: own, browse: nobody" in known.what
    assert (known.severity, known.mend) == (Severity.NOTE, "")
    (unknown,) = copies_finding(copies, [], has_keys=False)
    assert "not known" in unknown.what
    assert (unknown.severity, unknown.mend != "") == (Severity.WARNING, True)


OWN = (
    '<address-setting match="DLQ"><dead-letter-address>DLQ</dead-letter-address></address-setting>'
)


def test_without_the_right_to_manage_such_a_queue_is_not_read_over_amqp() -> None:
    """The rules show it, as far as they name it."""
    own = AddressSettings(dead_letter_address="DLQ")
    few = ArtemisRules(entries=(AddressSettingEntry(match="orders.#", settings=own),))
    all_of_them = ArtemisRules(entries=(AddressSettingEntry(match="#", settings=own),))
    [finding] = unasked_findings(few, ["DLQ"])
    assert (finding.severity, finding.subject, finding.mend) == (Severity.PROBLEM, "DLQ", OWN)
    assert [*unasked_findings(all_of_them, ["DLQ"])] == []


def test_a_dead_letter_address_without_queue_drops_unless_queues_are_made() -> None:
    lost = {"deadLetterAddress": "Nowhere"}
    assert ("Nowhere", "problem") in layout({"#": lost})
    makes = {**lost, "autoCreateDeadLetterResources": True}
    assert ("Nowhere", "problem") not in layout({"#": makes})


def test_the_brokers_own_addresses_are_not_judged() -> None:
    assert layout({"#": STOCK, "activemq.notifications": {}, "amqsidecar.token.a": {}}) == []


@pytest.mark.parametrize(
    ("kind", "ahead_ms", "severity"),
    [
        (BrokerKind.CLASSIC, 999, Severity.OK),
        (BrokerKind.CLASSIC, -1_000, Severity.WARNING),
        (BrokerKind.CLASSIC, 10_000, Severity.PROBLEM),
        (BrokerKind.CLASSIC, -10_000, Severity.PROBLEM),
        # The broker counts times to live there, whatever our clock says.
        (BrokerKind.ARTEMIS, 3_600_000, Severity.WARNING),
    ],
)
def test_clocks_that_differ_make_messages_expire_on_classic(
    kind: BrokerKind, ahead_ms: int, severity: Severity
) -> None:
    finding = clock_finding(kind, ahead_ms)
    assert finding.severity is severity
    assert ("ahead of" in finding.what) is (ahead_ms > 0 and severity is not Severity.OK)


def test_a_clock_is_off_by_what_can_not_be_explained_by_waiting() -> None:
    assert difference_ms(1_500, 1_000, 2_000) == 0
    assert difference_ms(2_500, 1_000, 2_000) == 500
    assert difference_ms(500, 1_000, 2_000) == -500


def test_what_is_read_must_not_be_written() -> None:
    origins = [queue("orders"), queue("bills")]
    intake = [IntakeQueue(queue("DLQ.>")), IntakeQueue(queue("orders"))]
    found = severities(
        tuple(loop_findings(intake, BrokerKind.CLASSIC, None, origins, ".exhausted"))
    )
    assert found == [("queue://orders", "problem")]
    final = [IntakeQueue(queue("DLQ.exhausted"))]
    assert severities(tuple(loop_findings(final, BrokerKind.ARTEMIS, None, [], ".exhausted"))) == [
        ("DLQ.exhausted", "problem")
    ]


def test_origins_outside_the_allowed_ones_are_reported() -> None:
    origins = [queue("orders.eu"), queue("bills"), queue("bills")]
    [anywhere] = allowed_origins_findings((), origins)
    assert (anywhere.severity, anywhere.subject) == (Severity.NOTE, "redelivery.allowed_origins")
    [outside] = allowed_origins_findings(("orders.>",), origins)
    assert (outside.severity, outside.subject) == (Severity.WARNING, "queue://bills")
    assert "orders.>" in outside.what
    assert outside.mend == "redelivery: {allowed_origins: ['orders.>', 'queue://bills']}"
    [fine] = allowed_origins_findings(("orders.>", "queue://bills"), origins)
    assert fine.severity is Severity.OK


def test_rules_of_the_other_product_are_a_problem() -> None:
    assert [*kind_finding(BrokerKind.CLASSIC, ClassicRules())] == []
    [finding] = kind_finding(BrokerKind.CLASSIC, ArtemisRules())
    assert finding.severity is Severity.PROBLEM
    assert finding.mend == "policy: {source: activemq.xml}"


@pytest.mark.parametrize(
    ("file", "severity"), [("activemq.xml", Severity.WARNING), ("policy.yaml", Severity.NOTE)]
)
def test_rules_of_classic_work_on_artemis(file: str, severity: Severity) -> None:
    """The demo and the README do so."""
    rules = ClassicRules(source=RuleSource(file))
    [finding] = kind_finding(BrokerKind.ARTEMIS, rules)
    assert finding.severity is severity
    assert file in finding.what


def test_a_queue_that_does_not_show_its_origin_is_refused_over_amqp() -> None:
    names = DeadLetterNames(None, {"DLQ.b": queue("b")})
    intake = [IntakeQueue(queue("DLQ.a")), IntakeQueue(queue("DLQ.b"))]
    [finding] = unknown_origin_findings(intake, names, None)
    assert finding.mend == "intake: {origin: {DLQ.a: ORIGIN}}"


@pytest.mark.parametrize(
    ("count", "holds", "is_seen", "severity"),
    [
        (101, True, False, Severity.WARNING),
        (100, True, False, Severity.NOTE),
        (101, False, False, Severity.NOTE),
        (101, True, True, Severity.NOTE),
    ],
)
def test_a_backlog_that_would_be_held_is_reported(
    count: int, holds: bool, is_seen: bool, severity: Severity
) -> None:
    finding = backlog_finding(queue("DLQ"), count, holds=holds, threshold=100, is_seen=is_seen)
    assert finding.severity is severity


def test_exhausted_messages_are_reported_also_those_that_no_schedule_knows() -> None:
    known = [
        ExhaustedTally(
            destination=f"queue://{name}",
            queue="queue://DLQ.exhausted",
            is_in_queue=is_in_queue,
            count=count,
            since_ms=1_700_000_000_000,
        )
        for name, is_in_queue, count in (("a", True, 5), ("b", True, 2), ("b", False, 9))
    ]
    finals = {queue("DLQ.exhausted"): 10, queue("other.exhausted"): 0, queue("old.exhausted"): 4}
    found = list(exhausted_findings(known, finals))
    assert [(one.subject, one.severity) for one in found] == [
        ("queue://a", Severity.WARNING),
        ("queue://b", Severity.WARNING),
        ("queue://b", Severity.WARNING),
        ("queue://DLQ.exhausted", Severity.NOTE),
        ("queue://old.exhausted", Severity.NOTE),
    ]
    assert "5 messages wait for a person, in queue://DLQ.exhausted, the first since 2023-" in (
        found[0].what
    )
    assert "9 messages wait for a person, kept in the schedule" in found[2].what
    assert "holds 3 messages that are not in the schedule" in found[3].what
    assert "holds 4 messages" in found[4].what
    [fine] = exhausted_findings([], {queue("DLQ.exhausted"): 0})
    assert fine.severity is Severity.OK


def test_a_command_to_paste_contains_no_command_out_of_a_destinations_name() -> None:
    name = "queue://a; shutdown now"
    tally = ExhaustedTally(
        destination=name, queue="queue://DLQ.x", is_in_queue=True, count=1, since_ms=0
    )
    [finding] = exhausted_findings([tally], {})
    assert shlex.split(finding.mend)[-1] == name


def test_rows_of_another_wire_can_not_be_sent() -> None:
    facts = ScheduleFacts(total=3, encodings={"openwire/12": 2, "amqp/1.0": 1})
    [finding] = schedule_findings("sqlite:///a", facts, ("amqp/1.0",))
    assert finding.severity is Severity.PROBLEM
    assert "2 waiting messages" in finding.what
    assert "openwire://" in finding.what
    assert severities(tuple(schedule_findings("sqlite:///a", facts, ()))) == []


def test_a_schedule_needs_a_folder(tmp_path: Path) -> None:
    assert place_problem(tmp_path / "schedule.db") == ""
    assert "does not exist" in place_problem(tmp_path / "missing" / "schedule.db")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if not os.access(locked, os.W_OK):  # root may write everywhere
        assert "may not write" in place_problem(locked / "schedule.db")


@pytest.mark.parametrize(
    ("kind", "scheme", "severity"),
    [
        (BrokerKind.CLASSIC, "openwire+ssl", Severity.OK),
        (BrokerKind.ARTEMIS, "artemis+ssl", Severity.OK),
        (BrokerKind.ARTEMIS, "core", Severity.OK),
        (BrokerKind.ARTEMIS, "amqps", Severity.NOTE),
        (BrokerKind.CLASSIC, "amqps", Severity.WARNING),
        (BrokerKind.ARTEMIS, "stomp+ssl", Severity.WARNING),
    ],
)
def test_each_product_has_its_best_wire(kind: BrokerKind, scheme: str, severity: Severity) -> None:
    [finding, *more] = wire_findings(kind, scheme, "host:1", ["core/1", "amqp/1.0"])
    assert finding.severity is severity
    assert [one.check for one in more] == [Check.TRANSACTIONS] * scheme.startswith("stomp")


@pytest.mark.parametrize(
    ("has_amqp", "mend"),
    [(False, 'pip install "amqsidecar[amqp]"'), (True, "acceptor: protocols=CORE,AMQP")],
)
def test_artemis_without_amqp_is_reported(has_amqp: bool, mend: str) -> None:
    [finding] = wire_findings(
        BrokerKind.ARTEMIS, "artemis", "host:1", ["core/1"], has_amqp=has_amqp
    )
    assert finding.severity is Severity.NOTE
    assert "messages of AMQP clients stay" in finding.what
    assert finding.mend == mend


def test_what_may_be_lost_by_name_is_reported_and_no_problem() -> None:
    whole = [*wire_findings(BrokerKind.CLASSIC, "openwire", "host:1", [], [Loss.GROUP])]
    losses = [Loss.GROUP, Loss.BODY_TYPE]
    stomp = [*wire_findings(BrokerKind.CLASSIC, "stomp", "host:1", [], losses)]
    assert severities(tuple(whole)) == [("openwire://", "ok")]
    assert severities(tuple(stomp)) == [("stomp://", "warning"), ("intake.allow_lossy", "warning")]
    assert "allows body_type, group: " in stomp[1].what
    assert "beyond what is allowed" in stomp[0].what


def test_the_other_product_than_expected_is_a_problem() -> None:
    description = BrokerDescription(BrokerKind.CLASSIC, "5.17.0", ("openwire/12",))
    [note, *faults] = version_finding(description, "host:1", None)
    [problem, *_] = version_finding(description, "host:1", BrokerKind.ARTEMIS)
    assert (note.severity, problem.severity) == (Severity.NOTE, Severity.PROBLEM)
    assert "AMQ-9217" in faults[0].what
    assert "CVE-2023-46604" in faults[1].what
    assert {one.severity for one in faults} == {Severity.WARNING}


def test_findings_are_reported_by_check_and_the_worst_first() -> None:
    def finding(check: Check, severity: Severity) -> Finding:
        return Finding(check=check, severity=severity, subject="", what="")

    clock = finding(Check.CLOCK, Severity.PROBLEM)
    ok, warning = (finding(Check.BROKER, one) for one in (Severity.OK, Severity.WARNING))
    assert in_order([clock, ok, warning, ok]) == (warning, ok, clock)
    assert has_problem([ok, clock])
    assert not has_problem([ok, warning])


class TokenLink:
    """A link to a broker with one token queue, whose transactions can be made not to hold."""

    def __init__(self, queue_of: list[int], *, commits: bool = True, keeps: bool = True) -> None:
        self._queue = queue_of
        self._commits = commits
        self._keeps = keeps

    def trials(self) -> "TokenLink":
        return self

    def remove(self, destination: Destination) -> str | None:
        self._queue.clear()
        return None

    @property
    def token(self) -> "TokenLink":
        return self

    def exists(self) -> bool:
        return bool(self._queue)

    def create(self, number: int) -> None:
        self._queue.append(number)

    def take(self, timeout_s: float) -> int | None:
        return self._queue[-1] if self._queue else None

    def commit_cycle(self, accepts: Any, sends: Any, token: int) -> None:
        if sends:
            if not self._keeps:
                self._queue[:] = [token]
            raise SendsRefused({0: "can't be taken apart"})
        if not self._commits:
            raise CommitRefused("no")
        self._queue[:] = [token]


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({}, ""),
        ({"commits": False}, "was not committed"),
        ({"keeps": False}, "token 2 was committed, but the broker hands out 3"),
    ],
)
def test_transactions_that_do_not_hold_are_found(behaviour: dict[str, bool], words: str) -> None:
    held: list[int] = []

    @contextmanager
    def opened(_token_queue: str = "") -> Iterator[Any]:
        yield TokenLink(held, **behaviour)

    findings = [*transaction_findings(opened, opened, queue("t"), lambda _: None)]
    [finding] = [one for one in findings if one.check is Check.TRANSACTIONS]
    assert (finding.severity is Severity.PROBLEM) is bool(words)
    assert words in finding.what


@pytest.mark.parametrize(
    ("counters", "severity", "mend"),
    [
        ({queue("DLQ"): Counters(depth=0)}, "warning", "<statisticsBrokerPlugin/>"),
        ({queue("DLQ"): Counters(depth=0, acknowledged=0, removed=0)}, "ok", ""),
    ],
    ids=["a stock Classic", "with the plugin"],
)
def test_outcomes_that_can_t_be_known_are_a_warning(
    counters: dict[Destination, Counters], severity: str, mend: str
) -> None:
    [found] = counting_findings(counters, "broker:61616")
    assert (found.severity, found.mend) == (severity, mend)
    assert list(counting_findings({}, "broker:61616")) == []
