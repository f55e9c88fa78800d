"""Each message passes `engine/send_gate.py`: nothing else makes a `Resend`, or asks instead."""

from support.callers import calls

GATE = "engine/send_gate.py"


def test_only_the_gate_makes_what_is_sent() -> None:
    assert calls("Resend") == {GATE}


def test_only_the_gate_of_the_engine_asks_for_terms() -> None:
    asked = calls("send_terms") | calls("filter_view")
    beside = {one for one in asked if one.startswith(("engine/", "runtime/", "operations/"))}
    # Why the others: one makes the sidecar's own queues, to which no application's message goes;
    # one asks whose note a note is, and sends nothing.
    assert beside == {GATE, "runtime/broker_held.py", "engine/judging/one_queue.py"}
