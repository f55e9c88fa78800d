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

    def ask_all(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
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


class InHand(ArtemisQuestions):
    """A management of a queue whose messages are all handed out, and of which it shows some."""

    def __init__(self, count: int, shown: Sequence[dict[str, object]]) -> None:
        row = {"name": "DLQ", "address": "DLQ", "deliveringCount": str(count)}
        self.answers = {
            "browse": {},
            "listQueues": json.dumps({"data": [row]}),
            "listDeliveringMessagesAsJSON": json.dumps([{"elements": shown}]),
        }

    def ask_all(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
        return [ManagementAnswer(self.answers.get(one.operation), is_ok=True) for one in questions]


@pytest.mark.parametrize(
    ("chosen", "count", "may"),
    [
        ("r-1", 2, True),
        ("in-place-number:7-1000", 2, True),
        ("in-place-number:7-1001", 2, False),
        ("r-2", 2, False),
        ("r-2", 3, True),
        ("r-2", 0, False),
        ("in-place:ID:1", 2, True),
    ],
)
def test_what_somebody_may_have_in_hand_is_not_gone(chosen: str, count: int, *, may: bool) -> None:
    shown: list[dict[str, object]] = [
        {"amqsidecarRedeliveryId": "r-1", "timestamp": 5},
        {"_AMQ_ORIG_MESSAGE_ID": 7, "timestamp": 1000},
    ]
    assert ChosenMessages(InHand(count, shown)).holds_chosen(queue("DLQ"), [chosen]) is may
