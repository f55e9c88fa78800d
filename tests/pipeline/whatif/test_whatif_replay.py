"""When a policy's re-sends are, and what failure models say of them, by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from amqsidecar.pipeline.whatif.attempts import Reach, Tries, Usual, WindowCounts
from amqsidecar.pipeline.whatif.curve import NEVER, cell_of, fit_curve
from amqsidecar.pipeline.whatif.ensemble import Ensemble, Evidence, fit_ensemble
from amqsidecar.pipeline.whatif.forecast import forecast, is_changed, play, sum_up
from amqsidecar.pipeline.whatif.models import ChanceRate, Draws, FailureKind, Repair
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
NEAR = Reach(first_ms=0.0, least_wait_ms=0.0, at_ms=5.0 * SECOND, number=1)
USUAL = Usual(late_ms=7, back_ms=3 * SECOND)

Row = Sequence[int | None]


def batch_of(
    arrived: Row, sent: Sequence[Row], late: Sequence[Row], back: Sequence[Row], recovered: Row
) -> pa.RecordBatch:
    times = pa.list_(pa.int64())
    columns = {"arrived_ms": pa.array(arrived, pa.int64()), "sent_ms": pa.array(sent, times)}
    columns |= {"late_ms": pa.array(late, times), "back_ms": pa.array(back, times)}
    columns |= {"recovered_ms": pa.array(recovered, pa.int64())}
    return pa.RecordBatch.from_pydict({**columns, "observed_ms": [10**9] * len(arrived)})


def known(*, recovered: int | None = 16_000) -> Known:
    """One message that died at 100 s; re-sends after 1 s, back after 2 s, and after 16 s.

    The first was 4 ms late. Usual for its destination: 7 ms late, back after 3 s.
    """
    back = [2 * SECOND, None if recovered else 3 * SECOND]
    batch = batch_of([100 * SECOND], [[1 * SECOND, 16 * SECOND]], [[4, 0]], [back], [recovered])
    return known_of(batch, USUAL, WINDOWS)


def by(model: Repair | Draws, messages: int = 1) -> Ensemble:
    evidence = Evidence(1, (), (), (1.0,), (0.0,), 0.0)
    return Ensemble([model], [1.0], FAR, evidence, REPAIR, messages)


def plan(*delays_ms: int) -> DelayPlan:
    return DelayPlan(delays_ms, goes_on=False)


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
    """1000 + 4; back 2000 later, + 1000 + 0; back as usual 3000 later, + 5000 + 7.

    A shorter policy has fewer re-sends, and nothing is sent after the observation.
    """
    assert row(resend_times(plan(1000, 1000, 5000), known())) == [1004, 4004, 12011]
    assert row(resend_times(plan(1000), known())) == [1004]
    assert row(resend_times(plan(), known())) == []
    observed = replace(known(), observed_ms=np.array([10.0 * SECOND]))
    assert row(planned_tries(plan(4000, 30_000), observed, WINDOWS).is_made) == [1, 0]


@pytest.mark.parametrize(
    ("model", "recovers", "sent", "recovered"),
    [
        # Failed at 1 s, succeeded at 16 s: history decides where it can, the curve in between.
        (REPAIR, 16_000, [1, 1, 0.5], [0, 0.5, 0.5]),
        # By chance the number decides and not its time: the first failed, the second succeeded.
        (CHANCE, 16_000, [1, 1, 0], [0, 1, 0]),
        # Both failed; a re-send more than history made has its chance.
        (CHANCE, None, [1, 1, 1], [0, 0, 0.5]),
        # Half of all never succeed; after two failures of others by half, four of five are those.
        (replace(CHANCE, never=0.5), None, [1, 1, 1], [0, 0, 0.2 * 0.5]),
    ],
)
def test_what_resends_after_half_4_and_20_seconds_come_to(
    model: Repair | Draws, recovers: int | None, sent: list[float], recovered: list[float]
) -> None:
    played = play(model, known(recovered=recovers).tries, at(0.5, 4, 20), FAR)

    assert row(played.sent) == pytest.approx(sent, abs=0.02)
    assert row(played.recovered) == pytest.approx(recovered, abs=0.02)


@pytest.mark.parametrize("model", [REPAIR, CHANCE])
def test_beyond_reach_is_later_by_repair_and_twice_as_many_by_chance(
    model: Repair | Draws,
) -> None:
    assert row(play(model, known().tries, at(0.5, 4, 20), NEAR).is_within) == [1, 1, 0]


@pytest.mark.parametrize("model", [REPAIR, CHANCE])
def test_history_played_comes_to_what_it_was_also_a_millisecond_before(
    model: Repair | Draws,
) -> None:
    tries = known().tries
    sooner = replace(at(1, 15.999), waited_ms=tries.waited_ms)

    played = play(model, tries, tries, FAR)
    ((totals, _),) = sum_up(by(model), tries, sooner)

    assert row(played.sent) == pytest.approx([1, 1])
    assert row(played.recovered) == pytest.approx([0, 1])
    assert not is_changed(tries, tries).any()
    assert (totals.recovered, totals.resends, totals.changed) == pytest.approx((1, 2, 0))


@pytest.mark.parametrize("messages", [1, 2, 40])
def test_messages_without_resends_and_policies_without_any_are_played(messages: int) -> None:
    """Nothing is known, and nothing recovers by nothing."""
    none: list[Row] = [[]] * messages
    batch = batch_of([1000] * messages, none, none, none, [None] * messages)
    known = known_of(batch, USUAL, WINDOWS)
    is_first = np.arange(messages) % 2 == 0
    ensemble = fit_ensemble(known.tries, known.arrived_ms, is_first, WINDOWS, messages)

    for delays in ((), (1000, 2000)):
        planned = planned_tries(plan(*delays), known, WINDOWS)
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


def test_sums_are_the_same_however_messages_are_divided() -> None:
    """Engines divide a history as they like; each writes the same tables."""
    count = 30
    last = [3_000 + 977 * one for one in range(count)]
    sent, back = [[SECOND, one] for one in last], [[500, None]] * count
    batch = batch_of([7 * one for one in range(count)], sent, [[0, 0]] * count, back, last)
    ensemble = by(REPAIR, count)

    def totals(part: pa.RecordBatch) -> tuple[float, float, float]:
        known = known_of(part, Usual(late_ms=0, back_ms=500), WINDOWS)
        planned = planned_tries(plan(2_000, 5_000, 11_000), known, WINDOWS)
        ((found, _),) = sum_up(ensemble, known.tries, planned)
        return found.recovered, found.within, found.resends

    parts = [totals(batch.slice(start, 7)) for start in range(0, count, 7)]
    assert tuple(map(sum, zip(*parts, strict=True))) == totals(batch)
