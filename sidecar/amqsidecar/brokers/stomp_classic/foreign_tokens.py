"""Tokens of other instances on Classic, over STOMP."""

from collections.abc import Collection

from amqsidecar.brokers.classic import foreign_tokens as classic_tokens
from amqsidecar.brokers.stomp.connection import StompConnection
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.clock import Clock
from amqsidecar.formats.stomp_classic_message import (
    RULES_DIGEST,
    read_cycle,
    read_destination,
)
from amqsidecar.formats.stomp_frame import Frame
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken

_QUIET_S = 0.25


def foreign_tokens(
    connection: StompConnection, consumers: StompSubscriptions, clock: Clock, known: Collection[str]
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these.

    Raises:
        FrameRefused: the broker does not allow it.
        LinkLost: the connection is gone.
    """
    tokens = classic_tokens.ForeignTokens(known)
    for frame in consumers.browse(
        classic_tokens.TOKEN_QUEUES, classic_tokens.BROWSED_MAX, classic_tokens.TOKENS_ONLY
    ):
        sent_at = frame.first(b"timestamp") or b""
        if read_cycle(frame) is not None:
            digest = (frame.first(RULES_DIGEST) or b"").decode(errors="replace")
            tokens.note(_place(frame), int(sent_at) if sent_at.isdigit() else 0, digest)
    return tokens.found(_consumers(connection, consumers, clock) if tokens else ())


def _place(frame: Frame) -> Destination | None:
    return read_destination(frame.first(b"destination") or b"")


def _consumers(
    connection: StompConnection, consumers: StompSubscriptions, clock: Clock
) -> list[Destination | None]:
    """Return the advisories' topics, once the broker has sent all.

    Quirk (Classic): the broker sends a new subscriber its advisories after the receipt.
    """
    found: list[Destination | None] = []
    name = consumers.add(
        classic_tokens.TOKEN_CONSUMERS,
        classic_tokens.CONSUMERS_MAX,
        lambda frame: found.append(_place(frame)),
        acks=False,
    )
    count = -1
    while count != len(found):
        count, until_s = len(found), clock.monotonic_s() + _QUIET_S
        while (left_s := until_s - clock.monotonic_s()) > 0:
            connection.wait(left_s)
            consumers.route()
    consumers.remove(name)
    return found
