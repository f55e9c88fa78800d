"""What is next of an operation: probe, ramp, pace, automatic stop, leases."""

import heapq
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.model.operation import (
    CAREFUL,
    LEASE_MS,
    LEAST_EVIDENCE,
    STEP_MAX,
    Action,
    Finished,
    Operation,
    OperationPace,
    OperationState,
    Pause,
    Selection,
    Step,
    Stop,
    changed_to,
    claimed,
    left,
    next_step,
    settled,
    stepped,
)

ROWS = 10_000
SECOND = 1_000
AT_ONCE = OperationPace()


def operation(pace: OperationPace = AT_ONCE, rows: int = ROWS, **values: object) -> Operation:
    begun = Operation(
        id=1,
        action=Action.RETRY,
        selection=Selection(),
        actor="cli:anna",
        reason="",
        created_at_ms=0,
        until_id=rows,
        pace=pace,
    )
    return msgspec.structs.replace(begun, **values)


class World:
    """Rows that are sent at once, of which some come back after a while."""

    def __init__(
        self,
        pace: OperationPace,
        *,
        seed: int = 1,
        share: Callable[[int], float] = lambda _number: 0.0,
        lag_ms: int = 200,
        rows: int = ROWS,
    ) -> None:
        self.operation = operation(pace, rows)
        self.now_ms = 1_000_000
        self.began_ms = self.now_ms
        self.sent_at_ms: list[int] = []
        self.stop_reason = ""
        self._returns: list[int] = []
        self._chance = random.Random(seed)
        self._share = share
        self._lag_ms = lag_ms

    def play(self) -> "World":
        """Go on until it ends."""
        for _ in range(100_000):
            self._follow()
            self.operation = settled(self.operation, self.now_ms)
            match next_step(self.operation, self.now_ms):
                case Step(limit):
                    self._step(limit)
                    if self.operation.state is OperationState.DONE:
                        return self
                case Pause(until_ms):
                    assert until_ms > self.now_ms
                    self.now_ms = min([until_ms, *self._returns[:1]])
                case Stop(reason):
                    self.operation = changed_to(
                        self.operation, OperationState.STOPPED, self.now_ms, reason=reason
                    )
                    return self
                case Finished():
                    self.operation = changed_to(self.operation, OperationState.DONE, self.now_ms)
                    return self
        raise AssertionError("it never ends")

    def _step(self, limit: int) -> None:
        before = self.operation
        count = min(limit, before.until_id - before.after_id)
        for _ in range(count):
            if self._chance.random() < self._share(len(self.sent_at_ms)):
                heapq.heappush(self._returns, self.now_ms + self._lag_ms)
            self.sent_at_ms.append(self.now_ms)
        after = msgspec.structs.replace(
            before,
            after_id=before.after_id + count,
            matched=before.matched + count,
            changed=before.changed + count,
            resent=before.resent + count,
        )
        self.operation = stepped(before, after, self.now_ms)

    def _follow(self) -> None:
        while self._returns and self._returns[0] <= self.now_ms:
            heapq.heappop(self._returns)
            came_back = self.operation.came_back + 1
            self.operation = msgspec.structs.replace(self.operation, came_back=came_back)


def always(share: float) -> Callable[[int], float]:
    return lambda _number: share


# Why two: what comes back at once is seen while the portion is sent, or only as its window ends.
LAGS = pytest.mark.parametrize("lag_ms", [200, CAREFUL.window_ms - 1])


@LAGS
def test_a_careful_replay_of_which_30_percent_fail_stops_within_200(lag_ms: int) -> None:
    sent = []
    for seed in range(1_000):
        world = World(CAREFUL, seed=seed, share=always(0.3), lag_ms=lag_ms).play()
        assert world.operation.state is OperationState.STOPPED
        sent.append(len(world.sent_at_ms))
    assert max(sent) <= 150
    assert sum(count <= 50 for count in sent) >= 990


@LAGS
def test_bad_luck_hardly_stops_a_careful_replay_of_which_2_percent_fail(lag_ms: int) -> None:
    runs = 150
    ends = [
        World(CAREFUL, seed=seed, share=always(0.02), lag_ms=lag_ms, rows=2_000).play()
        for seed in range(runs)
    ]
    assert sum(world.operation.state is OperationState.STOPPED for world in ends) <= 1


def test_a_careful_replay_sends_portions_then_goes_at_its_pace() -> None:
    world = World(CAREFUL).play()
    assert world.operation.state is OperationState.DONE
    pauses = [
        number
        for number, (one, next_one) in enumerate(
            zip(world.sent_at_ms, world.sent_at_ms[1:], strict=False), 1
        )
        if next_one - one >= CAREFUL.window_ms
    ]
    assert pauses == [50, 150, 350, 750, 1_550]
    steady = world.sent_at_ms[2_000:]
    rate = (len(steady) - 1) * SECOND / (steady[-1] - steady[0])
    assert 19 <= rate <= 20.1


def test_ten_are_sent_and_it_goes_on_when_nine_do_not_return() -> None:
    pace = OperationPace(probe=10, stop_share=0.1, window_ms=5_000)
    good = World(pace, share=lambda number: float(number == 3), rows=100).play()
    assert good.operation.state is OperationState.DONE
    assert good.sent_at_ms[10] - good.sent_at_ms[9] >= 5_000
    bad = World(pace, share=lambda number: float(number in (3, 7)), rows=100).play()
    assert (bad.operation.state, len(bad.sent_at_ms)) == (OperationState.STOPPED, 10)
    assert bad.operation.state_reason == "2 of 10 re-sent messages came back; no more than 10% may"


def test_a_probe_without_a_share_lets_a_tenth_come_back_and_judges_nothing_after_it() -> None:
    pace = OperationPace(probe=10, window_ms=5_000)
    bad = World(pace, share=lambda number: float(number < 2)).play()
    assert (bad.operation.state, len(bad.sent_at_ms)) == (OperationState.STOPPED, 10)
    later = World(pace, share=lambda number: float(number >= 10)).play()
    assert later.operation.state is OperationState.DONE


def test_a_probe_waits_until_all_of_it_was_sent() -> None:
    held_up = operation(OperationPace(probe=10), portion=10, changed=10, after_id=10, resent=9)
    for now_ms in (0, 10_000_000):
        assert settled(held_up, now_ms) == held_up
        assert next_step(held_up, now_ms) == Pause(now_ms + 500)
    sent = settled(msgspec.structs.replace(held_up, resent=10), 10_000_000)
    assert next_step(sent, 10_000_000) == Pause(10_060_000)


def test_the_last_message_of_a_probe_that_comes_back_in_time_counts() -> None:
    pace = OperationPace(probe=10, stop_share=0.0, window_ms=5_000)
    world = World(pace, share=lambda number: float(number == 9), lag_ms=4_999).play()
    assert (world.operation.state, len(world.sent_at_ms)) == (OperationState.STOPPED, 10)


@pytest.mark.parametrize(("lag_ms", "most"), [(200, 60), (59_999, 1_300)])
def test_a_pace_without_a_probe_stops_too(lag_ms: int, most: int) -> None:
    pace = OperationPace(per_second=20.0, stop_share=0.1)
    world = World(pace, share=always(0.5), lag_ms=lag_ms).play()
    assert world.operation.state is OperationState.STOPPED
    assert len(world.sent_at_ms) <= most


def test_what_fails_late_stops_as_soon_as_what_fails_early() -> None:
    """Thousands that went well before don't hide that everything comes back now."""
    pace = OperationPace(per_second=20.0, stop_share=0.1)
    world = World(pace, share=lambda number: float(number >= 5_000)).play()
    assert world.operation.state is OperationState.STOPPED
    assert len(world.sent_at_ms) <= 5_000 + 0.1 * 20 * 60 + 30


def test_few_unlucky_messages_at_the_begin_stop_nothing() -> None:
    pace = OperationPace(per_second=20.0, stop_share=0.1)
    allowed = LEAST_EVIDENCE // 10
    unlucky = World(pace, share=lambda number: float(number < allowed), rows=500).play()
    assert unlucky.operation.state is OperationState.DONE
    bad = World(pace, share=lambda number: float(number <= allowed), rows=500).play()
    assert bad.operation.state is OperationState.STOPPED


def test_without_any_care_it_goes_at_once() -> None:
    world = World(OperationPace(), share=always(1.0)).play()
    assert world.operation.state is OperationState.DONE
    assert world.now_ms == world.began_ms
    assert next_step(operation(portion=0), 0) == Step(STEP_MAX)


@pytest.mark.parametrize(
    ("per_second", "limit", "pause_ms"), [(0.1, 1, 10_000), (4.0, 1, 250), (400.0, 100, 250)]
)
def test_a_pace_goes_by_small_steps(per_second: float, limit: int, pause_ms: int) -> None:
    paced = operation(OperationPace(per_second=per_second), portion=0)
    assert next_step(paced, 0) == Step(limit)
    after = msgspec.structs.replace(paced, changed=limit, resent=limit, after_id=limit)
    assert next_step(stepped(paced, after, 7), 7) == Pause(7 + pause_ms)


def test_a_destination_that_was_blocked_gets_no_burst() -> None:
    paced = operation(OperationPace(per_second=2.0), portion=0, changed=11, after_id=11, resent=0)
    assert next_step(paced, 0) == Pause(500)
    assert next_step(msgspec.structs.replace(paced, resent=1), 0) == Step(1)
    held = msgspec.structs.replace(paced, action=Action.HOLD)
    assert next_step(held, 0) == Step(1)


def test_after_a_stop_a_person_lets_it_go_on_with_a_new_probe() -> None:
    broken = [True]
    world = World(CAREFUL, share=lambda _number: float(broken[0])).play()
    assert world.operation.state is OperationState.STOPPED
    broken[0] = False
    world.operation = changed_to(
        world.operation, OperationState.RUNNING, world.now_ms, "cli:anna", "mended"
    )
    world.play()
    assert world.operation.state is OperationState.DONE
    assert [(one.state, one.actor, one.reason) for one in world.operation.state_changes] == [
        ("stopped", "", "10 of 10 re-sent messages came back; no more than 10% may"),
        ("running", "cli:anna", "mended"),
        ("done", "", ""),
    ]


def test_who_may_change_what() -> None:
    running = operation()
    held = changed_to(running, OperationState.PAUSED, 1, "console:anna", "lunch")
    assert (held.state, held.state_reason) == ("paused", "lunch (by console:anna)")
    assert changed_to(held, OperationState.PAUSED, 2, "x", "") == held
    assert changed_to(running, OperationState.RUNNING, 2, "x", "") == running
    over = changed_to(held, OperationState.CANCELLED, 3, "console:anna", "")
    assert (over.state, over.ended_at_ms, over.state_reason) == ("cancelled", 3, "by console:anna")
    assert (
        changed_to(over, OperationState.CANCELLED, 4, "x", "")
        == changed_to(over, OperationState.RUNNING, 4, "x", "")
        == changed_to(over, OperationState.PAUSED, 4, "x", "")
    )
    assert changed_to(over, OperationState.PAUSED, 4, "x", "") == over


def test_a_lease_is_for_one_runner_until_it_gives_no_sign() -> None:
    mine = claimed(operation(), "me", 0)
    assert (mine.runner, mine.runner_until_ms) == ("me", LEASE_MS)
    assert claimed(mine, "you", LEASE_MS - 1) == mine
    assert claimed(mine, "me", 5).runner_until_ms == 5 + LEASE_MS
    assert claimed(mine, "you", LEASE_MS).runner == "you"
    assert left(mine, "you") == mine
    assert claimed(left(mine, "me"), "you", 1).runner == "you"
    assert (
        claimed(changed_to(mine, OperationState.PAUSED, 1, "x", ""), "you", LEASE_MS).runner == "me"
    )


@given(
    probe=st.integers(0, 100),
    per_second=st.none() | st.floats(0.5, 1_000),
    ramp=st.booleans(),
    stop_share=st.none() | st.floats(0, 1),
    window_ms=st.integers(1, 60_000),
    share=st.floats(0, 1),
    lag=st.floats(0, 0.999),
    rows=st.integers(0, 1_000),
    seed=st.integers(0, 9),
)
def test_it_always_ends_and_never_goes_on_when_too_many_of_a_portion_came_back(
    probe: int,
    per_second: float | None,
    ramp: bool,
    stop_share: float | None,
    window_ms: int,
    share: float,
    lag: float,
    rows: int,
    seed: int,
) -> None:
    pace = OperationPace(
        probe=probe, per_second=per_second, ramp=ramp, stop_share=stop_share, window_ms=window_ms
    )
    world = World(
        pace, seed=seed, share=always(share), lag_ms=int(lag * window_ms), rows=rows
    ).play()
    ended = world.operation
    assert ended.state in (OperationState.DONE, OperationState.STOPPED)
    assert (ended.changed == rows) or ended.state is OperationState.STOPPED
    if not (probe or ramp) and stop_share is None:
        assert ended.state is OperationState.DONE
    if share == 1 and probe and probe < rows and (stop_share or 0) < 1:
        assert ended.state is OperationState.STOPPED
        assert len(world.sent_at_ms) <= probe


def test_a_clock_that_goes_back_holds_nothing_up() -> None:
    """Times that were set before it went back lie further ahead than any that is set."""
    hour = 3_600 * SECOND
    mine = claimed(operation(), "me", hour)
    assert claimed(mine, "you", hour - 60 * SECOND) == mine, "clocks of two hosts may differ"
    assert claimed(mine, "you", 0).runner == "you"

    paced = operation(OperationPace(per_second=2.0), portion=0, not_before_ms=hour)
    assert next_step(paced, hour - 400) == Pause(hour)
    assert next_step(paced, 0) == Step(1)
    slow = operation(OperationPace(per_second=0.1), portion=0, not_before_ms=10 * SECOND)
    assert next_step(slow, 0) == Pause(10 * SECOND)

    probe = operation(OperationPace(probe=2), portion=2, changed=2, resent=2, window_until_ms=hour)
    assert settled(probe, 0).window_until_ms == 60 * SECOND, "the window begins anew"
    assert settled(probe, hour - SECOND) == probe
