"""Recovery of a real sidecar's history, in which a person brought messages back after their end."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from amqsidecar.pipeline.recovery.judge import (
    FIRST_HOURLY,
    FIRST_MESSAGE,
    NONE,
    OUTCOMES,
    ObservedStreams,
    count_lives,
)
from amqsidecar.pipeline.recovery.steps import (
    COLUMNS,
    TEXT_COLUMNS,
    buckets_of,
    divided,
    seen_in,
    text_number,
)
from amqsidecar.pipeline.sources.event_files import read_batches
from amqsidecar.pipeline.sources.events import journal_slices
from support.brokers.real import ClassicBroker
from support.histories.journal_rows import wait_written
from support.jms.peer import JmsPeer
from support.sidecar.policy import write_policy
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

pytestmark = pytest.mark.broker

POLICY = """
plugins:
  - redelivery:
      entries: [{queue: ">", maximum_redeliveries: 1, initial_redelivery_delay_ms: 0}]
"""
MESSAGES = 4
LATER_MS = 10**9


def fates(journal: Path) -> Counter[str]:
    """Return how many messages had which outcome, long after the journal's last event."""
    slices = list(journal_slices(str(journal)))
    batches = read_batches(slices, COLUMNS, TEXT_COLUMNS, since_ms=None, until_ms=None)
    *made, seen = divided(batches, None, None)
    streams = seen_in(seen.column("content").to_pylist()).streams
    numbers = np.array(sorted(map(text_number, streams)), dtype=np.int64)
    ends = np.full(len(numbers), np.iinfo(np.int64).max // 4)
    steps = list(buckets_of(made))
    counts = count_lives(
        pyarrow.concat_tables(steps), ObservedStreams(numbers, ends, LATER_MS, NONE)
    )
    found: Counter[str] = Counter()
    for row in counts.to_pylist():
        what = row["what"] // 2
        if FIRST_MESSAGE <= what < FIRST_HOURLY:
            found[OUTCOMES[what][1]] += row["messages"]
    return found


def test_what_is_retried_after_its_end_and_consumed_has_recovered(
    tmp_path: Path, unique: str
) -> None:
    """Of four, one is redirected and one stays exhausted."""
    options = (
        "intake.backlog=process",
        f"journal.path={tmp_path / 'journal'}",
        "journal.segment_s=1",
    )
    policy = write_policy(tmp_path, POLICY)
    with (
        ClassicBroker() as broker,
        SidecarProcess(tmp_path, broker.openwire_url, policy=policy, sets=options) as sidecar,
    ):
        sidecar.start()
        peer = JmsPeer.of(broker, "openwire")
        peer.produce(unique, "Text", count=MESSAGES)
        for _ in range(2):
            peer.fail(unique, messages=MESSAGES, deliveries=1)
        eventually(lambda: sidecar.exhausted() == MESSAGES, what="all are exhausted")
        ids = [str(row["id"]) for row in sidecar.json_command("list")["rows"]]
        sidecar.json_command("retry", *ids[:2])
        assert len(peer.consume(unique, count=2)) == 2
        sidecar.json_command("redirect", ids[2], "--to", f"{unique}.repair")
        assert len(peer.consume(f"{unique}.repair", count=1)) == 1
        wait_written(sidecar)
        assert sidecar.stop() == 0
    assert fates(tmp_path / "journal") == {"recovered": 2, "redirected": 1, "exhausted": 1}
