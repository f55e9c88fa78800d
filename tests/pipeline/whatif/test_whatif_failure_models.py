"""Failure models find the process that made a history; what they state are probabilities."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqsidecar.pipeline.whatif.attempts import KnownTries, Tries, reach_of
from amqsidecar.pipeline.whatif.ensemble import Ensemble, dispersion
from amqsidecar.pipeline.whatif.fitting import (
    Counted,
    counted,
    fit_any_repair,
    fit_chance,
    fit_places,
    fit_weibull_repair,
)
from amqsidecar.pipeline.whatif.forecast import Totals, forecast
from amqsidecar.pipeline.whatif.models import FailureKind, FailureModel, RateBy
from amqsidecar.pipeline.whatif.report import advice_of, doubts_of, share_text
from bench.hidden_processes import CANDIDATES, LOGGED, run
from bench.whatif_cases import History, case_of

FITS: dict[str, Callable[[Counted], FailureModel]] = {
    "chance": fit_chance,
    **{f"by {place}": partial(fit_places, by=place) for place in RateBy},
    "any repair": fit_any_repair,
    "Weibull": fit_weibull_repair,
}


@pytest.fixture(scope="module")
def chance() -> KnownTries:
    return History.of(run("by_chance", 5, 400, LOGGED, 0)).known


@pytest.fixture(scope="module", params=FITS)
def model(request: pytest.FixtureRequest, chance: KnownTries) -> FailureModel:
    fitted: FailureModel = FITS[request.param](counted(chance))
    return fitted


@given(
    waits=st.lists(st.floats(1, 1e8), min_size=1, max_size=8),
    made=st.integers(0, 8),
    seed=st.integers(0, 100),
)
@settings(max_examples=30, deadline=None)
def test_open_shares_are_probabilities_that_never_grow(
    model: FailureModel, chance: KnownTries, waits: list[float], made: int, seed: int
) -> None:
    """Whatever a policy does, also where it makes no re-send."""
    some = chance.take(np.random.default_rng(seed).integers(0, 400, 20))
    waited = np.tile(np.array(waits), (20, 1))
    waited[:, made:] = np.inf
    planned = Tries(np.cumsum(waited, axis=1), waited, np.zeros(waited.shape, dtype=np.int64))

    for is_open in (model.open_after(some, planned), model.open_shares(planned)):
        assert (is_open >= -1e-9).all()
        assert (is_open <= 1 + 1e-9).all()
        assert (np.diff(is_open, axis=1) <= 1e-9).all()


def test_history_is_what_every_model_comes_to_by_the_policy_of_history(
    model: FailureModel, chance: KnownTries
) -> None:
    settled = chance.take(np.flatnonzero((chance.is_known | ~chance.is_made).all(axis=1)))

    is_open = model.open_after(settled, settled)[:, -1]

    assert is_open == pytest.approx(np.where(settled.has_recovered, 0.0, 1.0), abs=1e-6)


@pytest.mark.parametrize(
    ("process", "kinds"),
    [
        ("exponential", {FailureKind.TIME}),
        ("heavy", {FailureKind.TIME, FailureKind.CHANCE}),
        ("by_chance", {FailureKind.CHANCE}),
        ("outage", {FailureKind.DOWN_OR_LOADED}),
    ],
)
def test_the_process_behind_a_history_is_found(process: str, kinds: set[FailureKind]) -> None:
    ensemble = History.of(run(process, 11, 1_500, LOGGED, 0)).ensemble()

    assert sum(ensemble.weight_of(kind) for kind in kinds) > 0.5
    assert ensemble.evidence.is_supported
    assert (ensemble.evidence.over_dispersion[0] > 2) == (process == "outage")


@pytest.mark.parametrize(
    ("process", "policy"),
    [("by_chance", "quick"), ("exponential", "slow"), ("outage", "steady")],
)
def test_a_forecast_is_close_where_history_reaches(process: str, policy: str) -> None:
    """Chance was forecast 44 points too low when all was held to be repair."""
    case = case_of(process, 11, 1_500, policy)

    assert case.covers
    assert case.error < 0.06
    assert case.width < 0.35


def test_beyond_reach_there_is_no_estimate_but_how_many_it_concerns() -> None:
    case = case_of("exponential", 11, 1_500, "patient")

    assert not case.is_reached
    assert case.beyond > 0.05
    assert case.covers


def test_thin_evidence_has_wide_intervals() -> None:
    """The same process with 30 messages and with 3,000."""
    few, many = (case_of("by_chance", 3, count, "quick") for count in (30, 3_000))

    assert few.width > many.width


@pytest.fixture(scope="module")
def together() -> tuple[KnownTries, KnownTries]:
    """Failures of an outage, and the same number by chance."""
    outage = History.of(run("outage", 2, 1_000, LOGGED, 0)).known
    return outage, History.of(run("by_chance", 2, 1_000, LOGGED, 0)).known


def test_failures_together_are_over_dispersed_and_others_are_not(
    together: tuple[KnownTries, KnownTries],
) -> None:
    outage, by_chance = (
        dispersion(
            one,
            np.full(one.at_ms.shape, one.has_succeeded.sum() / one.is_known.sum()),
            one.window[one.is_known],
        )
        for one in together
    )

    assert outage.ratio > 4
    assert outage.swing > 0.3
    assert outage.is_sure
    assert by_chance.ratio == pytest.approx(1.0, abs=0.2)
    assert not by_chance.is_sure


@pytest.mark.parametrize("process", ["tenants", "batches", "rollback", "flapping", "load"])
def test_failures_that_come_together_as_in_no_model_have_a_bound_and_no_interval(
    process: str,
) -> None:
    """Tenants with outages of their own, batches, a bad release, outages of seconds, own load."""
    case = case_of(process, 0, 1_000, "patient")

    assert not case.is_supported
    assert not case.is_reached
    assert case.covers


def test_reach_needs_some_messages_that_got_so_far(chance: KnownTries) -> None:
    """Half of 400 are gone after each of six re-sends: 12 get the last one."""
    reach = reach_of(chance)
    tried = chance.is_known.sum(axis=0)

    assert reach.number == int((tried >= 20).sum())
    assert (chance.at_ms[chance.is_known] * 1.1 >= reach.at_ms).sum() >= 20


def totals(weight: float, recovered: float, *, changed: float = 100.0) -> Totals:
    counts = (recovered, recovered, 0.0, 50.0, 50.0, 50.0, 0.0, 0.0)
    return Totals(weight, 0.02, 100.0, changed, *counts)


@given(shares=st.lists(st.floats(0, 100), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_an_interval_holds_its_estimate_and_stays_within_the_messages(shares: list[float]) -> None:
    found = forecast([[totals(1 / len(shares), share) for share in shares]]).recovered

    assert -1e-9 <= found.lower <= found.likely <= found.upper <= 100 + 1e-9


def test_models_that_disagree_make_an_interval_that_holds_both() -> None:
    found = forecast([[totals(0.5, 20.0), totals(0.5, 80.0)]]).recovered

    assert found.likely == pytest.approx(50.0)
    assert found.lower < 21
    assert found.upper > 79


def test_a_hair_more_than_all_messages_is_all() -> None:
    found = forecast([[totals(1.0, 100.0 + 1e-9)]]).recovered

    assert found.lower > 90
    assert found.upper == pytest.approx(100.0)


def test_what_history_has_not_settled_yet_may_go_either_way() -> None:
    """Of 4 messages that were re-sent a moment ago, 3 likely recover."""
    sure = replace(totals(1.0, 63.0, changed=0.0), unsettled=4.0, settling=3.0)

    found = forecast([[sure]]).recovered

    assert (found.lower, found.likely, found.upper) == pytest.approx((60.0, 63.0, 64.0))


def test_what_the_policy_does_not_change_is_certain() -> None:
    found = forecast([[totals(0.5, 20.0, changed=0.0), totals(0.5, 20.0, changed=0.0)]])

    assert (found.recovered.lower, found.recovered.upper) == pytest.approx((20.0, 20.0))


def test_an_ensemble_has_its_whole_weight() -> None:
    ensemble: Ensemble = History.of(run("by_chance", 5, 400, LOGGED, 0)).ensemble()

    assert sum(ensemble.weights) == pytest.approx(1.0)
    assert sum(ensemble.weight_of(kind) for kind in FailureKind) == pytest.approx(1.0)


def test_a_history_that_no_model_explains_is_flagged() -> None:
    """A release breaks most attempts for hours: no model has that. Advice leaves it out."""
    ensemble = History.of(run("rollback", 1, 1_000, LOGGED, 0)).ensemble()
    assert not ensemble.evidence.is_supported
    policy = {
        "policy": "quick",
        "is_supported": False,
        "share": 0.9,
        "share_lower": 0.8,
        "share_upper": 1.0,
    }
    assert share_text(policy).endswith("no model explains the history: do not rely on it")
    assert advice_of([policy], []) == []
    (doubt,) = doubts_of([policy])
    assert doubt == "Do not rely on the forecast of quick: no model explains the history."


def test_what_depends_on_the_number_may_depend_on_time() -> None:
    """One policy can't tell: a quicker one may recover as many, or next to none."""
    assert all(case_of("stubborn", 1, 1_500, policy).covers for policy in CANDIDATES)


@pytest.mark.parametrize(
    ("process", "seed", "policy"),
    [("same_key", 7, "quick"), ("stale", 0, "slow")],
)
def test_what_one_history_cant_tell_makes_a_wide_interval(
    process: str, seed: int, policy: str
) -> None:
    """The wait or the number; bad luck or age. Each was 10 points off."""
    case = case_of(process, seed, 1_500, policy)

    assert case.covers
    assert case.models[1] - case.models[0] > 0.25


def test_shares_are_percents() -> None:
    beyond = {
        "share": None,
        "share_lower": 0.56,
        "beyond_reach_messages": 812,
        "is_supported": True,
    }
    assert share_text(beyond) == "at least 56 %, beyond reach: 812 messages"
