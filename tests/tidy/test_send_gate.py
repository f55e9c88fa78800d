"""Each message passes `engine/send_gate.py`: nothing else makes a `Resend`, or asks instead."""

import ast
from pathlib import Path

import amqsidecar

PACKAGE = Path(amqsidecar.__file__).parent
GATE = "engine/send_gate.py"


def calls(name: str) -> set[str]:
    """Return the files that call a function or method of a name."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = node.func
                text = called.attr if isinstance(called, ast.Attribute) else ""
                if name in (text, getattr(called, "id", "")):
                    found.add(file.relative_to(PACKAGE).as_posix())
    return found


def test_only_the_gate_makes_what_is_sent() -> None:
    assert calls("Resend") == {GATE}


def test_only_the_gate_of_the_engine_asks_for_terms() -> None:
    asked = calls("send_terms") | calls("filter_view")
    beside = {one for one in asked if one.startswith(("engine/", "runtime/", "operations/"))}
    # Why the others: one makes the sidecar's own queues, to which no application's message goes;
    # one asks whose note a note is, and sends nothing.
    assert beside == {GATE, "runtime/broker_held.py", "engine/judging/one_queue.py"}
