"""Asks Artemis about itself over AMQP; the package `artemis` has the questions."""

import json
from collections.abc import Mapping

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Receiver, Sender, forget, is_answered, refusal_words
from amqsidecar.brokers.artemis.management import (
    ADDRESS,
    ANSWER_S,
    IN_FLIGHT_MAX,
    ArtemisQuestions,
    ManagementAnswer,
    ManagementQuestion,
    answer_in,
    no_permission,
)
from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_sections as amqp

_WAITING_BYTES_MAX = 64 * 1024 * 1024


class ArtemisManagement(ArtemisQuestions):
    """Questions and answers over one AMQP connection."""

    def __init__(self, connection: AmqpConnection, answer_s: float = ANSWER_S) -> None:
        """Attach to the management address, and find out whether we may ask."""
        self._connection = connection
        self.answer_s = answer_s
        self._sender = Sender(connection, "amqsidecar-management", ADDRESS)
        # Why settled: an answer in hand that goes back when this process dies is a failed delivery
        # and, with max-delivery-attempts 1, a dead letter.
        self._receiver = Receiver(
            connection,
            "amqsidecar-management-replies",
            None,
            is_settled=True,
            waiting_bytes_max=_WAITING_BYTES_MAX,
        )
        self._receiver.flow(IN_FLIGHT_MAX * 2)
        ends = (self._sender, self._receiver)
        self._connection.run_until(lambda: all(end.is_answered for end in ends))
        self.refusals = tuple(end.refusal for end in ends if end.refusal is not None)
        refusal = self._sender.refusal or self._receiver.refusal
        if refusal is None and not all(end.is_open for end in ends):
            refusal = "no answer"
        if refusal is None:
            answer = self.ask(ManagementQuestion("broker", attribute="Version"))
            refusal = None if answer.is_ok else str(answer.value)
        if refusal is not None:
            self.refusals = self.refusals or (refusal,)
            self.why_unusable = no_permission("AMQP", refusal)
        connection.parts.append(self)

    def ask_batch(self, questions: Mapping[int, ManagementQuestion]) -> dict[int, ManagementAnswer]:
        found: dict[int, ManagementAnswer] = {}
        sender, receiver = self._sender, self._receiver
        if not self._connection.run_until(
            lambda: sender.credit >= len(questions) or sender.refusal, self.answer_s
        ):
            return dict.fromkeys(questions, ManagementAnswer("no credit for questions", False))
        if not (sender.is_open and receiver.is_open):
            words = sender.refusal or receiver.refusal or "closed"
            return dict.fromkeys(questions, ManagementAnswer(words, is_ok=False))
        sent = {
            number: sender.send(_encode(question, receiver.address, number))
            for number, question in questions.items()
        }

        def is_done() -> bool:
            self._collect(found)
            for number, delivery in sent.items():
                if number not in found and is_answered(delivery):
                    words = refusal_words(delivery)
                    if words is not None:
                        found[number] = ManagementAnswer(words, is_ok=False)
            return found.keys() >= sent.keys()

        self._connection.run_until(is_done, self.answer_s)
        for delivery in sent.values():
            forget(delivery)
        return found

    def _collect(self, found: dict[int, ManagementAnswer]) -> None:
        for in_hand, message in self._receiver.take_arrived(IN_FLIGHT_MAX * 2):
            self._receiver.accept(in_hand)
            self._receiver.flow(1)
            try:
                number, answer = _decode(message)
            except (UndecodableMessage, ValueError, RecursionError):
                continue
            found[number] = answer

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()

    @property
    def is_closed(self) -> bool:
        return self._sender.is_closed and self._receiver.is_closed


def _encode(question: ManagementQuestion, reply_to: str, number: int) -> bytes:
    pairs = [amqp.string(text) for pair in question.properties.items() for text in pair]
    nothing = amqp.NULL
    properties = [nothing] * 4 + [amqp.string(reply_to), amqp.string(f"q{number}")]
    body = amqp.string(json.dumps(list(question.arguments)))
    return (
        amqp.make_list(amqp.PROPERTIES, properties)
        + amqp.make_map(amqp.APPLICATION_PROPERTIES, pairs)
        + b"\x00\x53\x77"
        + body
    )


def _decode(message: bytes) -> tuple[int, ManagementAnswer]:
    sections = amqp.split(message)
    properties = amqp.elements(sections.get(amqp.PROPERTIES, b""))
    if len(properties) < 6:
        raise UndecodableMessage("a reply without a correlation id")
    correlation = str(amqp.scalar(properties[5]))
    pairs = amqp.elements(sections.get(amqp.APPLICATION_PROPERTIES, b""))
    found = {amqp.scalar(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}
    is_ok = amqp.scalar(found.get("_AMQ_OperationSucceeded", amqp.NULL)) is True
    body = amqp.scalar(sections.get(amqp.VALUE, b"\x00\x53\x77\x40")[3:])
    return int(correlation[1:]), answer_in(body if isinstance(body, str) else None, is_ok=is_ok)
