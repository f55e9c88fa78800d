"""Tokens of other instances on Classic, over AMQP."""

from collections.abc import Collection
from uuid import uuid4

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver
from amqsidecar.brokers.amqp_classic.browse import Browser
from amqsidecar.brokers.classic import foreign_tokens as classic_tokens
from amqsidecar.errors import BrokerRefused, UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_classic_message import DeadLetterParts, named_destination, take_apart
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.sidecar_names import PROPERTY_RULES_DIGEST

_QUIET_S = 0.25
_CREATION_TIME = 9


def foreign_tokens(
    connection: AmqpConnection, browser: Browser, known: Collection[str], timeout_s: float
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these.

    One that an older program left over AMQP does not report its queue, and is not found.

    Raises:
        BrokerRefused: the user may not look.
        LinkLost: the connection is gone.
    """
    tokens = classic_tokens.ForeignTokens(known)
    for message in browser.look(
        classic_tokens.TOKEN_QUEUES.name, classic_tokens.BROWSED_MAX, classic_tokens.TOKENS_ONLY
    ):
        try:
            found = take_apart(message)
            tokens.note(named_destination(found), _sent_at_ms(found), _rules_digest(found))
        except UndecodableMessage:
            continue
    return tokens.found(_consumers(connection, timeout_s) if tokens else ())


def _sent_at_ms(found: DeadLetterParts) -> int:
    value = (
        amqp.scalar(found.properties[_CREATION_TIME])
        if len(found.properties) > _CREATION_TIME
        else 0
    )
    return value if isinstance(value, int) else 0


def _rules_digest(found: DeadLetterParts) -> str:
    name = amqp.string(PROPERTY_RULES_DIGEST)
    for key, value in zip(found.pairs[::2], found.pairs[1::2], strict=True):
        if key == name:
            return str(amqp.scalar(value))
    return ""


def _consumers(connection: AmqpConnection, timeout_s: float) -> list[Destination | None]:
    """Return the advisories' topics, once the broker has sent all."""
    topic = str(classic_tokens.TOKEN_CONSUMERS)
    receiver = Receiver(connection, f"amqsidecar-consumers-{uuid4().hex[:8]}", topic)
    try:
        connection.run_until(lambda: receiver.is_answered, timeout_s)
        if receiver.refusal is not None:
            raise BrokerRefused(f"can't read {topic}: {receiver.refusal}; allow the user to do so")
        receiver.flow(classic_tokens.CONSUMERS_MAX)
        count = -1
        while count != len(receiver.arrived):
            count = len(receiver.arrived)
            connection.run_until(lambda: False, _QUIET_S)
        arrived = receiver.take_arrived(classic_tokens.CONSUMERS_MAX)
        for in_hand, _ in arrived:
            receiver.accept(in_hand)
        return [_place(message) for _, message in arrived]
    finally:
        receiver.end(timeout_s)


def _place(message: bytes) -> Destination | None:
    try:
        return named_destination(take_apart(message))
    except UndecodableMessage:
        return None
