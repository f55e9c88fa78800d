"""What a session over AMQP is made of, closed in order."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from amqsidecar.brokers.amqp.connection import AmqpConnection


class AmqpPart(Protocol):
    """Links of one purpose."""

    def close(self) -> None:
        """Begin to close them."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed them."""
        ...


PartT = TypeVar("PartT", bound=AmqpPart)


class AmqpParts:
    """The parts of one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._parts: list[AmqpPart] = []

    def add(self, part: PartT) -> PartT:
        """Add a part, which is closed before those added earlier; return it."""
        self._parts.append(part)
        return part

    def close(self) -> None:
        """Close all parts, the newest first, then the connection; never raises."""
        for part in reversed(self._parts):
            part.close()
        self._connection.close(lambda: all(part.is_closed for part in self._parts))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Close them where the block fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise
