"""What re-sends would have come to, by hand."""

import numpy as np
import pytest

from amqsidecar.pipeline.whatif.curve import NEVER, cell_of, fit_curve
from amqsidecar.pipeline.whatif.policy import DelayPlan
from amqsidecar.pipeline.whatif.replay import Known, outcome_of, resend_times

SECOND = 1000.0
CURVE = fit_curve(
    cell_of(np.array([1, 16]) * SECOND),
    np.array([cell_of(np.array([16 * SECOND]))[0], NEVER]),
    np.ones(2),
)
"""Half of the messages become recoverable between 1 and 16 seconds, half never."""


def known(failed: float, recovered: float, *, observed: float = 1e9) -> Known:
    """One message that the sidecar took at 100 s; two re-sends, 4 ms and 0 ms late, back after 2 s.

    Usual for its destination: 7 ms late, back after 3 s.
    """
    return Known(
        arrived_ms=np.array([100 * SECOND]),
        observed_ms=np.array([observed]),
        sent_ms=np.array([[failed, recovered]]),
        late_ms=np.array([[4.0, 0.0, 7.0]]),
        back_ms=np.array([[2 * SECOND, 3 * SECOND, 3 * SECOND]]),
        failed_ms=np.array([failed]),
        recovered_ms=np.array([recovered]),
        curve=CURVE,
    )


def row(numbers: np.ndarray) -> list[float]:
    return [float(one) for one in numbers[0]]


def test_a_resend_is_as_late_and_comes_back_as_soon_as_its_like_in_history() -> None:
    """1000 + 4; back 2000 later, + 1000 + 0; back as usual 3000 later, + 5000 + 7."""
    plan = DelayPlan((1000, 1000, 5000), goes_on=False)

    assert row(resend_times(plan, known(1000, 4000))) == [1004, 4004, 12011]


def test_a_shorter_policy_has_fewer_resends() -> None:
    assert row(resend_times(DelayPlan((1000,), goes_on=False), known(1000, 4000))) == [1004]
    assert row(resend_times(DelayPlan((), goes_on=False), known(1000, 4000))) == []


def test_where_history_can_not_tell_there_are_bounds() -> None:
    """Failed at 1 s, succeeded at 16 s; re-sends at 0.5, 4, 20 s.

    The first fails for certain. The second succeeds at best, likely by half; so the third is made
    at worst, by half likely, and then succeeds.
    """
    at = np.array([[0.5, 4, 20]]) * SECOND

    result = outcome_of(at, known(SECOND, 16 * SECOND), goes_on=False)

    worst, likely, best = result.sent
    assert (row(worst), row(best)) == ([1, 1, 1], [1, 1, 0])
    assert row(likely) == pytest.approx([1, 1, 0.5], abs=0.02)
    worst, likely, best = result.recovered
    assert (row(worst), row(best)) == ([0, 0, 1], [0, 1, 0])
    assert row(likely) == pytest.approx([0, 0.5, 0.5], abs=0.02)


def test_after_the_resend_that_succeeded_none_is_made() -> None:
    at = np.array([[2, 16, 20]]) * SECOND

    result = outcome_of(at, known(2 * SECOND, 16 * SECOND), goes_on=False)

    assert [row(one)[2] for one in result.sent] == [0, 0, 0]
    assert [row(one)[1] for one in result.recovered] == [1, 1, 1]


def test_beyond_the_last_resend_nothing_is_known() -> None:
    """Failed at 16 s and was given up; a re-send at 30 s succeeds at best, and is not likely to."""
    result = outcome_of(np.array([[30 * SECOND]]), known(16 * SECOND, np.inf), goes_on=False)

    assert [row(one)[0] for one in result.recovered] == pytest.approx([0, 0, 1])


def test_nothing_is_sent_after_the_observation() -> None:
    at = np.array([[4, 20]]) * SECOND
    message = known(SECOND, np.inf, observed=10 * SECOND)

    assert [row(one) for one in outcome_of(at, message, goes_on=True).sent] == [[1, 0]] * 3


def test_a_policy_that_would_go_on_is_cut_off_unless_the_message_is_back_or_unobserved() -> None:
    at = np.array([[4 * SECOND]])

    assert outcome_of(at, known(SECOND, np.inf), goes_on=True).is_cut_off.tolist() == [True]
    assert outcome_of(at, known(SECOND, np.inf), goes_on=False).is_cut_off.tolist() == [False]
    assert outcome_of(at, known(1.0, 2.0), goes_on=True).is_cut_off.tolist() == [False]
    unobserved = known(SECOND, np.inf, observed=3 * SECOND)
    assert outcome_of(at, unobserved, goes_on=True).is_cut_off.tolist() == [False]


def test_history_played_comes_to_what_it_was() -> None:
    """One failure and one success: two re-sends, one recovery, whatever the curve says."""
    message = known(2 * SECOND, 5 * SECOND)

    result = outcome_of(message.sent_ms, message, goes_on=False)

    assert [row(one) for one in result.sent] == [[1, 1]] * 3
    assert [row(one) for one in result.recovered] == [[0, 1]] * 3
