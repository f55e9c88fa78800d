"""Whether a queue of Artemis holds chosen messages, where the management does not say so."""

import json
from collections.abc import Sequence

import pytest

from amqsidecar.brokers.artemis.management import (
    ArtemisQuestions,
    ChosenMessages,
    ManagementAnswer,
    ManagementQuestion,
)
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import queue


class Unanswered(ArtemisQuestions):
    """A management that lists queues, or nothing, and answers nothing else."""

    def __init__(self, listed: Sequence[str] | None) -> None:
        self.listed = listed

    def ask_batch(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
        nothing = ManagementAnswer("no answer in 15 s", is_ok=False)
        rows = [{"name": name, "address": name} for name in self.listed or ()]
        listed = ManagementAnswer(json.dumps({"data": rows}), is_ok=True)
        return [
            listed if one.operation == "listQueues" and self.listed is not None else nothing
            for one in questions
        ]


@pytest.mark.parametrize("listed", [["DLQ.exhausted"], None])
def test_a_question_without_an_answer_does_not_say_that_messages_are_gone(
    listed: list[str] | None,
) -> None:
    """Else the schedule would give up two unanswered looks later what lies in the queue."""
    with pytest.raises(BrokerRefused, match="no answer in 15 s"):
        ChosenMessages(Unanswered(listed)).holds_chosen(queue("DLQ.exhausted"), ["r-1"])


def test_a_queue_that_is_gone_holds_nothing() -> None:
    assert not ChosenMessages(Unanswered([])).holds_chosen(queue("DLQ.exhausted"), ["r-1"])
