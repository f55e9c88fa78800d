"""A read-only link to Artemis over AMQP."""

from collections.abc import Iterator
from typing import NamedTuple

from typing_extensions import override

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, IntakeQueue
from amqsidecar.brokers.amqp.browser import Browser
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.trials import AmqpTrials
from amqsidecar.brokers.amqp_artemis.core_messages import (
    BROWSABLE,
    LISTED_MAX,
    Listed,
    list_of_others,
)
from amqsidecar.brokers.amqp_artemis.management import ArtemisManagement
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.session import ArtemisSession
from amqsidecar.brokers.artemis.trials import EMPTIED, ArtemisTrials
from amqsidecar.brokers.selectors import both, of_redelivery_ids
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats.amqp_artemis_message import ENCODING, read_provenance
from amqsidecar.model.destination import Destination
from amqsidecar.model.left_behind import LeftBehind


class AmqpArtemisTrials(ArtemisTrials):
    """Trials over one AMQP connection."""

    def __init__(self, tried: AmqpTrials, management: ArtemisManagement) -> None:
        super().__init__(management)
        self._tried = tried

    def read(self, destination: Destination) -> str | None:
        capability = None if "::" in destination.name else "queue"
        return self._tried.read(destination.name, capability)

    def write(self, destination: Destination) -> str | None:
        return self._tried.write(destination.name, "queue" if destination.is_queue else "topic")

    @override
    def _empty(self, destination: Destination) -> str | None:
        return self._tried.empty(destination.name, "queue") or EMPTIED

    def would_leave(self, queue: IntakeQueue) -> tuple[LeftBehind, ...]:
        """Return messages that the broker may be unable to convert; see `core_messages.py`."""
        management, name = self._management, queue.destination.name.rpartition("::")[2]
        management.demand(
            "only users with the manage permission can see which messages the broker may be "
            "unable to convert to AMQP"
        )
        count = management.message_count(name)
        if count is None:
            return ()
        listed = Listed()
        listed.read(management.ask(list_of_others(queue)), 0)
        if listed.refusal:
            raise BrokerRefused(f"the broker does not list it: {listed.refusal}")
        has_more = count > LISTED_MAX
        left = tuple(listed.left_behind(queue.destination, at_least=has_more))
        if has_more and not left:
            raise BrokerRefused(f"the broker lists the first {LISTED_MAX} of its {count} messages")
        return left


class AmqpArtemisOpened(NamedTuple):
    """A connection that is open.

    Attributes:
        management: is ready.
    """

    connection: AmqpConnection
    client_id: str
    management: ArtemisManagement


class AmqpArtemisLook(ArtemisSession):
    """A session over one AMQP connection to one Artemis broker; see `broker.LookSession`."""

    _management: ArtemisManagement

    def __init__(
        self, opened: AmqpArtemisOpened, settings: ArtemisLinkSettings, token_queue: str = ""
    ) -> None:
        super().__init__(opened.management, settings, run=opened.client_id, token_queue=token_queue)
        self._connection = opened.connection
        self._browser = Browser(opened.connection, is_classic=False)
        version = self._connection.remote_properties().get("version", "")
        self.description = BrokerDescription(BrokerKind.ARTEMIS, version, (ENCODING,))

    def close(self) -> None:
        self._connection.close()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages that browses did not show, or that are stuck."""
        return super().left_behind() + tuple(
            LeftBehind(
                queue.destination,
                "not_listed",
                0,
                f"messages of Core and OpenWire clients are not browsed: {reason}",
                at_least=True,
            )
            for queue, reason in self._seen_in_part.items()
        )

    def wait(self, timeout_s: float) -> None:
        self._connection.rest_until(lambda: False, timeout_s)

    def descriptor(self) -> int:
        return self._connection.descriptor()

    def wait_beside(self, descriptor: int) -> None:
        self._connection.beside = (descriptor,)

    def wake(self) -> None:
        self._connection.wake()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        count = self._management.count(queue.destination, at_most)
        return self._browse_count(queue, at_most) if count is None else count

    def _browse_count(self, queue: IntakeQueue, at_most: int) -> int:
        # Why: a link that only looks must not make copies (see `_browse_in_part`).
        return sum(1 for _ in self.browse(queue, at_most))

    @override
    def _browse_in_part(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        # Quirk (Artemis 2.44): a browse over AMQP is not harmless. A message that the broker can't
        # convert to AMQP (a StreamMessage with bytes, made by a Core or OpenWire client) stays in
        # its queue, and a copy of it goes to the dead-letter address: one more at each look. So
        # the management is asked to list what is there; where that is not possible, only what
        # needs no conversion is browsed.
        name = queue.destination.name
        if "::" in name:
            # Quirk (Artemis): without the capability `queue`, a selector on a multicast queue by
            # its fully qualified name ends the connection.
            raise BrokerRefused(
                f"can't look into {name} without the right to manage the broker: allow the user to "
                "send and manage on activemq.management"
            )
        browsable = MADE_BY_AMQP if self._settings.is_own_only else BROWSABLE
        selector = both(of_redelivery_ids(queue.redelivery_ids), browsable)
        read_origin = self._routes.read_origin
        for message in self._browser.look(name, at_most, selector, "queue"):
            provenance = read_provenance(message, queue, read_origin=read_origin)
            yield Delivery(None, queue.destination, message, provenance, ENCODING)

    def trials(self) -> AmqpArtemisTrials:
        return AmqpArtemisTrials(AmqpTrials(self._connection), self._management)
