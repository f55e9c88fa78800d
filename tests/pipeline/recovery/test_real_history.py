"""Recovery of a real sidecar's history, in which a person brought messages back after their end."""

import json
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
from amqsidecar.pipeline.sources.event_files import journal_slices, read_batches
from amqsidecar.pipeline.tables import EVERYWHERE
from pipeline.running import rows_of, run_job
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
MESSAGES = 36
RETRIED = 30
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


def test_each_message_has_the_fate_that_the_last_act_of_a_person_gave_it(
    tmp_path: Path, unique: str
) -> None:
    """Thirty are retried and consumed, two fail once more, one is discarded and put back.

    A discard after its end changes no fate: the first end of a life counts.
    """
    options = (
        "intake.backlog=process",
        f"journal.path={tmp_path / 'journal'}",
        "journal.segment_s=1",
    )
    policy = write_policy(tmp_path, POLICY)
    with (
        ClassicBroker() as broker,
        SidecarProcess(
            tmp_path, broker.openwire_url, policy=policy, sets=options
        ).running() as sidecar,
    ):
        peer = JmsPeer.of(broker, "openwire")
        peer.produce(unique, "Text", count=MESSAGES)
        for _ in range(2):
            peer.fail(unique, messages=MESSAGES, deliveries=1)
        eventually(lambda: sidecar.exhausted() == MESSAGES, what="all are exhausted")
        ids = [str(row["id"]) for row in sidecar.rows("--limit", "100")]
        again, (elsewhere, gone, back, *_) = ids[RETRIED : RETRIED + 2], ids[RETRIED + 2 :]
        sidecar.json_command("retry", *ids[:RETRIED])
        assert len(peer.consume(unique, count=RETRIED)) == RETRIED
        sidecar.json_command("retry", *again)
        peer.fail(unique, messages=2, deliveries=1)
        eventually(lambda: sidecar.exhausted() == MESSAGES - RETRIED, what="two are back")
        sidecar.json_command("redirect", elsewhere, "--to", f"{unique}.repair")
        assert len(peer.consume(f"{unique}.repair", count=1)) == 1
        sidecar.json_command("discard", gone, "--yes")
        sidecar.json_command("discard", back, "--yes")
        left = MESSAGES - RETRIED - 3
        eventually(lambda: sidecar.exhausted() == left, what="two are discarded")
        sidecar.json_command("operation undo", "5")

        def lies_there() -> bool:
            status = sidecar.finished_status()
            return sum(one.count for one in status.exhausted if one.is_in_queue) == left + 1

        eventually(lies_there, what="one is back in its final queue")
        wait_written(sidecar)
    expected = {"recovered": RETRIED, "redirected": 1, "dead_lettered": 1, "exhausted": 4}
    assert fates(tmp_path / "journal") == expected


LATE_POLICY = """
plugins:
  - redelivery:
      entries: [{queue: ">", maximum_redeliveries: 1, initial_redelivery_delay_ms: 3600000}]
"""


@pytest.mark.usefixtures("spark")
def test_groups_that_a_person_merged_are_one_for_the_jobs(tmp_path: Path, unique: str) -> None:
    """Two messages die, each of what its consumer notes; a person says that both are one."""
    journal, notes = tmp_path / "journal", f"amqsidecar.causes.{unique}"
    options = (f"journal.path={journal}", "journal.segment_s=1", f"intake.cause_notes={notes}")
    policy = write_policy(tmp_path, LATE_POLICY)
    with (
        ClassicBroker() as broker,
        SidecarProcess(
            tmp_path, broker.openwire_url, policy=policy, sets=options
        ).running() as sidecar,
    ):
        peer = JmsPeer.of(broker, "openwire")
        sent = peer.produce(unique, "Text", count=2)
        peer.fail(unique, messages=2, deliveries=1)
        eventually(lambda: sidecar.unsent() == 2, what="both have died")
        for message, name in zip(sent, ("shop.LockedException", "shop.BusyException"), strict=True):
            note = {"message_id": message.message_id, "exception": name, "text": "try later"}
            peer.produce(notes, "Text", text=json.dumps(note), group=None, sample_properties=False)

        def groups() -> set[str]:
            return {row["cause_group"] for row in sidecar.rows()}

        former, group = "shop.BusyException: try later", "shop.LockedException: try later"
        eventually(lambda: groups() == {former, group}, what="both notes are read")
        place = ("--destination", f"queue://{unique}", "--cause-group", former)
        sidecar.json_command("note", *place, "--merge-into", group)
        eventually(lambda: groups() == {group}, what="the message is in the other group")
        wait_written(sidecar)
    tables = {}
    for job, name in (("causes", "cause_groups"), ("recovery", "recovery_summary")):
        out = tmp_path / job
        assert run_job(job, journal, out) == 0
        tables[job] = rows_of(out / name)
    there = [row for row in tables["causes"] if row["origin"] != EVERYWHERE]
    assert [(row["cause_group"], row["deaths"]) for row in there] == [(group, 2)]
    assert [(row["cause_group"], row["messages"]) for row in tables["recovery"]] == [(group, 2)]
