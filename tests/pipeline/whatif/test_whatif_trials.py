"""Which trials are proposed, and the load that a policy makes."""

import numpy as np
import pytest

from amqsidecar.pipeline.whatif.attempts import Reach, Usual
from amqsidecar.pipeline.whatif.curve import EDGES_MS
from amqsidecar.pipeline.whatif.ensemble import Ensemble, Evidence
from amqsidecar.pipeline.whatif.failure_model import FailureKind, FailureModel
from amqsidecar.pipeline.whatif.failure_models.chance import ChanceRate
from amqsidecar.pipeline.whatif.failure_models.destination import LoadRate
from amqsidecar.pipeline.whatif.failure_models.draws import Draws
from amqsidecar.pipeline.whatif.failure_models.repair import Repair
from amqsidecar.pipeline.whatif.policy_load import Arrivals, load_by_window
from amqsidecar.pipeline.whatif.trials import LATER, Trial, trials_of

MINUTE, HOUR = 60_000, 3_600_000
CHANCE = Draws(FailureKind.CHANCE, ChanceRate(float(np.log(2)), 0.0, 0.0), never=0.0)
REPAIR = Repair(1 - np.exp(-EDGES_MS / (20 * MINUTE)))
HALF_NEVER = Repair(REPAIR.curve / 2)


def trials(*models: tuple[FailureModel, float], repair: Repair = REPAIR) -> list[Trial]:
    ensemble = Ensemble(
        [model for model, _ in models],
        [weight for _, weight in models],
        Reach(first_ms=0.0, least_wait_ms=0.0, at_ms=HOUR, waited_ms=HOUR, number=5, load=10.0),
        Evidence(1_000, (0.5,), (1_000.0,), (1.0,), (0.0,), 0.0),
        repair,
        0.0,
        1.0,
        1_000,
    )
    usual = {"queue://a": Usual(late_ms=0.0, back_ms=1_000.0)}
    return trials_of({("queue://a", "died"): ensemble}, usual, least_messages=30, horizon_ms=HOUR)


def test_where_two_reasons_are_possible_a_trial_distinguishes_them() -> None:
    """By chance, quick re-sends recover nearly all; by repair, next to none."""
    (found,) = trials((CHANCE, 0.6), (REPAIR, 0.4))

    assert (found.destination, found.cause_group) == ("queue://a", "died")
    assert found.question == "time or chance"
    assert found.answer_low < 0.05
    assert found.answer_high > 0.9
    assert found.messages == 20
    assert found.duration_ms < HOUR + 10 * MINUTE


def test_where_one_reason_is_sure_there_is_no_trial() -> None:
    assert trials((CHANCE, 0.95), (REPAIR, 0.05)) == []


def test_what_history_gave_up_on_is_tried_later_on_some_messages() -> None:
    (found,) = trials((HALF_NEVER, 1.0), repair=HALF_NEVER)

    assert (found.question, found.delay_ms, found.resends) == (LATER, 8 * HOUR, 1)
    assert (found.messages, found.duration_ms) == (271, 9 * HOUR)
    assert found.answer_low == pytest.approx(0.5)


def arrivals(delays_ms: list[float], *deaths: float, bears: float = 1e9) -> Arrivals:
    return Arrivals(np.array(deaths), LoadRate(bears, 1.0), never=0.0, delays_ms=delays_ms)


def test_where_nothing_fails_each_message_is_sent_once() -> None:
    """Two windows later, and between two windows in parts."""
    load = load_by_window([arrivals([60_000.0, 60_000.0], 10, 0, 0, 0)], 0.0)
    between = load_by_window([arrivals([45_000.0], 10, 0, 0, 0)], 0.0)

    assert load.tolist() == pytest.approx([10, 0, 10, 0], abs=1e-6)
    assert between.tolist() == pytest.approx([10, 5, 5, 0], abs=1e-6)


def test_what_fails_is_sent_again_and_is_load_then() -> None:
    """10 of 10 that are borne: half fail, and are sent again a window later."""
    load = load_by_window([arrivals([30_000.0, 30_000.0], 10, 0, 0, 0, bears=10)], 0.0)

    assert load.tolist() == pytest.approx([10, 10, 5, 0])


def test_messages_that_a_policy_treats_otherwise_are_sent_at_their_own_times() -> None:
    """Of 10 each: one half is never sent, one a window later, and again after two more."""
    none, two = (
        arrivals([], 10, 0, 0, 0, 0),
        arrivals([30_000.0, 60_000.0], 10, 0, 0, 0, 0, bears=1e-9),
    )

    assert load_by_window([none, two], 0.0).tolist() == pytest.approx([20, 10, 0, 10, 0])


def test_quick_resends_are_in_the_same_window_and_all_are_made() -> None:
    """Messages that always fail: five re-sends each within the window, but for the edges."""
    load = load_by_window([arrivals([1_000.0] * 5, 10, 0, 0, bears=1e-9)], 0.0)

    assert load.sum() == pytest.approx(60, rel=0.01)
    assert load[0] > 50
