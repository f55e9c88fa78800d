"""One row with its queues and its message, on a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from combinations.axes import Asker, Content, Death, Place, Row
from support.jms.message import JmsMessage, typed

RED: Final = "red"
BLUE: Final = "blue"

FOREIGN_RULE: Final = "foreign cause"
"""The title of the rule that discards by the cause of a foreign note."""

_CONTENTS: Final[Mapping[Content, Mapping[str, Any]]] = {
    Content.TEXT: {},
    Content.NON_PERSISTENT: {},
    Content.BYTES: {"type": "Bytes"},
    Content.MAP: {"type": "Map"},
    Content.OBJECT: {"type": "Object"},
    Content.LARGE: {"text": "large: é" * 60_000},
    Content.GROUPED: {"group": "group-1", "groupSeq": 0},
    Content.EXPIRING: {"ttlMs": 3_600_000},
    Content.RICH: {"sampleProperties": True, "replyTo": "reply.queue", "group": "g", "groupSeq": 3},
}

COUNTED_OTHERWISE: Final = "counted otherwise"
"""In place of an id: by how much the broker's count of a queue differs from its list."""

Contents = Mapping[str, Counter[str]]
"""By queue: the messages in it by `testId`."""


@dataclass
class Case:
    """A row that is played.

    Attributes:
        number: its number in the array.
        group: the rows that share a sidecar, as a part of names.
        destination: where the row's asker wants it, as a redirect names it.
        arrived_in: the queues that the destination stands for.
        sent: the message as its producer sees it.
        before: what the broker's queues held of it once it had died, and its destination was ready.
        refused: the words with which an ask was refused; "" = it was not.
        asked_at: how many events its history had when a person asked.
        undone: number of the operation that a person undoes.
    """

    number: int
    row: Row
    group: str
    destination: str = ""
    arrived_in: frozenset[str] = frozenset()
    sent: JmsMessage | None = None
    before: Contents = field(default_factory=dict)
    refused: str = ""
    asked_at: int = 0
    undone: int = 0

    @property
    def token(self) -> str:
        """The part of names that only its queues have."""
        return f"row{self.number}"

    @property
    def variant(self) -> int:
        """0 or 1, by the row alone: which of two applications it has."""
        return crc32(str(self.row).encode()) % 2

    @property
    def prefix(self) -> str:
        """Names of its queues begin with it."""
        return f"combo.{self.group}.{self.row.course}.{self.token}"

    @property
    def is_of_origin(self) -> bool:
        """Whether the destination that is tried is the message's origin."""
        return not (self.row.asker.redirects or self.row.asker is Asker.FINAL)

    @property
    def origin(self) -> str:
        """The address or queue that its application uses."""
        name = f"{self.prefix}.origin"
        if self.is_at(Place.INTERNAL) and self.is_of_origin:
            return f"$.artemis.internal.sf.{name}"
        return f"VirtualTopic.{name}" if self.is_virtual else name

    @property
    def is_virtual(self) -> bool:
        """Whether the origin is the queue of a virtual topic."""
        return self.is_at(Place.VIRTUAL_TOPIC) and self.is_of_origin

    @property
    def is_subscription(self) -> bool:
        """Whether the origin is a subscription of Artemis."""
        return self.is_of_origin and self.row.place in (
            Place.SUBSCRIPTION,
            Place.SHARED_SUBSCRIPTION,
        )

    @property
    def died_in(self) -> str:
        """The queue in which the message died."""
        if self.is_virtual:
            return f"Consumer.A.{self.origin}"
        if self.is_subscription or (self.is_of_origin and self.is_at(Place.TWO_QUEUES)):
            return f"{self.origin}.a"
        return self.origin

    @property
    def read_from(self) -> str:
        """The queue in which it died, as its consumer names it."""
        is_qualified = self.died_in != self.origin and not self.is_virtual
        return f"{self.origin}::{self.died_in}" if is_qualified else self.died_in

    @property
    def produced_to(self) -> str:
        """Where the application sends it."""
        if self.is_virtual or self.is_subscription:
            return f"topic://{self.origin}"
        return self.read_from

    @property
    def copied_to(self) -> str:
        """The queue to which the broker copies what is sent to the final queue, as its own dead
        letters; "" = none."""
        if self.row.asker is not Asker.FINAL:
            return ""
        names = {Place.DIVERT_COPIES: "diverted", Place.COMPOSITE_COPIES: "copy"}
        name = names.get(self.row.place)
        return f"{self.prefix}.{name}" if name else ""

    @property
    def target(self) -> str:
        """The address or queue that a redirect names."""
        return f"{self.prefix}.target"

    @property
    def dead_letter_queue(self) -> str:
        """Where it dies to on Artemis; the course of its own name has no limit of attempts."""
        return f"combo.{self.group}.dead.{self.token}.DLQ"

    @property
    def expiry_queue(self) -> str:
        """Where it expires to on Artemis."""
        return f"combo.{self.group}.dead.{self.token}.EXP"

    @property
    def source(self) -> str:
        """The dead-letter queue that the sidecar takes it from."""
        if self.row.wire.is_classic:
            return f"DLQ.{self.died_in}"
        return self.expiry_queue if self.row.death is Death.EXPIRED else self.dead_letter_queue

    @property
    def final_queue(self) -> str:
        """Where it lies once nobody redelivers it."""
        return f"{self.source}.exhausted"

    @property
    def test_id(self) -> str:
        """The id that no broker changes."""
        return f"m-{self.token}"

    @property
    def edit(self) -> Mapping[str, str]:
        """The properties that the asker sets."""
        if not self.row.asker.edits:
            return {}
        return {"colour": BLUE} if self.is_at(Place.FILTER_REFUSES) else {"size": "big"}

    @property
    def filler_id(self) -> str:
        """The id of the message that lies at its destination, where one does."""
        return f"{self.filled_as}-0"

    @property
    def application_message(self) -> Mapping[str, Any]:
        """What its application sends, as `JmsPeer.produce_each` takes it."""
        return {
            "destination": self.produced_to,
            "type": "Text",
            "text": "an order: äöü €",
            "sampleProperties": False,
            **_CONTENTS[self.row.content],
            "properties": typed({"colour": RED, "row": self.token, "key": "k"}),
            "testIds": [self.test_id],
            "correlationId": "correlation-1",
            "jmsType": "my.type",
            "priority": 7,
            "persistent": self.row.content is not Content.NON_PERSISTENT,
        }

    @property
    def filled_as(self) -> str:
        """Likewise, of what lies at its destination."""
        return f"f-{self.token}"

    def is_at(self, place: Place) -> bool:
        """Return whether its destination is of this kind."""
        return self.row.place is place

    def owns(self, name: str) -> bool:
        """Return whether a queue is one of its own."""
        return self.token in name.split(".")

    @property
    def spot(self) -> str:
        """The address that is of the row's kind."""
        if self.row.asker is Asker.FINAL:
            return self.final_queue
        return self.target if self.row.asker.redirects else self.origin


def notes_queue(group: str) -> str:
    """Return the queue of the notes that a group's sidecar reads."""
    return f"combo.{group}.notes"


def queue_of(destination: str) -> str:
    """Return the queue, or the name of the topic, that a destination names."""
    return destination.partition("://")[2].rpartition("::")[2]
