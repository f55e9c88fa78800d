"""Each finding of the table is made somewhere, with the values that its sentence names."""

import ast
import string
from pathlib import Path

import msgspec

from amqsidecar import diagnosis
from amqsidecar.diagnosis.finding import Check, Severity, kinds
from amqsidecar.diagnosis.judging import policy_findings
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import load_policy
from support.brokers.broker_xml import classic_xml

EXPIRING = """
    <policyEntry queue="orders.>"><deadLetterStrategy>
      <individualDeadLetterStrategy queuePrefix="DLQ." expiration="60000"/>
    </deadLetterStrategy></policyEntry>
"""
REDELIVERY = """
    <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>
      <redeliveryPolicy maximumRedeliveries="5"/>
    </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin>
"""


def calls() -> dict[str, list[ast.Call]]:
    """Return the calls that make findings, by the id of the finding."""
    found: dict[str, list[ast.Call]] = {}
    for path in Path(diagnosis.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            is_new = getattr(node.func, "id", "") == "new_finding" and path.name != "finding.py"
            if is_new or getattr(node.func, "attr", "") == "report":
                first = node.args[0]
                assert isinstance(first, ast.Constant), f"{path.name}:{node.lineno}"
                found.setdefault(str(first.value), []).append(node)
    return found


def test_the_table_and_the_code_name_the_same_findings() -> None:
    assert calls().keys() == kinds().keys()


def test_a_finding_is_given_the_values_that_its_sentence_names_and_no_others() -> None:
    for name, places in calls().items():
        kind = kinds()[name]
        assert kind.check in Check.__members__
        for call in places:
            given = {str(keyword.arg) for keyword in call.keywords}
            assert kind.severity in Severity.__members__ or "severity" in given, name
            texts = kind.what if "mend" in given else kind.what + kind.mend
            assert not (kind.mend and "mend" in given), f"{name}: two lines that mend it"
            wanted = {field for _, field, _, _ in string.Formatter().parse(texts) if field}
            assert given - {"severity", "mend"} == wanted, name


def test_a_warning_that_the_layout_reports_is_said_once_and_all_can_be_printed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "activemq.xml"
    path.write_text(classic_xml(destination_policy=EXPIRING, plugins=REDELIVERY), encoding="utf-8")
    rules = load_policy(path, load_plugins())
    alone = [*policy_findings(rules, is_layout_known=False)]
    beside = [*policy_findings(rules, is_layout_known=True)]
    assert [one.what for one in alone if "expiration=60000" in one.what]
    assert not [one.what for one in beside if "expiration=60000" in one.what]
    assert 0 < len(beside) < len(alone)
    assert b"defaultEntry" in msgspec.json.encode(beside)
