"""The messages in a queue of Artemis, by its management's list: none is delivered."""

import json
from collections.abc import Mapping
from typing import Any

from amqsidecar.brokers.artemis.management import ManagementQuestion
from support.brokers.purge import manage_artemis
from support.brokers.real import ArtemisBroker


def listed(broker: ArtemisBroker, queue: str) -> list[Mapping[str, Any]]:
    """Return the properties of each message, up to `management-browse-page-size`.

    Why not a consumer: none is shown everything, and what it is not shown may be gone afterwards.
    At a stream with bytes of an AMQP producer Artemis removes a Core consumer, whose next
    acknowledgement takes that message along; such a stream of Core it takes from an AMQP consumer
    and dead-letters it anew.
    """
    question = ManagementQuestion(f"queue.{queue}", "listMessagesAsJSON", ("",))
    found: list[Mapping[str, Any]] = json.loads(str(manage_artemis(broker, question)))
    return found
