"""Delays: the broker's own arithmetic, number by number."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.policy import redelivery_policy
from amqsidecar.policy.classic_rules import RedeliveryPolicy
from amqsidecar.policy.redelivery_policy import (
    LONG_MAX,
    LONG_MIN,
    MAX_STEPS,
    DelayTable,
    next_redelivery_delay_ms,
    trunc64,
)

LONGS = st.integers(LONG_MIN, LONG_MAX)
POLICIES = st.builds(
    RedeliveryPolicy,
    initial_redelivery_delay_ms=LONGS,
    redelivery_delay_ms=LONGS,
    maximum_redelivery_delay_ms=st.none() | LONGS,
    use_exponential_back_off=st.booleans(),
    back_off_multiplier=st.floats(),
    use_collision_avoidance=st.booleans(),
    collision_avoidance_percent=st.integers(-(2**15), 2**15 - 1),
)


def _delays(count: int, **fields: object) -> list[int]:
    table = DelayTable(RedeliveryPolicy(**fields))  # type: ignore[arg-type]
    return [table.delay_ms(n, None) for n in range(count)]


EXP = {"use_exponential_back_off": True}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (EXP, [1000, 5000, 25000, 125000, 625000, 3125000]),
        ({"initial_redelivery_delay_ms": 4000, "redelivery_delay_ms": 2000}, [4000, 2000, 2000]),
        (
            EXP
            | {
                "back_off_multiplier": 1.5,
                "maximum_redelivery_delay_ms": 2000,
                "redelivery_delay_ms": 1200,
            },
            [1000, 1500, 2000, 2000],
        ),
        (
            EXP | {"initial_redelivery_delay_ms": 30000, "maximum_redelivery_delay_ms": 10000},
            [30000, 10000, 10000],
        ),
        (EXP | {"back_off_multiplier": 2.0, "maximum_redelivery_delay_ms": 500}, [1000] * 3),
        (
            EXP | {"initial_redelivery_delay_ms": 1001, "back_off_multiplier": 1.1},
            [1001, 1101, 1211, 1332],
        ),
        (EXP | {"back_off_multiplier": 1.0, "redelivery_delay_ms": 1500}, [1000, 1500, 1500]),
        (EXP | {"back_off_multiplier": float("nan"), "redelivery_delay_ms": 7}, [1000, 7, 7]),
        (EXP | {"maximum_redelivery_delay_ms": 0}, [1000, 1000]),
        (EXP | {"maximum_redelivery_delay_ms": -7}, [1000, 1000]),
        (EXP | {"back_off_multiplier": float("inf")}, [1000, LONG_MAX, LONG_MAX]),
    ],
)
def test_delays_of_the_specification(fields: dict[str, object], expected: list[int]) -> None:
    """The delays of `spec-classic.md` 2.3, without chance."""
    assert _delays(len(expected), **fields) == expected


def test_row_1_initial_delay_is_verbatim_and_not_inherited() -> None:
    """The first delay is neither capped nor varied, and later ones don't inherit it."""
    assert _delays(3, initial_redelivery_delay_ms=30000) == [30000, 1000, 1000]
    fields = EXP | {"maximum_redelivery_delay_ms": 10, "use_collision_avoidance": True}
    policy = RedeliveryPolicy(initial_redelivery_delay_ms=30000, **fields)  # type: ignore[arg-type]
    assert DelayTable(policy).delay_ms(0, lambda: 0.9) == 30000


def test_row_3_overflow_saturates() -> None:
    assert _delays(40, **EXP)[-1] == LONG_MAX
    assert _delays(1, initial_redelivery_delay_ms=LONG_MAX) == [LONG_MAX]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.9, 1), (-1.9, -1), (float("nan"), 0), (1e19, LONG_MAX), (-1e19, LONG_MIN)],
)
def test_trunc64_is_javas_cast(value: float, expected: int) -> None:
    assert trunc64(value) == expected


@given(st.floats(allow_nan=False, min_value=-9e18, max_value=9e18))
def test_trunc64_is_cut_off_toward_zero(value: float) -> None:
    assert trunc64(value) == int(value)


def test_row_2_chance_compounds_and_may_exceed_the_cap() -> None:
    """Each drawn step feeds the next one, and chance comes after the cap."""
    policy = RedeliveryPolicy(
        use_collision_avoidance=True,
        collision_avoidance_percent=10,
        use_exponential_back_off=True,
        back_off_multiplier=2.0,
        maximum_redelivery_delay_ms=4500,
    )
    always_longer = DelayTable(policy).delay_ms
    up = lambda: 0.0  # noqa: E731

    assert always_longer(3, up) == 4500

    class Longest:
        calls = 0

        def __call__(self) -> float:
            self.calls += 1
            return 0.0 if self.calls % 2 else 0.5

    assert always_longer(1, Longest()) == 2100
    assert always_longer(2, Longest()) == 4410
    assert always_longer(3, Longest()) == 4725


@given(POLICIES, st.integers(-5, 60))
def test_table_equals_the_brokers_loop(policy: RedeliveryPolicy, count: int) -> None:
    delay = policy.initial_redelivery_delay_ms
    for _ in range(count):
        delay = next_redelivery_delay_ms(policy, delay, None)
    assert DelayTable(policy).delay_ms(count, None) == delay


@given(POLICIES, st.integers(0, 20), st.integers(0, 2**32))
def test_delay_is_always_a_long(policy: RedeliveryPolicy, count: int, seed: int) -> None:
    """Whatever the numbers, the delay fits 64 bits and is the same for the same chance."""
    table = DelayTable(policy)
    delay = table.delay_ms(count, random.Random(seed).random)
    assert LONG_MIN <= delay <= LONG_MAX
    assert table.delay_ms(count, random.Random(seed).random) == delay


def test_hostile_count_costs_bounded_work() -> None:
    fields = {"back_off_multiplier": 1.0000001, "initial_redelivery_delay_ms": 10**8}
    policy = RedeliveryPolicy(use_exponential_back_off=True, **fields)  # type: ignore[arg-type]
    table = DelayTable(policy)
    assert table.delay_ms(2**31 - 1, None) == table.delay_ms(MAX_STEPS, None)
    varied = RedeliveryPolicy(use_collision_avoidance=True, **EXP)  # type: ignore[arg-type]
    assert DelayTable(varied).delay_ms(2**31 - 1, random.Random(1).random) > 10**15


def test_delays_are_right_where_another_thread_asks_between_two_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cycle, the index of messages in queues and pages share a table."""
    table = DelayTable(RedeliveryPolicy(use_exponential_back_off=True))
    followed = redelivery_policy.next_redelivery_delay_ms

    def interrupted(policy: RedeliveryPolicy, delay_ms: int, chance: None) -> int:
        monkeypatch.undo()
        table.delay_ms(3, None)
        return followed(policy, delay_ms, chance)

    monkeypatch.setattr(redelivery_policy, "next_redelivery_delay_ms", interrupted)
    assert [table.delay_ms(n, None) for n in range(1, 8)] == _delays(8, **EXP)[1:]
