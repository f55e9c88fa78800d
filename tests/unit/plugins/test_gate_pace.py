"""The gate `pace`: never faster, everything goes, and few writes for each message."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amqsidecar_pace
from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import queue
from amqsidecar_pace import LANES_MAX, PaceGate, plugin
from support.gates import SOURCE, due, gate_of, play

FAR_MS = 10**12


def most_in_any_time(went_ms: list[int], messages: int, per_ms: int) -> None:
    """Check the law for every pair of sends: between them no more than the bucket gives."""
    for first in range(len(went_ms)):
        for last in range(first, len(went_ms)):
            time_ms = went_ms[last] - went_ms[first]
            assert (last - first + 1) * per_ms <= messages * (per_ms + time_ms)


@settings(max_examples=60, deadline=None)
@given(
    messages=st.integers(1, 8),
    per_ms=st.integers(100, 2_000),
    due_ms=st.lists(st.integers(0, 5_000), max_size=60),
    seed=st.integers(0, 1_000),
)
def test_never_faster_in_any_time_and_nothing_is_left(
    messages: int, per_ms: int, due_ms: list[int], seed: int
) -> None:
    gate = gate_of(plugin, default_entry={"messages": messages, "per_ms": per_ms})
    chance = random.Random(seed)
    went, _ = play(gate, due_ms, lambda: chance.choice([0, 0, 3, 40, 900]), FAR_MS)
    most_in_any_time([at_ms for at_ms, _ in went], messages, per_ms)
    assert sorted(index for _, index in went) == list(range(len(due_ms)))
    assert all(at_ms >= due_ms[index] for at_ms, index in went)


def test_what_a_person_sends_takes_its_place_and_no_more_than_a_bucketful() -> None:
    gate = gate_of(plugin, default_entry={"messages": 2})
    for _ in range(500):
        gate.passed(due(0, passes_gates=True), 1_000)
    wait = gate.wait_of(due(0), 1_000)
    assert wait is not None
    assert wait.until_ms == 2_000
    assert gate.wait_of(due(2_000), 2_000) is None


def test_a_long_queue_is_worked_off_in_order_at_nearly_the_pace_each_waiting_once() -> None:
    gate = gate_of(plugin, default_entry={"messages": 20})
    late = random.Random(1)
    went, waits = play(gate, [0] * 5_000, lambda: late.randrange(40), FAR_MS)
    assert [index for _, index in went] == list(range(5_000))
    assert max(waits.values()) == 1
    assert went[-1][0] < 5_000 / 20 * 1_000 * 1.06


def test_a_later_message_does_not_overtake_the_queue() -> None:
    gate = gate_of(plugin, default_entry={"messages": 10})
    # The queue of the first 500 is 52 s long; meanwhile others come, more than may go.
    went, waits = play(gate, [0] * 500 + list(range(100, 50_000, 90)), lambda: 7, FAR_MS)
    order = [index for _, index in went]
    assert order[:500] == list(range(500))
    assert max(waits.values()) <= 2


def test_after_a_stop_it_does_not_catch_up_faster_than_the_pace() -> None:
    gate = gate_of(plugin, default_entry={"messages": 5})
    stops = iter([0] * 10 + [60_000])
    went, waits = play(gate, [0] * 400, lambda: next(stops, 1), FAR_MS)
    most_in_any_time([at_ms for at_ms, _ in went], 5, 1_000)
    assert len(went) == 400
    assert max(waits.values()) <= 3


def test_nobody_waits_behind_messages_that_are_gone() -> None:
    """A person cancels the queued messages: a later one does not wait."""
    gate = gate_of(plugin, default_entry={"messages": 1})
    gate.passed(due(0), 0)
    waits = [gate.wait_of(due(0), 0) for _ in range(3_600)]
    assert all(waits)
    assert gate.wait_of(due(1), 1_000) is not None
    assert gate.wait_of(due(10_000), 10_000) is None


def test_messages_of_one_slot_share_their_time() -> None:
    """So postponing costs one statement per slot, not per message."""
    gate = gate_of(plugin, default_entry={"messages": 100})
    slots = set()
    for _ in range(1_000):
        wait = gate.wait_of(due(0), 1_000)
        if wait is None:
            gate.passed(due(0), 1_000)
        else:
            slots.add((wait.until_ms, wait.reason))
    assert len(slots) == 9


def test_the_clock_may_be_set_back() -> None:
    gate = gate_of(plugin, default_entry={"messages": 2})
    for _ in range(50):
        if gate.wait_of(due(0), 10**9) is None:
            gate.passed(due(0), 10**9)
    wait = gate.wait_of(due(0), 5_000)
    assert wait is not None
    assert wait.until_ms <= 5_000 + 1_000


def test_destinations_are_paced_each_by_itself_and_others_not_at_all() -> None:
    gate = gate_of(plugin, entries=[{"queue": "orders.>", "messages": 1}])
    for name in ("orders.a", "orders.b", "orders.c::own"):
        message = due(0, queue(name))
        assert gate.wait_of(message, 0) is None
        gate.passed(message, 0)
        wait = gate.wait_of(message, 0)
        assert wait is not None
        assert wait.reason == "pace: 1 per 1000 ms (sidecar.yaml:7)"
    for _ in range(9):
        assert gate.wait_of(due(0, queue("other")), 0) is None
        gate.passed(due(0, queue("other")), 0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit destinations share a pace; an idle one makes room."""
    assert LANES_MAX == 10_000
    monkeypatch.setattr(amqsidecar_pace, "LANES_MAX", 3)
    gate = gate_of(plugin, default_entry={"messages": 1})
    assert isinstance(gate, PaceGate)
    names = count()

    def pass_new(now_ms: int) -> bool:
        message = due(0, queue(f"q{next(names)}"))
        if gate.wait_of(message, now_ms) is not None:
            return False
        gate.passed(message, now_ms)
        return True

    assert [pass_new(0) for _ in range(6)] == [True, True, True, True, False, False]
    assert len(gate._lanes) == 3
    assert pass_new(60_000)
    assert len(gate._lanes) == 1


def test_wrong_options_are_reported_with_their_place() -> None:
    with pytest.raises(ConfigError) as caught:
        plugin.parse_options({"entries": [{"queue": "a", "messages": 0, "speed": 1}]}, SOURCE)
    told = [str(problem) for problem in caught.value.problems]
    assert any("sidecar.yaml:7: messages: expected an integer from 1" in one for one in told)
    assert any("speed: there is no such option" in one for one in told)
    with pytest.raises(ConfigError, match="it would act nowhere"):
        plugin.parse_options({}, SOURCE)
