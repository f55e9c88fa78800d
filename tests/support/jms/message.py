"""The view of a JMS application: messages, deliveries, rates, as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from amqsidecar.demo.applications import ConsumedMessage

# Why: they differ between two deliveries of the same message.
NOT_COMPARED = frozenset({"JMSMessageID", "JMSTimestamp", "JMSDestination"})

_JAVA_TYPES = {bool: "Boolean", int: "Long", float: "Double", str: "String", type(None): "null"}


@dataclass(frozen=True, slots=True)
class Typed:
    """A property with its Java type, such as `Typed("Short", 7)`."""

    java_type: str
    value: Any


@dataclass(frozen=True, slots=True)
class JmsMessage:
    """A message as a JMS client sees it.

    Attributes:
        type: Text, Bytes, Map, Object, Stream or Message.
        body: Text: text or None; Bytes: hex; Map: typed value by name; Stream: list of typed
            values; Object: class, text and serialised hex; Message: None. A typed value is
            `[Java type, value]`.
        body_error: what the client said when the body could not be read; None: it could.
        headers: by JMS name, `JMSMessageID` and so on; destinations in canonical form.
        properties: `[Java type, value]` by name, without those of group and delivery count.
        delivery_count: 1-based.
        received_at_ms: wall clock; for a sent message the time of sending.
    """

    type: str
    java_class: str
    body: Any
    body_error: str | None
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    group_id: str | None
    group_seq: int | None
    delivery_count: int | None
    received_at_ms: int

    @classmethod
    def parse(cls, line: Mapping[str, Any]) -> Self:
        """Return the message that the Java side has described."""
        count = line["deliveryCount"]
        return cls(
            type=line["type"],
            java_class=line["javaClass"],
            body=line.get("body"),
            body_error=line.get("bodyError"),
            headers=line["headers"],
            properties=line["properties"],
            group_id=line["groupId"],
            group_seq=line["groupSeq"],
            delivery_count=None if count is None else int(count),
            received_at_ms=line["receivedAtMs"],
        )

    @property
    def message_id(self) -> str:
        """The JMSMessageID."""
        return str(self.headers["JMSMessageID"])

    @property
    def test_id(self) -> str:
        """The id that `produce` and `fill` gave, which no broker changes; empty without one."""
        value = self.value("testId")
        return "" if value is None else str(value)

    def value(self, name: str) -> Any:
        """Return a property without its type, None when it is missing."""
        pair = self.properties.get(name)
        return None if pair is None else pair[1]

    def differences(
        self,
        other: Self,
        *,
        without_headers: Iterable[str] = NOT_COMPARED,
        without_properties: Iterable[str] = (),
    ) -> list[str]:
        """Return each field in which the other message differs, as `field: mine != other's`."""
        ours, theirs = self._fields(), other._fields()
        skipped = {*without_headers, *(f"property {name}" for name in without_properties)}
        return [
            f"{name}: {ours.get(name, 'missing')!r} != {theirs.get(name, 'missing')!r}"
            for name in sorted(ours.keys() | theirs.keys())
            if name not in skipped and ours.get(name, "missing") != theirs.get(name, "missing")
        ]

    def _fields(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "body": self.body,
            "body error": self.body_error,
            "group id": self.group_id,
            # Why: OpenWire says 0 where the others say nothing.
            "group sequence": self.group_seq or 0,
            **self.headers,
            **{f"property {name}": pair for name, pair in self.properties.items()},
        }


@dataclass(frozen=True, slots=True)
class Rate:
    """How many messages went through, and how fast."""

    count: int
    batch: int
    elapsed_s: float
    per_second: float


@dataclass(frozen=True)
class Delivery(ConsumedMessage):
    """One thing that a flaky consumer reports.

    Attributes:
        outcome: `disconnected` also when the connection could not be made.
        id: the `testId`, else the JMSMessageID.
        delivery_count: JMSXDeliveryCount.
        redelivery_count: `amqsidecarRedeliveryCount`, None when missing.
        message: the whole message when `full` was asked for, on receipt only.
    """

    delivery_count: int | None = None
    redelivery_count: int | None = None
    why: str = ""
    message: JmsMessage | None = None

    @property
    def received(self) -> JmsMessage:
        """The whole message, which was asked for."""
        assert self.message is not None, "ask the consumer for full messages"
        return self.message


def typed(properties: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return properties as the Java side reads them: `[Java type, value]` by name."""
    if properties is None:
        return None
    return {
        name: [value.java_type, value.value]
        if isinstance(value, Typed)
        else [_JAVA_TYPES[type(value)], value]
        for name, value in properties.items()
    }
