"""What a predecessor has accepted over STOMP on Artemis is forgotten only when it can't come."""

from collections.abc import Sequence
from unittest.mock import Mock

from amqsidecar.brokers.artemis.management import (
    ArtemisQuestions,
    ManagementAnswer,
    ManagementQuestion,
)
from amqsidecar.brokers.stomp_artemis.accepted_before import Suspects

DLQ = "DLQ::DLQ"


class Counts(ArtemisQuestions):
    """A broker with a count of a queue's messages, and of those that STOMP did not make."""

    def __init__(self, total: int, others: int) -> None:
        self.total = total
        self.others = others

    def ask_all(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
        counts = {"MessageCount": self.total, "countMessages": self.others}
        return [ManagementAnswer(counts[one.operation or one.attribute], True) for one in questions]


def test_it_is_not_taken_for_another_message_that_has_left() -> None:
    """One of five expires while we look; the suspect makes them five again."""
    broker = Counts(total=5, others=4)
    suspects = Suspects(Mock(), broker)
    suspects.replace({DLQ: frozenset({7})})

    suspects.clear(DLQ, [], made_by_others=5, listed=())
    assert not suspects.are_settled

    broker.total = 4
    suspects.clear(DLQ, [], made_by_others=4, listed=())
    assert suspects.are_settled
