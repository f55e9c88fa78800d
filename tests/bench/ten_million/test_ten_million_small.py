"""The benchmark with ten million waiting messages works, with hundreds."""

from pathlib import Path

import pytest

from bench.dead_letters import dead_letters
from bench.ten_million.measure import (
    Sizes,
    measure_meanwhile,
    measure_steps,
    table_of_meanwhile,
    table_of_steps,
)
from bench.ten_million.rows import SqliteScale
from bench.ten_million.service import take_model
from support.brokers.real import ArtemisBroker

STEPS = (600,)


# Why in proof: `make bench-scale` alone runs it.
@pytest.mark.proof
@pytest.mark.broker
def test_every_figure_is_found(tmp_path: Path) -> None:
    sizes = Sizes(cycles=2, moves=50, per_second=100, seconds=0.5, rest_s=0.3)
    scale = SqliteScale(tmp_path)
    with ArtemisBroker() as broker, dead_letters(broker, "bench.scaled") as dead:
        model = take_model(scale, tmp_path, dead)
        steps = list(measure_steps(scale, model, tmp_path, dead, STEPS, sizes))
        beside = list(measure_meanwhile(scale, model, tmp_path, dead, STEPS[-1], sizes))

    assert [step.waiting for step in steps] == list(STEPS)
    assert all(step.service.moved_per_second > 0 for step in steps)
    assert "| 600 waiting |" in table_of_steps(steps)
    said = {one.what: one.said for one in beside}
    retried = said["retry a tenth by destination"]
    assert int(retried.removeprefix("retry: ").removesuffix(" messages")) >= STEPS[-1] / 20
    assert said["a filter that hits nothing"] == "hold: 0 messages"
    assert "give space back" in table_of_meanwhile(beside)
