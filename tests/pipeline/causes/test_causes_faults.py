"""Dead letters of twelve faults, as Classic words them, are twelve groups."""

import random
from pathlib import Path

import pytest

from amqsidecar.model.cause import cause_group
from amqsidecar.pipeline.tables import EVERYWHERE
from pipeline.journals import START_MS, event, write_journal
from pipeline.running import rows_of, run_job
from support.histories.faults import FAULTS, say

DEAD_LETTERS = 20_000
"""100,000 gave the same twelve."""


@pytest.mark.usefixtures("spark")
def test_twelve_faults_are_twelve_groups(tmp_path: Path) -> None:
    chance = random.Random(12)
    drawn = [chance.randrange(len(FAULTS)) for _ in range(DEAD_LETTERS)]
    rows = [
        event(1, number, cause_group=cause_group(say(chance, FAULTS[fault])))
        | {"origin": f"queue://orders.{fault % 5}", "at": START_MS + number * 5_000}
        for number, fault in enumerate(drawn)
    ]
    write_journal(tmp_path / "journal", rows)
    assert run_job("causes", tmp_path / "journal", tmp_path / "out") == 0
    groups = rows_of(tmp_path / "out/cause_groups")
    found = sorted(row["deaths"] for row in groups if row["origin"] == EVERYWHERE)
    assert found == sorted(drawn.count(fault) for fault in range(len(FAULTS)))
