"""A read-only link to Artemis over STOMP."""

from collections.abc import Iterator

from amqsidecar.broker import BrokerDescription, BrokerKind, Delivery, Features, IntakeQueue
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings
from amqsidecar.brokers.artemis.session import ArtemisSession
from amqsidecar.brokers.stomp_artemis.management import StompManagement, connect
from amqsidecar.brokers.stomp_artemis.trials import StompArtemisTrials
from amqsidecar.errors import BrokerRefused
from amqsidecar.formats.stomp_frame import ENCODING
from amqsidecar.model.left_behind import LeftBehind

# Maximum wait on one connection before the others are served.
SLICE_S = 0.5
_CLOSE_TIMEOUT_S = 2.0


class StompArtemisLook(ArtemisSession):
    """A session over connections to one Artemis broker; see `broker.LookSession`."""

    _management: StompManagement

    def __init__(self, settings: ArtemisLinkSettings, token_queue: str = "") -> None:
        self._settings = settings
        connection = self._connection = connect(settings)
        version = connection.server.partition("/")[2].partition(" ")[0]
        self.description = BrokerDescription(BrokerKind.ARTEMIS, version, (ENCODING,))
        try:
            management = StompManagement(settings)
        except BaseException:
            connection.disconnect(_CLOSE_TIMEOUT_S)
            raise
        super().__init__(management, settings, run=management.run, token_queue=token_queue)

    @property
    def features(self) -> Features:
        return Features(settings=self)

    def close(self) -> None:
        self._connection.disconnect(_CLOSE_TIMEOUT_S)
        self._management.close()

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages that are stuck; STOMP does not browse."""
        self._connection.poll()
        return super().left_behind()

    def wait(self, timeout_s: float) -> None:
        connection = self._connection
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            self._keep_alive()
            left_s = deadline_s - self._clock.monotonic_s()
            if connection.is_woken or left_s <= 0:
                break
            connection.wait(min(left_s, SLICE_S))
        connection.is_woken = False

    def _keep_alive(self) -> None:
        self._connection.poll()
        self._management.keep_alive()

    def wake(self) -> None:
        self._connection.wake()

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages a dead-letter queue holds, counting up to `at_most`.

        Where the broker can't be asked it is `at_most`, so that they are held as a backlog.
        """
        count = self._management.count(queue.destination, at_most)
        return at_most if count is None else count

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        """Refuse: STOMP can't look without taking."""
        raise BrokerRefused(
            f"over STOMP Artemis shows no message of {queue.destination.name} without handing it "
            "out, so its messages can't be looked at: use an artemis:// URL for that"
        )

    def trials(self) -> StompArtemisTrials:
        """Return the trials of the user's rights, each with its own connection."""
        return StompArtemisTrials(self._settings, self._management, self._routes.read_origin)
