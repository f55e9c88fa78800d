"""What intervals say about the time until messages become recoverable."""

from importlib import import_module

import numpy as np
import pytest

from amqsidecar.pipeline.whatif.curve import (
    EDGES_MS,
    NEVER,
    cell_of,
    fit_curve,
    not_yet,
    share_by,
)

MINUTE = 60_000.0


def fit(*intervals: tuple[float, float, int]) -> np.ndarray:
    """Fit messages by last failure, success (infinity = none), and how many there are."""
    failed, recovered, counts = (np.array(one, dtype=float) for one in zip(*intervals, strict=True))
    cells = np.where(np.isinf(recovered), NEVER, cell_of(recovered))
    return fit_curve(cell_of(failed), cells, counts)


def test_a_cell_holds_its_end_and_not_its_begin() -> None:
    assert cell_of(EDGES_MS[[3, 4, 400]] * 0.999).tolist() == [3, 4, 400]
    assert cell_of(EDGES_MS[[3, 4]] * 1.001).tolist() == [4, 5]
    assert cell_of(np.array([1e30, np.inf])).tolist() == [NEVER - 1, NEVER - 1]


def test_between_two_resends_the_curve_is_even_in_the_logarithm_of_time() -> None:
    """All between 1 and 16 minutes: half of them, on that scale, by 4 minutes."""
    curve = fit((MINUTE, 16 * MINUTE, 10))

    shares = share_by(curve, np.array([1, 4, 16]) * MINUTE)

    assert shares == pytest.approx([0.0, 0.5, 1.0], abs=0.02)


def test_what_was_never_tried_later_counts_as_never() -> None:
    """A quarter recovers within a minute; the others were given up after an hour."""
    curve = fit((-1, MINUTE, 1), (60 * MINUTE, np.inf, 3))

    shares = share_by(curve, np.array([MINUTE, 60 * MINUTE, 1e9]))

    assert shares == pytest.approx([0.25, 0.25, 0.25], abs=0.01)


def test_messages_that_are_still_out_count_as_the_others_went_on() -> None:
    """Of 10, 5 recover by the first minute; 3 others are out by then, 2 recover by the second.

    The ones that are out go the way of the two: all recover.
    """
    curve = fit((-1, MINUTE, 5), (MINUTE, np.inf, 3), (MINUTE, 2 * MINUTE, 2))

    assert share_by(curve, np.array([1, 2]) * MINUTE) == pytest.approx([0.5, 1.0], abs=0.03)


def test_some_of_those_that_are_still_out_never_come() -> None:
    """One recovers by the second minute, one never does; the one that is out may go either way."""
    curve = fit((MINUTE, 2 * MINUTE, 1), (MINUTE, np.inf, 1), (60 * MINUTE, np.inf, 1))

    assert share_by(curve, np.array([60 * MINUTE])) == pytest.approx([0.5], abs=0.01)


def test_it_is_the_estimate_of_lifelines() -> None:
    """The same intervals in both; compared where intervals end, at distant times.

    Theirs are closed, so they are given begins that are a little later.
    """
    times = np.concatenate([[0.0], EDGES_MS[40:400:60]])
    chance = np.random.default_rng(7)
    begins = chance.integers(0, 6, 200)
    ends = np.minimum(begins + chance.integers(1, 4, 200), 7)
    lower, upper = times[begins], np.where(ends == 7, np.inf, times[np.minimum(ends, 6)])

    curve = fit(*((one or -1, other, 1) for one, other in zip(lower, upper, strict=True)))
    # Why here: it takes half a second to import, and each worker collects this file.
    lifelines = import_module("lifelines")
    theirs = lifelines.KaplanMeierFitter().fit_interval_censoring(lower * 1.001, upper)
    open_shares = theirs.survival_function_["NPMLE_estimate_upper"]

    assert share_by(curve, times[1:6]) == pytest.approx(
        1 - open_shares[times[1:6] * 1.001], abs=0.01
    )


def test_history_decides_where_it_can_and_the_curve_in_between() -> None:
    """Failed at 1 minute, succeeded at 16: certain outside, half at 4 by the curve of its kind."""
    curve = fit((MINUTE, 16 * MINUTE, 10))
    at = np.array([[0.5, 1, 4, 16, 99]]) * MINUTE

    open_shares = not_yet(curve, at, np.array([[MINUTE]]), np.array([[16 * MINUTE]]))

    assert open_shares[0] == pytest.approx([1, 1, 0.5, 0, 0], abs=0.02)


def test_a_message_that_the_curve_rules_out_is_even_between_its_own_resends() -> None:
    curve = fit((MINUTE, 2 * MINUTE, 10))
    at, failed = np.array([[20 * MINUTE]]), np.array([[10 * MINUTE]])

    assert not_yet(curve, at, failed, np.array([[40 * MINUTE]]))[0, 0] == pytest.approx(0.5)
    assert not_yet(curve, at, failed, np.array([[np.inf]]))[0, 0] == 1.0
