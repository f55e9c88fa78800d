"""Selectors that exclude messages that STOMP can't acknowledge or would damage.

Source: ActiveMQ Classic, PropertyExpression: `JMSDestination` of a dead letter is where it died,
`JMSMessageID` the id as text.
"""

from collections.abc import Iterable, Mapping

from amqsidecar.brokers.selectors import quoted
from amqsidecar.formats.stomp_classic_message import NOT_ACKNOWLEDGEABLE, NOT_CARRIED
from amqsidecar.model.left_behind import Loss

# Source: activemq-amqp, InboundTransformer and its subclasses: each sets some of these.
_AMQP_MARKS = (
    "JMS_AMQP_NATIVE",
    "JMS_AMQP_ORIGINAL_ENCODING",
    "JMS_AMQP_MESSAGE_FORMAT",
    "JMS_AMQP_HEADER",
    "JMS_AMQP_PROPERTIES",
)
# Why: the broker parses three numbers off the end of an id when it gets an ACK.
_REAL_ID = "JMSMessageID LIKE '%:%:%:%'"
# Why: as headers they mean something else; the broker would hide its own, or obey them.
_TECHNICAL = (
    *("destination", "expires", "redelivered", "priority", "timestamp", "type", "persistent"),
    *("subscription", "ack", "receipt", "transaction", "transformation"),
)


def _all_null(names: Iterable[str]) -> str:
    return " AND ".join(f"{name} IS NULL" for name in names)


def _any_set(names: Iterable[str]) -> str:
    return "(" + " OR ".join(f"{name} IS NOT NULL" for name in names) + ")"


def takes(allowed_losses: frozenset[Loss], unreadable: Iterable[str]) -> str:
    """Return the selector of messages that may be handed to us.

    Args:
        allowed_losses: losses that the operator accepts.
        unreadable: message ids whose frames broke a connection.
    """
    parts = [_all_null(_AMQP_MARKS), _REAL_ID, _all_null(_TECHNICAL)]
    if Loss.GROUP not in allowed_losses:
        parts.append("JMSXGroupID IS NULL")
    parts += [one for one in (readable(unreadable),) if one]
    return " AND ".join(parts)


def only(message_id: str) -> str:
    """Return the selector of one message."""
    return f"JMSMessageID = {quoted(message_id)}"


def readable(unreadable: Iterable[str]) -> str:
    """Return the selector of messages that break no connection; "" = all."""
    names = ", ".join(quoted(one) for one in sorted(unreadable))
    return f"NOT (JMSMessageID IN ({names}))" if names else ""


def left(allowed_losses: frozenset[Loss], unreadable: Iterable[str]) -> dict[str, str]:
    """Return selectors of messages that `takes` excludes, by reason; they don't overlap."""
    is_amqp = f"({_any_set(_AMQP_MARKS)} OR NOT ({_REAL_ID}))"
    is_technical = _any_set(_TECHNICAL)
    found = {
        NOT_ACKNOWLEDGEABLE: is_amqp,
        NOT_CARRIED: f"NOT {is_amqp} AND {is_technical}",
    }
    if Loss.GROUP not in allowed_losses:
        found[Loss.GROUP.value] = (
            f"NOT {is_amqp} AND NOT {is_technical} AND JMSXGroupID IS NOT NULL"
        )
    only = readable(unreadable)
    if only:
        found = {reason: f"{selector} AND {only}" for reason, selector in found.items()}
    return found


def liars(claims: Mapping[str, Iterable[str]], honest: str, origin: str) -> str:
    """Return the selector of messages with a false origin, and of one with a true origin.

    Args:
        claims: message ids by claimed origin.
        honest: the id of a message that is found if its claimed origin is true.
        origin: the claimed origin of that message.
    """
    parts = [f"(JMSMessageID = {quoted(honest)} AND JMSDestination = {quoted(origin)})"]
    for claim, ids in claims.items():
        names = ", ".join(map(quoted, ids))
        parts.append(f"(JMSMessageID IN ({names}) AND JMSDestination <> {quoted(claim)})")
    return " OR ".join(parts)
