"""What lies in a queue of Artemis, as its management lists it: nobody has to be shown a message."""

import json
from collections.abc import Mapping
from typing import Any

from support.brokers.real import Broker
from support.wires.stomp_peer import StompPeer

_ANYCAST = {"subscription-type": "ANYCAST"}


def listed(broker: Broker, queue: str) -> list[Mapping[str, Any]]:
    """Return the properties of each message, up to `management-browse-page-size`.

    Why not a consumer: none is shown everything, and what it is not shown may be gone afterwards.
    At a stream with bytes of an AMQP producer Artemis removes a Core consumer, whose next
    acknowledgement takes that message along; such a stream of Core it takes from an AMQP consumer
    and dead-letters it anew.
    """
    replies = f"matrix.listing.{queue}"
    with StompPeer(broker.ports["PORT"], broker.user, broker.password) as stomp:
        stomp.subscribe(replies, ack="auto", headers=_ANYCAST)
        question = {
            "reply-to": replies,
            "_AMQ_ResourceName": f"queue.{queue}",
            "_AMQ_OperationName": "listMessagesAsJSON",
        }
        stomp.send("activemq.management", question, b'[""]')
        answer = stomp.receive()
    assert answer.headers["_AMQ_OperationSucceeded"] == "true", answer.body
    [text] = json.loads(answer.body)
    found: list[Mapping[str, Any]] = json.loads(text)
    return found
