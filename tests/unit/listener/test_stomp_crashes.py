"""Connections that end anywhere: what was given up is saved once, and nothing else is lost.

A broker in memory does what Artemis does over STOMP, as far as the listener relies on it. A client
gives up, accepts and commits at random; bytes move one frame at a time, and a connection may end
between any two. At the end a client accepts what is left.
"""

from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from amqsidecar.formats.stomp_frame import Header, encode, first, read_head
from amqsidecar.formats.stomp_stream import PieceKind, StreamCutter, command_of, header_lines
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.session import (
    BodyToBroker,
    Effect,
    Ended,
    OnFailure,
    ToBroker,
    ToClient,
)
from amqsidecar.listener.stomp.session import StompSession

SERVER = b"ActiveMQ-Artemis/2.44.0"
QUEUE = b"amqsidecar.intercepted"


class Artemis:
    """The queue `orders`, the intake queue with its duplicate ids, and one connection at a time."""

    def __init__(self, count: int) -> None:
        self.queue = deque(range(1, count + 1))
        self.in_hand: dict[bytes, int] = {}
        self.acknowledged: Counter[int] = Counter()
        self.intercepted: list[int] = []
        self._duplicate_ids: set[bytes] = set()
        self._consumer = 0
        self._open: set[bytes] = set()
        self.is_all = False

    def disconnect(self) -> None:
        """Take back what is not acknowledged; roll open transactions back."""
        self.queue.extendleft(sorted(self.in_hand.values(), reverse=True))
        self.in_hand.clear()
        self._open.clear()

    def take(self, command: bytes, headers: list[Header], body: bytes) -> Iterator[bytes]:
        """Do what a frame says; yield the answers."""
        value = dict(reversed(headers))
        transaction = value.get(b"transaction")
        match command:
            case b"CONNECT":
                self._consumer += 1
                yield encode("CONNECTED", [(b"version", b"1.2"), (b"server", SERVER)])
            case b"SUBSCRIBE":
                yield from self._deliver(value[b"ack"])
            case b"SEND" if value[b"destination"] == QUEUE:
                if value[b"_AMQ_DUPL_ID"] not in self._duplicate_ids:
                    self._duplicate_ids.add(value[b"_AMQ_DUPL_ID"])
                    self.intercepted.append(int(body))
            case b"SEND":
                assert transaction in self._open
            case b"ACK" | b"NACK":
                # As Artemis does: both destroy, also in a transaction; `client` is cumulative.
                number = self.in_hand[value[b"id"]]
                gone = (
                    [n for n in self.in_hand.values() if n <= number] if self.is_all else [number]
                )
                for key in [key for key, n in self.in_hand.items() if n in gone]:
                    self.acknowledged[self.in_hand.pop(key)] += 1
            case b"BEGIN":
                self._open.add(transaction or b"")
            case b"COMMIT" | b"ABORT":
                self._open.remove(transaction or b"")
        if b"receipt" in value:
            yield encode("RECEIPT", [(b"receipt-id", value[b"receipt"])])

    def _deliver(self, mode: bytes) -> Iterator[bytes]:
        self.is_all = mode == b"client"
        while self.queue:
            number = self.queue.popleft()
            key = b"%d,%d" % (self._consumer, number)
            self.in_hand[key] = number
            head = [
                (b"subscription", b"s"),
                (b"message-id", key),
                (b"destination", b"orders"),
                (b"ack", key),
            ]
            yield encode("MESSAGE", head, b"%d" % number)


class Connection:
    """One client through the listener to the broker, with everything that is on its way."""

    def __init__(self, broker: Artemis, budget: BodyBudget, key: int, mode: str) -> None:
        self.session = StompSession(budget, f"key{key}", OnFailure.CLOSED)
        self.received: deque[tuple[bytes, bytes]] = deque()
        self.receipts: list[bytes] = []
        self._broker = broker
        self._to_broker: deque[bytes] = deque()
        self._to_listener: deque[bytes] = deque()
        self._at_broker, self._at_client = StreamCutter(), StreamCutter()
        self.say("CONNECT", accept_version="1.2", login="app")
        self.say("SUBSCRIBE", id="s", destination="orders", ack=mode)

    def say(self, command: str, body: bytes = b"", **headers: str) -> None:
        """Send a frame of the client."""
        named = [(name.replace("_", "-").encode(), it.encode()) for name, it in headers.items()]
        self._do(self.session.from_client(encode(command, named, body)))

    def move(self) -> bool:
        """Move one frame between broker and listener; return whether there was one."""
        if self._to_listener:
            self._do(self.session.from_broker(self._to_listener.popleft()))
        elif self._to_broker:
            for piece in self._at_broker.feed(self._to_broker.popleft()):
                if piece.kind is not PieceKind.BLANK:
                    headers = read_head(header_lines(piece.head))
                    command = command_of(piece.head)
                    self._to_listener += self._broker.take(command, headers, piece.body)
        else:
            return False
        return True

    def _do(self, effects: list[Effect]) -> None:
        whole = b""
        for effect in effects:
            match effect:
                case ToBroker(data):
                    whole += data
                case BodyToBroker(body):
                    whole += b"".join(body.pieces())
                case ToClient(data):
                    for piece in self._at_client.feed(data):
                        headers = read_head(header_lines(piece.head))
                        if command_of(piece.head) == b"MESSAGE":
                            self.received.append((first(headers, b"ack") or b"", piece.body))
                        else:
                            self.receipts.append(first(headers, b"receipt-id") or b"")
                case Ended(why):
                    raise AssertionError(why)
        # One frame at a time, so that a crash may come between any two.
        for piece in StreamCutter().feed(whole):
            self._to_broker.append(piece.raw)


STEPS = st.lists(
    st.sampled_from(
        ["nack", "nack", "ack", "move", "move", "move", "drain", "crash", "unit", "undo"]
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 6), STEPS, st.sampled_from(["client", "client-individual"]))
def test_nothing_is_lost_or_saved_twice_wherever_a_connection_ends(
    count: int, steps: list[str], mode: str
) -> None:
    broker = Artemis(count)
    budget = BodyBudget(1 << 20, 0, Path("/nowhere"))
    connection = Connection(broker, budget, 0, mode)
    accepted: set[int] = set()
    confirmed: set[int] = set()
    asked: dict[bytes, int] = {}
    units = 0
    for turn, step in enumerate(steps):
        if step == "crash":
            broker.disconnect()
            connection.session.close()
            connection = Connection(broker, budget, turn + 1, mode)
        elif step == "move":
            connection.move()
        elif step == "drain":
            while connection.move():
                pass
        elif connection.received:
            key, body = connection.received.popleft()
            if step == "ack":
                connection.say("ACK", id=key.decode())
                accepted.add(int(body))
                continue
            receipt = f"r{turn}"
            asked[receipt.encode()] = int(body)
            if step == "nack":
                connection.say("NACK", id=key.decode(), receipt=receipt)
                continue
            units += 1
            connection.say("BEGIN", transaction=f"t{units}")
            connection.say("SEND", b"%d" % units, destination="done", transaction=f"t{units}")
            connection.say("NACK", id=key.decode(), transaction=f"t{units}")
            if step == "unit":
                connection.say("COMMIT", transaction=f"t{units}", receipt=receipt)
            else:
                connection.say("ABORT", transaction=f"t{units}")
        confirmed |= {asked[one] for one in connection.receipts if one in asked}
    while connection.move():
        pass
    broker.disconnect()
    connection.session.close()
    # Who was neither accepted nor saved is in its queue.
    saved = Counter(broker.intercepted)
    assert max(saved.values(), default=1) == 1
    there = set(broker.queue)
    everything = set(range(1, count + 1))
    if mode == "client-individual":
        assert everything == there | set(saved) | (accepted & set(broker.acknowledged))
    else:
        assert everything == there | set(broker.acknowledged)
        last = max(accepted, default=0)
        assert all(number in saved or number <= last for number in everything - there)
    assert confirmed <= set(saved), "a confirmed NACK is saved"
    assert not confirmed & there, "and acknowledged"
    assert budget.memory_bytes == 0
