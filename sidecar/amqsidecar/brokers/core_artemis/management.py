"""Asks Artemis about itself over Core; the package `artemis` has the questions."""

import json
from collections.abc import Mapping
from uuid import uuid4

from amqsidecar.brokers.artemis.management import (
    ADDRESS,
    ArtemisQuestions,
    ManagementAnswer,
    ManagementQuestion,
    answer_in,
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

    def __init__(self, session: CoreSession) -> None:
        """Make the queue of the answers, and find out whether we may ask."""
        self._session = session
        self._replies = str(uuid4())
        self._consumer = NO_CONSUMER
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

    def ask_batch(self, questions: Mapping[int, ManagementQuestion]) -> dict[int, ManagementAnswer]:
        found: dict[int, ManagementAnswer] = {}
        session = self._session
        asked = {
            session.ask_send(self._encode(question, number)): number
            for number, question in questions.items()
        }

        def is_done() -> bool:
            for sent, refused in session.take_answers(asked).items():
                if refused is not None:
                    found[asked[sent]] = ManagementAnswer(str(refused), is_ok=False)
            for delivery in session.take_from(self._consumer):
                session.give_back(delivery)
                _read(delivery, found)
            return found.keys() >= questions.keys()

        session.wire.run_until(is_done, self.answer_s)
        session.abandon_answers(asked)
        return found

    def _encode(self, question: ManagementQuestion, number: int) -> CoreMessage:
        names = question.properties | {"JMSReplyTo": self._replies, _CORRELATION: f"q{number}"}
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
        is_ok = succeeded is not None and succeeded.value is True
        found[int(str(correlation)[1:])] = answer_in(text, is_ok=is_ok)
    except (CoreProtocolError, KeyError, ValueError, RecursionError):
        return
