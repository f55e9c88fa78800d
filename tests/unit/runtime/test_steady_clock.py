"""The schedule's clock goes by uptime: whatever is done to the wall clock, delays stay."""

from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.clock import NOTICED_MS, SLEW, SteadyClock
from support.virtual_clock import VirtualClock

HOUR_MS = 3_600_000


def steady(machine: VirtualClock) -> SteadyClock:
    return SteadyClock(machine.now_ms, lambda: machine.current_ms, machine.monotonic_s)


def test_a_wall_clock_that_is_set_back_changes_a_delay_by_a_twentieth_at_most() -> None:
    """The case that was seen: 12 s became an hour."""
    machine = VirtualClock()
    clock = steady(machine)
    due_ms = clock.now_ms() + 12_000
    machine.jump(-HOUR_MS)
    waited_ms = 0
    while clock.now_ms() < due_ms:
        machine.advance(100)
        waited_ms += 100
        clock.look()
    assert 12_000 <= waited_ms <= 12_000 * SLEW / (SLEW - 1) + 100


def test_a_step_is_reported_once_with_its_size() -> None:
    machine = VirtualClock()
    clock = steady(machine)
    machine.advance(5_000)
    assert clock.look() == (0, 0)
    machine.jump(-HOUR_MS)
    machine.advance(1_000)
    assert clock.look() == (-HOUR_MS, -HOUR_MS)
    machine.advance(1_000)
    assert clock.look() == (0, -HOUR_MS + 1_000 // SLEW)
    machine.jump(2 * HOUR_MS)
    machine.advance(1_000)
    assert clock.look().by_ms == 2 * HOUR_MS


def test_the_clocks_agree_again_after_twenty_times_the_gap() -> None:
    for gap_ms in (-60_000, 60_000):
        machine = VirtualClock()
        clock = steady(machine)
        machine.jump(gap_ms)
        for _ in range(60 * SLEW + 60):
            machine.advance(1_000)
            clock.look()
        assert clock.now_ms() == machine.now_ms()


def test_after_a_restart_the_stored_time_bounds_what_a_step_back_does() -> None:
    """No row waits longer than its own delay, counted from the start."""
    machine = VirtualClock()
    taken_until_ms = machine.now_ms()
    machine.jump(-HOUR_MS)
    clock = steady(machine)
    assert clock.start_at_least(taken_until_ms) == (-HOUR_MS, -HOUR_MS)
    assert clock.now_ms() == taken_until_ms
    machine.jump(HOUR_MS)
    machine.advance(60_000)
    assert steady(machine).start_at_least(taken_until_ms) == (0, 0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("advance", "jump", "look")), st.integers(-2 * HOUR_MS, 2 * HOUR_MS)
        ),
        max_size=50,
    )
)
def test_it_never_goes_back_and_keeps_its_rate(moves: list[tuple[str, int]]) -> None:
    """Whatever happens: between two readings at least 19/20 and at most 21/20 of the uptime."""
    machine = VirtualClock()
    clock = steady(machine)
    began_ms, began_uptime_ms, looks = clock.now_ms(), machine.current_ms, 1
    for move, by_ms in moves:
        if move == "advance":
            machine.advance(abs(by_ms))
        elif move == "jump":
            machine.jump(by_ms)
        else:
            step = clock.look()
            looks += 1
            assert step.by_ms == 0 or abs(step.by_ms) >= NOTICED_MS
        said_ms, passed_ms = clock.now_ms() - began_ms, machine.current_ms - began_uptime_ms
        assert abs(said_ms - passed_ms) <= passed_ms / SLEW + looks
