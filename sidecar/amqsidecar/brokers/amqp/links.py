"""The two ends of an AMQP link: receivers that hand over raw messages, senders that take them.

Source: AMQP 1.0, part 2.6 (links) and part 4.4 (transactional work).
"""

import sys
from io import BytesIO
from typing import Any

import cproton
from cproton import ffi, lib

from amqsidecar.brokers.amqp.connection import BEGUN_BYTES_MAX, AmqpConnection, condition_words
from amqsidecar.errors import LinkLost

# Bound: maximum bytes of a message that the engine holds at once.
_PIECE_BYTES = 256 * 1024
_PIECE_TIMEOUT_S = 60.0
_ENDLESS = sys.maxsize
TRANSACTIONAL_STATE = 0x34
DECLARED = 0x33


class AmqpDelivery:
    """A delivery that the broker handed us and that is not settled.

    Attributes:
        is_too_large: nothing was kept of it; see `Receiver.skips_too_large`.
    """

    __slots__ = ("is_too_large", "pointer", "receiver", "size_bytes")

    def __init__(
        self, pointer: Any, receiver: "Receiver", size_bytes: int, *, is_too_large: bool = False
    ) -> None:
        self.pointer = pointer
        self.receiver = receiver
        self.size_bytes = size_bytes
        self.is_too_large = is_too_large

    @property
    def is_valid(self) -> bool:
        """Whether it can still be settled."""
        return self.pointer is not None and self.receiver.is_open and self.receiver.is_usable


class _Endpoint:
    """The common part of both ends.

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
        raise NotImplementedError

    def on_remote_open(self) -> None:
        raise NotImplementedError

    def on_remote_close(self, reason: str) -> None:
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
        return self.is_closing and self.refusal is not None

    def end(self, timeout_s: float | None = None) -> None:
        """Close the link on both sides and free it, or leave it when the peer takes too long."""
        self.close()
        if self.connection.run_until(lambda: self.is_closed, timeout_s):
            self.forget()

    def forget(self) -> None:
        """Free the link in the engine; call only once it is closed on both sides."""
        if self.is_usable:
            self.connection.forget_link(self.link)
            cproton.pn_link_free(self.link)
        self.link = None


class Receiver(_Endpoint):
    """Takes messages from one queue.

    Args:
        connection: must be open.
        name: of the link, unique in the connection.
        address: to read from; None = a temporary queue that the broker names.
        capability: `queue`, `topic` or None.
        is_browsing: read without taking.
        selector: JMS selector of messages to read; "" = all.
        is_settled: a message is taken when the broker sends it. If this process dies, no
            message goes back, or counts as a failed delivery.
        waiting_bytes_max: bytes of messages in `arrived`; more end the connection.
        skips_too_large: a message for which the connection has no room arrives empty, as
            `is_too_large`; otherwise it ends the connection.
    """

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
        waiting_bytes_max: int = _ENDLESS,
        skips_too_large: bool = False,
    ) -> None:
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
        self._begun = BytesIO()
        self._skips_too_large = skips_too_large
        self._is_skipping = False
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self.in_hand_count = 0

    @property
    def credit(self) -> int:
        """How many more messages the broker may send."""
        return int(lib.pn_link_credit(self.link))

    def flow(self, credit: int) -> None:
        """Grant the broker credit for more messages."""
        lib.pn_link_flow(self.link, credit)

    def drain(self, credit: int) -> None:
        """Grant credit that the broker uses now or gives back; see `is_drained`."""
        cproton.pn_link_drain(self.link, credit)

    @property
    def is_drained(self) -> bool:
        """Whether the broker has used or given back all credit."""
        return int(lib.pn_link_credit(self.link)) == 0

    def end_drain(self) -> None:
        """Return to normal credit."""
        cproton.pn_link_set_drain(self.link, False)

    def on_remote_open(self) -> None:
        source = cproton.pn_link_remote_source(self.link)
        # Why: a refused attach is answered with a null source and closed right after, with reason.
        if cproton.pn_terminus_get_type(source) != cproton.PN_UNSPECIFIED:
            self.is_open = True
            self.address = cproton.pn_terminus_get_address(source) or self.address

    def on_delivery(self, delivery: Any) -> None:
        """Take the arrived part of a message out of the engine.

        Why in pieces: the engine keeps a settled delivery's buffer for the next delivery, so that
        one large message after the other would leave each of thousands of them large.
        """
        if not lib.pn_delivery_readable(delivery):
            return
        begun = self._begun
        if lib.pn_delivery_aborted(delivery):
            self._drop_begun()
            self._is_skipping = False
            lib.pn_delivery_settle(delivery)
            return
        size = lib.pn_delivery_pending(delivery)
        buffer = self.connection.receive_buffer
        if size > len(buffer):
            buffer = ffi.new("char[]", size)
        received = lib.pn_link_recv(self.link, buffer, size) if size else 0
        if lib.pn_delivery_partial(delivery):
            if received > 0 and not self._is_skipping:
                self._keep_begun(ffi.buffer(buffer, received))
            return
        is_too_large, self._is_skipping = self._is_skipping, False
        if is_too_large:
            message = b""
        elif begun.tell():
            # Why first: it drops the pieces that were counted, without this last piece.
            self._drop_begun()
            if received > 0:
                begun.write(ffi.buffer(buffer, received))
            message = begun.getvalue()
        else:
            message = ffi.buffer(buffer, received)[:] if received > 0 else b""
        lib.pn_link_advance(self.link)
        self.in_hand_count += 1
        self._waiting_bytes += len(message)
        handed = AmqpDelivery(delivery, self, len(message), is_too_large=is_too_large)
        self.arrived.append((handed, message))
        # Why: the engine counts credit, but does not enforce it.
        if lib.pn_link_credit(self.link) < 0:
            what = "handed over more messages than it was asked for"
            self.connection.poison(LinkLost(f"{self.connection.place} {what}"))
        elif self._waiting_bytes > self._waiting_bytes_max:
            what = f"handed over more than {self._waiting_bytes_max} bytes from {self.address}"
            self.connection.poison(LinkLost(f"{self.connection.place} {what}"))

    @property
    def is_receiving(self) -> bool:
        """Whether the beginning of a message has arrived, and not its end."""
        return self._is_skipping or bool(self._begun.tell())

    def forget(self) -> None:
        self._drop_begun()
        super().forget()

    def _keep_begun(self, piece: Any) -> None:
        """Keep a piece of a message, unless it is too large."""
        # Why half: another one that is not whole may have the rest.
        is_most = self._begun.tell() + len(piece) > BEGUN_BYTES_MAX // 2
        if self._skips_too_large and is_most and not self.connection.has_room_for(len(piece)):
            self._drop_begun()
            self._is_skipping = True
            return
        self._begun.write(piece)
        self.connection.add_begun_bytes(len(piece))

    def _drop_begun(self) -> None:
        self.connection.add_begun_bytes(-self._begun.tell())
        self._begun = BytesIO()

    def take_arrived(self, limit: int) -> list[tuple[AmqpDelivery, bytes]]:
        """Return arrived messages up to a limit, in order, each once."""
        taken = self.arrived[:limit]
        del self.arrived[:limit]
        self._waiting_bytes -= sum(in_hand.size_bytes for in_hand, _ in taken)
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


class Sender(_Endpoint):
    """Puts messages to one address.

    Args:
        connection: must be open.
        name: of the link, unique in the connection.
        address: where to; None = the coordinator of transactions.
        target_type: `cproton.PN_COORDINATOR` or None.
    """

    def __init__(
        self,
        connection: AmqpConnection,
        name: str,
        address: str | None,
        *,
        capability: str | None = None,
        target_type: int | None = None,
    ) -> None:
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
        target = cproton.pn_link_remote_target(self.link)
        if cproton.pn_terminus_get_type(target) != cproton.PN_UNSPECIFIED:
            self.is_open = True

    def on_delivery(self, delivery: Any) -> None:
        """Do nothing: the sender of a message reads the answer from the delivery itself."""

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
    """Return whether the peer has reported the outcome of a send."""
    return bool(lib.pn_delivery_remote_state(delivery) or lib.pn_delivery_settled(delivery))


def forget(delivery: Any) -> None:
    """Free the engine's memory of a sent message and its outcome."""
    lib.pn_delivery_settle(delivery)


def refusal_words(delivery: Any) -> str | None:
    """Return why the peer refused our message; None = accepted, outside of a transaction."""
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
