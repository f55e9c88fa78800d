"""Artemis's clock at the moment when it accepted a connection."""

from typing import NamedTuple

from amqsidecar.brokers.artemis.management import ArtemisQuestions
from amqsidecar.brokers.artemis.trials import ArtemisAnswers
from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerRefused


class Meeting(NamedTuple):
    """The broker's clock at the moment when it accepted our connection.

    Attributes:
        broker_ms: the broker's clock.
        began_ms: our clock before.
        began_s: our monotonic clock before.
    """

    broker_ms: int
    began_ms: int
    began_s: float

    def ahead_ms(self, clock: Clock) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""
        now_ms = clock.now_ms()
        # Why the longer: our clock may have been set back, or the machine may have slept.
        passed_ms = max(now_ms - self.began_ms, int((clock.monotonic_s() - self.began_s) * 1000))
        # Why at most: the broker took our connection some time after we began.
        return self.broker_ms + passed_ms - now_ms


def meeting(management: ArtemisQuestions, client_id: str, began_ms: int, began_s: float) -> Meeting:
    """Return the broker's clock at the moment when it accepted a client's connection.

    Args:
        management: of the broker.
        client_id: of the connection.
        began_ms: our clock before.
        began_s: our monotonic clock before.

    Raises:
        BrokerRefused: the broker does not report its time to this user.
    """
    broker_ms = ArtemisAnswers(management).connected_ms(client_id)
    if broker_ms is None:
        reason = management.why_unusable or "it does not report its time"
        raise BrokerRefused(
            "with store.url broker: the broker must report its time, and settings of queues with "
            f"waiting messages: {reason}"
        )
    return Meeting(broker_ms, began_ms, began_s)
