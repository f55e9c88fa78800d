"""A bounded pool of sender links, one per destination, and the sends of one transaction over them.

A link with a fixed target and the capability `queue` or `topic` says the routing type beyond doubt;
the anonymous relay would route by annotations that stay in the message (`spec-artemis.md` 9).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from cproton import lib

from amqsidecar.broker import Resend
from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import Sender, is_answered
from amqsidecar.brokers.amqp.transaction import Transaction
from amqsidecar.errors import LinkLost, UndecodableMessage
from amqsidecar.formats.amqp_artemis_message import encode_resend
from amqsidecar.model.destination import Destination

# Bound: maximum open links; a cycle with more destinations uses them in turns.
OPEN_LINKS_MAX = 128
# Bound: maximum wait for credit of a slow broker in the middle of a cycle.
_CREDIT_TIMEOUT_S = 15.0
# Bound: maximum wait for full addresses, all together, at the begin of a cycle.
_FIRST_CREDIT_TIMEOUT_S = 2.0
_ATTACH_TIMEOUT_S = 15.0
_ANSWER_TIMEOUT_S = 60.0
# Bound: maximum wait of a send for room while later ones are answered.
_ROOM_TIMEOUT_S = 5.0
_NO_ROOM = (
    f"the broker did not take it within {_ROOM_TIMEOUT_S:.0f} s, but what came later: is it full "
    "(memoryLimit with producerFlowControl, and without sendFailIfNoSpace)?"
)
# Why: the broker works on these while we encode the next ones.
_SENDS_PER_TURN = 64


class SenderPool:
    """Sender links by destination; the least recently used are closed first."""

    def __init__(
        self,
        connection: AmqpConnection,
        address_of: Callable[[Destination], str] = lambda destination: destination.name,
    ) -> None:
        self._connection = connection
        self._address_of = address_of
        self._open: OrderedDict[Destination, Sender] = OrderedDict()
        self._closing: list[Sender] = []
        self._numbers = count(1)
        connection.parts.append(self)

    def get(self, destination: Destination) -> Sender:
        """Return the link to a destination; a new one is still attaching."""
        sender = self._open.get(destination)
        address = self._address_of(destination)
        if sender is not None and sender.address != address:
            # Why now: it changes between transactions only, where no send awaits its answer.
            self.drop(destination)
            sender = None
        if sender is not None and sender.refusal is None:
            self._open.move_to_end(destination)
            return sender
        sender = self._open[destination] = Sender(
            self._connection,
            f"amqsidecar-sender-{next(self._numbers)}",
            address,
            capability="queue" if destination.is_queue else "topic",
        )
        self._open.move_to_end(destination)
        return sender

    def trim(self) -> None:
        """Close links beyond the bound and free closed ones; call between transactions only."""
        while len(self._open) > OPEN_LINKS_MAX:
            _, sender = self._open.popitem(last=False)
            self._retire(sender)
        for destination in [key for key, sender in self._open.items() if sender.refusal]:
            self._retire(self._open.pop(destination))
        for sender in [sender for sender in self._closing if sender.is_closed]:
            self._closing.remove(sender)
            sender.forget()

    def drop(self, destination: Destination) -> None:
        """Close the link to a destination, so that the next send reattaches."""
        sender = self._open.pop(destination, None)
        if sender is not None:
            self._retire(sender)

    def _retire(self, sender: Sender) -> None:
        sender.close()
        self._closing.append(sender)

    def close(self) -> None:
        for sender in self._open.values():
            self._retire(sender)
        self._open.clear()

    @property
    def is_closed(self) -> bool:
        return all(sender.is_closed for sender in self._closing)


class TransactionSends:
    """The sends of one transaction, in turns of at most `OPEN_LINKS_MAX` destinations.

    Attributes:
        refusals: index of a refused message to the words why.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        pool: SenderPool,
        transaction: Transaction,
        now_ms: int,
        encode: Callable[[Resend, int], bytes] = encode_resend,
    ) -> None:
        self.refusals: dict[int, str] = {}
        self._connection = connection
        self._pool = pool
        self._transaction = transaction
        self._now_ms = now_ms
        self._encode = encode
        self._sends: Sequence[Resend] = ()
        self._sent: list[tuple[int, Any]] = []
        self._blocked: dict[Destination, str] = {}

    def send_all(self, sends: Sequence[Resend]) -> None:
        """Send all; `wait_for_answers` collects the refusals.

        Raises:
            LinkLost: the connection is gone, or the broker does not answer.
        """
        self._sends = sends
        for number, wave in enumerate(_waves(sends)):
            if number:
                self.wait_for_answers()
                self._pool.trim()
            self._attach(dict.fromkeys(sends[index].destination for index in wave))
            for turn, index in enumerate(wave, start=1):
                self._send(index, sends[index])
                if turn % _SENDS_PER_TURN == 0:
                    self._connection.pump(0)
        self._connection.pump(0)

    def _attach(self, destinations: dict[Destination, None]) -> None:
        senders = [self._pool.get(destination) for destination in destinations]
        if all(sender.credit > 0 for sender in senders):
            return
        self._connection.run_until(
            lambda: all(sender.is_answered for sender in senders), _ATTACH_TIMEOUT_S
        )
        self._connection.run_until(
            # Why: a refused attach is answered first and closed a moment later.
            lambda: all(sender.refusal is not None or sender.credit > 0 for sender in senders),
            _FIRST_CREDIT_TIMEOUT_S,
        )
        for destination, sender in zip(destinations, senders, strict=True):
            if sender.credit <= 0:
                self._block(destination, sender)

    def _block(self, destination: Destination, sender: Sender) -> None:
        self._blocked[destination] = sender.refusal or (
            f"{destination} takes no messages, the broker gives no credit: "
            "its address or the broker's disk may be full"
        )

    def _send(self, index: int, resend: Resend) -> None:
        blocked = self._blocked.get(resend.destination)
        if blocked is not None:
            self.refusals[index] = blocked
            return
        sender = self._pool.get(resend.destination)
        if sender.credit <= 0 and not self._wait_for_credit(resend.destination, sender):
            self.refusals[index] = self._blocked[resend.destination]
            return
        try:
            message = self._encode(resend, self._now_ms)
        except UndecodableMessage as undecodable:
            self.refusals[index] = f"it can't be parsed: {undecodable}"
            return
        self._sent.append((index, sender.send(message, self._transaction.send_state)))

    def _wait_for_credit(self, destination: Destination, sender: Sender) -> bool:
        self._connection.run_until(
            lambda: sender.refusal is not None or sender.credit > 0,
            _FIRST_CREDIT_TIMEOUT_S if self._blocked else _CREDIT_TIMEOUT_S,
        )
        if sender.credit > 0:
            return True
        self._block(destination, sender)
        return False

    def send_raw(self, index: int, sender: Sender, message: bytes) -> None:
        """Send one message as it is; `wait_for_answers` finds out whether it was taken.

        Raises:
            LinkLost: the broker gives no credit.
        """
        if not self._connection.run_until(lambda: sender.credit > 0, _CREDIT_TIMEOUT_S):
            raise LinkLost(f"{sender.address} takes no messages: {sender.refusal or 'no credit'}")
        self._sent.append((index, sender.send(message, self._transaction.send_state)))

    def wait_for_answers(self) -> None:
        """Wait until every send was answered, and settle them.

        Raises:
            LinkLost: the broker does not answer in time.
        """
        sent = self._sent
        at = 0

        def is_done() -> bool:
            nonlocal at
            while at < len(sent) and is_answered(sent[at][1]):
                at += 1
            return at == len(sent)

        if not self._connection.run_until(is_done, _ROOM_TIMEOUT_S):
            self._check_room()
        if not self._connection.run_until(is_done, _ANSWER_TIMEOUT_S - _ROOM_TIMEOUT_S):
            raise LinkLost(f"{len(sent) - at} sends were not answered in {_ANSWER_TIMEOUT_S:g} s")
        refusal, settle = self._transaction.refusal, lib.pn_delivery_settle
        for index, delivery in sent:
            words = refusal(delivery)
            if words is not None:
                self.refusals[index] = words
            settle(delivery)
        sent.clear()

    def _check_room(self) -> None:
        """Give up where the last send is answered and others are not.

        Why: Classic answers in order, except for sends that wait for room.

        Raises:
            LinkLost: there are such.
        """
        if not is_answered(self._sent[-1][1]):
            return
        waiting = dict.fromkeys(
            str(self._sends[index].destination)
            for index, delivery in self._sent
            if not is_answered(delivery)
        )
        if waiting:
            reason = f"we are held up by {', '.join(waiting)}"
            raise LinkLost(reason, dict.fromkeys(waiting, _NO_ROOM))


def _waves(sends: Sequence[Resend]) -> Iterator[list[int]]:
    """Yield indexes in turns of at most `OPEN_LINKS_MAX` destinations, order kept."""
    turn_of: dict[Destination, int] = {}
    waves: list[list[int]] = []
    for index, resend in enumerate(sends):
        turn = turn_of.setdefault(resend.destination, len(turn_of) // OPEN_LINKS_MAX)
        while len(waves) <= turn:
            waves.append([])
        waves[turn].append(index)
    yield from waves
