"""Each finding of the table is made somewhere, with the values that its sentence names."""

import ast
import string
from pathlib import Path

from amqsidecar import diagnosis
from amqsidecar.diagnosis.finding import Check, Severity, kinds


def calls() -> dict[str, list[ast.Call]]:
    """Return the calls that make findings, by the id of the finding."""
    found: dict[str, list[ast.Call]] = {}
    for path in Path(diagnosis.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "new_finding":
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
