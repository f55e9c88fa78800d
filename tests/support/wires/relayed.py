"""A connection through the listener without sockets: what its session gives to each side."""

from collections.abc import Sequence

from amqsidecar.listener.session import (
    BodyToBroker,
    ClientSession,
    Effect,
    Ended,
    Settled,
    ToBroker,
    ToClient,
)


class Relayed:
    """A session and what it has given out so far."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self.to_broker = self.to_client = b""
        self.settled: list[Settled] = []
        self.ended = ""

    def client(self, data: bytes) -> None:
        self._do(self.session.from_client(data))

    def broker(self, data: bytes) -> None:
        self._do(self.session.from_broker(data))

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToBroker(data):
                    self.to_broker += data
                case ToClient(data):
                    self.to_client += data
                case BodyToBroker(body):
                    self.to_broker += b"".join(body.pieces())
                case Settled():
                    self.settled.append(effect)
                case Ended(why):
                    self.ended = why
