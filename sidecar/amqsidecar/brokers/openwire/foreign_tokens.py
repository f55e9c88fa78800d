"""Tokens of other instances, over OpenWire."""

from collections.abc import Collection

from amqsidecar.brokers.classic import foreign_tokens as classic_tokens
from amqsidecar.brokers.openwire.consumers import OpenWireConsumer, OpenWireConsumers
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.openwire_dead_letter import read_cycle, read_rules_digest, take_apart
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken


def foreign_tokens(
    consumers: OpenWireConsumers, known: Collection[str]
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these.

    Raises:
        CommandRefused: the broker does not allow it.
        LinkLost: the connection is gone.
    """
    tokens = classic_tokens.ForeignTokens(known)
    for field, message in consumers.look(classic_tokens.TOKEN_QUEUES, classic_tokens.BROWSED_MAX):
        if read_cycle(message) is not None:
            tokens.note(
                codec.read_destination(field),
                take_apart(message).timestamp_ms,
                read_rules_digest(message),
            )
    return tokens.found(_consumers(consumers) if tokens else ())


def _consumers(consumers: OpenWireConsumers) -> list[Destination | None]:
    found: list[Destination | None] = []

    def take(_consumer: OpenWireConsumer, field: bytes, message: bytes | None) -> None:
        if message is not None:
            found.append(codec.read_destination(field))

    consumer = consumers.add(
        classic_tokens.TOKEN_CONSUMERS,
        classic_tokens.CONSUMERS_MAX,
        take=take,
        asynchronous=False,
    )
    consumers.route()
    consumers.remove(consumer)
    return found
