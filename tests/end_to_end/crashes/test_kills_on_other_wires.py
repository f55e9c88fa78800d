"""The sidecar is killed at every crash point on the wires that `test_kills.py` leaves out.

What becomes of each message is counted as `make chaos` counts it, which kills much more.
"""

import math
import random
from pathlib import Path

import pytest

from chaos.chaos import run
from chaos.faults import Step, deck
from chaos.pairs import PAIRS, Pair

# Why so long: where many share the cores, starts take several times as long.
pytestmark = [pytest.mark.broker, pytest.mark.proof, pytest.mark.timeout(1200)]

WIRES = ("artemis-stomp", "classic6-stomp", "classic6-amqp")


@pytest.mark.parametrize(
    "pair", [one for one in PAIRS if one.name in WIRES], ids=lambda one: one.name
)
def test_nothing_is_lost_doubled_or_altered(pair: Pair, tmp_path: Path) -> None:
    kills = [name for name in deck(pair) if name.startswith("kill at ")]
    chance = random.Random()
    steps = (Step(name, moment_s=0.0, share=chance.random()) for name in kills)
    outcome = run(pair, steps, seed=chance.randrange(10**6), until_s=math.inf, folder=tmp_path)
    assert outcome.accounts.faults == []
    assert outcome.accounts.redeliveries > 0
    # Why twice: the one that runs is killed, and the one that is started to die at the place.
    assert outcome.stage.counts["sidecar_kills"] == 2 * len(kills)
