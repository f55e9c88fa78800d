"""Reading the dead-letter queues of one Artemis over two wires."""

from collections.abc import Collection, Sequence

from amqsidecar.broker import Delivery, IntakeQueue, Resend
from amqsidecar.brokers.artemis_pair.look import PairLook
from amqsidecar.brokers.artemis_pair.turns import ReaderTurns
from amqsidecar.brokers.artemis_pair.wire import IntakeWire
from amqsidecar.clock import Clock
from amqsidecar.errors import QueueRefused
from amqsidecar.model.destination import Destination


class PairIntake(PairLook):
    """A session over two wires; see `broker.IntakeSession`.

    Attributes:
        wires: the first and the second.
    """

    wires: tuple[IntakeWire, IntakeWire]

    def __init__(self, first: IntakeWire, second: IntakeWire, clock: Clock) -> None:
        super().__init__(first, second, clock)
        self.wires = (first, second)
        self._first = first
        self._next = 0
        self._queues: tuple[IntakeQueue, ...] = ()
        self._prefetch = 0
        self._turns = ReaderTurns(len(self.wires))
        self._has_lost_turn = False

    def _serve(self) -> None:
        self._take_turns()

    def _has_arrived(self) -> bool:
        return any(wire.has_arrived for wire in self.wires)

    def _number_of(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], otherwise: int = 0
    ) -> int:
        """Return the number of the wire of a transaction; `otherwise` = it is empty."""
        encoding = accepts[0].encoding if accepts else sends[0].encoding if sends else ""
        for number, wire in enumerate(self.wires):
            if encoding in wire.description.encodings:
                return number
        return otherwise

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on; each wire prefetches this many messages."""
        self._queues, self._prefetch = tuple(queues), prefetch
        names = [one.destination for one in queues]
        self._turns.attach(names, self._pair_clock.monotonic_s())
        self._attach()

    def _attach(self, without: Collection[tuple[Destination, int]] = ()) -> None:
        refused: dict[str, str] = {}
        for number, wire in enumerate(self.wires):
            queues = [
                one
                for one in self._queues
                if (one.destination, number) not in without and self._turns.reads(one, number)
            ]
            try:
                wire.attach(queues, self._prefetch)
            except QueueRefused as error:
                refused |= {error.queue: str(error), **error.others}
        if refused:
            raise QueueRefused.all_of(refused)

    def _take_turns(self) -> None:
        """Begin and end the turns of an idle wire at a queue in which messages stay."""
        now_s = self._pair_clock.monotonic_s()
        has_ended = self._turns.end(now_s)
        known = {one.destination: one for one in self._queues}
        tried = []
        for queue, wire in self._turns.due(now_s):
            if self._holds_unread(known[queue]):
                tried.append((queue, wire))
            else:
                self._turns.nothing_stays(queue, now_s)
        begun = [(queue, wire) for queue, wire in tried if self._first.is_bound(queue)]
        everywhere = [(queue, wire) for queue, _ in begun for wire in range(len(self.wires))]
        try:
            if tried:
                # Why detach first: the broker offers messages in the queue only to a new consumer.
                self._attach({*tried, *everywhere})
                now_s = self._pair_clock.monotonic_s()
                for queue, wire in tried:
                    note = self._turns.begin if (queue, wire) in begun else self._turns.renewed
                    note(queue, wire, now_s)
            if self._free_turns() or tried or has_ended:
                self._attach()
        except QueueRefused:
            # Why not raised: the engine attaches again, and then reports the refusal.
            self._has_lost_turn = True

    def _free_turns(self) -> bool:
        """Let the wires of turns read where no consumer of before is left; return whether any do.

        A consumer whose messages the engine has is closed once these are settled.
        """
        is_any_free = False
        for queue in self._turns.waiting():
            if not any(wire.intake.is_leaving(queue) for wire in self.wires):
                self._turns.free(queue, self._pair_clock.monotonic_s())
                is_any_free = True
        return is_any_free

    def _holds_unread(self, queue: IntakeQueue) -> bool:
        """Return whether a queue holds messages that no wire holds back.

        A new consumer would get the messages held back again, and a large message that is arriving
        from its beginning.
        """
        if queue.selector:
            return self._first.holds_selected(queue)
        held = 0
        for wire in self.wires:
            count = wire.intake.held_back(queue.destination)
            if count is None:
                return False
            held += count
        return self.count(queue, held + 1) > held

    def receive(self, limit: int) -> list[Delivery]:
        """Return the arrived messages of one wire; the wires take turns."""
        self._take_turns()
        for _ in self.wires:
            number = self._next % len(self.wires)
            self._next += 1
            if deliveries := self.wires[number].receive(limit):
                now_s = self._pair_clock.monotonic_s()
                for queue in {one.source for one in deliveries}:
                    self._turns.arrived(queue, number, now_s)
                return deliveries
        return []

    def queues_changed(self) -> bool:
        # Why a list: each wire must be asked, since asking resets its answer.
        changed = [wire.queues_changed() for wire in self.wires]
        has_lost_turn, self._has_lost_turn = self._has_lost_turn, False
        return any(changed) or has_lost_turn

    def queues_read(self) -> tuple[Destination, ...]:
        return tuple(dict.fromkeys(one for wire in self.wires for one in wire.queues_read()))

    def is_newborn(self, destination: Destination) -> bool:
        return self._first.is_newborn(destination)
