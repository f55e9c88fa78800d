"""When a policy's re-sends are, and what failure models say of them, by hand."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from amqsidecar.pipeline.whatif.attempts import Reach, Tries, Usual, WindowCounts
from amqsidecar.pipeline.whatif.curve import NEVER, cell_of, fit_curve
from amqsidecar.pipeline.whatif.ensemble import Ensemble, Evidence, fit_ensemble
from amqsidecar.pipeline.whatif.failure_model import FailureKind
from amqsidecar.pipeline.whatif.failure_models.chance import ChanceRate
from amqsidecar.pipeline.whatif.failure_models.draws import Draws
from amqsidecar.pipeline.whatif.failure_models.repair import Repair
from amqsidecar.pipeline.whatif.forecast import forecast, is_changed, play, sum_up
from amqsidecar.pipeline.whatif.policy import DelayPlan
from amqsidecar.pipeline.whatif.replay import Known, known_of, planned_tries, resend_times

SECOND = 1000
REPAIR = Repair(
    fit_curve(
        cell_of(np.array([1.0, 16.0]) * SECOND),
        np.array([cell_of(np.array([16.0 * SECOND]))[0], NEVER]),
        np.ones(2),
    )
)
"""Half of the messages become recoverable between 1 and 16 seconds, half never."""
CHANCE = Draws(FailureKind.CHANCE, ChanceRate(0.5, 0.0), never=0.0)
WINDOWS = WindowCounts(0, *[np.ones(10)] * 4)
FAR = Reach(first_ms=0.0, least_wait_ms=0.0, at_ms=1e9, number=100)


def known(*, recovered: int | None = 16_000, observed: int = 10**9, last: int = 16_000) -> Known:
    """One message that died at 100 s; re-sends after 1 s, back after 2 s, and after `last`.

    The first was 4 ms late. Usual for its destination: 7 ms late, back after 3 s.
    """
    batch = pa.RecordBatch.from_pydict(
        {
            "arrived_ms": [100 * SECOND],
            "observed_ms": [observed],
            "sent_ms": [[1 * SECOND, last]],
            "late_ms": [[4, 0]],
            "back_ms": pa.array(
                [[2 * SECOND, None if recovered else 3 * SECOND]], pa.list_(pa.int64())
            ),
            "recovered_ms": pa.array([recovered], pa.int64()),
        }
    )
    return known_of(batch, Usual(late_ms=7, back_ms=3 * SECOND), WINDOWS)


def at(*seconds: float) -> Tries:
    times = np.array([seconds], dtype=float) * SECOND
    return Tries(times, np.diff(times, prepend=0.0), np.zeros(times.shape, dtype=np.int64))


def row(numbers: np.ndarray) -> list[float]:
    return [float(one) for one in numbers[0]]


def test_history_is_read_with_waits_and_outcomes() -> None:
    tries = known().tries

    assert row(tries.at_ms) == [1 * SECOND, 16 * SECOND]
    assert row(tries.waited_ms) == [1 * SECOND, 13 * SECOND]
    assert row(tries.has_failed) == [1, 0]
    assert row(tries.has_succeeded) == [0, 1]
    assert (tries.failed_ms[0], tries.recovered_ms[0]) == (1 * SECOND, 16 * SECOND)


def test_a_resend_is_as_late_and_comes_back_as_soon_as_its_like_in_history() -> None:
    """1000 + 4; back 2000 later, + 1000 + 0; back as usual 3000 later, + 5000 + 7."""
    plan = DelayPlan((1000, 1000, 5000), goes_on=False)

    assert row(resend_times(plan, known())) == [1004, 4004, 12011]


def test_a_shorter_policy_has_fewer_resends() -> None:
    assert row(resend_times(DelayPlan((1000,), goes_on=False), known())) == [1004]
    assert row(resend_times(DelayPlan((), goes_on=False), known())) == []


def test_nothing_is_sent_after_the_observation() -> None:
    plan = DelayPlan((4000, 30_000), goes_on=False)

    tries = planned_tries(plan, known(observed=10 * SECOND), WINDOWS)

    assert row(tries.is_made) == [1, 0]


def test_by_repair_history_decides_where_it_can_and_the_curve_in_between() -> None:
    """Failed at 1 s, succeeded at 16 s; re-sends at 0.5, 4, 20 s."""
    played = play(REPAIR, known().tries, at(0.5, 4, 20), FAR)

    assert row(played.sent) == pytest.approx([1, 1, 0.5], abs=0.02)
    assert row(played.recovered) == pytest.approx([0, 0.5, 0.5], abs=0.02)


def test_by_chance_the_number_of_a_resend_decides_and_not_its_time() -> None:
    """The first failed and the second succeeded, whenever they are."""
    played = play(CHANCE, known().tries, at(0.5, 4, 20), FAR)

    assert row(played.sent) == pytest.approx([1, 1, 0])
    assert row(played.recovered) == pytest.approx([0, 1, 0])


def test_by_chance_a_resend_more_than_history_made_has_its_chance() -> None:
    """Both failed; the third succeeds by half."""
    played = play(CHANCE, known(recovered=None).tries, at(0.5, 4, 20), FAR)

    assert row(played.recovered) == pytest.approx([0, 0, 0.5])


def test_what_may_be_poison_recovers_less() -> None:
    """Half of all never succeed; after two failures of others by half, four of five are those."""
    model = replace(CHANCE, never=0.5)

    played = play(model, known(recovered=None).tries, at(0.5, 4, 20), FAR)

    assert row(played.recovered)[2] == pytest.approx(0.2 * 0.5)


def test_beyond_reach_is_later_by_repair_and_twice_as_many_by_chance() -> None:
    reach = Reach(first_ms=0.0, least_wait_ms=0.0, at_ms=5.0 * SECOND, number=1)
    tries = known().tries

    assert row(play(REPAIR, tries, at(0.5, 4, 20), reach).is_within) == [1, 1, 0]
    assert row(play(CHANCE, tries, at(0.5, 4, 20), reach).is_within) == [1, 1, 0]


@pytest.mark.parametrize("model", [REPAIR, CHANCE])
def test_history_played_comes_to_what_it_was(model: Repair | Draws) -> None:
    tries = known().tries

    played = play(model, tries, tries, FAR)

    assert row(played.sent) == pytest.approx([1, 1])
    assert row(played.recovered) == pytest.approx([0, 1])
    assert not is_changed(tries, tries).any()


@pytest.mark.parametrize("messages", [1, 2, 40])
def test_messages_without_resends_and_policies_without_any_are_played(messages: int) -> None:
    """Nothing is known, and nothing recovers by nothing."""
    none = pa.array([[]] * messages, pa.list_(pa.int64()))
    batch = pa.RecordBatch.from_pydict(
        {
            "arrived_ms": [1000] * messages,
            "observed_ms": [10**9] * messages,
            **dict.fromkeys(("sent_ms", "late_ms", "back_ms"), none),
            "recovered_ms": pa.array([None] * messages, pa.int64()),
        }
    )
    known = known_of(batch, Usual(late_ms=7, back_ms=3 * SECOND), WINDOWS)
    ensemble = fit_ensemble(
        known.tries, known.arrived_ms, np.arange(messages) % 2 == 0, WINDOWS, messages
    )

    for delays in ((), (1000, 2000)):
        planned = planned_tries(DelayPlan(delays, goes_on=False), known, WINDOWS)
        found = forecast([[totals for totals, _ in sum_up(ensemble, known.tries, planned)]])
        assert found.messages == messages
        assert found.recovered.lower == 0.0
        assert found.beyond == pytest.approx(messages if delays else 0)
        assert found.recovered.upper == pytest.approx(found.beyond)
        assert found.resends.lower >= 0.0


def test_other_times_are_a_change_unless_the_message_was_back() -> None:
    tries = known().tries

    assert not is_changed(tries, at(1.5, 16, 99)).any()
    assert is_changed(tries, at(1.5, 18, 99)).all()
    assert is_changed(tries, at(1.5)).all()
    assert is_changed(known(recovered=None).tries, at(1, 16, 99)).all()


@pytest.mark.parametrize("model", [REPAIR, CHANCE])
def test_a_millisecond_before_history_is_as_in_history(model: Repair | Draws) -> None:
    tries = known().tries
    sooner = replace(at(1, 15.999), waited_ms=tries.waited_ms)
    ensemble = Ensemble(
        [model], [1.0], FAR, Evidence(1, (), (), (1.0,), (0.0,), 0.0), REPAIR, messages=1
    )

    ((totals, _),) = sum_up(ensemble, tries, sooner)

    assert (totals.recovered, totals.resends, totals.changed) == pytest.approx((1, 2, 0))


def test_sums_are_the_same_however_messages_are_divided() -> None:
    """Engines divide a history as they like; each writes the same tables."""
    count = 30
    batch = pa.RecordBatch.from_pydict(
        {
            "arrived_ms": [7 * one for one in range(count)],
            "observed_ms": [10**9] * count,
            "sent_ms": [[SECOND, 3_000 + 977 * one] for one in range(count)],
            "late_ms": [[0, 0]] * count,
            "back_ms": pa.array([[500, None]] * count, pa.list_(pa.int64())),
            "recovered_ms": [3_000 + 977 * one for one in range(count)],
        }
    )
    ensemble = Ensemble(
        [REPAIR], [1.0], FAR, Evidence(1, (), (), (1.0,), (0.0,), 0.0), REPAIR, count
    )
    plan = DelayPlan((2_000, 5_000, 11_000), goes_on=False)
    usual = Usual(late_ms=0, back_ms=500)

    def totals(part: pa.RecordBatch) -> tuple[float, float, float]:
        known = known_of(part, usual, WINDOWS)
        planned = planned_tries(plan, known, WINDOWS)
        ((found, _),) = sum_up(ensemble, known.tries, planned)
        return found.recovered, found.within, found.resends

    parts = [totals(batch.slice(start, 7)) for start in range(0, count, 7)]
    assert tuple(map(sum, zip(*parts, strict=True))) == totals(batch)
