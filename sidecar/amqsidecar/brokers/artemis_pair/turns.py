"""Turns of a wire over which no message arrives although some stay in the queue.

Quirk (Artemis 2.44): all messages of a group go to one consumer of the queue, whatever its selector
is. If that is the consumer of one wire, the group's messages that the other wire reads wait until
it is closed. So the idle wire gets a turn where groups are bound: all consumers of the queue are
closed, which unbinds its groups, and then this wire reads alone.

Quirk (Artemis 2.44): a consumer is offered a message once. A message whose group was bound then and
is unbound now comes only to a new consumer. So with no bound group the idle wire attaches again,
which disturbs no other consumer.
"""

from collections.abc import Iterable
from operator import itemgetter

from amqsidecar.broker import IntakeQueue
from amqsidecar.model.destination import Destination

_IDLE_S = 1.0
"""Time without arrivals after which a wire gets a turn."""
_LOOKS_MAX = 20
"""How many queues are looked at in a second: each costs a question to the broker."""
_QUIET_S = 0.5
"""A turn ends when nothing has arrived for this long."""
_LONGEST_S = 5.0
"""A turn ends after this, also where more arrives: the other wires have messages, too."""
_AGAIN_S = 10.0
"""Minimum time between a turn without arrivals and the next one."""


class _Turn:
    """One turn.

    Attributes:
        ends_at_s: monotonic.
        latest_s: the latest `ends_at_s`.
        is_free: the consumers of before are closed, and the wire reads.
        has_brought: something has arrived over the wire.
    """

    def __init__(self, wire: int, now_s: float) -> None:
        self.wire = wire
        self.ends_at_s = self.latest_s = now_s + _LONGEST_S
        self.is_free = False
        self.has_brought = False

    def read(self, now_s: float) -> None:
        """End when nothing arrives from now on."""
        self.ends_at_s = min(now_s + _QUIET_S, self.latest_s)


class ReaderTurns:
    """The turns of the wires at each queue; times are monotonic."""

    def __init__(self, wire_count: int) -> None:
        self._wires = range(wire_count)
        self._idle_since_s: dict[tuple[Destination, int], float] = {}
        self._turns: dict[Destination, _Turn] = {}
        self._queues: list[Destination] = []
        self._look_at_s = 0.0

    def attach(self, queues: Iterable[Destination], now_s: float) -> None:
        """Take turns at these queues, which both wires can read; turns under way go on."""
        self._queues = list(queues)
        wanted = {(queue, wire) for queue in self._queues for wire in self._wires}
        self._idle_since_s = {one: self._idle_since_s.get(one, now_s) for one in wanted}
        self._turns = {one: turn for one, turn in self._turns.items() if one in self._queues}

    def reads(self, queue: IntakeQueue, wire: int) -> bool:
        """Return whether a wire reads a queue now."""
        turn = self._turns.get(queue.destination)
        return turn is None or (turn.is_free and turn.wire == wire)

    def arrived(self, queue: Destination, wire: int, now_s: float) -> None:
        """Note that a message of a queue arrived over a wire."""
        if (queue, wire) not in self._idle_since_s:
            return
        self._idle_since_s[queue, wire] = now_s
        turn = self._turns.get(queue)
        if turn is not None and turn.wire == wire:
            turn.has_brought = True
            turn.read(now_s)

    def end(self, now_s: float) -> bool:
        """End the turns that are over; return whether there were any."""
        ended = [queue for queue, turn in self._turns.items() if now_s >= turn.ends_at_s]
        for queue in ended:
            turn = self._turns.pop(queue)
            pause_s = 0.0 if turn.has_brought else _AGAIN_S
            self._idle_since_s[queue, turn.wire] = now_s + pause_s
        return bool(ended)

    def due(self, now_s: float) -> list[tuple[Destination, int]]:
        """Return some idle wires, at most one per queue.

        The caller answers for each with `nothing_stays`, `begin` or `renewed`.
        """
        if now_s < self._look_at_s:
            return []
        self._look_at_s = now_s + _IDLE_S
        found = []
        for queue in self._queues:
            wire = min(self._wires, key=lambda one: self._idle_since_s[queue, one])
            since_s = self._idle_since_s[queue, wire]
            if queue not in self._turns and now_s - since_s >= _IDLE_S:
                found.append((since_s, queue, wire))
        found.sort(key=itemgetter(0))
        return [(queue, wire) for _, queue, wire in found[:_LOOKS_MAX]]

    def nothing_stays(self, queue: Destination, now_s: float) -> None:
        """Take note that no message waits for a wire, so that all begin to be idle now."""
        for wire in self._wires:
            self._idle_since_s[queue, wire] = max(now_s, self._idle_since_s[queue, wire])

    def renewed(self, queue: Destination, wire: int, now_s: float) -> None:
        """Take note that a wire has attached to a queue again."""
        self._idle_since_s[queue, wire] = now_s + _AGAIN_S

    def begin(self, queue: Destination, wire: int, now_s: float) -> None:
        """Begin a turn, in which no wire reads before `free`."""
        self._turns[queue] = _Turn(wire, now_s)

    def waiting(self) -> list[Destination]:
        """Return the queues with a turn whose wire does not read yet."""
        return [queue for queue, turn in self._turns.items() if not turn.is_free]

    def free(self, queue: Destination, now_s: float) -> None:
        """Note that the old consumers are closed: the wire of the turn reads.

        Why not earlier: when a consumer closes, messages of its groups are not offered to a
        consumer that exists already.
        """
        turn = self._turns[queue]
        turn.is_free = True
        turn.read(now_s)
