"""Where a final dead letter goes."""

import pytest

from amqsidecar.engine.judging.final_destination import final_destination
from amqsidecar.model.decision import DeadLetterTo
from amqsidecar.model.destination import Destination, queue, topic

READ = queue("DLQ")


def is_intake(destination: Destination) -> bool:
    return destination == READ


@pytest.mark.parametrize(
    ("decided", "is_assumed", "final"),
    [
        (queue("Dead.orders"), False, "Dead.orders"),
        (READ, False, "DLQ.exhausted"),
        (topic("Dead"), False, "DLQ.exhausted"),
        (queue("ActiveMQ.DLQ"), True, "DLQ.exhausted"),
    ],
    ids=["not read", "read", "a topic", "named by no rule"],
)
def test_it_is_no_queue_that_is_read_and_no_topic(
    decided: Destination, is_assumed: bool, final: str
) -> None:
    decision = DeadLetterTo(decided, 0, "rule", is_assumed)
    assert final_destination(decision, READ, is_intake, ".exhausted") == queue(final)
