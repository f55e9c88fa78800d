"""Asks Artemis about itself over STOMP; the package `artemis` has the questions.

It has a connection of its own, since the broker ends a connection when it refuses a frame. The
answers come to a multicast subscription that is not durable: its queue goes with the connection.

Source: Artemis, ManagementServiceImpl.handleMessage; `spec-artemis.md` 12.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from uuid import uuid4

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import (
    ADDRESS,
    ArtemisQuestions,
    ManagementAnswer,
    ManagementQuestion,
    answer_in,
)
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, call, error_text
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.stomp_frame import Frame, Header

REPLY_PREFIX = "amqsidecar.replies."
_SUBSCRIPTION = b"replies"


def connect(settings: ArtemisLinkSettings) -> StompConnection:
    """Connect and log in.

    Raises:
        LinkLost: the broker can't be reached.
        BrokerRefused: credentials, permissions or another product.
    """
    connection = StompConnection(settings.endpoint, settings.clock)
    if "artemis" not in connection.server.lower():
        connection.close()
        name = connection.server or "an unknown product"
        raise BrokerRefused(f"{connection.name} is {name}, not Apache Artemis")
    return connection


class StompManagement(ArtemisQuestions):
    """Questions and answers over one STOMP connection.

    Attributes:
        run: unique for each connection.
    """

    def __init__(self, settings: ArtemisLinkSettings) -> None:
        """Connect, and find out whether we may ask.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: credentials.
        """
        self._mark = self.run = uuid4().hex
        self._prefix = f"{REPLY_PREFIX}{settings.instance}."
        # Why a new one: the broker may delete that of a predecessor at any moment.
        self._reply_to = f"{self._prefix}{self._mark}".encode()
        self._connection = connect(settings)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        try:
            call(
                self._connection,
                "SUBSCRIBE",
                [
                    (b"destination", self._reply_to),
                    (b"subscription-type", b"MULTICAST"),
                    (b"id", _SUBSCRIPTION),
                    (b"ack", b"auto"),
                ],
            )
            answer = self.ask(ManagementQuestion("broker", attribute="Version"))
            refusal = None if answer.is_ok else str(answer.value)
        except FrameRefused as refused:
            refusal = str(refused)
        if refusal is not None:
            self.why_unusable = (
                f"the user may not manage the broker over STOMP ({refusal}); grant it send, "
                f"manage and createAddress on {ADDRESS}, and createAddress, createNonDurableQueue, "
                f"deleteNonDurableQueue, consume and send on {REPLY_PREFIX}#"
            )
            self._connection.close()
            return
        # Why: where addresses are not auto-deleted, addresses of crashed links are left.
        for name in self.address_names():
            if name.startswith(self._prefix) and name.encode() != self._reply_to:
                self.ask(ManagementQuestion("broker", "deleteAddress", (name,)))

    def keep_alive(self) -> None:
        """Answer the broker's heart-beats."""
        if self.is_usable:
            self._connection.poll()

    def ask_batch(self, questions: Mapping[int, ManagementQuestion]) -> dict[int, ManagementAnswer]:
        connection = self._connection
        found: dict[int, ManagementAnswer] = {}
        for number, question in questions.items():
            connection.send("SEND", self._headers(question, number), _body(question))
        clock = connection.clock
        deadline_s = clock.monotonic_s() + self.answer_s
        while not found.keys() >= questions.keys():
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                break
            try:
                connection.wait(left_s)
            except LinkLost:
                if not connection.errors:
                    raise
            if connection.errors:
                # Why: the broker refuses a question by ending the connection.
                words = error_text(connection.errors.popleft())
                self.why_unusable = f"the broker refused a question over STOMP: {words}"
                connection.close()
                return dict.fromkeys(questions, ManagementAnswer(words, is_ok=False))
            while connection.messages:
                self._read(connection.next_message(), found)
        return found

    def _headers(self, question: ManagementQuestion, number: int) -> list[Header]:
        # Why no content-length: with it the body is bytes, and the broker refuses them.
        return [
            (b"destination", ADDRESS.encode()),
            (b"reply-to", self._reply_to),
            (b"correlation-id", f"{self._mark}:{number}".encode()),
            *((name.encode(), value.encode()) for name, value in question.properties.items()),
        ]

    def _read(self, frame: Frame, found: dict[int, ManagementAnswer]) -> None:
        mark, _, number = frame.text(b"correlation-id").partition(":")
        if mark == self._mark and number.isdigit():
            is_ok = frame.first(b"_AMQ_OperationSucceeded") == b"true"
            with suppress(ValueError, RecursionError):
                found[int(number)] = answer_in(frame.body, is_ok=is_ok)

    def close(self) -> None:
        """Unsubscribe, so that the queue and address are deleted, too; never raises."""
        connection = self._connection
        with suppress(LinkLost, BrokerRefused):
            connection.send("UNSUBSCRIBE", [(b"id", _SUBSCRIPTION)])
            if self.is_usable:
                gone = ManagementQuestion("broker", "deleteAddress", (self._reply_to.decode(),))
                # Why no reply address: the broker would create it again for its answer.
                headers = [one for one in self._headers(gone, 0) if one[0] != b"reply-to"]
                connection.send("SEND", headers, _body(gone))
            connection.disconnect(2.0)
        connection.close()


def _body(question: ManagementQuestion) -> bytes:
    return json.dumps(list(question.arguments)).encode() if question.operation else b""
