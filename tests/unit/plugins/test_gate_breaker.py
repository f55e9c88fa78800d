"""The gate `breaker`: opens by the share that comes back, probes, and never stays open for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amqsidecar_breaker
from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import queue
from amqsidecar.plugin import Gate
from amqsidecar_breaker import BreakerGate, plugin
from support.gates import SOURCE, due, gate_of

ORDERS = queue("orders")
OPTIONS = {
    "share": 0.5,
    "least": 4,
    "window_ms": 10_000,
    "probe": 2,
    "wait_ms": 1_000,
    "most_wait_ms": 4_000,
    "verdict_ms": 500,
}


def breaker() -> Gate:
    return gate_of(plugin, default_entry=OPTIONS)


def send(gate: Gate, now_ms: int, count: int) -> int:
    """Send as many as may pass; return how many."""
    passed = 0
    for _ in range(count):
        if gate.wait_of(due(0), now_ms) is None:
            gate.passed(due(0), now_ms)
            gate.resent(ORDERS, now_ms)
            passed += 1
    return passed


def come_back(gate: Gate, now_ms: int, count: int) -> None:
    for _ in range(count):
        gate.returned(ORDERS, now_ms)


def until(gate: Gate, now_ms: int) -> int | None:
    wait = gate.wait_of(due(0), now_ms)
    return None if wait is None else wait.until_ms


def opened() -> Gate:
    """Return one that opened at 100."""
    gate = breaker()
    send(gate, 0, 4)
    come_back(gate, 100, 2)
    return gate


def test_it_opens_at_the_share_and_reports_it_once() -> None:
    gate = breaker()
    assert send(gate, 0, 4) == 4
    come_back(gate, 50, 1)
    assert until(gate, 60) is None
    come_back(gate, 100, 1)
    first, second = gate.wait_of(due(0), 200), gate.wait_of(due(0), 200)
    assert first is not None
    assert second is not None
    assert (first.until_ms, first.is_news, second.is_news) == (1_100, True, False)
    assert "sidecar.yaml:7" in first.reason


def test_few_are_no_share_and_old_ones_do_not_count() -> None:
    gate = breaker()
    send(gate, 0, 3)
    come_back(gate, 1, 3)
    assert until(gate, 2) is None
    send(gate, 20_000, 4)
    come_back(gate, 20_001, 1)
    assert until(gate, 20_002) is None


def test_a_probe_that_gets_through_closes_it() -> None:
    gate = opened()
    assert send(gate, 1_100, 10) == 2
    assert until(gate, 1_200) == 1_600
    assert send(gate, 1_600, 10) == 10
    assert until(gate, 1_700) is None


def test_a_probe_that_comes_back_opens_it_for_twice_as_long_up_to_the_most() -> None:
    gate, now_ms = opened(), 1_100
    for wait_ms in (2_000, 4_000, 4_000):
        assert send(gate, now_ms, 10) == 2
        come_back(gate, now_ms + 10, 1)
        assert until(gate, now_ms + 20) == now_ms + 10 + wait_ms
        now_ms += 10 + wait_ms


def test_after_closing_it_waits_shortly_again() -> None:
    gate = opened()
    send(gate, 1_100, 2)
    come_back(gate, 1_110, 1)
    send(gate, 3_110, 2)
    send(gate, 3_700, 4)
    come_back(gate, 3_800, 2)
    assert until(gate, 3_801) == 4_800


def test_a_probe_that_never_arrived_is_sent_again() -> None:
    """A cycle that failed says nothing about consumers."""
    gate = opened()
    for _ in range(2):
        gate.passed(due(0), 1_100)
    assert until(gate, 1_200) == 1_600
    assert send(gate, 1_600, 10) == 2


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-3_000, 3_000), st.sampled_from(["send", "back", "lost"]), st.integers(1, 6)
        ),
        max_size=60,
    )
)
def test_in_any_history_waits_end_and_few_go_while_it_probes(
    steps: list[tuple[int, str, int]],
) -> None:
    """Also when the clock is set back, and whatever comes back that was never sent."""
    gate, now_ms = breaker(), 1_000_000
    passed_in_vain = 0
    for time_ms, what, count in steps:
        now_ms += time_ms
        if what == "back":
            come_back(gate, now_ms, count)
        elif what == "send":
            send(gate, now_ms, count)
        elif gate.wait_of(due(0), now_ms) is None:
            gate.passed(due(0), now_ms)
            passed_in_vain += 1
        found = until(gate, now_ms)
        if found is not None:
            assert now_ms < found <= now_ms + OPTIONS["most_wait_ms"]
    # All are well from now on: soon everything passes.
    for _ in range(6):
        now_ms = until(gate, now_ms) or now_ms
        send(gate, now_ms, 10)
    assert send(gate, now_ms, 10) == 10


def test_what_a_person_sends_while_it_is_open_is_no_probe() -> None:
    gate = breaker()
    send(gate, 0, 4)
    come_back(gate, 10, 4)
    assert until(gate, 10) == 1_010
    gate.passed(due(0, passes_gates=True), 600)
    gate.resent(ORDERS, 600)
    # It says nothing when it stays away, and nothing when it comes back.
    assert until(gate, 1_005) == 1_010
    come_back(gate, 1_006, 1)
    assert send(gate, 1_010, 9) == 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqsidecar_breaker, "CIRCUITS_MAX", 3)
    gate = gate_of(plugin, default_entry=OPTIONS)
    assert isinstance(gate, BreakerGate)
    for number in range(10):
        gate.returned(queue(f"q{number}"), number)
    assert len(gate._circuits) == 3
    for now_ms in range(0, 100_000, 10):
        gate.resent(queue("q9"), now_ms)
    assert len(gate._circuits[queue("q9")]._counts._parts) <= 10


def test_wrong_options_are_reported() -> None:
    with pytest.raises(ConfigError, match="share: expected a number above 0"):
        plugin.parse_options({"default_entry": {"share": 1.5}}, SOURCE)
    with pytest.raises(ConfigError, match="most_wait_ms: expected an integer from 1000"):
        plugin.parse_options({"default_entry": {"wait_ms": 1000, "most_wait_ms": 1}}, SOURCE)
