"""The packets of a Core stream, without their fields: `int length, byte code, long channel`.

Source: Artemis, core.protocol.core.impl.PacketImpl, core.protocol.core.impl.ChannelImpl.CHANNEL_ID.
"""

from struct import Struct

from amqsidecar.formats.core.primitives import CoreProtocolError

GREETING = b"ARTEMIS"
"""The first bytes of a client; the broker does not answer them."""

PING_CHANNEL, CREATION_CHANNEL = 0, 1
FIRST_SESSION_CHANNEL = 10
"""The lowest channel that a client may choose for a session."""

HEAD = Struct(">ibq")
_SIZE = Struct(">i")
# Source: PacketImpl.PACKET_HEADERS_SIZE; the length counts neither itself.
_HEAD_BYTES = HEAD.size
_LENGTH_MIN = _HEAD_BYTES - _SIZE.size

CoreFrame = tuple[int, int, bytes]
"""Code, channel and fields of a packet."""


def frame(code: int, channel: int, *fields: bytes) -> bytes:
    """Return a packet as it goes over the wire; its fields may be in pieces."""
    length = _LENGTH_MIN + sum(map(len, fields))
    return b"".join((HEAD.pack(length, code, channel), *fields))


def frame_bytes(fields: bytes) -> int:
    """Return the credits that a packet with these fields uses."""
    return _HEAD_BYTES + len(fields)


class CoreFrameSplitter:
    """Cuts the received bytes into packets.

    Attributes:
        frame_bytes_max: the highest length that is accepted.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._needed_bytes = _SIZE.size

    def feed(self, data: bytes) -> list[CoreFrame]:
        """Return the packets that are complete with these bytes.

        Raises:
            CoreProtocolError: a packet claims an impossible length; its bytes are dropped.
        """
        if self._rest:
            self._rest.append(data)
            self._rest_bytes += len(data)
            if self._rest_bytes < self._needed_bytes:
                return []
            data = b"".join(self._rest)
            self._rest.clear()
        frames: list[CoreFrame] = []
        at, end = 0, len(data)
        needed = _SIZE.size
        while end - at >= _SIZE.size:
            length = _SIZE.unpack_from(data, at)[0]
            if not _LENGTH_MIN <= length <= self.frame_bytes_max:
                raise CoreProtocolError(
                    f"a packet of {length} bytes; {_LENGTH_MIN} to {self.frame_bytes_max} are"
                    " possible here"
                )
            after = at + _SIZE.size + length
            if after > end:
                needed = _SIZE.size + length
                break
            _, code, channel = HEAD.unpack_from(data, at)
            frames.append((code, channel, data[at + _HEAD_BYTES : after]))
            at = after
        if at < end:
            self._rest.append(data[at:])
        self._rest_bytes = end - at
        self._needed_bytes = needed
        return frames
