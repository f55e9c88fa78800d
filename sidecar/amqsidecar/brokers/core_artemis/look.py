"""A read-only link to Artemis over Core."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from typing_extensions import override

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, IntakeQueue
from amqsidecar.brokers.artemis.left_behind import left_amqp_made
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.brokers.artemis.session import ArtemisSession
from amqsidecar.brokers.artemis.trials import EMPTIED, ArtemisTrials
from amqsidecar.brokers.connection.refusal import refusal_of
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core.refusal import QUEUE_MISSING, CoreRefused
from amqsidecar.brokers.core.session import CoreSession, is_forced
from amqsidecar.brokers.core_artemis.intake import encoded_of
from amqsidecar.brokers.core_artemis.management import CoreManagement
from amqsidecar.brokers.core_artemis.targets import make_missing_queue
from amqsidecar.brokers.selectors import both, of_redelivery_ids
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.formats.core import packets
from amqsidecar.formats.core.message import (
    CoreMessage,
    CoreProperty,
    CorePropertyType,
    new_message,
)
from amqsidecar.formats.core.primitives import CoreProtocolError
from amqsidecar.formats.core_artemis_message import ENCODING, ROUTING_TYPE, read_provenance
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class CoreTrials(ArtemisTrials):
    """Trials over one Core connection, each in a session of its own that is never started."""

    def __init__(
        self,
        connection: CoreConnection,
        management: CoreManagement,
        settings: ArtemisLinkSettings,
    ) -> None:
        super().__init__(management)
        self._connection = connection
        self._settings = settings

    @contextmanager
    def _session(self) -> Iterator[CoreSession]:
        session = self._connection.create_session(is_transacted=True)
        try:
            yield session
        finally:
            session.close()

    def read(self, destination: Destination) -> str | None:
        """Return the broker's words why this can't be read; None = it can.

        The broker creates a missing queue where it may.
        """
        return refusal_of(lambda: self._consume_nothing(destination))

    def _consume_nothing(self, destination: Destination) -> None:
        with self._session() as session:
            if "::" not in destination.name:
                make_missing_queue(session, destination)
            session.create_consumer(destination.name.rpartition("::")[2], window_bytes=1)

    def write(self, destination: Destination) -> str | None:
        """Return the broker's reason why sends there fail; None = they succeed.

        The trial send is undone. The broker creates a missing queue where it may.
        """
        return refusal_of(lambda: self._send_nothing(destination))

    def _send_nothing(self, destination: Destination) -> None:
        with self._session() as session:
            if destination.is_queue and "::" not in destination.name:
                make_missing_queue(session, destination)
            refused = session.answers([session.ask_send(_empty_message(destination))])[0]
            if refused is not None:
                raise refused

    @override
    def _empty(self, destination: Destination) -> str | None:
        try:
            with self._session() as session:
                session.delete_queue(destination.name)
        except CoreRefused as refused:
            return None if refused.kind == QUEUE_MISSING else EMPTIED
        return None

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return the messages of AMQP clients."""
        why = self._settings.why_amqp_left() if self._settings.selector else ""
        if why:
            self._management.demand(
                "only users with the manage permission can see which messages AMQP clients have "
                "made, which stay"
            )
        return left_amqp_made(self._management, [queue.destination], why)


def _empty_message(destination: Destination) -> CoreMessage:
    kind = packets.ANYCAST if destination.is_queue else packets.MULTICAST
    routing = {ROUTING_TYPE: CoreProperty(CorePropertyType.BYTE, kind)}
    return new_message(destination.name, routing, timestamp_ms=0)


_WINDOW_BYTES = 1 << 20


class CoreArtemisOpened(NamedTuple):
    """A connection that is open.

    Attributes:
        service: its session for questions, whose messages are settled when they are sent.
        management: asks over it, and is ready.
    """

    connection: CoreConnection
    client_id: str
    service: CoreSession
    management: CoreManagement


class CoreArtemisLook(ArtemisSession):
    """A session over one Core connection to one Artemis broker; see `broker.LookSession`."""

    _management: CoreManagement

    def __init__(
        self, opened: CoreArtemisOpened, settings: ArtemisLinkSettings, token_queue: str = ""
    ) -> None:
        super().__init__(opened.management, settings, run=opened.client_id, token_queue=token_queue)
        self._connection = opened.connection
        self._service = opened.service
        self._sessions = [opened.service]
        told = self._management.ask(ManagementQuestion("broker", attribute="Version"))
        version = str(told.value) if told.is_ok else ""
        self.description = BrokerDescription(BrokerKind.ARTEMIS, version, (ENCODING,))

    def close(self) -> None:
        hang_up(self._connection, self._sessions)

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages that browses did not show, or that are stuck."""
        return super().left_behind() + self._left_amqp_made(
            [one.destination for one in self._seen_in_part]
        )

    def _left_amqp_made(self, queues: Sequence[Destination]) -> tuple[LeftBehind, ...]:
        """Return the messages of AMQP clients.

        Raises:
            LinkLost: the connection is gone, or AMQP can be read by now.
        """
        why = self._settings.why_amqp_left() if self._settings.selector else ""
        return left_amqp_made(self._management, queues, why)

    def wait(self, timeout_s: float) -> None:
        self._wait_until(lambda: False, timeout_s)

    def _wait_until(self, is_done: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something is true or `wake` was called."""
        connection = self._connection
        connection.poll()
        # Why flush here, too: with no time to wait, nothing else writes heartbeats and credit.
        connection.flush()
        connection.is_other_readable = False
        connection.run_until(
            lambda: is_done() or connection.is_woken or connection.is_other_readable, timeout_s
        )
        connection.is_woken = False

    def descriptor(self) -> int:
        return self._connection.descriptor()

    def wait_beside(self, descriptor: int) -> None:
        self._connection.wait_beside(descriptor)

    def wake(self) -> None:
        self._connection.wake()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        answer = self._service.ask_queue(queue.destination.name.rpartition("::")[2])
        return min(answer.message_count, at_most) if answer.exists else 0

    @override
    def _browse_in_part(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        # Why in part: the broker would convert what an AMQP client has made. A message that is too
        # large to be taken is left out, and a missing queue is empty.
        session, timeout_s = self._service, self._settings.timeout_s
        selector = both(of_redelivery_ids(queue.redelivery_ids), self._settings.selector)
        name = queue.destination.name.rpartition("::")[2]
        try:
            browser = session.create_consumer(
                name, selector or None, window_bytes=_WINDOW_BYTES, browse_only=True
            )
        except CoreRefused as refused:
            if refused.kind == QUEUE_MISSING:
                return
            raise BrokerRefused(
                f"can't browse {name}: {refused}; allow the user to browse it"
            ) from refused
        left = at_most
        is_done, has_come = False, False
        session.force_delivery(browser)
        clock = session.wire.clock
        deadline_s = clock.monotonic_s() + timeout_s
        try:
            while not is_done:
                for delivery in session.take_from(browser):
                    session.give_back(delivery)
                    if is_forced(delivery.message):
                        is_done = is_done or not (has_come or session.is_receiving(browser))
                        has_come = False
                        session.force_delivery(browser)
                        continue
                    has_come = True
                    if delivery.too_large_bytes:
                        continue
                    if is_done or left <= 0:
                        is_done = True
                        continue
                    provenance = read_provenance(
                        delivery.message, queue, read_origin=self._routes.read_origin
                    )
                    encoded = encoded_of(delivery)
                    yield Delivery(None, queue.destination, encoded, provenance, ENCODING)
                    left -= 1
                    deadline_s = clock.monotonic_s() + timeout_s
                left_s = deadline_s - clock.monotonic_s()
                if left_s <= 0:
                    raise LinkLost(f"browsing {name} did not end in {timeout_s:g} s")
                if not is_done:
                    session.wire.wait(left_s)
        finally:
            with suppress(LinkLost, CoreRefused):
                session.close_consumer(browser)

    def trials(self) -> CoreTrials:
        return CoreTrials(self._connection, self._management, self._settings)


def hang_up(connection: CoreConnection, sessions: Sequence[CoreSession]) -> None:
    """Close sessions and connection; never raises, safe to call twice."""
    with suppress(LinkLost, CoreRefused, CoreProtocolError):
        for session in reversed(sessions):
            session.close()
    connection.close()
