"""The grid, the scores, the choice."""

from typing import Any

import numpy as np
import pytest

from amqsidecar.pipeline.whatif.attempts import Reach, Usual
from amqsidecar.pipeline.whatif.curve import NEVER, cell_of, fit_curve
from amqsidecar.pipeline.whatif.ensemble import Ensemble, Evidence
from amqsidecar.pipeline.whatif.models import ChanceRate, Draws, FailureKind, FailureModel, Repair
from amqsidecar.pipeline.whatif.policy import Setting
from amqsidecar.pipeline.whatif.search import (
    Grid,
    Rule,
    Scores,
    choose,
    make_grid,
    mean_recoverable_ms,
    score,
    why_not,
)
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules

PLUGINS = load_plugins()
SECOND = 1000.0
NONE_USUAL = Usual(late_ms=0.0, back_ms=0.0)


def by(*models: FailureModel, curve: np.ndarray) -> list[Ensemble]:
    """A destination of one group, with these models by equal weights."""
    reach = Reach(first_ms=0.0, least_wait_ms=0.0, at_ms=1e9, number=20)
    evidence = Evidence(100, (), (), (1.0,), (0.0,), 0.0)
    weights = [1 / len(models)] * len(models)
    return [Ensemble(list(models), weights, reach, evidence, Repair(curve), 100)]


def by_repair(curve: np.ndarray) -> list[Ensemble]:
    return by(Repair(curve), curve=curve)


def scores(*points: tuple[float, float, float]) -> Scores:
    share, deliveries, mean_ms = (np.array(one, dtype=float) for one in zip(*points, strict=True))
    return Scores(share, deliveries, mean_ms, mean_ms)


def test_the_grid_is_bounded_and_the_same_for_both_brokers() -> None:
    """But for the milliseconds that Classic cuts off at each step, Artemis at the end."""
    classic, artemis = make_grid(ClassicRules(), PLUGINS), make_grid(ArtemisRules(), PLUGINS)

    assert classic.settings == artemis.settings
    np.testing.assert_allclose(classic.delays_ms, artemis.delays_ms, rtol=1e-3)
    assert len(classic.settings) == len(set(classic.settings)) < 2000
    assert len({tuple(row) for row in classic.delays_ms}) == len(classic.settings)


def test_delays_are_those_of_the_policy() -> None:
    grid = make_grid(ClassicRules(), PLUGINS)

    row = grid.settings.index(Setting(15_000, 3.0, 60_000, 4))

    assert grid.delays_ms[row, :5].tolist() == [15_000, 45_000, 60_000, 60_000, np.inf]


def test_scores_by_hand() -> None:
    """Half recover between 9 and 10 s, half never; re-sends at 5, 20 and 35 s, or at 5 s only.

    The first: nothing at 5 s, all at 20 s, so 2 re-sends and a third for the half that never does.
    """
    cells = cell_of(np.array([9 * SECOND, 100 * SECOND]))
    curve = fit_curve(cells, np.array([cell_of(np.array([10 * SECOND]))[0], NEVER]), np.ones(2))
    grid = Grid(
        [Setting(0, 1.0, 0, 3), Setting(0, 1.0, 0, 1)],
        np.array([[5, 15, 15], [5, np.inf, np.inf]]) * SECOND,
    )

    result = score(grid, by_repair(curve), NONE_USUAL)

    assert result.share == pytest.approx([0.5, 0.0])
    assert result.deliveries == pytest.approx([2.5, 1.0])
    assert result.mean_ms[0] == pytest.approx(20 * SECOND)
    assert result.p90_ms[0] == 20 * SECOND


def test_messages_that_never_recover_have_no_part_in_when_others_do() -> None:
    cell = cell_of(np.array([10 * SECOND]))
    curve = fit_curve(np.repeat(cell - 1, 2), np.array([cell[0], NEVER]), np.ones(2))

    assert mean_recoverable_ms(by_repair(curve)) == pytest.approx(10 * SECOND, rel=0.05)


def test_a_message_that_dies_again_waits_from_there() -> None:
    """Late 1 s, back after 2 s: re-sends at 5 + 1 and 6 + 2 + 5 + 1 s."""
    curve = fit_curve(np.array([-1]), cell_of(np.array([13 * SECOND])), np.ones(1))
    grid = Grid([Setting(0, 1.0, 0, 2)], np.array([[5.0, 5.0]]) * SECOND)

    result = score(grid, by_repair(curve), Usual(late_ms=SECOND, back_ms=2 * SECOND))

    assert result.share == pytest.approx([1.0])
    assert result.p90_ms[0] == 14 * SECOND


def test_the_choice_is_the_cheapest_that_is_good_and_soon_enough() -> None:
    """Messages become recoverable at about 10 s, so 20 s is soon enough.

    The third recovers too little, the second is too late; of the first and the last, the last costs
    less.
    """
    points = scores((0.9, 5, 15_000), (0.9, 1, 30_000), (0.7, 1, 9000), (0.895, 4, 19_000))

    assert choose(points, 10 * SECOND, Rule(share_tolerance=0.01, slowdown=2.0)) == 3
    assert choose(points, 10 * SECOND, Rule(share_tolerance=0.001, slowdown=2.0)) == 0
    assert choose(points, 10 * SECOND, Rule(share_tolerance=0.01, slowdown=4.0)) == 1
    assert choose(points, 10 * SECOND, Rule(share_tolerance=0.01, slowdown=1.0)) == 0


def test_where_chance_decides_delays_make_no_difference_but_their_number_does() -> None:
    """Each attempt succeeds by half; 3 re-sends in 3 s recover as many as 3 in an hour."""
    curve = fit_curve(np.array([-1]), np.array([NEVER]), np.ones(1))
    grid = Grid(
        [Setting(0, 1.0, 0, 3)] * 2, np.array([[1, 1, 1], [1200, 1200, 1200]], dtype=float) * SECOND
    )
    chance = by(Draws(FailureKind.CHANCE, ChanceRate(0.5, 0.0), never=0.0), curve=curve)

    result = score(grid, chance, NONE_USUAL)

    assert result.share == pytest.approx([0.875, 0.875])
    assert result.deliveries == pytest.approx([1.75, 1.75])
    assert result.mean_ms[0] < result.mean_ms[1]


def test_models_count_by_their_weights() -> None:
    """One of two says that all recover, the other that none does."""
    curve = fit_curve(np.array([-1]), np.array([NEVER]), np.ones(1))
    both = by(
        *(Draws(FailureKind.CHANCE, ChanceRate(p, 0.0), never=0.0) for p in (1.0, 0.0)),
        curve=curve,
    )
    grid = Grid([Setting(0, 1.0, 0, 1)], np.array([[1.0]]) * SECOND)

    assert score(grid, both, NONE_USUAL).share == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, None),
        ({"lower": 0.8}, "perhaps no better than history"),
        ({"share": None}, "beyond what history tried"),
        ({"is_supported": False}, "no model explains the history"),
    ],
)
def test_a_proposal_is_written_only_where_it_surely_recovers_more_than_history(
    given: dict[str, Any], reason: str | None
) -> None:
    surely: dict[str, Any] = {"is_supported": True, "share": 0.9, "lower": 0.81, "history": 0.8}
    assert why_not(**surely | given) == reason
