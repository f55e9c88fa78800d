"""How often a message is delivered: by the broker's count times that of the rules."""

from pathlib import Path

import pytest

from amqsidecar.diagnosis.finding import Severity
from amqsidecar.diagnosis.judging import delivery_findings
from amqsidecar.model.destination import queue
from amqsidecar.plugin import Decider
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy, load_policy

ORDERS, BILLS = queue("orders"), queue("bills")


def decider_of(text: str, tmp_path: Path) -> Decider:
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return compile_policy(load_policy(path, load_plugins()), load_plugins())


def artemis(attempts: int) -> str:
    setting = f"{{match: orders, max_delivery_attempts: {attempts}, dead_letter_address: DLQ}}"
    return f"address_settings: [{setting}]"


def classic(most: int) -> str:
    entry = f"{{queue: orders, maximum_redeliveries: {most}}}"
    return f"plugins: [{{redelivery: {{entries: [{entry}]}}}}]"


@pytest.mark.parametrize("text", [artemis(1), classic(0)])
def test_rules_that_never_redeliver_a_known_origin_are_a_warning(text: str, tmp_path: Path) -> None:
    [finding] = delivery_findings(decider_of(text, tmp_path), [ORDERS], {})
    assert (finding.severity, finding.subject) == (Severity.WARNING, "queue://orders")
    assert "never redeliver" in finding.what
    assert "policy.yaml:1" in finding.what


@pytest.mark.parametrize("text", [artemis(2), artemis(-1), classic(1), classic(-1)])
def test_rules_that_redeliver_are_none(text: str, tmp_path: Path) -> None:
    assert [*delivery_findings(decider_of(text, tmp_path), [ORDERS], {})] == []


def test_the_brokers_own_settings_may_never_redeliver_either() -> None:
    [finding] = delivery_findings(None, [ORDERS], {"orders": {"maxDeliveryAttempts": 1}})
    assert finding.severity is Severity.WARNING
    assert "max-delivery-attempts=1" in finding.what


def test_the_deliveries_of_broker_and_rules_multiply(tmp_path: Path) -> None:
    live = {"orders": {"maxDeliveryAttempts": 10}, "bills": {"maxDeliveryAttempts": 10}}
    text = artemis(6).replace("orders", '"#"')
    [finding] = delivery_findings(decider_of(text, tmp_path), [ORDERS, BILLS], live)
    assert finding.severity is Severity.NOTE
    assert finding.subject == "queue://bills, queue://orders"
    assert "10 attempts in the broker times 6 here = 60 deliveries" in finding.what


def test_without_a_policy_the_brokers_own_count_is_used_twice() -> None:
    [finding] = delivery_findings(None, [ORDERS], {"orders": {}})
    assert "10 attempts in the broker times 10 here = 100 deliveries" in finding.what


@pytest.mark.parametrize(("ours", "theirs"), [(6, 1), (6, -1), (-1, 10)])
def test_where_one_of_the_two_counts_alone_nothing_multiplies(
    ours: int, theirs: int, tmp_path: Path
) -> None:
    live = {"orders": {"maxDeliveryAttempts": theirs}}
    assert [*delivery_findings(decider_of(artemis(ours), tmp_path), [ORDERS], live)] == []
