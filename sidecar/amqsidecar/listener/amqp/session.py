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
from amqsidecar.formats.interception_seal import CopyKeysOf
from amqsidecar.listener.amqp.deliveries import LINK_BYTES, ClientChannel, UnsettledMessage
from amqsidecar.listener.amqp.notes import (
    Answer,
    NoteSettings,
    note_of,
    read_answer,
    read_error,
    read_identity,
)
from amqsidecar.listener.amqp.own_session import NOTES, TRANSACTIONS, OwnSession, Parcel
from amqsidecar.listener.amqp.rescue import ClientIdentity, Copy, Rescue
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.session import (
    ClientSession,
    Effect,
    GiveUp,
    NackOutcome,
    OnFailure,
    ToBroker,
    ToClient,
)

AT_ONCE_MAX: Final = 256
"""Maximum messages that are saved in one transaction."""

_ARTEMIS: Final = b"apache-activemq-artemis"
_SASL_TYPE: Final = 1
_OUTCOMES: Final = (frames.ACCEPTED, frames.REJECTED, frames.RELEASED, frames.MODIFIED)
# Bytes kept of a message that needs a note at most, which holds its identity.
_IDENTITY_BYTES_MAX: Final = 1 << 14


class _Phase(Enum):
    IDLE = auto()
    DECLARING = auto()
    SENDING = auto()
    DISCHARGING = auto()


class AmqpSession(ClientSession):
    """One connection; `login` is the user of SASL PLAIN."""

    _from_client: FrameCutter
    _from_broker: FrameCutter

    def __init__(
        self,
        budget: BodyBudget,
        on_failure: OnFailure,
        prefixes: tuple[str, ...] = (),
        notes: NoteSettings | None = None,
        keys: CopyKeysOf | None = None,
    ) -> None:
        super().__init__(on_failure, prefixes, keys)
        self._from_client, self._from_broker = FrameCutter(), FrameCutter()
        self._waiting: deque[FrameFragment] = deque()
        self._budget = budget
        # None = notes are not read, or the broker refuses them to this client.
        self._notes = notes
        self._container = ""
        self._is_artemis = False
        self._client_channels = self._broker_channels = 0xFFFF
        self._by_client: dict[int, ClientChannel] = {}
        self._by_broker: dict[int, ClientChannel] = {}
        # Of a long frame that is arriving: its message, and whether it is the last one of it.
        self._arriving: UnsettledMessage | None = None
        self._is_last = False
        self._own = OwnSession(self._effects, "" if notes is None else notes.queue)
        self._phase = _Phase.IDLE
        self._transaction = b""
        self._asked_id = -1
        self._rescues: deque[Rescue] = deque()
        self._current: list[Rescue] = []
        self._to_send: deque[Parcel] = deque()
        self._unconfirmed: set[int] = set()

    # What the relay asks

    @property
    def is_rescuing(self) -> bool:
        """Whether something was sent whose confirmation is missing."""
        return bool(self._rescues or self._current)

    def from_client(self, data: bytes) -> list[Effect]:
        """Take in bytes of the client."""
        if self._client_is_plain:
            return [ToBroker(data)]
        try:
            self._waiting += self._from_client.feed(data)
            self._advance()
        except (RemoteProtocolError, UndecodableMessage) as problem:
            return self._unreadable_client(str(problem))
        return self._done()

    def from_broker(self, data: bytes) -> list[Effect]:
        """Handle bytes from the broker."""
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
            if self._own.channel >= 0 or (
                self._is_artemis and self._on_failure is OnFailure.CLOSED
            ):
                self._end(f"the broker's input can't be parsed: {problem}")
                return self._done()
            self._broker_is_plain = self._client_is_plain = self.is_logged_in = True
            out += (*(piece.raw for piece in pieces), self._from_broker.rest())
            self._effects.append(ToBroker(self._held_of_client()))
        if out:
            self._effects.insert(0, ToClient(b"".join(out)))
        return self._done()

    @property
    def _named_bytes(self) -> int:
        sessions = self._by_client.values()
        return len(self._container) + sum(one.named_bytes + LINK_BYTES for one in sessions)

    def close(self) -> None:
        """Release the space of all kept bodies."""
        for channel in {*self._by_client.values(), *self._by_broker.values()}:
            channel.clear()
        for rescue in (*self._rescues, *self._current):
            ClientChannel.drop(rescue.messages)

    def _unreadable_client(self, problem: str) -> list[Effect]:
        if self._is_artemis and self._on_failure is OnFailure.CLOSED:
            self._end(f"the client's input can't be parsed: {problem}")
            return self._done()
        self._client_is_plain = self._broker_is_plain = self.is_logged_in = True
        return self._done([ToBroker(self._held_of_client()), ToClient(self._from_broker.rest())])

    def _held_of_client(self) -> bytes:
        """Return all that was held back of the client, and forget it."""
        held = b"".join(piece.raw for piece in self._waiting) + self._from_client.rest()
        self._waiting.clear()
        return held

    # The client's side

    def _advance(self) -> None:
        """Pass on the client's bytes until they have to wait."""
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
                    answer = self._answer(said)
                    if self.is_rescuing and said.code and answer is None:
                        return
                    passes = self._client_frame(said, answer, piece.raw)
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

    def _answer(self, said: Performative) -> Answer | None:
        """Return how a frame gives messages up; None = it does not, or there is nothing to do."""
        if said.code != frames.DISPOSITION:
            return None
        notes = self._notes
        answer = read_answer(said, 0 if notes is None else notes.now_ms())
        if answer is None:
            return None
        if answer.how is GiveUp.REJECTED:
            is_noted = notes is not None and bool(answer.reason)
            return answer if self._is_artemis or is_noted else None
        return answer if notes is not None and notes.are_obeyed else None

    def _client_frame(self, said: Performative, answer: Answer | None, raw: bytes) -> bool:
        """Follow a frame of the client; return whether it is passed on unchanged."""
        channel = self._by_client.get(said.channel)
        match said.code:
            case frames.OPEN:
                self._container = said.text(0)
                self._client_channels = said.number(3, 0xFFFF)
            case frames.BEGIN:
                if said.channel == self._own.channel:
                    self._end(f"the client uses channel {said.channel}, which the listener uses")
                    return False
                self._by_client[said.channel] = ClientChannel(said.channel, self._budget)
            case frames.ATTACH if channel is not None and said.flag(2):
                channel.ask_for(said)
            case frames.DISPOSITION if channel is not None and said.flag(0):
                return self._disposition(channel, said, answer, raw)
            case frames.DETACH if channel is not None:
                channel.give_back(said.number(0))
            case frames.END if channel is not None:
                channel.clear()
                del self._by_client[said.channel]
        return True

    def _disposition(
        self, channel: ClientChannel, said: Performative, answer: Answer | None, raw: bytes
    ) -> bool:
        first = said.number(1)
        covered = channel.covered(first, said.number(2, first))
        if not covered:
            return True
        if answer is not None:
            return self._give_up(channel, covered, said, answer, raw)
        state, _ = read_described(said.field(4))
        if said.flag(3) or state in _OUTCOMES:
            channel.drop(channel.take(covered))
        return True

    def _give_up(
        self,
        channel: ClientChannel,
        covered: list[int],
        said: Performative,
        answer: Answer,
        raw: bytes,
    ) -> bool:
        """Begin to save messages or causes; return whether the frame is passed on instead."""
        is_whole = channel.are_whole(covered)
        messages = channel.take(covered)
        forward = b""
        try:
            if not self._is_artemis:
                forward = self._forward(channel, said, answer, raw)
                parcels = self._note_parcels(messages, answer)
            elif is_whole:
                parcels = self._copy_parcels(messages, answer)
            else:
                raise UndecodableMessage("no room was left to keep it")
            if not min(self._client_channels, self._broker_channels):
                raise UndecodableMessage("the connection has no second channel")
        except (UndecodableMessage, OSError) as problem:
            ClientChannel.drop(messages)
            is_destroyed = self._is_artemis and answer.how is GiveUp.REJECTED
            count, why = len(messages), str(problem)
            return self._failed(answer.how, count, why, is_destroyed=is_destroyed)
        rescue = Rescue(channel, said, raw, answer, messages, parcels, forward)
        self._rescues.append(rescue)
        self._drive()
        return False

    @property
    def _client(self) -> ClientIdentity:
        return ClientIdentity(self.login, self._container, self._prefixes)

    def _copy_parcels(self, messages: list[UnsettledMessage], answer: Answer) -> list[Parcel]:
        client = self._client
        outcome = "reject" if answer.how is GiveUp.REJECTED else "modified"
        cause = client.cause(outcome, answer.reason)
        copies = [Copy(one, client, cause, self._sealing_key).parcel for one in messages]
        # Why in front: a copy without its note would come back early.
        return [*self._note_parcels(messages, answer), *copies] if answer.delay_ms else copies

    def _note_parcels(self, messages: list[UnsettledMessage], answer: Answer) -> list[Parcel]:
        """Return the notes about messages.

        Raises:
            UndecodableMessage: one has no id, or the broker alone would not keep it.
        """
        parcels = []
        for one in messages:
            identity = read_identity(next(one.body.pieces(), b""))
            if identity is None:
                raise UndecodableMessage("it has no message id that a note could name")
            if answer.delay_ms and not (self._is_artemis or identity.is_durable):
                raise UndecodableMessage("it is not durable: Classic would not keep it")
            if identity.redelivery_count is None and self._is_artemis:
                # Why not on Classic: a redelivery over OpenWire can't show it to AMQP clients.
                identity = identity._replace(redelivery_count=0)
            origin = self._client.origin(one.link)
            queue = origin.queue if self._is_artemis else one.link.queue_on_classic
            parcels.append(note_of(identity, answer, self.login, queue or ""))
        return parcels

    @staticmethod
    def _forward(channel: ClientChannel, said: Performative, answer: Answer, raw: bytes) -> bytes:
        """Return the frame that makes the message a dead letter on Classic."""
        if answer.how is GiveUp.REJECTED:
            return raw
        fields = [*said.fields[:4], described(frames.REJECTED, []), *said.fields[5:]]
        return frame_of(channel.number, frames.DISPOSITION, fields)

    # The broker's side

    def _broker_piece(self, piece: FrameFragment) -> bool:
        """Follow a piece of the broker; return whether the client gets it."""
        if piece.kind is FragmentKind.WHOLE or piece.kind is FragmentKind.HEAD:
            if piece.raw[5] == _SASL_TYPE:
                return True
            said = read_performative(piece.raw)
            if self._own.is_own(said):
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
                    self._begin_noted(channel, said, piece)
                    return
                message = channel.begin(said)
                if message is not None:
                    message.body.add(piece.raw[said.payload_at :])
                    message.is_here = piece.kind is FragmentKind.WHOLE and not said.flag(5)
                self._is_last = not said.flag(5)
                self._arriving = message if piece.kind is FragmentKind.HEAD else None
            case frames.OPEN:
                self.is_logged_in = True
                self._is_artemis = _ARTEMIS in said.field(9)
                self._broker_channels = said.number(3, 0xFFFF)
                self._own.limit_frames(said.number(2, 0xFFFFFFFF))
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

    def _begin_noted(
        self, channel: ClientChannel, said: Performative, piece: FrameFragment
    ) -> None:
        """Keep as much of a message on Classic as a note needs."""
        if self._notes is None:
            return
        message = channel.begin(said)
        if message is not None and not message.body.size:
            message.body.add(piece.raw[said.payload_at :][:_IDENTITY_BYTES_MAX])

    # The listener's own session

    def _drive(self) -> None:
        """Begin to send for the next disposition, unless a send is in progress."""
        if self._phase is not _Phase.IDLE or not self._rescues or not self._is_open_for_next():
            return
        if not self._is_artemis:
            self._send_batch(b"")
        elif self._own.has_credit(TRANSACTIONS):
            self._phase = _Phase.DECLARING
            self._asked_id = self._own.ask(described(frames.DECLARE, []))

    def _is_open_for_next(self) -> bool:
        """Open any missing links of the next disposition; return whether all are open."""
        if self._own.channel < 0:
            channel = min(self._client_channels, self._broker_channels)
            while channel in self._by_client and channel:
                channel -= 1
            self._own.begin(channel)
        links = {one.link for one in self._rescues[0].parcels}
        if self._is_artemis:
            links.add(TRANSACTIONS)
        opened = [self._own.attach(link) for link in sorted(links)]
        return all(opened)

    def _send_batch(self, transaction: bytes) -> None:
        self._transaction = transaction
        self._phase = _Phase.SENDING
        count = 0
        while self._rescues and self._is_open_for_next():
            count += len(self._rescues[0].parcels)
            if self._current and count > AT_ONCE_MAX:
                break
            rescue = self._rescues.popleft()
            self._current.append(rescue)
            self._to_send += rescue.parcels
        self._pump()

    def _own_frame(self, said: Performative) -> None:
        """Note a frame of the broker in the listener's own session."""
        match said.code:
            case frames.BEGIN | frames.ATTACH:
                self._own.note(said)
            case frames.FLOW:
                self._own.note(said)
                self._drive()
                self._pump()
            case frames.DISPOSITION if said.flag(0):
                first = said.number(1)
                span = min(said.number(2, first) - first, len(self._unconfirmed))
                for number in range(first, first + span + 1):
                    self._answered(number, said.field(4))
            case frames.DETACH | frames.END:
                error = read_error(said.field(2 if said.code == frames.DETACH else 0))
                why = ": ".join(filter(None, error)) or "the broker ends the listener's session"
                if not self._is_artemis or (
                    said.code == frames.DETACH and self._own.handle_of(said) == NOTES
                ):
                    self._notes_refused(why)
                else:
                    self._refused(why)

    def _pump(self) -> None:
        """Send messages as far as the broker takes them, and accept the originals behind them."""
        if self._phase is not _Phase.SENDING or not self._to_send:
            return
        while self._to_send:
            number = self._own.send(self._to_send[0], self._transaction)
            if number is None:
                return
            self._to_send.popleft()
            self._unconfirmed.add(number)
        if not self._transaction:
            return
        accepted = described(frames.ACCEPTED, [])
        state = described(frames.TRANSACTIONAL_STATE, [binary(self._transaction), accepted])
        for rescue in self._current:
            fields = [TRUE, *rescue.numbers, TRUE, state]
            frame = frame_of(rescue.channel.number, frames.DISPOSITION, fields)
            self._effects.append(ToBroker(frame))

    def _answered(self, number: int, state: bytes) -> None:
        """Note the broker's answer to a message of the listener."""
        code, fields = read_described(state)
        if code == frames.REJECTED:
            self._not_taken(read_error(fields[0] if fields else amqp.NULL))
        elif number in self._unconfirmed:
            if code == frames.TRANSACTIONAL_STATE:
                code, fields = read_described(fields[1]) if len(fields) > 1 else (0, [])
            if code != frames.ACCEPTED:
                self._not_taken(read_error(fields[0] if fields else amqp.NULL))
                return
            self._unconfirmed.discard(number)
            if not self._unconfirmed and not self._to_send:
                self._all_taken()
        elif number == self._asked_id and self._phase is _Phase.DECLARING:
            transaction = amqp.scalar(fields[0]) if code == frames.DECLARED and fields else None
            if isinstance(transaction, bytes):
                self._send_batch(transaction)
            else:
                self._refused("it begins no transaction")
        elif number == self._asked_id and self._phase is _Phase.DISCHARGING:
            self._finish()

    def _all_taken(self) -> None:
        if self._transaction:
            self._phase = _Phase.DISCHARGING
            request = described(frames.DISCHARGE, [binary(self._transaction), FALSE])
            self._asked_id = self._own.ask(request)
        else:
            self._finish()

    def _finish(self) -> None:
        """Settle messages whose copies and acceptances, or notes, are safe."""
        for rescue in self._current:
            if rescue.forward:
                self._effects.append(ToBroker(rescue.forward))
            elif not rescue.said.flag(3):
                self._settle(rescue)
            outcome = NackOutcome.NOTED if rescue.forward else NackOutcome.INTERCEPTED
            self._effects.append(rescue.settled(outcome))
            ClientChannel.drop(rescue.messages)
        self._current.clear()
        self._phase = _Phase.IDLE
        self._drive()
        self._advance()

    def _settle(self, rescue: Rescue) -> None:
        """Send the client, which waits for it, the broker's part of the settlement."""
        fields = [FALSE, *rescue.numbers, TRUE, rescue.said.field(4)]
        self._say(frame_of(rescue.channel.broker_number, frames.DISPOSITION, fields))

    def _not_taken(self, error: tuple[str, str]) -> None:
        why = ": ".join(filter(None, error)) or "it did not accept the copy"
        if self._is_artemis:
            self._refused(why)
        else:
            self._notes_refused(why)

    def _notes_refused(self, why: str) -> None:
        """Write no more notes; pass on dispositions that wait for one."""
        self._notes = None
        current = [one for one in self._current if one.needs_notes]
        if self._transaction and current:
            self._refused(why)
            return
        passed = [*current, *(one for one in self._rescues if one.needs_notes)]
        self._rescues = deque(one for one in self._rescues if not one.needs_notes)
        if current:
            self._current.clear()
            self._to_send.clear()
            self._unconfirmed.clear()
            self._phase = _Phase.IDLE
        for rescue in passed:
            self._effects.append(ToBroker(rescue.raw))
            self._effects.append(rescue.settled(NackOutcome.PASSED, why))
            ClientChannel.drop(rescue.messages)
        self._drive()
        self._advance()

    def _refused(self, why: str) -> None:
        """End the connection: the broker does not take a copy, and has the original still."""
        for rescue in (*self._current, *self._rescues):
            self._effects.append(rescue.settled(NackOutcome.REFUSED, why))
        self._end(f"the broker refused a message that its consumer gave up: {why}")
