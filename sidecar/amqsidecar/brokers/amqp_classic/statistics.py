"""Asks Classic's statistics plugin over AMQP.

Source: ActiveMQ Classic, StatisticsBroker.send.
"""

from collections.abc import Sequence
from functools import cached_property

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender, forget
from amqsidecar.brokers.classic.statistics import (
    ANSWER_S,
    BROKER_QUESTION,
    END_PROPERTY,
    StatisticsReply,
)
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.model.destination import Destination

_CREDIT = 1_000


class _Unanswered(Exception):
    """The broker does not answer: it has no such plugin, or we may not ask it."""


class AmqpStatistics:
    """Questions and answers over one connection, with a temporary queue for the answers."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._number = 0

    def ask(self, questions: Sequence[Destination]) -> list[StatisticsReply] | None:
        """Ask about these destinations; None = no answer.

        Raises:
            LinkLost: the connection is gone.
        """
        try:
            found = self._answered(self._replies, questions, has_end=True)
        except _Unanswered:
            return None
        return [told for told in found if told]

    @cached_property
    def _replies(self) -> Receiver:
        """The temporary queue, once something has answered to it."""
        replies = Receiver(self._connection, "amqsidecar-statistics", None)
        self._connection.run_until(lambda: replies.is_answered, ANSWER_S)
        if not replies.is_open:
            raise _Unanswered
        replies.flow(_CREDIT)
        if not self._answered(replies, [BROKER_QUESTION]):
            replies.end(ANSWER_S)
            raise _Unanswered
        return replies

    def _answered(
        self, replies: Receiver, questions: Sequence[Destination], *, has_end: bool = False
    ) -> list[StatisticsReply]:
        """Return the answers until each question had its last one, or the time is over."""
        # Why one for all: a sender with an address would make that queue.
        self._number += 1
        sender = Sender(self._connection, f"amqsidecar-statistics-{self._number}", None)
        self._connection.run_until(
            lambda: sender.credit >= len(questions) or sender.refusal is not None, ANSWER_S
        )
        asked = questions[: sender.credit]
        deliveries = [
            sender.send(_question(question, replies.address, has_end=has_end)) for question in asked
        ]
        answers: list[StatisticsReply] = []

        def is_done() -> bool:
            for in_hand, reply in replies.take_arrived(_CREDIT):
                replies.accept(in_hand)
                replies.flow(1)
                told = _read(reply)
                if told is not None:
                    answers.append(told)
            ends = sum(not told for told in answers) if has_end else len(answers)
            return ends >= len(asked)

        self._connection.run_until(is_done, ANSWER_S)
        for delivery in deliveries:
            forget(delivery)
        sender.end(ANSWER_S)
        return answers


def _question(question: Destination, reply_to: str, *, has_end: bool) -> bytes:
    nothing = amqp.NULL
    to = amqp.string(str(question))
    pairs = [amqp.string(END_PROPERTY), amqp.string("true")] if has_end else []
    return (
        amqp.make_list(amqp.PROPERTIES, [nothing, nothing, to, nothing, amqp.string(reply_to)])
        + amqp.make_map(amqp.APPLICATION_PROPERTIES, pairs)
        + b"\x00\x53\x77"
        + amqp.string("")
    )


def _read(message: bytes) -> StatisticsReply | None:
    """Return the map that a message holds; None = it holds none."""
    try:
        items = amqp.pairs(amqp.split(message)[amqp.VALUE])
        values = [_scalar(item) for item in items]
    except (UndecodableMessage, KeyError):
        return None
    return {str(name): value for name, value in zip(values[::2], values[1::2], strict=True)}


def _scalar(element: bytes) -> object:
    try:
        return amqp.scalar(element)
    except UndecodableMessage:
        return None
