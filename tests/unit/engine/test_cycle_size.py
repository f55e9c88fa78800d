"""Cycles shrink after refusals, at least to one message, and grow again to their limits."""

from amqsidecar.engine.cycle_size import DUE_CYCLE_S, CycleLimits, CycleSize

LIMITS = CycleLimits(max_taken=100, max_sent=40)


def test_it_shrinks_and_grows_within_its_limits() -> None:
    size = CycleSize(LIMITS, LIMITS.max_sent)
    assert size.is_whole
    size.narrow_takes(100)
    size.narrow_takes(1)
    assert (size.max_taken, size.is_whole) == (1, False)
    for _ in range(10):
        size.grow_takes()
    assert (size.max_taken, size.is_whole) == (100, True)
    size.send_at_most(0)
    assert (size.max_sent, size.separates) == (1, True)
    for _ in range(10):
        size.grow_sends()
    assert (size.max_sent, size.separates) == (40, False)


def test_small_sends_go_in_cycles_of_their_own_that_take_turns() -> None:
    size = CycleSize(LIMITS, 10)
    assert size.separates
    assert [size.takes_next(lambda: True) for _ in range(4)] == [True, False, True, False]
    assert [size.takes_next(lambda: False) for _ in range(2)] == [False, False]
    size.narrow_sends(5)
    assert [size.takes_next(lambda: True) for _ in range(2)] == [False, True]


def test_a_quarter_of_what_it_may_is_large() -> None:
    size = CycleSize(LIMITS, 1)
    assert size.is_large(25, 0)
    assert size.is_large(0, 10)
    assert not size.is_large(24, 9)


def test_beside_due_messages_only_dead_letters_are_taken_that_fit_into_the_time() -> None:
    size = CycleSize(CycleLimits(max_taken=160, max_sent=40), 40)
    assert size.taken_beside(1) == 160
    size.note_work(2 * DUE_CYCLE_S, 200)
    assert (size.taken_beside(20), size.taken_beside(0), size.is_whole) == (80, 160, True)
    assert size.taken_beside(70) == 40
    size.note_work(9.0, 80)
    assert size.taken_beside(1) == 40
    size.note_work(DUE_CYCLE_S / 2, 200)
    assert size.taken_beside(40) == 160
