"""Base of fake sessions in tests of an engine alone."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NoReturn

from amqsidecar.broker import BrokerDescription, Delivery, Features, IntakeQueue
from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.outcome import Counters


class EngineOnlySession:
    """The part of `MoveSession` that only the service calls; each call fails the test."""

    description: BrokerDescription

    @property
    def features(self) -> Features:
        self._fail()

    def close(self) -> None:
        self._fail()

    def wake(self) -> None:
        self._fail()

    def discover(self) -> tuple[IntakeQueue, ...]:
        self._fail()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        self._fail()

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        self._fail()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        self._fail()

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        self._fail()

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        self._fail()

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        self._fail()

    def queues_changed(self) -> bool:
        self._fail()

    def queues_read(self) -> tuple[Destination, ...]:
        self._fail()

    def is_newborn(self, destination: Destination) -> bool:
        self._fail()

    def _fail(self) -> NoReturn:
        raise AssertionError("an engine does not call this")
