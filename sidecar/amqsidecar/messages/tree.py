"""A kept message taken apart: the parts that people see, and that they change."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from typing import ClassVar

from amqsidecar.errors import UndecodableMessage
from amqsidecar.messages.slots import Plain, Slot, shown
from amqsidecar.model.message import (
    EDITABLE_TYPES,
    FIELDS_MAX,
    BodyKind,
    BodyView,
    ValueType,
    lock_of,
)

STREAM_LOCK = "the values of a StreamMessage can't be changed"


class Form(Enum):
    """The forms of a body that people can change."""

    TEXT = auto()
    BYTES = auto()
    MAP = auto()


class MessageTree(ABC):
    """The parts of a message; a change keeps the bytes of all other parts.

    Methods that read a part raise UndecodableMessage if it is not well formed.

    Attributes:
        properties_name: of the properties in a problem.
        property_types: types that a property may be given.
        no_map: why the entries of a body that is no map can't be changed.
        kind: the JMS type, such as `TextMessage`; "" = the wire does not show it.
        form: of the body; None = it can't be changed.
        not_replaceable: why a body without a form can't be replaced.
        content_type: as the message says; "" = none.
    """

    wire: ClassVar[str]
    properties_name: ClassVar[str] = "its properties"
    property_types: ClassVar[Sequence[ValueType]] = EDITABLE_TYPES
    no_map: ClassVar[str] = "it is no map; entries can only be changed in one"

    kind: str
    form: Form | None
    not_replaceable: str
    content_type: str = ""
    size_bytes: int

    def body_lock(self) -> str | None:
        """Return why the body can't be changed in any form; None = it can be."""
        return None

    @abstractmethod
    def __init__(self, message: bytes) -> None:
        """Take a message apart.

        Raises:
            UndecodableMessage: it can't be taken apart.
        """

    @abstractmethod
    def headers(self, problems: list[str]) -> Sequence[Slot]:
        """Return all headers that can be read; the others are problems."""

    @abstractmethod
    def properties(self) -> list[Slot]:
        """Return the application properties."""

    def lines(self) -> list[Slot]:
        """Return the properties with the other lines among them on the wire."""
        return self.properties()

    def lock(self, name: str) -> str | None:
        """Return why a property can't be changed; None = it can be."""
        return lock_of(name)

    @abstractmethod
    def body(self, max_bytes: int) -> BodyView:
        """Return the view of the body."""

    @abstractmethod
    def text(self) -> str | None:
        """Return the body of a TEXT; None = null."""

    @abstractmethod
    def data(self) -> bytes | None:
        """Return the body of BYTES, unpacked; None = null."""

    @abstractmethod
    def entries(self) -> Sequence[Slot]:
        """Return the values of a MAP, without the values of nested maps."""

    @abstractmethod
    def encode(self, what: str, name: str, type_: ValueType, value: Plain) -> bytes:
        """Return an encoded value with its name.

        Raises:
            EditRefused: the wire can't carry it.
        """

    @abstractmethod
    def set_text(self, text: str) -> None:
        """Replace the body of a TEXT; raises EditRefused if the wire can't carry the text."""

    @abstractmethod
    def set_data(self, data: bytes) -> None:
        """Replace the body of BYTES."""

    @abstractmethod
    def set_entries(self, pieces: list[bytes]) -> None:
        """Replace the values of a MAP by encoded values."""

    @abstractmethod
    def set_lines(self, pieces: list[bytes]) -> None:
        """Replace the lines that `lines` returned by encoded values."""

    @abstractmethod
    def encoded(self) -> bytes:
        """Return the message with its changes."""


@contextmanager
def noted(what: str, problems: list[str]) -> Iterator[None]:
    """Note a problem where the block raises UndecodableMessage; `what` names the part it reads."""
    try:
        yield
    except UndecodableMessage as error:
        problems.append(f"{what} can't be read: {error}")


def entries_body(entries: Sequence[Slot], size_bytes: int, *, is_map: bool) -> BodyView:
    """Return the view of the body of a MapMessage, or else of a StreamMessage."""
    lock = None if is_map else STREAM_LOCK
    return BodyView(
        kind=BodyKind.MAP if is_map else BodyKind.STREAM,
        size_bytes=size_bytes,
        is_cut=len(entries) > FIELDS_MAX,
        entries=shown(entries, lambda _name: lock),
        locked=lock,
    )


def jms_headers(
    texts: Mapping[str, str | None], numbers: Mapping[str, tuple[ValueType, int]]
) -> Iterator[Slot]:
    """Yield headers by their JMS names, without null texts, and without numbers that are 0.

    The priority is always among them.
    """
    for name, text in texts.items():
        if text is not None:
            yield Slot(name, ValueType.STRING, text, b"")
    for name, (type_, number) in numbers.items():
        if number or name == "JMSPriority":
            yield Slot(name, type_, str(number), b"")
