"""Requirements of a schedule in the broker, and the brokers that can't keep one."""

from contextlib import closing
from typing import NoReturn

from amqsidecar.broker import BrokerKind, Link
from amqsidecar.errors import BrokerRefused
from amqsidecar.model.destination import queue

INSTANCE = "broker-held"
"""Names the connections of a service without a store."""

WAITING_QUEUE = queue("amqsidecar.waiting")
"""Holds dead letters whose destination takes nothing for now, until it is tried again."""

PARKED_QUEUE = queue("amqsidecar.parked")
"""Holds dead letters that wait for a person; never read."""

NOT_KEPT = {
    BrokerKind.CLASSIC: (
        "store.url is broker:, but Classic schedules a transaction's delayed message only after "
        "its commit: killed in between, it loses the accepted messages "
        "(deploy/reference/schedules.md). Use store.url sqlite:///path/of/file.db, or "
        "the broker's own redeliveryPlugin"
    ),
    BrokerKind.ARTEMIS: (
        "store.url is broker:, but over STOMP Artemis acknowledges at once and not in the "
        "transaction that sends, so that nothing keeps a message from being lost or doubled. Use a "
        "broker.url of artemis://, or store.url sqlite:///path/of/file.db"
    ),
}
"""Why a broker can't keep the schedule over a link that can't move."""


def refuse_to_move(link: Link) -> NoReturn:
    """Raise the error of `Link.move` on a wire over which the broker can't keep waiting messages.

    Raises:
        LinkLost: the broker can't be reached.
        BrokerRefused: with the reason of this broker; or it refuses us.
    """
    with closing(link.look()) as session:
        raise BrokerRefused(NOT_KEPT[session.description.kind])
