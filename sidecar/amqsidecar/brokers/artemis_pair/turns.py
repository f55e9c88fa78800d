"""When one wire reads a dead-letter queue alone.

Quirk (Artemis 2.44): all messages of a group go to one consumer of the queue, whatever its selector
is. If that is the consumer of one wire, the group's messages that the other wire reads wait until
it is closed. So a wire over which nothing arrives gets a turn if messages stay in the queue: all
consumers of the queue are closed, which ends what groups are bound to, and this wire reads alone.
"""

from collections.abc import Iterable

from amqsidecar.broker import IntakeQueue
from amqsidecar.model.destination import Destination

_IDLE_S = 1.0
"""How long nothing has arrived over a wire before it may get a turn."""
_QUIET_S = 0.5
"""A turn ends when nothing has arrived for this long."""
_AGAIN_S = 10.0
"""How long after a turn in which nothing arrived the next one is at least."""


class _Turn:
    def __init__(self, wire: int, ends_at_s: float) -> None:
        self.wire = wire
        self.ends_at_s = ends_at_s
        self.has_brought = False


class ReaderTurns:
    """The turns of the wires at each queue; times are monotonic."""

    def __init__(self, wire_count: int) -> None:
        self._wires = range(wire_count)
        self._idle_since_s: dict[tuple[Destination, int], float] = {}
        self._used: set[tuple[Destination, int]] = set()
        self._turns: dict[Destination, _Turn] = {}
        self._queues: list[Destination] = []
        self._look_at_s = 0.0

    def attach(self, queues: Iterable[Destination], now_s: float) -> None:
        """Take turns at these queues, which both wires can read; turns under way go on."""
        self._queues = list(queues)
        wanted = {(queue, wire) for queue in self._queues for wire in self._wires}
        self._idle_since_s = {one: self._idle_since_s.get(one, now_s) for one in wanted}
        self._used &= wanted
        self._turns = {one: turn for one, turn in self._turns.items() if one in self._queues}

    def reads(self, queue: IntakeQueue, wire: int) -> bool:
        """Return whether a wire reads a queue now."""
        turn = self._turns.get(queue.destination)
        return turn is None or turn.wire == wire

    def arrived(self, queue: Destination, wire: int, now_s: float) -> None:
        """Take note that a queue has brought something over a wire."""
        if (queue, wire) not in self._idle_since_s:
            return
        self._idle_since_s[queue, wire] = now_s
        self._used.add((queue, wire))
        turn = self._turns.get(queue)
        if turn is not None and turn.wire == wire:
            turn.has_brought = True
            turn.ends_at_s = now_s + _QUIET_S

    def end(self, now_s: float) -> bool:
        """End the turns that are over; return whether there were any."""
        ended = [queue for queue, turn in self._turns.items() if now_s >= turn.ends_at_s]
        for queue in ended:
            turn = self._turns.pop(queue)
            pause_s = 0.0 if turn.has_brought else _AGAIN_S
            self._idle_since_s[queue, turn.wire] = now_s + pause_s
        return bool(ended)

    def due(self, now_s: float) -> list[tuple[Destination, int]]:
        """Return which wires get a turn if messages stay; at most one of a queue.

        A group is bound only where another wire has read something.
        """
        if now_s < self._look_at_s:
            return []
        self._look_at_s = now_s + _IDLE_S
        found = []
        for queue in self._queues:
            if queue in self._turns:
                continue
            idle = [
                wire
                for wire in self._wires
                if now_s - self._idle_since_s[queue, wire] >= _IDLE_S
                and any((queue, other) in self._used for other in self._wires if other != wire)
            ]
            if idle:
                found.append((queue, min(idle, key=lambda one: self._idle_since_s[queue, one])))
        return found

    def begin(self, queue: Destination, wire: int, now_s: float) -> None:
        """Begin a turn."""
        self._turns[queue] = _Turn(wire, now_s + _QUIET_S)
