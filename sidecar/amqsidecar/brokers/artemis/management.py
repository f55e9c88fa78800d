"""Asks Artemis about itself by messages to its management address, over any wire.

A request is a message whose application properties name a resource and an operation or attribute,
and whose body is a JSON array of arguments; the reply's body is a JSON array of one element. A
question that the user may not ask raises nothing: its answer is the reason; `demand` raises it.

Source: Artemis, ManagementServiceImpl.handleMessage; `spec-artemis.md` 12.
"""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from amqsidecar.broker import IntakeQueue
from amqsidecar.brokers.selectors import both, not_of_count, of_redelivery_ids
from amqsidecar.errors import (
    BrokerRefused,
    DiscoveryRefused,
    ManagementRefused,
    StoreUnavailable,
)
from amqsidecar.model.destination import Destination
from amqsidecar.model.provenance import BY_AGAIN, BY_MESSAGE_ID, BY_NUMBER
from amqsidecar.model.sidecar_names import PROPERTY_REDELIVERY_ID

ADDRESS = "activemq.management"
ANSWER_S: Final = 15.0
"""Maximum wait for an answer."""
IN_FLIGHT_MAX: Final = 50
"""Maximum questions on the way at once."""
# Bound: brokers with more queues are read page by page.
_PAGE_SIZE = 500
_PAGES_MAX = 2000
# Overhead that the broker counts per message in memory (measured with Artemis 2.44).
_MESSAGE_BYTES: Final = 1024
# Why no more: beyond its `global-max-size` the broker pages every address, or refuses messages.
_SHARE_OF_MEMORY: Final = 0.75


class ManagementQuestion(NamedTuple):
    """One thing to ask.

    Attributes:
        resource: `broker`, `queue.NAME` or `address.NAME`.
        operation: its name; "" = `attribute` is asked for.
        attribute: its name.
    """

    resource: str
    operation: str = ""
    arguments: tuple[object, ...] = ()
    attribute: str = ""

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the message that asks it."""
        named = {"_AMQ_Attribute": self.attribute}
        if self.operation:
            named = {"_AMQ_OperationName": self.operation}
        return {"_AMQ_ResourceName": self.resource, **named}


class ManagementAnswer(NamedTuple):
    """The broker's answer.

    Attributes:
        value: the result; on failure the broker's words.
        is_ok: whether it is a result.
    """

    value: Any
    is_ok: bool


def of_queue(queue: Destination, operation: str, *arguments: object) -> ManagementQuestion:
    """Return the question for an operation of a queue, whose name may be fully qualified."""
    return ManagementQuestion(f"queue.{queue.name.rpartition('::')[2]}", operation, arguments)


def attribute_of_queue(queue: Destination, attribute: str) -> ManagementQuestion:
    """Return the question for an attribute of a queue, whose name may be fully qualified."""
    return ManagementQuestion(f"queue.{queue.name.rpartition('::')[2]}", attribute=attribute)


def answer_in(body: str | bytes | None, *, is_ok: bool) -> ManagementAnswer:
    """Return the answer in the body of a reply.

    Raises:
        ValueError, RecursionError: it is no JSON array.
    """
    values = json.loads(body) if body else [None]
    if not isinstance(values, list):
        raise ValueError("a reply that is no JSON array")  # noqa: TRY004 - as for other bytes
    return ManagementAnswer(values[0] if values else None, is_ok)


def about_queues(
    field: str = "", value: str = "", *, operation: str = "EQUALS", page: int = 1
) -> ManagementQuestion:
    """Return the question for a page of the queues of which a field compares so; "" = of all."""
    options = {"field": field, "operation": operation, "value": value}
    shown = json.dumps(options) if field else ""
    return ManagementQuestion("broker", "listQueues", (shown, page, _PAGE_SIZE))


def about_routing_types(address: str) -> ManagementQuestion:
    """Return the question for the routing types of an address."""
    return ManagementQuestion(f"address.{address}", attribute="RoutingTypesAsJSON")


DIVERT_NAMES: Final = ManagementQuestion("broker", attribute="DivertNames")
"""Asks for the names of all diverts."""


def about_divert(name: str) -> tuple[ManagementQuestion, ManagementQuestion]:
    """Return the questions whether a divert is exclusive, and for its filter."""
    resource = f"divert.{name}"
    return ManagementQuestion(resource, attribute="Exclusive"), ManagementQuestion(
        resource, attribute="Filter"
    )


def about_settings(address: str) -> ManagementQuestion:
    """Return the question for the merged settings of an address."""
    return ManagementQuestion("broker", "getAddressSettingsAsJSON", (address,))


class QueueRow(NamedTuple):
    """A queue as `listQueues` reports it.

    Attributes:
        message_count: its messages, also handed out and scheduled.
        is_purged: the broker empties it when its last consumer leaves.
        is_auto_deleted: the broker removes it when it has no consumer.
        acknowledged_count: since the broker started.
        expired_count: likewise.
        killed_count: likewise; dead letters and purged messages.
        consumer_count: how many consumers it has.
        delivering_count: messages handed out whose acknowledgement is not committed yet.
        is_last_value: a new message replaces the one with the same key.
        ring_size: maximum messages, of which the oldest give way; -1 = no limit.
        is_enabled: whether it gets messages; a disabled queue drops them.
        is_internal: the broker made it for itself.
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
    delivering_count: int = 0
    is_last_value: bool = False
    ring_size: int = -1
    is_enabled: bool = True
    is_internal: bool = False

    @property
    def is_replacing(self) -> bool:
        """Whether new messages replace old messages, which no counter shows."""
        return self.is_last_value or self.ring_size >= 0


class QueueRouting(NamedTuple):
    """Which messages a queue takes now.

    Quirk (Artemis 2.44): the answer to a question over Core has the filter that a queue was made
    with, so only the management is asked.

    Attributes:
        filter: "" = all.
        is_enabled: False = none.
    """

    filter: str
    is_enabled: bool


class ArtemisQuestions:
    """Questions to the management, over any wire."""

    why_unusable: str = ""
    """Why nothing can be asked, as a sentence; "" = it can."""

    refusals: tuple[str, ...] = ()
    """The broker's words why nothing can be asked."""

    answer_s: float = ANSWER_S
    _question_count = 0

    @property
    def is_usable(self) -> bool:
        """Whether something can be asked."""
        return not self.why_unusable

    def demand(
        self, sentence: str = "{}", error: type[BrokerRefused | StoreUnavailable] = BrokerRefused
    ) -> None:
        """Raise an error where nothing can be asked; the sentence may hold `{}` for the reason."""
        if self.why_unusable:
            raise error(sentence.replace("{}", self.why_unusable))

    def ask_all(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
        """Ask several things at once; the answers are in the order of the questions.

        Where nothing can be asked, each answer is the reason.
        """
        if self.why_unusable:
            return [ManagementAnswer(self.why_unusable, is_ok=False)] * len(questions)
        answers: list[ManagementAnswer] = []
        for start in range(0, len(questions), IN_FLIGHT_MAX):
            numbers = itertools.count(self._question_count)
            batch = dict(zip(numbers, questions[start : start + IN_FLIGHT_MAX], strict=False))
            self._question_count += len(batch)
            found = self.ask_batch(batch)
            nothing = ManagementAnswer(f"no answer in {self.answer_s:g} s", is_ok=False)
            answers += [found.get(number, nothing) for number in batch]
        return answers

    def ask_batch(
        self, questions: Mapping[int, ManagementQuestion]
    ) -> Mapping[int, ManagementAnswer]:
        """Ask at most `IN_FLIGHT_MAX` things over the wire; return the answers that came in time.

        Called by `ask_all` only. Numbers are not used again; each wire puts them on its questions.
        """
        raise NotImplementedError

    def ask(self, question: ManagementQuestion) -> ManagementAnswer:
        return self.ask_all([question])[0]

    # Questions of the link

    def settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the merged settings of each address; unset keys are absent, on failure all."""
        return [
            json.loads(answer.value) if answer.is_ok and answer.value else {}
            for answer in self.ask_all([about_settings(name) for name in addresses])
        ]

    def address_names(self) -> list[str]:
        """Return the names of all addresses; none where the broker does not report them."""
        answer = self.ask(ManagementQuestion("broker", "getAddressNames"))
        return [str(name) for name in answer.value] if answer.is_ok else []

    def all_settings(self) -> dict[str, Mapping[str, Any]]:
        """Return the merged settings of each existing address, and of `#`.

        Raises:
            DiscoveryRefused: the broker does not report them all; a part would mislead.
        """
        told = self.ask(ManagementQuestion("broker", "getAddressNames"))
        names = ["#", *map(str, told.value)] if told.is_ok else []
        answers = self.ask_all([about_settings(name) for name in names])
        failed = next((one for one in (told, *answers) if not one.is_ok), None)
        if failed is not None:
            raise DiscoveryRefused(f"the address settings can't be read: {failed.value}")
        return {name: json.loads(one.value) for name, one in zip(names, answers, strict=True)}

    def queues(self, *, address: str = "", name: str = "") -> list[QueueRow]:
        """Return the queues with exactly this address or name; without either, all.

        Raises:
            DiscoveryRefused: all were asked for, and the broker does not answer.
        """
        field = "address" if address else "name" if name else ""
        return self._rows(field, address or name, may_fail=bool(field))

    def queues_like(self, part: str) -> list[QueueRow]:
        """Return the queues whose names contain this.

        Raises:
            DiscoveryRefused: the broker does not answer.
        """
        return self._rows("name", part, "CONTAINS")

    def delivering_queues(self) -> list[QueueRow]:
        """Return the queues that have messages handed out; none where nothing can be asked."""
        return self._rows("deliveringCount", "0", "GREATER_THAN", may_fail=True)

    def _rows(
        self, field: str, value: str, operation: str = "EQUALS", *, may_fail: bool = False
    ) -> list[QueueRow]:
        rows: list[QueueRow] = []
        for page in range(1, _PAGES_MAX + 1):
            answer = self.ask(about_queues(field, value, operation=operation, page=page))
            if not (answer.is_ok or may_fail):
                raise DiscoveryRefused(f"the queues can't be listed: {answer.value}")
            found = json.loads(answer.value)["data"] if answer.is_ok else []
            rows += [_queue_row(entry) for entry in found]
            if len(found) < _PAGE_SIZE:
                break
        return rows

    def first_sent_at_ms(self, queue: str) -> int | None:
        """Return when the first message of a queue was sent; None = none, or not reported."""
        return self._number_of(queue, "FirstMessageTimestamp") or None

    def routings(self, queues: Sequence[str]) -> list[QueueRouting | None]:
        """Return the filter and state of each queue; None = it is gone, or not reported."""
        questions = [
            ManagementQuestion(f"queue.{name}", attribute=attribute)
            for attribute in ("Filter", "Enabled")
            for name in queues
        ]
        answers = self.ask_all(questions)
        return [
            QueueRouting(str(has.value or ""), takes.value) if has.is_ok and takes.is_ok else None
            for has, takes in zip(answers[: len(queues)], answers[len(queues) :], strict=True)
        ]

    def routing_types(self, address: str) -> frozenset[str] | None:
        """Return `ANYCAST`, `MULTICAST`, both or none; None = there is no such address."""
        answer = self.ask(about_routing_types(address))
        return frozenset(json.loads(answer.value)) if answer.is_ok else None

    def message_count(self, queue: str) -> int | None:
        """Return how many messages a queue holds, handed out or not; None = no such queue."""
        return self._number_of(queue, "MessageCount")

    def count(self, queue: Destination, at_most: int) -> int | None:
        """Return how many messages a queue holds, counting up to `at_most`; None = unusable."""
        count = self.message_count(queue.name.rpartition("::")[2])
        return min(count or 0, at_most) if self.is_usable else None

    def durable_count(self, queue: str) -> int | None:
        """Return how many persistent messages a queue holds; see `message_count`."""
        return self._number_of(queue, "DurableMessageCount")

    def _number_of(self, queue: str, attribute: str) -> int | None:
        answer = self.ask(ManagementQuestion(f"queue.{queue}", attribute=attribute))
        return int(answer.value or 0) if answer.is_ok else None

    def make_token_queue(self, name: str) -> None:
        self.create_queue(name, name, is_anycast=True, is_exclusive=True)

    def has_token(self, queue: str) -> bool | None:
        count = self.durable_count(queue)
        return bool(count) if self.is_usable else None

    def create_queue(
        self,
        name: str,
        address: str,
        *,
        is_anycast: bool,
        filter_text: str = "",
        is_exclusive: bool = False,
    ) -> str | None:
        """Make a durable queue that is not deleted automatically, unless it exists.

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
        answer = self.ask(
            ManagementQuestion("broker", "createQueue", (json.dumps(configuration), True))
        )
        return None if answer.is_ok else str(answer.value)


def no_permission(wire: str, refusal: str) -> str:
    """Return why requests over Core or AMQP fail, and the missing permissions."""
    return (
        f"the user may not manage the broker over {wire} ({refusal}); grant it "
        f"send and manage on {ADDRESS} and createNonDurableQueue for the replies"
    )


class AskedAhead(ArtemisQuestions):
    """Caches the answers to some questions; asks the others."""

    def __init__(self, asked: ArtemisQuestions) -> None:
        self._asked = asked
        self._known: dict[ManagementQuestion, ManagementAnswer] = {}
        self.why_unusable = asked.why_unusable

    def ask_ahead(self, questions: Sequence[ManagementQuestion]) -> None:
        """Ask all of these at once, so that each is known."""
        self._known.update(zip(questions, self._asked.ask_all(questions), strict=True))

    def ask_all(self, questions: Sequence[ManagementQuestion]) -> list[ManagementAnswer]:
        """Return the answers that are known; if one is not, ask all."""
        if all(question in self._known for question in questions):
            return [self._known[question] for question in questions]
        return self._asked.ask_all(questions)


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
        delivering_count=int(entry.get("deliveringCount") or 0),
        is_last_value=str(entry.get("lastValue", "")) == "true",
        ring_size=int(entry.get("ringSize") or -1),
        is_enabled=str(entry.get("enabled", "true")) == "true",
        is_internal=str(entry.get("internalQueue", "")) == "true",
    )


class ChosenMessages:
    """Takes chosen messages out of queues; see `broker.TakesChosen`."""

    def __init__(self, management: ArtemisQuestions) -> None:
        self._management = management
        self._brought: tuple[Destination, frozenset[str]] | None = None

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool | None:
        """Return whether a queue may hold a message of these ids that has not come.

        It may while other consumers or a transaction that the broker doesn't show have it in hand.

        None = the queue is paged, and its messages don't fit into the broker's memory: only
        reading the whole queue reaches the message.

        Quirk (Artemis 2.44): a consumer with a selector gets only messages of a paged queue that
        the broker has in memory (`max-read-page-bytes`). Each operation on a message by its number
        first loads the whole queue into memory; no message has the number 0.

        Raises:
            BrokerRefused: this user may not ask, or the broker does not answer.
        """
        if not self.holds(queue, of_redelivery_ids(redelivery_ids)):
            return self._are_in_hand(queue, redelivery_ids)
        chosen = queue, frozenset(redelivery_ids)
        paging, *counts = self._management.ask_all(
            [
                ManagementQuestion(f"address.{queue.address}", attribute="Paging"),
                ManagementQuestion(f"address.{queue.address}", attribute="AddressSize"),
                attribute_of_queue(queue, "PersistentSize"),
                attribute_of_queue(queue, "MessageCount"),
                ManagementQuestion("broker", attribute="AddressMemoryUsage"),
                ManagementQuestion("broker", attribute="GlobalMaxSize"),
            ]
        )
        # Why once: the queue is in memory then, and another reader may have precedence.
        if self._brought == chosen or not (paging.is_ok and paging.value):
            return True
        if not all(one.is_ok for one in counts):
            return None
        own, size, count, used, most = (int(one.value) for one in counts)
        needed = size + count * _MESSAGE_BYTES
        if used - min(own, needed) + needed > most * _SHARE_OF_MEMORY:
            return None
        self._brought = chosen
        return self._management.ask(of_queue(queue, "retryMessage", 0)).is_ok or None

    def _are_in_hand(self, queue: Destination, redelivery_ids: Collection[str]) -> bool:
        rows = self._management.queues(name=queue.name.rpartition("::")[2])
        if not (count := sum(one.delivering_count for one in rows)):
            return False
        answer = self._management.ask(of_queue(queue, "listDeliveringMessagesAsJSON"))
        consumers = json.loads(answer.value) if answer.is_ok else []
        shown = [one for consumer in consumers for one in consumer.get("elements", ())]
        if len(shown) < count:
            return True
        names = {one.get(PROPERTY_REDELIVERY_ID) for one in shown}
        names.update(
            f"{BY_NUMBER}{one.get('_AMQ_ORIG_MESSAGE_ID')}-{one.get('timestamp')}" for one in shown
        )
        chosen = {*redelivery_ids}
        # Why: the broker shows message ids in another form.
        return bool(chosen & names) or any(
            one.startswith((BY_MESSAGE_ID, BY_AGAIN)) for one in chosen
        )

    def holds(self, queue: Destination, selector: str) -> bool:
        """Return whether a queue holds a message of a selector that is not handed out.

        Quirk (Artemis 2.44): `countMessages` with a filter looks at the first 200 messages only; a
        browse by page looks at all.

        Raises:
            BrokerRefused: this user may not ask, or the broker does not answer.
        """
        self._management.demand(f"what {queue} holds can't be asked: {{}}", ManagementRefused)
        _, answer, listed = self._management.ask_all(
            [
                # Why: the broker requeues returned messages in another thread.
                of_queue(queue, "flushExecutor"),
                of_queue(queue, "browse", 1, 1, selector),
                about_queues("name", queue.name.rpartition("::")[2]),
            ]
        )
        is_gone = listed.is_ok and not json.loads(listed.value)["data"]
        if not (answer.is_ok or is_gone):
            raise BrokerRefused(f"what {queue} holds can't be asked: {answer.value}")
        return answer.is_ok and any(answer.value.values())


def selected(queue: IntakeQueue) -> IntakeQueue:
    """Return a queue with the selector that its redelivery ids need."""
    if not queue.redelivery_ids:
        return queue
    count = not_of_count(queue.except_count) if queue.except_count else ""
    selector = both(of_redelivery_ids(queue.redelivery_ids), count)
    return msgspec.structs.replace(queue, selector=selector)
