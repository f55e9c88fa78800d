"""The groups of deaths are learned by every thread that judges."""

from threading import Lock

from amqsidecar.broker import Delivery
from amqsidecar.engine.judging.death_groups import DeathGroups, no_fields, no_note
from amqsidecar.model.cause_groups import CauseGroups
from amqsidecar.model.destination import queue
from amqsidecar.model.provenance import Provenance
from support.machine.switching import OneAtATime, run_together


class Watched(CauseGroups):
    """Notes whether two threads learn at once."""

    def __init__(self) -> None:
        super().__init__()
        self.alone = OneAtATime()

    def add(self, destination: str, group: str) -> str:
        with self.alone.inside():
            return super().add(destination, group)


def test_threads_that_judge_at_once_learn_one_after_the_other() -> None:
    """Otherwise the cycle dies: "dictionary changed size during iteration"."""
    known, groups = Watched(), DeathGroups(no_fields, no_note, Lock())
    groups.learn(known)
    dead = Delivery(None, queue("DLQ"), b"", Provenance(), "test")

    def judge(thread: int) -> None:
        for number in range(50):
            cause = (
                f"java.lang.Error: {'abcdefghij'[number % 10] * 5} refuses order N{thread}{number}"
            )
            groups.of_delivery(dead, queue("orders"), cause)

    run_together(judge)
    assert not known.alone.were_two
