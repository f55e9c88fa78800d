"""Where Classic puts copies of a message, which have its message id."""

import pytest

from amqsidecar.engine.judging.one_queue import copied_by
from amqsidecar.model.destination import queue, topic
from amqsidecar.policy.classic_rules import (
    CompositeDestination,
    DestinationInterceptors,
    ForwardTo,
    VirtualTopic,
)

GIVEN = DestinationInterceptors(
    composites=(
        CompositeDestination(
            destinations=(queue("all"),), forward_to=(ForwardTo(destination=queue("audit")),)
        ),
    ),
    virtual_topics=(
        VirtualTopic(destinations=(topic("T.>"),), prefix="Copy.*.", postfix=".x"),
        VirtualTopic(destinations=(topic("one"),), prefix="Copy.*.", postfix=".x"),
    ),
)


@pytest.mark.parametrize(
    ("interceptors", "name", "is_copied"),
    [
        (None, "Consumer.a.VirtualTopic.t", True),
        (None, "orders", False),
        (DestinationInterceptors(are_known=False), "Consumer.a.VirtualTopic.t", True),
        (DestinationInterceptors(), "Consumer.a.VirtualTopic.t", False),
        (GIVEN, "Copy.a.T.t.x", True),
        (GIVEN, "Copy.a.one.x", True),
        (GIVEN, "Copy.a.one", False),
        (GIVEN, "all", True),
        (GIVEN, "audit", True),
        (GIVEN, "orders", False),
    ],
)
def test_queues_of_virtual_topics_and_composites_get_copies(
    interceptors: DestinationInterceptors | None, name: str, is_copied: bool
) -> None:
    assert copied_by(interceptors)(queue(name)) is is_copied
