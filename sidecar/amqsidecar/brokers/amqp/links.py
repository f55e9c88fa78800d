"""The two ends of an AMQP link: receivers that hand over raw messages, senders that take them.

Source: AMQP 1.0, part 2.6 (links) and part 4.4 (transactional work).
"""

from typing import Any

import cproton
from cproton import ffi, lib

from amqsidecar.brokers.amqp.connection import AmqpConnection, condition_words
from amqsidecar.errors import LinkLost

# Bound: how much of a message the engine holds at once.
_PIECE_BYTES = 256 * 1024
_PIECE_TIMEOUT_S = 60.0
TRANSACTIONAL_STATE = 0x34
DECLARED = 0x33


class AmqpDelivery:
    """A delivery that the broker handed us and that is not settled."""

    __slots__ = ("pointer", "receiver", "size_bytes")

    def __init__(self, pointer: Any, receiver: "Receiver", size_bytes: int) -> None:
        self.pointer = pointer
        self.receiver = receiver
        self.size_bytes = size_bytes

    @property
    def is_valid(self) -> bool:
        """Whether it can still be settled."""
        return self.pointer is not None and self.receiver.is_open and self.receiver.is_usable


class _Endpoint:
    """What both ends have in common.

    Attributes:
        link: pointer into the engine.
        refusal: why the peer closed or refused the link; None = it did not.
        is_open: the peer agreed to the attach and has not closed since.
    """

    def __init__(self, connection: AmqpConnection, link: Any, address: str) -> None:
        self.connection = connection
        self.address = address
        self.link = link
        self.refusal: str | None = None
        self.is_open = False
        self.is_closing = False
        connection.add_link(link, self)

    @property
    def is_answered(self) -> bool:
        """Whether the peer has answered the attach, with yes or no."""
        return self.is_open or self.refusal is not None

    @property
    def is_usable(self) -> bool:
        """Whether deliveries of this link can be touched."""
        return self.link is not None and self.connection.is_open

    def on_delivery(self, delivery: Any) -> None:
        """Take note that a delivery arrived or was answered."""
        raise NotImplementedError

    def on_remote_open(self) -> None:
        """Take note that the peer answered the attach."""
        raise NotImplementedError

    def on_remote_close(self, reason: str) -> None:
        """Take note that the peer closed the link; `reason` holds its words, "" = none."""
        self.is_open = False
        if self.refusal is None:
            self.refusal = reason or "closed without a reason"
        if self.is_usable and not self.is_closing:
            self.is_closing = True
            cproton.pn_link_close(self.link)

    def close(self) -> None:
        """Begin to close the link; everything unsettled on it goes back."""
        self.is_open = False
        if self.is_usable and not self.is_closing:
            self.is_closing = True
            cproton.pn_link_close(self.link)

    @property
    def is_closed(self) -> bool:
        """Whether both sides have closed the link."""
        return self.is_closing and self.refusal is not None

    def end(self, timeout_s: float) -> None:
        """Close the link on both sides and free it, or leave it when the peer takes too long.

        Raises:
            LinkLost: the connection is gone.
        """
        self.close()
        if self.connection.run_until(lambda: self.is_closed, timeout_s):
            self.forget()

    def forget(self) -> None:
        """Let the engine free the link; call only once it is closed on both sides."""
        if self.is_usable:
            self.connection.forget_link(self.link)
            cproton.pn_link_free(self.link)
        self.link = None


class Receiver(_Endpoint):
    """Takes messages from one queue."""

    def __init__(
        self,
        connection: AmqpConnection,
        name: str,
        address: str | None,
        *,
        capability: str | None = None,
        is_browsing: bool = False,
        selector: str = "",
        is_settled: bool = False,
    ) -> None:
        """Begin to attach.

        Args:
            connection: must be open.
            name: of the link, unique in the connection.
            address: what to read from; None = a temporary queue of the broker's naming.
            capability: `queue`, `topic` or None.
            is_browsing: read without taking.
            selector: JMS selector of what to read; "" = everything.
            is_settled: a message is taken when the broker sends it. Where this process dies, none
                goes back, and none counts as a failed delivery.
        """
        link = cproton.pn_receiver(connection.session, name)
        super().__init__(connection, link, address or "")
        source = cproton.pn_link_source(link)
        if address is None:
            cproton.pn_terminus_set_dynamic(source, True)
        else:
            cproton.pn_terminus_set_address(source, address)
        if capability is not None:
            _put_capability(source, capability)
        if is_browsing:
            cproton.pn_terminus_set_distribution_mode(source, cproton.PN_DIST_MODE_COPY)
        if selector:
            _put_selector(source, selector)
        if is_settled:
            cproton.pn_link_set_snd_settle_mode(link, cproton.PN_SND_SETTLED)
        cproton.pn_terminus_set_address(cproton.pn_link_target(link), name)
        cproton.pn_link_open(link)
        self.arrived: list[tuple[AmqpDelivery, bytes]] = []
        self._pieces: list[bytes] = []
        self.in_hand_count = 0

    @property
    def credit(self) -> int:
        """How many more messages the broker may send."""
        return int(lib.pn_link_credit(self.link))

    def flow(self, credit: int) -> None:
        """Let the broker send so many messages more."""
        lib.pn_link_flow(self.link, credit)

    def drain(self, credit: int) -> None:
        """Let the broker send so many messages more, or say that it has none; see `is_drained`."""
        cproton.pn_link_drain(self.link, credit)

    @property
    def is_drained(self) -> bool:
        """Whether the broker has used or given back all credit."""
        return int(lib.pn_link_credit(self.link)) == 0

    def end_drain(self) -> None:
        """Go back to normal credit."""
        cproton.pn_link_set_drain(self.link, False)

    def on_remote_open(self) -> None:
        """Take note that the peer answered the attach."""
        source = cproton.pn_link_remote_source(self.link)
        # Why: a refused attach is answered with a null source and closed right after, with reason.
        if cproton.pn_terminus_get_type(source) != cproton.PN_UNSPECIFIED:
            self.is_open = True
            self.address = cproton.pn_terminus_get_address(source) or self.address

    def on_delivery(self, delivery: Any) -> None:
        """Take out of the engine what is there of a message.

        Why in pieces: the engine keeps a settled delivery's buffer for the next delivery, so that
        one large message after the other would leave each of thousands of them large.
        """
        if not lib.pn_delivery_readable(delivery):
            return
        if lib.pn_delivery_aborted(delivery):
            self._pieces.clear()
            lib.pn_delivery_settle(delivery)
            return
        size = lib.pn_delivery_pending(delivery)
        buffer = self.connection.receive_buffer
        if size > len(buffer):
            buffer = ffi.new("char[]", size)
        received = lib.pn_link_recv(self.link, buffer, size) if size else 0
        if received > 0:
            self._pieces.append(ffi.buffer(buffer, received)[:])
        if lib.pn_delivery_partial(delivery):
            return
        message = b"".join(self._pieces)
        self._pieces.clear()
        lib.pn_link_advance(self.link)
        self.in_hand_count += 1
        self.arrived.append((AmqpDelivery(delivery, self, len(message)), message))

    def take_arrived(self, limit: int) -> list[tuple[AmqpDelivery, bytes]]:
        """Return at most so many messages that arrived, in order, each once."""
        taken = self.arrived[:limit]
        del self.arrived[:limit]
        return taken

    def settle(self, in_hand: AmqpDelivery) -> None:
        """Finish a delivery with the outcome that it has."""
        pointer, in_hand.pointer = in_hand.pointer, None
        if pointer is None or not self.is_usable:
            return
        lib.pn_delivery_settle(pointer)
        self.in_hand_count -= 1

    def accept(self, in_hand: AmqpDelivery) -> None:
        """Finish a delivery as accepted, outside of a transaction; the broker deletes it."""
        if in_hand.pointer is not None and self.is_usable:
            lib.pn_delivery_update(in_hand.pointer, cproton.PN_ACCEPTED)
        self.settle(in_hand)

    def leave(self, in_hand: AmqpDelivery) -> None:
        """Let a delivery go back when this link is closed."""
        if in_hand.pointer is not None:
            in_hand.pointer = None
            self.in_hand_count -= 1


class Sender(_Endpoint):
    """Puts messages to one address."""

    def __init__(
        self,
        connection: AmqpConnection,
        name: str,
        address: str | None,
        *,
        capability: str | None = None,
        target_type: int | None = None,
    ) -> None:
        """Begin to attach.

        Args:
            connection: must be open.
            name: of the link, unique in the connection.
            address: where to; None = the coordinator of transactions.
            capability: of the target.
            target_type: `cproton.PN_COORDINATOR` or None.
        """
        link = cproton.pn_sender(connection.session, name)
        super().__init__(connection, link, address or "")
        target = cproton.pn_link_target(link)
        if target_type is not None:
            cproton.pn_terminus_set_type(target, target_type)
        if address is not None:
            cproton.pn_terminus_set_address(target, address)
        if capability is not None:
            _put_capability(target, capability)
        cproton.pn_terminus_set_address(cproton.pn_link_source(link), name)
        cproton.pn_link_open(link)
        self._tag = 0

    @property
    def credit(self) -> int:
        """How many more messages the broker takes."""
        return int(lib.pn_link_credit(self.link)) if self.is_open else 0

    def on_remote_open(self) -> None:
        """Take note that the peer answered the attach."""
        target = cproton.pn_link_remote_target(self.link)
        if cproton.pn_terminus_get_type(target) != cproton.PN_UNSPECIFIED:
            self.is_open = True

    def on_delivery(self, delivery: Any) -> None:
        """Leave it to whoever sent; answers are read from the delivery itself."""

    def send(self, message: bytes, state: Any = None) -> Any:
        """Send one message and return its delivery; call only with credit.

        Args:
            message: encoded.
            state: transactional state as engine data; None = outside of a transaction.

        Raises:
            LinkLost: the peer does not take a large message.
        """
        link = self.link
        self._tag = (self._tag + 1) & 0xFFFFFFFF
        tag = self._tag.to_bytes(4)
        delivery = lib.pn_delivery(link, (4, ffi.from_buffer(tag)))
        if state is not None:
            lib.pn_data_copy(lib.pn_disposition_data(lib.pn_delivery_local(delivery)), state)
            lib.pn_delivery_update(delivery, TRANSACTIONAL_STATE)
        if len(message) <= _PIECE_BYTES:
            lib.pn_link_send(link, ffi.from_buffer(message), len(message))
        else:
            self._send_pieces(delivery, message)
        lib.pn_link_advance(link)
        return delivery

    def _send_pieces(self, delivery: Any, message: bytes) -> None:
        """Hand a large message to the engine no faster than the peer takes it; see `Receiver`."""
        pieces = memoryview(message)
        for start in range(0, len(pieces), _PIECE_BYTES):
            piece = pieces[start : start + _PIECE_BYTES]
            lib.pn_link_send(self.link, ffi.from_buffer(piece), len(piece))
            is_taken = self.connection.run_until(
                lambda: self.is_closing or lib.pn_delivery_pending(delivery) == 0, _PIECE_TIMEOUT_S
            )
            if not is_taken:
                raise LinkLost(f"{self.address} took nothing for {_PIECE_TIMEOUT_S:g} s")


def _put_capability(terminus: Any, capability: str) -> None:
    # Quirk (Artemis): a single symbol or an array; a list ends the connection.
    data = cproton.pn_terminus_capabilities(terminus)
    cproton.pn_data_put_array(data, False, cproton.PN_SYMBOL)
    cproton.pn_data_enter(data)
    cproton.pn_data_put_symbol(data, capability)
    cproton.pn_data_exit(data)


def _put_selector(terminus: Any, selector: str) -> None:
    data = cproton.pn_terminus_filter(terminus)
    cproton.pn_data_put_map(data)
    cproton.pn_data_enter(data)
    cproton.pn_data_put_symbol(data, "jms-selector")
    cproton.pn_data_put_described(data)
    cproton.pn_data_enter(data)
    cproton.pn_data_put_symbol(data, "apache.org:selector-filter:string")
    cproton.pn_data_put_string(data, selector)
    cproton.pn_data_exit(data)
    cproton.pn_data_exit(data)


def is_answered(delivery: Any) -> bool:
    """Return whether the peer told the outcome of what we sent."""
    return bool(lib.pn_delivery_remote_state(delivery) or lib.pn_delivery_settled(delivery))


def forget(delivery: Any) -> None:
    """Free what the engine keeps of a message that we sent, its outcome too."""
    lib.pn_delivery_settle(delivery)


def refusal_words(delivery: Any) -> str | None:
    """Return why the peer did not accept what we sent; None = it did, outside of a transaction."""
    state = lib.pn_delivery_remote_state(delivery)
    if state == cproton.PN_ACCEPTED:
        return None
    remote = lib.pn_delivery_remote(delivery)
    if state == cproton.PN_REJECTED:
        return condition_words(cproton.pn_disposition_condition(remote)) or "rejected"
    if state == cproton.PN_RELEASED:
        return "released"
    if state == cproton.PN_MODIFIED:
        return "modified"
    if state == TRANSACTIONAL_STATE:
        return f"an outcome other than accepted: {formatted(lib.pn_disposition_data(remote))}"
    return f"no outcome (state {state:#x})"


def formatted(data: Any) -> str:
    """Return engine data as text for people."""
    error, text = cproton.pn_data_format(data, 1024)
    return bytes(text).decode(errors="replace") if error >= 0 else "not readable"
