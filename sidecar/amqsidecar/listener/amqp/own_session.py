"""The listener's own session on a client's connection: links to its queues, and credit; no IO.

Source: AMQP 1.0, part 2.5 (sessions), part 2.6 (links), part 4.1 (coordinator).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_frames import (
    FALSE,
    TRUE,
    Performative,
    binary,
    described,
    frame_of,
)
from amqsidecar.listener.session import BodyToBroker, Effect, ToBroker
from amqsidecar.model.sidecar_names import INTERCEPTED

COPIES, TRANSACTIONS, NOTES = 0, 1, 2
"""Handles of the listener's links."""

_NAMES: Final = {COPIES: "copies", TRANSACTIONS: "transactions", NOTES: "notes"}
_QUEUE: Final = amqp.symbol("queue")
_FRAME_BYTES: Final = 1 << 15
_FRAME_HEAD_BYTES_MAX: Final = 128
_WINDOW: Final = 1 << 16


class Parcel(NamedTuple):
    """An encoded message for one of the listener's queues.

    Attributes:
        link: `COPIES` or `NOTES`.
        size: in bytes.
        content: yields it; raises OSError if kept bytes can't be read.
    """

    link: int
    size: int
    content: Callable[[], Iterator[bytes]]


class OwnSession:
    """One session of the listener, on a channel that the client does not use.

    Attributes:
        channel: of the listener's frames; -1 = it has not begun.
    """

    def __init__(self, effects: list[Effect], notes: str) -> None:
        self.channel = self._broker_channel = -1
        self._effects = effects
        self._notes = notes
        self._frame_bytes = _FRAME_BYTES
        self._links: dict[int, _OwnLink] = {}
        self._by_broker: dict[int, _OwnLink] = {}
        self._window = 0
        self._next_id = self._frames_sent = 0

    def limit_frames(self, frame_bytes: int) -> None:
        """Note the broker's maximum frame size."""
        self._frame_bytes = max(frames.FRAME_BYTES_MIN, min(frame_bytes, _FRAME_BYTES))

    def begin(self, channel: int) -> None:
        """Begin the session on a channel."""
        self.channel = channel
        window = amqp.unsigned(_WINDOW)
        self._send(frames.BEGIN, [amqp.NULL, amqp.unsigned(0), window, window])

    def attach(self, handle: int) -> bool:
        """Return whether a link may be used now; open a missing one."""
        link = self._links.get(handle)
        if link is not None:
            return link.is_open
        self._links[handle] = _OwnLink(handle)
        if handle == TRANSACTIONS:
            target = described(frames.COORDINATOR, [])
        else:
            name = amqp.string(INTERCEPTED if handle == COPIES else self._notes)
            target = described(frames.TARGET, [name, *[amqp.NULL] * 5, _QUEUE])
        source = described(frames.SOURCE, [amqp.string("amqsidecar-listener")])
        fields = [amqp.string(f"amqsidecar-{_NAMES[handle]}"), amqp.unsigned(handle), FALSE]
        fields += [amqp.NULL, amqp.NULL, source, target, amqp.NULL, amqp.NULL, amqp.unsigned(0)]
        self._send(frames.ATTACH, fields)
        return False

    def has_credit(self, handle: int) -> bool:
        """Return whether the broker takes another message through a link."""
        return handle in self._links and self._links[handle].credit > 0

    def ask(self, request: bytes) -> int:
        """Send a request to the coordinator; return its delivery number."""
        number, fields = self._transfer(TRANSACTIONS, 1)
        self._send(frames.TRANSFER, fields, b"\x00\x53\x77" + request)
        return number

    def send(self, parcel: Parcel, transaction: bytes) -> int | None:
        """Send a message; return its delivery number, None = the broker does not take it yet."""
        payload_bytes = self._frame_bytes - _FRAME_HEAD_BYTES_MAX
        frame_count = -(-parcel.size // payload_bytes)
        if not self.has_credit(parcel.link) or frame_count > self._window:
            return None
        number, fields = self._transfer(parcel.link, frame_count)
        state = (
            described(frames.TRANSACTIONAL_STATE, [binary(transaction)])
            if transaction
            else amqp.NULL
        )
        framed = _FramedParcel(parcel, self.channel, fields, state, payload_bytes)
        self._effects.append(BodyToBroker(framed))
        return number

    def _send(self, code: int, fields: list[bytes], payload: bytes = b"") -> None:
        self._effects.append(ToBroker(frame_of(self.channel, code, fields, payload)))

    def _transfer(self, handle: int, frame_count: int) -> tuple[int, list[bytes]]:
        """Count a message as sent; return its number and the first fields of its frames."""
        number = self._next_id
        self._next_id = (number + 1) & 0xFFFFFFFF
        self._frames_sent += frame_count
        self._window -= frame_count
        self._links[handle].sent += 1
        self._links[handle].credit -= 1
        fields = [amqp.unsigned(handle), amqp.unsigned(number), binary(number.to_bytes(4))]
        return number, [*fields, amqp.unsigned(0), FALSE]

    def is_own(self, said: Performative) -> bool:
        """Return whether a frame of the broker is about this session."""
        return self.channel >= 0 and (
            said.channel == self._broker_channel
            or (
                said.code == frames.BEGIN
                and said.field(0) != amqp.NULL
                and said.number(0) == self.channel
            )
        )

    def note(self, said: Performative) -> None:
        """Note a frame of the broker that begins the session, opens a link, or gives credit."""
        match said.code:
            case frames.BEGIN:
                self._broker_channel = said.channel
                self._window = said.number(2)
            case frames.ATTACH:
                name = said.text(0)
                for link in self._links.values():
                    if name.endswith(_NAMES[link.handle]):
                        self._by_broker[said.number(1)] = link
            case frames.FLOW:
                self._window = said.number(0) + said.number(1) - self._frames_sent
                found = self._by_broker.get(said.number(4, -1))
                if found is not None:
                    found.is_open = True
                    found.credit = said.number(5) + said.number(6) - found.sent

    def handle_of(self, detach: Performative) -> int:
        """Return the handle of the link that the broker ends; -1 = no such link."""
        link = self._by_broker.get(detach.number(0))
        return -1 if link is None else link.handle


@dataclass(slots=True)
class _OwnLink:
    handle: int
    is_open: bool = False
    credit: int = 0
    sent: int = 0


class _FramedParcel(NamedTuple):
    """The frames of a message, which are made as they are sent."""

    parcel: Parcel
    channel: int
    fields: list[bytes]
    state: bytes
    payload_bytes: int

    def pieces(self) -> Iterator[bytes]:
        """Yield the frames.

        Raises:
            OSError: kept bytes can't be read.
        """
        left = self.parcel.size
        waiting = bytearray()
        for piece in self.parcel.content():
            waiting += piece
            while len(waiting) >= self.payload_bytes or (waiting and len(waiting) == left):
                payload = bytes(waiting[: self.payload_bytes])
                del waiting[: self.payload_bytes]
                left -= len(payload)
                fields = [*self.fields, TRUE if left else FALSE, amqp.NULL, self.state]
                yield frame_of(self.channel, frames.TRANSFER, fields, payload)
