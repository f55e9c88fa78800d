"""Asks Artemis about itself over Core; the package `artemis` has the questions."""

import json
from collections.abc import Sequence
from uuid import uuid4

from amqsidecar.brokers.artemis.management import (
    ADDRESS,
    ANSWER_S,
    ArtemisQuestions,
    ManagementAnswer,
    ManagementQuestion,
    no_permission,
)
from amqsidecar.brokers.core.consumers import CoreDelivery
from amqsidecar.brokers.core.refusal import CoreRefused
from amqsidecar.brokers.core.session import NO_CONSUMER, CoreSession
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import (
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    new_message,
    read_core_properties,
)
from amqsidecar.formats.core.primitives import (
    NULLABLE_SIMPLE_STRING,
    CoreProtocolError,
    CoreReader,
)

_WINDOW_BYTES = 1 << 20
_CORRELATION = "JMSCorrelationID"


class CoreManagement(ArtemisQuestions):
    """Questions and answers over one session, whose messages are settled when they are sent.

    Why settled: an answer in hand that goes back when this process dies is a failed delivery and,
    with max-delivery-attempts 1, a dead letter.
    """

    def __init__(
        self,
        session: CoreSession,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Make the queue of the answers, and find out whether we may ask."""
        self._session = session
        self._answer_s = answer_s
        self._replies = str(uuid4())
        self._consumer = NO_CONSUMER
        self._number = 0
        try:
            session.create_queue(
                self._replies,
                address=self._replies,
                routing_type=packets.ANYCAST,
                temporary=True,
            )
            self._consumer = session.create_consumer(self._replies, window_bytes=_WINDOW_BYTES)
            answer = self.ask(ManagementQuestion("broker", attribute="Version"))
            refusal = None if answer.is_ok else str(answer.value)
        except CoreRefused as refused:
            refusal = str(refused)
        if refusal is not None:
            self.refusals = (refusal,)
            self.why_unusable = no_permission("Core", refusal)

    def ask_batch(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
        first = self._number
        self._number += len(questions)
        found: dict[int, ManagementAnswer] = {}
        session = self._session
        asked = {
            session.ask_send(self._encode(question, first + at)): first + at
            for at, question in enumerate(questions)
        }

        def is_done() -> bool:
            for sent, refused in session.take_answers(asked).items():
                if refused is not None:
                    found[asked[sent]] = ManagementAnswer(str(refused), is_ok=False)
            for delivery in session.take_from(self._consumer):
                session.give_back(delivery)
                _read(delivery, found)
            return all(first + at in found for at in range(len(questions)))

        session.wire.run_until(is_done, self._answer_s)
        session.abandon_answers(asked)
        nothing = ManagementAnswer(f"no answer in {self._answer_s:g} s", is_ok=False)
        return [found.get(first + at, nothing) for at in range(len(questions))]

    def _encode(self, question: ManagementQuestion, number: int) -> CoreMessage:
        names = {"_AMQ_ResourceName": question.resource}
        if question.operation:
            names["_AMQ_OperationName"] = question.operation
        else:
            names["_AMQ_Attribute"] = question.attribute
        names |= {"JMSReplyTo": self._replies, _CORRELATION: f"q{number}"}
        properties = {
            name: CoreProperty(CorePropertyType.STRING, value) for name, value in names.items()
        }
        return new_message(
            ADDRESS,
            properties,
            timestamp_ms=self._session.wire.clock.now_ms(),
            body=NULLABLE_SIMPLE_STRING.write(json.dumps(list(question.arguments))),
            durable=False,
        )


def _read(delivery: CoreDelivery, found: dict[int, ManagementAnswer]) -> None:
    """Add the answer in a delivery; ignore a delivery without one."""
    message, body = delivery.message, delivery.whole().body
    if delivery.large_body is not None:
        with delivery.large_body as large:
            body = large.read()
    try:
        properties = read_core_properties(message.properties)
        correlation = properties[_CORRELATION].value
        succeeded = properties.get("_AMQ_OperationSucceeded")
        text = NULLABLE_SIMPLE_STRING.read(CoreReader(body)) if body else None
        values = json.loads(text) if text else [None]
        if not isinstance(values, list) or not isinstance(correlation, str):
            return
        is_ok = succeeded is not None and succeeded.value is True
        found[int(correlation[1:])] = ManagementAnswer(values[0] if values else None, is_ok)
    except (CoreProtocolError, KeyError, ValueError, RecursionError):
        return
