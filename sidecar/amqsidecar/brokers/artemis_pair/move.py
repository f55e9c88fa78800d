"""Moving dead letters of one Artemis over two wires; the broker keeps what waits."""

from collections.abc import Sequence

from amqsidecar.broker import Delivery, Resend
from amqsidecar.brokers.artemis_pair.intake import PairIntake
from amqsidecar.brokers.artemis_pair.wire import MoveWire
from amqsidecar.model.destination import Destination


class PairMove(PairIntake[MoveWire]):
    """A session without a token over two wires; see `broker.MoveSession`."""

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one transaction of the wire of these messages; durable at the end."""
        (self.wire_of(accepts, sends) or self._first).move(accepts, sends)

    def waiting_problem(self, destination: Destination) -> str | None:
        """Return why a message that waits there may be lost, as a sentence; None = it is kept."""
        return self._first.waiting_problem(destination)

    def clock_ahead_ms(self) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""
        return max(wire.clock_ahead_ms() for wire in self.wires)
