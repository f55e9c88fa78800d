"""One client's connection over AMQP 1.0 as a state machine: bytes in, bytes and effects out; no IO.

Every byte goes through unchanged, but for `rejected` on Artemis, which forgets its error, and
destroys the message where the address has no dead-letter address. The message, kept from its
transfers, is sent to the intake queue in a session of the listener's own on the client's
connection. One transaction of the broker sends the copy and accepts the original. So a crash ends
in both or in none.

Until the transaction has ended nothing but further rejections and empty frames is taken from the
client: the end of a link would give the original back meanwhile.

Source: AMQP 1.0, part 2 (transport), part 3.4 (delivery states), part 4 (transactions).
"""

from collections import deque
from enum import Enum, auto
from typing import Final

from amqsidecar.errors import RemoteProtocolError, UndecodableMessage
from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_frames import (
    FALSE,
    TRUE,
    FragmentKind,
    FrameCutter,
    FrameFragment,
    Performative,
    binary,
    described,
    frame_of,
    read_described,
    read_performative,
)
from amqsidecar.listener.amqp.deliveries import ClientChannel, UnsettledMessage
from amqsidecar.listener.amqp.rescue import ClientIdentity, Copy
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.session import (
    BodyToBroker,
    CutSession,
    Effect,
    Ended,
    NackOutcome,
    OnFailure,
    Settled,
    ToBroker,
    ToClient,
)
from amqsidecar.model.sidecar_names import INTERCEPTED

AT_ONCE_MAX: Final = 256
"""Maximum messages that are saved in one transaction."""

_ARTEMIS: Final = b"apache-activemq-artemis"
_COPIES, _COORDINATOR = 0, 1
_SASL_TYPE: Final = 1
_OUTCOMES: Final = (frames.ACCEPTED, frames.REJECTED, frames.RELEASED, frames.MODIFIED)
_FRAME_BYTES: Final = 1 << 15
_WINDOW: Final = 1 << 16


class _Phase(Enum):
    CLOSED = auto()
    OPENING = auto()
    READY = auto()
    DECLARING = auto()
    SENDING = auto()
    DISCHARGING = auto()


class _Rescue:
    """One disposition whose messages are on their way to the intake queue."""

    __slots__ = ("channel", "copies", "first", "is_settled", "last", "messages", "state")

    def __init__(
        self,
        channel: ClientChannel,
        disposition: Performative,
        messages: list[UnsettledMessage],
        copies: list[Copy],
    ) -> None:
        self.channel = channel
        self.first = disposition.number(1)
        self.last = disposition.number(2, self.first)
        self.is_settled = disposition.flag(3)
        self.state = disposition.field(4)
        self.messages = messages
        self.copies = copies


class AmqpSession(CutSession[FrameCutter]):
    """One connection; `login` is the user of SASL PLAIN."""

    def __init__(
        self, budget: BodyBudget, on_failure: OnFailure, prefixes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(FrameCutter(), FrameCutter())
        self._budget = budget
        self._on_failure = on_failure
        self._prefixes = prefixes
        self._waiting: deque[FrameFragment] = deque()
        self._container = ""
        self._is_artemis = False
        self._client_channels = self._broker_channels = 0xFFFF
        self._frame_bytes = _FRAME_BYTES
        self._by_client: dict[int, ClientChannel] = {}
        self._by_broker: dict[int, ClientChannel] = {}
        # Of a long frame that is arriving: its message, and whether it is the last one of it.
        self._arriving: UnsettledMessage | None = None
        self._is_last = False
        # The listener's own session.
        self._phase = _Phase.CLOSED
        self._channel = self._broker_channel = -1
        # By the broker's handles: the listener's own.
        self._attached: dict[int, int] = {}
        self._credit = {_COPIES: 0, _COORDINATOR: 0}
        self._sent = {_COPIES: 0, _COORDINATOR: 0}
        self._window = 0
        self._next_id = self._frames_sent = 0
        self._transaction = b""
        self._asked_id = -1
        self._rescues: deque[_Rescue] = deque()
        self._current: list[_Rescue] = []
        self._to_send: deque[Copy] = deque()
        self._unconfirmed: set[int] = set()

    # What the relay asks

    @property
    def is_waiting(self) -> bool:
        """Whether the client's bytes have to wait for the broker; feed no more of them."""
        return bool(self._waiting)

    @property
    def is_rescuing(self) -> bool:
        """Whether something was sent whose confirmation is missing."""
        return bool(self._rescues or self._current)

    def from_client(self, data: bytes) -> list[Effect]:
        """Take in what the client sent."""
        if self._client_is_plain:
            return [ToBroker(data)]
        try:
            self._waiting += self._from_client.feed(data)
            self._advance()
        except (RemoteProtocolError, UndecodableMessage) as problem:
            return self._unreadable_client(str(problem))
        return self._done()

    def from_broker(self, data: bytes) -> list[Effect]:
        """Take in what the broker sent."""
        if self._broker_is_plain:
            return [ToClient(data)]
        out: list[bytes] = []
        pieces: deque[FrameFragment] = deque()
        try:
            pieces += self._from_broker.feed(data)
            while pieces:
                kind = pieces[0].kind
                passes = self._broker_piece(pieces[0])
                piece = pieces.popleft()
                if passes:
                    out.append(piece.raw)
                if self._said and kind not in (FragmentKind.HEAD, FragmentKind.BODY):
                    out += self._said
                    self._said.clear()
        except (RemoteProtocolError, UndecodableMessage) as problem:
            if self._channel >= 0 or (self._is_artemis and self._on_failure is OnFailure.CLOSED):
                self._end(f"the broker's input can't be parsed: {problem}")
                return self._done()
            self._broker_is_plain = self._client_is_plain = True
            out += (*(piece.raw for piece in pieces), self._from_broker.rest())
            self._effects.append(ToBroker(self._held_of_client()))
        if out:
            self._effects.insert(0, ToClient(b"".join(out)))
        return self._done()

    def close(self) -> None:
        """Give the room of all kept bodies back."""
        for channel in {*self._by_client.values(), *self._by_broker.values()}:
            channel.clear()
        for rescue in (*self._rescues, *self._current):
            ClientChannel.drop(rescue.messages)

    def _end(self, why: str) -> None:
        self._is_over = True
        self._effects.append(Ended(why))

    def _unreadable_client(self, problem: str) -> list[Effect]:
        if self._is_artemis and self._on_failure is OnFailure.CLOSED:
            self._end(f"the client's input can't be parsed: {problem}")
            return self._done()
        self._client_is_plain = self._broker_is_plain = True
        return self._done([ToBroker(self._held_of_client()), ToClient(self._from_broker.rest())])

    def _held_of_client(self) -> bytes:
        """Return all that was held back of the client, and forget it."""
        held = b"".join(piece.raw for piece in self._waiting) + self._from_client.rest()
        self._waiting.clear()
        return held

    # The client's side

    def _advance(self) -> None:
        """Pass on what the client sent, as far as it need not wait."""
        out: list[bytes] = []
        try:
            self._pass_on(out)
        finally:
            if out:
                self._effects.append(ToBroker(b"".join(out)))

    def _pass_on(self, out: list[bytes]) -> None:
        while self._waiting and not self._is_over:
            piece = self._waiting[0]
            passes = True
            if piece.kind is FragmentKind.WHOLE or piece.kind is FragmentKind.HEAD:
                mark = len(self._effects)
                if piece.raw[5] == _SASL_TYPE:
                    self._log_in(piece.raw)
                else:
                    said = read_performative(piece.raw)
                    if self.is_rescuing and not (said.code == 0 or self._is_rejection(said)):
                        return
                    passes = self._client_frame(said)
                if out and len(self._effects) > mark:
                    self._effects.insert(mark, ToBroker(b"".join(out)))
                    out.clear()
            self._waiting.popleft()
            if passes:
                out.append(piece.raw)

    def _log_in(self, frame: bytes) -> None:
        said = read_performative(frame)
        if said.code == frames.SASL_INIT and said.text(0) == "PLAIN":
            response = amqp.scalar(said.field(1))
            if isinstance(response, bytes) and response.count(b"\0") == 2:
                self.login = response.split(b"\0")[1].decode(errors="replace")

    def _is_rejection(self, said: Performative) -> bool:
        return (
            self._is_artemis
            and said.code == frames.DISPOSITION
            and said.flag(0)
            and read_described(said.field(4))[0] == frames.REJECTED
        )

    def _client_frame(self, said: Performative) -> bool:
        """Note what a frame of the client does; return whether it is passed on as it is."""
        channel = self._by_client.get(said.channel)
        match said.code:
            case frames.OPEN:
                self._container = said.text(0)
                self._client_channels = said.number(3, 0xFFFF)
            case frames.BEGIN:
                if said.channel == self._channel:
                    self._end(f"the client uses channel {said.channel}, which the listener uses")
                    return False
                self._by_client[said.channel] = ClientChannel(said.channel, self._budget)
            case frames.ATTACH if channel is not None and said.flag(2):
                channel.ask_for(said)
            case frames.DISPOSITION if channel is not None and said.flag(0):
                return self._disposition(channel, said)
            case frames.DETACH if channel is not None:
                channel.give_back(said.number(0))
            case frames.END if channel is not None:
                channel.clear()
                del self._by_client[said.channel]
        return True

    def _disposition(self, channel: ClientChannel, said: Performative) -> bool:
        first = said.number(1)
        covered = channel.covered(first, said.number(2, first))
        if not covered:
            return True
        if self._is_rejection(said):
            return self._reject(channel, covered, said)
        state, _ = read_described(said.field(4))
        if said.flag(3) or state in _OUTCOMES:
            channel.drop(channel.take(covered))
        return True

    def _reject(self, channel: ClientChannel, covered: list[int], said: Performative) -> bool:
        """Begin to save messages; return whether the rejection is passed on instead."""
        error = read_described(said.field(4))[1][:1]
        client = ClientIdentity(self.login, self._container, self._prefixes)
        cause = client.cause(error[0] if error else amqp.NULL)
        is_whole = channel.are_whole(covered)
        messages = channel.take(covered)
        try:
            copies = [Copy(one, client, cause) for one in messages] if is_whole else []
        except (UndecodableMessage, OSError) as problem:
            return self._failed(str(problem), messages)
        if not is_whole:
            return self._failed("no room was left to keep it", messages)
        if not min(self._client_channels, self._broker_channels):
            return self._failed("the connection has no second channel", messages)
        self._rescues.append(_Rescue(channel, said, messages, copies))
        self._drive()
        return False

    def _failed(self, why: str, messages: list[UnsettledMessage]) -> bool:
        """Return whether a rejection is passed on although its message can't be saved."""
        ClientChannel.drop(messages)
        if self._on_failure is OnFailure.CLOSED:
            self._end(f"a message that its consumer rejected can't be saved: {why}")
            return False
        self._effects.append(Settled(NackOutcome.PASSED, len(messages), why))
        return True

    # The broker's side

    def _broker_piece(self, piece: FrameFragment) -> bool:
        """Note what a piece says; return whether the client gets it."""
        if piece.kind is FragmentKind.WHOLE or piece.kind is FragmentKind.HEAD:
            if piece.raw[5] == _SASL_TYPE:
                return True
            said = read_performative(piece.raw)
            if said.channel == self._broker_channel or (
                said.code == frames.BEGIN
                and self._channel >= 0
                and said.field(0) != amqp.NULL
                and said.number(0) == self._channel
            ):
                self._own_frame(said)
                return False
            self._broker_frame(said, piece)
        elif self._arriving is not None and piece.kind is not FragmentKind.HEADER:
            self._arriving.body.add(piece.raw)
            if piece.kind is FragmentKind.END:
                self._arriving.is_here = self._is_last
                self._arriving = None
        return True

    def _broker_frame(self, said: Performative, piece: FrameFragment) -> None:
        channel = self._by_broker.get(said.channel)
        match said.code:
            case frames.TRANSFER if channel is not None:
                if not self._is_artemis:
                    return
                message = channel.begin(said)
                if message is not None:
                    message.body.add(piece.raw[said.payload_at :])
                    message.is_here = piece.kind is FragmentKind.WHOLE and not said.flag(5)
                self._is_last = not said.flag(5)
                self._arriving = message if piece.kind is FragmentKind.HEAD else None
            case frames.OPEN:
                self._is_artemis = _ARTEMIS in said.field(9)
                self._broker_channels = said.number(3, 0xFFFF)
                frame_bytes = said.number(2, _FRAME_BYTES)
                self._frame_bytes = max(frames.FRAME_BYTES_MIN, min(frame_bytes, _FRAME_BYTES))
            case frames.BEGIN if said.field(0) != amqp.NULL:
                begun = self._by_client.get(said.number(0))
                if begun is not None:
                    begun.broker_number = said.channel
                    self._by_broker[said.channel] = begun
            case frames.ATTACH if channel is not None and not said.flag(2):
                channel.attach(said)
            case frames.DISPOSITION if channel is not None and not said.flag(0) and said.flag(3):
                first = said.number(1)
                channel.drop(channel.take(channel.covered(first, said.number(2, first))))
            case frames.DETACH if channel is not None:
                channel.detach(said.number(0))
            case frames.END if channel is not None:
                channel.clear()
                del self._by_broker[said.channel]

    # The listener's own session

    def _send(self, code: int, fields: list[bytes], payload: bytes = b"") -> None:
        self._effects.append(ToBroker(frame_of(self._channel, code, fields, payload)))

    def _drive(self) -> None:
        if self._phase is _Phase.CLOSED:
            self._open()
        elif self._phase is _Phase.READY and self._rescues and self._credit[_COORDINATOR] > 0:
            self._phase = _Phase.DECLARING
            self._ask(described(frames.DECLARE, []))

    def _open(self) -> None:
        """Open a session with two links: one to the intake queue, one for transactions."""
        self._phase = _Phase.OPENING
        self._channel = min(self._client_channels, self._broker_channels)
        while self._channel in self._by_client and self._channel:
            self._channel -= 1
        window = amqp.unsigned(_WINDOW)
        self._send(frames.BEGIN, [amqp.NULL, amqp.unsigned(0), window, window])
        queue = described(frames.TARGET, [amqp.string(INTERCEPTED), *[amqp.NULL] * 5, _QUEUE])
        for handle, name, target in (
            (_COPIES, "copies", queue),
            (_COORDINATOR, "transactions", described(frames.COORDINATOR, [])),
        ):
            fields = [
                amqp.string(f"amqsidecar-{name}"),
                amqp.unsigned(handle),
                FALSE,
                amqp.NULL,
                amqp.NULL,
                described(frames.SOURCE, [amqp.string("amqsidecar-listener")]),
                target,
                amqp.NULL,
                amqp.NULL,
                amqp.unsigned(0),
            ]
            self._send(frames.ATTACH, fields)

    def _ask(self, request: bytes) -> None:
        """Send a request to the coordinator."""
        self._asked_id = self._next_id
        fields = [
            amqp.unsigned(_COORDINATOR),
            amqp.unsigned(self._next_id),
            binary(self._next_id.to_bytes(4)),
            amqp.unsigned(0),
            FALSE,
        ]
        self._count(_COORDINATOR, 1)
        self._send(frames.TRANSFER, fields, b"\x00\x53\x77" + request)

    def _count(self, handle: int, frame_count: int) -> None:
        self._next_id = (self._next_id + 1) & 0xFFFFFFFF
        self._frames_sent += frame_count
        self._sent[handle] += 1
        self._credit[handle] -= 1
        self._window -= frame_count

    def _own_frame(self, said: Performative) -> None:
        """Note a frame of the broker in the listener's own session."""
        match said.code:
            case frames.BEGIN:
                self._broker_channel = said.channel
                self._window = said.number(2)
            case frames.ATTACH if said.field(6) != amqp.NULL:
                is_copies = said.text(0).endswith("copies")
                self._attached[said.number(1)] = _COPIES if is_copies else _COORDINATOR
                if self._phase is _Phase.OPENING and len(self._attached) == len(self._credit):
                    self._phase = _Phase.READY
                    self._drive()
            case frames.FLOW:
                self._flow(said)
            case frames.DISPOSITION if said.flag(0):
                first = said.number(1)
                span = min(said.number(2, first) - first, len(self._unconfirmed))
                for number in range(first, first + span + 1):
                    self._answered(number, said.field(4))
            case frames.DETACH | frames.END:
                error = said.field(2 if said.code == frames.DETACH else 0)
                self._refused(_words(error) or "the broker ends the listener's session")

    def _flow(self, said: Performative) -> None:
        self._window = said.number(0) + said.number(1) - self._frames_sent
        handle = self._attached.get(said.number(4, -1), -1)
        if handle >= 0:
            self._credit[handle] = said.number(5) + said.number(6) - self._sent[handle]
        self._drive()
        self._pump()

    def _pump(self) -> None:
        """Send copies as far as the broker takes them, and accept the originals behind them."""
        if self._phase is not _Phase.SENDING or not self._to_send:
            return
        while self._to_send and self._credit[_COPIES] > 0:
            copy = self._to_send[0]
            frame_count = copy.frames(self._frame_bytes)
            if frame_count > self._window:
                return
            self._to_send.popleft()
            self._unconfirmed.add(self._next_id)
            sent = copy.transfer(
                self._channel, _COPIES, self._next_id, self._transaction, self._frame_bytes
            )
            self._effects.append(BodyToBroker(sent))
            self._count(_COPIES, frame_count)
        if self._to_send:
            return
        accepted = described(frames.ACCEPTED, [])
        state = described(frames.TRANSACTIONAL_STATE, [binary(self._transaction), accepted])
        for rescue in self._current:
            numbers = [amqp.unsigned(rescue.first), amqp.unsigned(rescue.last)]
            fields = [TRUE, *numbers, TRUE, state]
            frame = frame_of(rescue.channel.number, frames.DISPOSITION, fields)
            self._effects.append(ToBroker(frame))

    def _answered(self, number: int, state: bytes) -> None:
        """Note the broker's answer to what the listener has sent."""
        code, fields = read_described(state)
        if code == frames.REJECTED:
            self._refused(_words(fields[0]) if fields else "the broker rejects it")
        elif number in self._unconfirmed:
            if code == frames.TRANSACTIONAL_STATE:
                code, fields = read_described(fields[1]) if len(fields) > 1 else (0, [])
            if code != frames.ACCEPTED:
                self._refused(_words(fields[0] if fields else b"") or "it did not accept the copy")
                return
            self._unconfirmed.discard(number)
            if not self._unconfirmed and not self._to_send:
                self._phase = _Phase.DISCHARGING
                self._ask(described(frames.DISCHARGE, [binary(self._transaction), FALSE]))
        elif number == self._asked_id and self._phase is _Phase.DECLARING:
            self._declared(amqp.scalar(fields[0]) if code == frames.DECLARED and fields else None)
        elif number == self._asked_id and self._phase is _Phase.DISCHARGING:
            self._discharged()

    def _declared(self, transaction: amqp.Scalar) -> None:
        if not isinstance(transaction, bytes):
            self._refused("it begins no transaction")
            return
        self._transaction = transaction
        self._phase = _Phase.SENDING
        count = 0
        while self._rescues and (not count or count + len(self._rescues[0].copies) <= AT_ONCE_MAX):
            rescue = self._rescues.popleft()
            count += len(rescue.copies)
            self._current.append(rescue)
            self._to_send += rescue.copies
        self._pump()

    def _discharged(self) -> None:
        """Note that copies and acceptances are committed."""
        for rescue in self._current:
            if not rescue.is_settled:
                self._settle(rescue)
            self._effects.append(Settled(NackOutcome.INTERCEPTED, len(rescue.messages)))
            ClientChannel.drop(rescue.messages)
        self._current.clear()
        self._phase = _Phase.READY
        self._drive()
        self._advance()

    def _settle(self, rescue: _Rescue) -> None:
        """Send the client, which waits for it, the broker's part of the settlement."""
        numbers = [amqp.unsigned(rescue.first), amqp.unsigned(rescue.last)]
        fields = [FALSE, *numbers, TRUE, rescue.state]
        frame = frame_of(rescue.channel.broker_number, frames.DISPOSITION, fields)
        self._say(frame)

    def _say(self, frame: bytes) -> None:
        """Send a frame to the client where its stream permits one."""
        if self._arriving is None and self._from_broker.is_between_frames:
            self._effects.append(ToClient(frame))
        else:
            self._said.append(frame)

    def _refused(self, why: str) -> None:
        """End the connection: the broker does not take a copy, and has the original still."""
        count = sum(len(one.messages) for one in (*self._current, *self._rescues))
        self._effects.append(Settled(NackOutcome.REFUSED, count or 1, why))
        self._end(f"the broker refused a message that its consumer rejected: {why}")


def _words(error: bytes) -> str:
    """Return what an encoded error says; "" = nothing."""
    code, fields = read_described(error)
    said = [amqp.scalar(one) for one in (fields[:2] if code == frames.ERROR else [])]
    return ": ".join(one for one in said if isinstance(one, str))


_QUEUE: Final = amqp.symbol("queue")
