"""Asks Artemis about itself by messages to its management address.

A request is a message whose application properties name a resource and an operation or attribute,
and whose body is a JSON array of arguments; the reply's body is a JSON array of one element. What
the user may not ask is not an error here: `missing` tells it as a sentence.

Source: Artemis, ManagementServiceImpl.handleMessage; `spec-artemis.md` 12.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import cproton

from amqsidecar.brokers import amqp_sections as amqp
from amqsidecar.brokers.amqp_connection import AmqpConnection
from amqsidecar.brokers.amqp_links import Receiver, Sender, is_answered, refusal_words
from amqsidecar.errors import DiscoveryRefused, UndecodableMessage

ADDRESS = "activemq.management"
ANSWER_S: Final = 15.0
"""So long an answer is waited for."""
_IN_FLIGHT_MAX = 50
# Bound: brokers with more queues are read page by page.
_PAGE_SIZE = 500
_PAGES_MAX = 2000


class Question(NamedTuple):
    """One thing to ask.

    Attributes:
        resource: `broker`, `queue.NAME` or `address.NAME`.
        operation: its name; "" = `attribute` is asked for.
        arguments: of the operation.
        attribute: its name.
    """

    resource: str
    operation: str = ""
    arguments: tuple[object, ...] = ()
    attribute: str = ""


class Answer(NamedTuple):
    """What the broker said.

    Attributes:
        value: the result; on failure the broker's words.
        is_ok: whether it is a result.
    """

    value: Any
    is_ok: bool


def about_queues(*, address: str = "", name: str = "", page: int = 1) -> Question:
    """Return what asks for a page of the queues with exactly this address or name, or of all."""
    options = ""
    if address or name:
        field, value = ("address", address) if address else ("name", name)
        options = json.dumps({"field": field, "operation": "EQUALS", "value": value})
    return Question("broker", "listQueues", (options, page, _PAGE_SIZE))


def about_queues_like(part: str, page: int) -> Question:
    """Return what asks for a page of the queues whose names contain this."""
    options = json.dumps({"field": "name", "operation": "CONTAINS", "value": part})
    return Question("broker", "listQueues", (options, page, _PAGE_SIZE))


def about_routing_types(address: str) -> Question:
    """Return what asks for the routing types of an address."""
    return Question(f"address.{address}", attribute="RoutingTypesAsJSON")


def about_bindings(address: str) -> Question:
    """Return what asks for the names of all queues and diverts that an address routes to."""
    return Question(f"address.{address}", attribute="BindingNames")


DIVERT_NAMES: Final = Question("broker", attribute="DivertNames")
"""Asks for the names of all diverts."""


def about_divert(name: str) -> tuple[Question, Question]:
    """Return what asks whether a divert is exclusive, and for its filter."""
    resource = f"divert.{name}"
    return Question(resource, attribute="Exclusive"), Question(resource, attribute="Filter")


def about_settings(address: str) -> Question:
    """Return what asks for the merged settings of an address."""
    return Question("broker", "getAddressSettingsAsJSON", (address,))


class QueueRow(NamedTuple):
    """A queue as `listQueues` tells of it.

    Attributes:
        message_count: what is in it, handed out and scheduled ones too.
        is_purged: the broker empties it when its last reader leaves.
        is_auto_deleted: the broker removes it when nobody reads from it.
        acknowledged_count: since the broker started.
        expired_count: likewise.
        killed_count: likewise; dead letters, and what was purged.
        consumer_count: who reads from it.
        is_last_value: a new message replaces the one with the same key.
        ring_size: messages that it holds at most, the oldest give way; -1 = no limit.
        is_enabled: whether it gets messages; what is sent to a disabled one is dropped.
    """

    name: str
    address: str
    is_anycast: bool
    filter: str
    message_count: int
    id: str = ""
    scheduled_count: int = 0
    is_durable: bool = True
    is_purged: bool = False
    is_auto_deleted: bool = False
    acknowledged_count: int = 0
    expired_count: int = 0
    killed_count: int = 0
    consumer_count: int = 0
    is_last_value: bool = False
    ring_size: int = -1
    is_enabled: bool = True

    @property
    def is_replacing(self) -> bool:
        """Whether new messages take the place of old ones, which no counter shows."""
        return self.is_last_value or self.ring_size >= 0


class ArtemisQuestions:
    """What can be asked, whatever wire carries it."""

    missing: str | None = None
    """Why nothing can be asked, as a sentence; None = it can. Valid once the wire is prepared."""

    def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask several things at once; the answers are in the order of the questions.

        Raises:
            LinkLost: the connection is gone.
        """
        raise NotImplementedError

    def ask(self, question: Question) -> Answer:
        """Ask one thing.

        Raises:
            LinkLost: the connection is gone.
        """
        return self.ask_all([question])[0]

    # What the link needs to know, by name.

    def settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the merged settings of each address; unset keys are absent, on failure all."""
        return [
            json.loads(answer.value) if answer.is_ok and answer.value else {}
            for answer in self.ask_all([about_settings(name) for name in addresses])
        ]

    def address_names(self) -> list[str]:
        """Return the names of all addresses; none where they aren't told."""
        answer = self.ask(Question("broker", "getAddressNames"))
        return [str(name) for name in answer.value] if answer.is_ok else []

    def all_settings(self) -> dict[str, Mapping[str, Any]]:
        """Return the merged settings of each address that there is, and of `#`.

        Raises:
            DiscoveryRefused: the broker does not tell them; those of some would be misleading.
        """
        told = self.ask(Question("broker", "getAddressNames"))
        names = ["#", *map(str, told.value)] if told.is_ok else []
        answers = self.ask_all([about_settings(name) for name in names])
        failed = next((one for one in (told, *answers) if not one.is_ok), None)
        if failed is not None:
            raise DiscoveryRefused(f"the address settings can't be read: {failed.value}")
        return {name: json.loads(one.value) for name, one in zip(names, answers, strict=True)}

    def queues(self, *, address: str = "", name: str = "") -> list[QueueRow]:
        """Return the queues with exactly this address or name; without either, all.

        Raises:
            DiscoveryRefused: all were asked for, and the broker does not tell.
        """

        def told(page: int) -> Answer:
            answer = self.ask(about_queues(address=address, name=name, page=page))
            if not (answer.is_ok or address or name):
                raise DiscoveryRefused(f"the queues can't be listed: {answer.value}")
            return answer

        return _all_pages(told)

    def queues_like(self, part: str) -> list[QueueRow]:
        """Return the queues whose names contain this.

        Raises:
            DiscoveryRefused: the broker does not tell.
        """

        def told(page: int) -> Answer:
            answer = self.ask(about_queues_like(part, page))
            if not answer.is_ok:
                raise DiscoveryRefused(f"the queues can't be listed: {answer.value}")
            return answer

        return _all_pages(told)

    def first_sent_at_ms(self, queue: str) -> int | None:
        """Return when the first message of a queue was sent; None = there is none, or not told."""
        answer = self.ask(Question(f"queue.{queue}", attribute="FirstMessageTimestamp"))
        return int(answer.value) if answer.is_ok and answer.value else None

    def routing_types(self, address: str) -> frozenset[str] | None:
        """Return `ANYCAST`, `MULTICAST`, both or none; None = there is no such address."""
        answer = self.ask(about_routing_types(address))
        return frozenset(json.loads(answer.value)) if answer.is_ok else None

    def message_count(self, queue: str) -> int | None:
        """Return how many messages a queue holds, handed out or not; None = no such queue."""
        answer = self.ask(Question(f"queue.{queue}", attribute="MessageCount"))
        return int(answer.value) if answer.is_ok else None

    def durable_count(self, queue: str) -> int | None:
        """Return how many persistent messages a queue holds; see `message_count`."""
        answer = self.ask(Question(f"queue.{queue}", attribute="DurableMessageCount"))
        return int(answer.value) if answer.is_ok else None

    def create_queue(
        self,
        name: str,
        address: str,
        *,
        is_anycast: bool,
        filter_text: str = "",
        is_exclusive: bool = False,
    ) -> str | None:
        """Make a durable queue that is not deleted by itself, unless it exists.

        If the process dies inside, the queue exists or it does not; calling again is safe.

        Returns:
            None, or the broker's words why it can't be made.
        """
        configuration: dict[str, object] = {
            "name": name,
            "address": address,
            "routing-type": "ANYCAST" if is_anycast else "MULTICAST",
            "durable": True,
            "auto-delete": False,
            "auto-created": False,
            "auto-create-address": True,
        }
        if filter_text:
            configuration["filter-string"] = filter_text
        if is_exclusive:
            configuration["exclusive"] = True
        answer = self.ask(Question("broker", "createQueue", (json.dumps(configuration), True)))
        return None if answer.is_ok else str(answer.value)


class AskedAhead(ArtemisQuestions):
    """Knows the answers to some questions already; asks the others."""

    def __init__(self, asked: ArtemisQuestions) -> None:
        self._asked = asked
        self._known: dict[Question, Answer] = {}
        self.missing = asked.missing

    def ask_ahead(self, questions: Sequence[Question]) -> None:
        """Ask all of these at once, so that each is known.

        Raises:
            LinkLost: the connection is gone.
        """
        self._known.update(zip(questions, self._asked.ask_all(questions), strict=True))

    def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the answers that are known; if one is not, ask all."""
        if all(question in self._known for question in questions):
            return [self._known[question] for question in questions]
        return self._asked.ask_all(questions)


class ArtemisManagement(ArtemisQuestions):
    """Questions and answers over one AMQP connection."""

    def __init__(self, connection: AmqpConnection, answer_s: float = ANSWER_S) -> None:
        """Begin to attach to the management address, with a temporary queue for the answers.

        Args:
            connection: to ask over.
            answer_s: so long answers are waited for.
        """
        self._connection = connection
        self._answer_s = answer_s
        self._sender = Sender(connection, "amqsidecar-management", ADDRESS)
        self._receiver = Receiver(connection, "amqsidecar-management-replies", None)
        self._receiver.flow(_IN_FLIGHT_MAX * 2)
        self._number = 0
        self.refusals: tuple[str, ...] = ()
        """The broker's words why nothing can be asked; valid after `prepare`."""

    def prepare(self, timeout_s: float) -> None:
        """Wait until the broker agreed or refused, and find out whether we may ask.

        Raises:
            LinkLost: the connection is gone.
        """
        ends = (self._sender, self._receiver)
        self._connection.run_until(lambda: all(end.is_answered for end in ends), timeout_s)
        self.refusals = tuple(end.refusal for end in ends if end.refusal is not None)
        refusal = self._sender.refusal or self._receiver.refusal
        if refusal is None and not all(end.is_open for end in ends):
            refusal = "no answer"
        if refusal is None:
            answer = self.ask(Question("broker", attribute="Version"))
            refusal = None if answer.is_ok else str(answer.value)
        if refusal is not None:
            self.refusals = self.refusals or (refusal,)
            self.missing = (
                f"the user may not manage the broker over AMQP ({refusal}); grant it "
                f"send and manage on {ADDRESS} and createNonDurableQueue for the replies"
            )

    def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask several things at once; the answers are in the order of the questions.

        Raises:
            LinkLost: the connection is gone.
        """
        if self.missing is not None:
            return [Answer(self.missing, is_ok=False)] * len(questions)
        answers: list[Answer] = []
        for start in range(0, len(questions), _IN_FLIGHT_MAX):
            answers += self._ask_some(questions[start : start + _IN_FLIGHT_MAX])
        return answers

    def _ask_some(self, questions: Sequence[Question]) -> list[Answer]:
        first = self._number
        self._number += len(questions)
        found: dict[int, Answer] = {}
        sender, receiver = self._sender, self._receiver
        if not self._connection.run_until(
            lambda: sender.credit >= len(questions) or sender.refusal, self._answer_s
        ):
            return [Answer("no credit for questions", is_ok=False)] * len(questions)
        if not (sender.is_open and receiver.is_open):
            words = sender.refusal or receiver.refusal or "closed"
            return [Answer(words, is_ok=False)] * len(questions)
        sent = [
            sender.send(_encode(question, receiver.address, first + at))
            for at, question in enumerate(questions)
        ]

        def is_done() -> bool:
            self._collect(found)
            for at, delivery in enumerate(sent):
                if first + at not in found and is_answered(delivery):
                    words = refusal_words(delivery)
                    if words is not None:
                        found[first + at] = Answer(words, is_ok=False)
            return all(first + at in found for at in range(len(questions)))

        self._connection.run_until(is_done, self._answer_s)
        for delivery in sent:
            cproton.pn_delivery_settle(delivery)
        nothing = Answer(f"no answer in {self._answer_s:g} s", is_ok=False)
        return [found.get(first + at, nothing) for at in range(len(questions))]

    def _collect(self, found: dict[int, Answer]) -> None:
        for in_hand, message in self._receiver.take_arrived(_IN_FLIGHT_MAX * 2):
            self._receiver.settle(in_hand, cproton.PN_ACCEPTED)
            self._receiver.flow(1)
            try:
                number, answer = _decode(message)
            except (UndecodableMessage, ValueError, RecursionError):
                continue
            found[number] = answer

    def close(self) -> None:
        """Begin to close the links."""
        self._sender.close()
        self._receiver.close()

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed the links."""
        return self._sender.is_closed and self._receiver.is_closed


def _all_pages(told: Callable[[int], Answer]) -> list[QueueRow]:
    rows: list[QueueRow] = []
    for page in range(1, _PAGES_MAX + 1):
        answer = told(page)
        found = json.loads(answer.value)["data"] if answer.is_ok else []
        rows += [_queue_row(entry) for entry in found]
        if len(found) < _PAGE_SIZE:
            break
    return rows


def _queue_row(entry: Mapping[str, Any]) -> QueueRow:
    return QueueRow(
        name=str(entry["name"]),
        address=str(entry["address"]),
        is_anycast=str(entry.get("routingType", "")).upper() == "ANYCAST",
        filter=str(entry.get("filter") or ""),
        message_count=int(entry.get("messageCount") or 0),
        id=str(entry.get("id") or ""),
        scheduled_count=int(entry.get("scheduledCount") or 0),
        is_durable=str(entry.get("durable", "true")) == "true",
        is_purged=str(entry.get("purgeOnNoConsumers", "")) == "true",
        is_auto_deleted=str(entry.get("autoDelete", "")) == "true",
        acknowledged_count=int(entry.get("messagesAcked") or 0),
        expired_count=int(entry.get("messagesExpired") or 0),
        killed_count=int(entry.get("messagesKilled") or 0),
        consumer_count=int(entry.get("consumerCount") or 0),
        is_last_value=str(entry.get("lastValue", "")) == "true",
        ring_size=int(entry.get("ringSize") or -1),
        is_enabled=str(entry.get("enabled", "true")) == "true",
    )


def _encode(question: Question, reply_to: str, number: int) -> bytes:
    pairs = [amqp.string("_AMQ_ResourceName"), amqp.string(question.resource)]
    if question.operation:
        pairs += [amqp.string("_AMQ_OperationName"), amqp.string(question.operation)]
    else:
        pairs += [amqp.string("_AMQ_Attribute"), amqp.string(question.attribute)]
    nothing = amqp.NULL
    properties = [nothing] * 4 + [amqp.string(reply_to), amqp.string(f"q{number}")]
    body = amqp.string(json.dumps(list(question.arguments)))
    return (
        amqp.make_list(amqp.PROPERTIES, properties)
        + amqp.make_map(amqp.APPLICATION_PROPERTIES, pairs)
        + b"\x00\x53\x77"
        + body
    )


def _decode(message: bytes) -> tuple[int, Answer]:
    sections = amqp.split(message)
    properties = amqp.elements(sections.get(amqp.PROPERTIES, b""))
    if len(properties) < 6:
        raise UndecodableMessage("a reply without a correlation id")
    correlation = str(amqp.scalar(properties[5]))
    pairs = amqp.elements(sections.get(amqp.APPLICATION_PROPERTIES, b""))
    found = {amqp.scalar(key): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}
    is_ok = amqp.scalar(found.get("_AMQ_OperationSucceeded", amqp.NULL)) is True
    body = amqp.scalar(sections.get(amqp.VALUE, b"\x00\x53\x77\x40")[3:])
    values = json.loads(body) if isinstance(body, str) and body else [None]
    if not isinstance(values, list):
        raise UndecodableMessage("a reply that is no JSON array")
    return int(correlation[1:]), Answer(values[0] if values else None, is_ok)
