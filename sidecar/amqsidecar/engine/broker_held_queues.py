"""What a schedule that the broker keeps needs in the broker, and which brokers can't keep one."""

from amqsidecar.broker import BrokerKind
from amqsidecar.model.destination import queue

WAITING_QUEUE = queue("amqsidecar.waiting")
"""Holds dead letters whose destination takes nothing for now, until it is tried again."""

PARKED_QUEUE = queue("amqsidecar.parked")
"""Holds dead letters that wait for a person; never read."""

NOT_KEPT = {
    BrokerKind.CLASSIC: (
        "store.url is broker:, but Classic schedules a transaction's delayed message only after "
        "its commit: killed in between, it loses the accepted messages "
        "(deploy/reference/broker-held-schedule.md). Use store.url sqlite:///path/of/file.db, or "
        "the broker's own redeliveryPlugin"
    ),
    BrokerKind.ARTEMIS: (
        "store.url is broker:, but over STOMP Artemis acknowledges at once and not in the "
        "transaction that sends, so that nothing keeps a message from being lost or doubled. Use a "
        "broker.url of amqp://, or store.url sqlite:///path/of/file.db"
    ),
}
"""Why a broker can't keep the schedule over a link that is not `KeepsDelayed`."""
