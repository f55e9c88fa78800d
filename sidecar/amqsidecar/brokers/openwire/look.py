"""A session over OpenWire on ActiveMQ Classic that only browses."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from amqsidecar.broker import (
    BrokerDescription,
    BrokerKind,
    Delivery,
    Features,
    ForeignToken,
    IntakeQueue,
    LeftBehind,
)
from amqsidecar.brokers.classic.room import Rooms
from amqsidecar.brokers.classic.statistics import AskStatistics, ClassicCounters
from amqsidecar.brokers.classic.wildcards import listed
from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.brokers.connection.silence import ask_nobody
from amqsidecar.brokers.openwire.connection import CommandRefused, OpenWireConnection
from amqsidecar.brokers.openwire.consumers import OpenWireConsumers
from amqsidecar.brokers.openwire.deaths import Deaths
from amqsidecar.brokers.openwire.foreign_tokens import foreign_tokens
from amqsidecar.brokers.openwire.queues import OpenWireQueueWatch, is_wildcard
from amqsidecar.brokers.openwire.room import takes
from amqsidecar.brokers.openwire.statistics import OpenWireStatistics
from amqsidecar.brokers.openwire.trials import OpenWireTrials
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.errors import (
    BrokerRefused,
    LinkLost,
)
from amqsidecar.formats import openwire_codec as codec
from amqsidecar.formats.classic_persistence import KeepsNonPersistent
from amqsidecar.formats.openwire_dead_letter import read_dead_letter
from amqsidecar.formats.openwire_message import OpenWireResendEncoder
from amqsidecar.model.destination import Destination
from amqsidecar.model.outcome import Counters

_CLOSE_TIMEOUT_S = 5.0
# Precedent: a broker's browser ends at its maxBrowsePageSize, 400 unless configured.
_BROWSED_BYTES_MAX = 128 * 1024 * 1024
_COUNT_MAX = 400


class OpenWireSettings(NamedTuple):
    """The common settings of a link's sessions.

    Attributes:
        rooms: outlive links.
    """

    endpoint: Endpoint
    clock: Clock
    final_suffix: str
    keeps_non_persistent: KeepsNonPersistent
    rooms: Rooms
    crash_point: CrashPoint
    rules_digest: str
    ask_counters: AskStatistics | None


class OpenWireLook:
    """A session over one connection to one Classic broker; the contract is `broker.LookSession`."""

    def __init__(
        self,
        connection: OpenWireConnection,
        settings: OpenWireSettings,
    ) -> None:
        """Look over a connection that is logged in."""
        version = connection.wire_format.provider_version
        self.description = BrokerDescription(BrokerKind.CLASSIC, version, (codec.ENCODING,))
        self._connection = connection
        self._endpoint = settings.endpoint
        self._clock = settings.clock
        self._rooms = settings.rooms
        self._ask_counters = settings.ask_counters
        self._encoder = OpenWireResendEncoder(connection.connection, settings.keeps_non_persistent)
        self._consumers = OpenWireConsumers(connection, self._clock)
        self._queues = OpenWireQueueWatch(connection, self._consumers, settings.final_suffix)

    @property
    def features(self) -> Features:
        """The optional features of this wire."""
        return Features(deaths=self, listing=self)

    def close(self) -> None:
        """Give everything back uncounted and disconnect; never raises, safe to call twice."""
        hang_up(self._connection)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return nothing: a browse shows all that it can."""
        self._connection.poll()
        return ()

    def queue_names(self) -> tuple[str, ...]:
        """Return the names of all queues of the broker but ours.

        Raises:
            DiscoveryRefused: the broker does not report them.
            LinkLost: the connection is gone.
        """
        return listed(lambda: self._queues.list_names(None), CommandRefused)

    def final_names(self) -> tuple[str, ...]:
        """Return the names of all final dead-letter queues; errors as with `queue_names`."""
        return listed(self._queues.list_finals, CommandRefused)

    def _route(self) -> None:
        self._consumers.route()

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or the time is over.

        Raises:
            LinkLost: the connection is gone.
        """
        connection = self._connection
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._route()
            if self._consumers.has_arrived or connection.is_woken:
                connection.is_woken = False
                return
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            connection.wait(left_s)

    def wake(self) -> None:
        """End a running or the next `wait` at once; for any thread."""
        self._connection.wake()

    def _takes(self, destination: Destination) -> bool:
        return takes(self._endpoint, self._clock, destination)

    def route_problem(self, destination: Destination) -> str | None:
        """Return why a send would get lost, or hold us up; Classic creates every lasting one.

        Classic refuses what is sent to a temporary one whose owner is gone.

        Source: AbstractRegion.addDestination, DestinationDoesNotExistException.
        """
        return self._rooms.problem(destination, self._takes)

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return nothing: OpenWire does not report which queues are dead-letter queues."""
        return ()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages wait; a browser ends at `maxBrowsePageSize`, 400 by default."""
        try:
            return self._consumers.count(queue.destination, max(1, min(at_most, _COUNT_MAX)))
        except CommandRefused as cause:
            raise BrokerRefused(f"can't browse {queue.destination}: {cause}") from cause

    def browse(self, queue: IntakeQueue, at_most: int) -> list[Delivery]:
        """Return messages of a dead-letter queue; a browser ends at `maxBrowsePageSize`, or 400.

        Raises:
            BrokerRefused: the user may not read it.
            LinkLost: the connection is gone.
        """
        try:
            sources = self._queues.existing(queue.destination)
        except CommandRefused as cause:
            if is_wildcard(queue.destination.name):
                raise BrokerRefused(
                    f"can't find out which queues {queue.destination} stands for: {cause}; allow "
                    "the user to read and admin (create) topic ActiveMQ.Advisory.>"
                ) from cause
            sources = [queue.destination]
        found = []
        held_bytes = 0
        for source in sources:
            try:
                messages = self._consumers.browse(source, at_most)
            except CommandRefused as cause:
                raise BrokerRefused(f"can't browse {source}: {cause}") from cause
            now_ms = self._clock.now_ms()
            for message in messages:
                held_bytes += len(message)
                # Why: each queue of a wildcard shows as many bytes as one alone may.
                kept = message if held_bytes <= _BROWSED_BYTES_MAX else b""
                provenance = read_dead_letter(message, source, now_ms)[0]
                found.append(Delivery(None, source, kept, provenance, codec.ENCODING))
        return found

    def listen(self) -> Deaths:
        """Subscribe to the broker's advisories of deaths.

        Raises:
            BrokerRefused: the user may not read them.
            LinkLost: the connection is gone.
        """
        try:
            return Deaths(self._connection, self._consumers, self._clock)
        except CommandRefused as cause:
            raise BrokerRefused(
                f"can't hear of deaths: {cause}; allow the user to read and admin (create) topic "
                "ActiveMQ.Advisory.>"
            ) from cause

    @cached_property
    def _counters(self) -> ClassicCounters:
        statistics = OpenWireStatistics(
            self._connection, self._consumers, self._encoder, self._clock
        )
        return ClassicCounters(
            self._ask_counters or statistics.ask,
            lambda one, at_most: self.count(IntakeQueue(one), at_most),
        )

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of these queues."""
        return self._counters.of(destinations)

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name.

        Raises:
            BrokerRefused: the user may not look at them.
            LinkLost: the connection is gone.
        """
        try:
            return foreign_tokens(self._consumers, known)
        except CommandRefused as cause:
            raise BrokerRefused(f"can't look for other sidecars' tokens: {cause}") from cause

    def _trials(self, token_queue: Destination | None) -> OpenWireTrials:
        return OpenWireTrials(
            self._connection,
            self._consumers,
            self._encoder,
            self._queues,
            self._clock,
            token_queue,
        )

    def trials(self) -> OpenWireTrials:
        """Return the trials of the user's permissions over this connection."""
        return self._trials(None)

    def prepare_final(self, destination: Destination) -> str | None:
        """Return None: Classic creates a queue on the first send and keeps what is sent there."""
        return None


def hang_up(connection: OpenWireConnection) -> None:
    """Log out and disconnect; never raises, safe to call twice."""
    connection.silence.ask = ask_nobody
    if connection.is_open:
        with suppress(LinkLost):
            # Why: it removes session and consumers as well, none of whose messages count as
            # delivered; with its answer the client id is free again.
            info = codec.remove_info(codec.connection_id(connection.connection))
            connection.answers([connection.ask(codec.REMOVE_INFO, info)], _CLOSE_TIMEOUT_S)
            connection.send(codec.SHUTDOWN_INFO, b"")
            connection.flush()
        connection.close()
