"""The benchmark of `whatif` through the command itself, with one world of each of three kinds."""

from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

from bench.bench_whatif import START_MS, by_the_job, write_history
from bench.hidden_processes import CANDIDATES, LOGGED, run
from bench.whatif_cases import case_of, summary


@pytest.mark.proof
def test_the_command_says_what_the_models_say() -> None:
    """Where a sample is all of the messages: the same forecasts, through events and Spark."""
    worlds = [("by_chance", 1), ("exponential", 1), ("outage", 1)]
    cases = list(by_the_job(worlds, 1_000))

    for case in cases:
        assert case.covers, case
        direct = case_of(case.process, case.seed, 1_000, case.policy)
        assert case.is_reached == direct.is_reached
        if case.is_reached:
            assert case.likely == pytest.approx(direct.likely, abs=0.03)
    assert summary(cases).count("\n") == 5


def test_worlds_are_the_same_for_the_same_seed_and_differ_for_others() -> None:
    first, again, other = (run("outage", seed, 50, LOGGED, 0) for seed in (1, 1, 2))

    assert (first.died_ms == again.died_ms).all()
    assert (first.died_ms != other.died_ms).any()
    assert len(CANDIDATES) == 5


def test_a_history_is_written_whole(tmp_path: Path) -> None:
    lives = run("by_chance", 1, 50, LOGGED, 0)
    write_history(tmp_path / "events", [("by_chance", 1)], 50)

    events = parquet.read_table(tmp_path / "events")
    kinds = Counter(events["type"].to_pylist())
    first_at = min(events["at"].to_pylist()).timestamp()
    assert first_at * 1000 == START_MS + lives.died_ms.min()
    assert kinds["received"] == 50
    assert kinds["resent"] == kinds["scheduled"] == lives.resends
    assert kinds["exhausted"] == 50 - int(lives.has_recovered.sum())
