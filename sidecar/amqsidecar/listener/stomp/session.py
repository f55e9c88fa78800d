"""One client's connection over STOMP as a state machine: bytes in, bytes and effects out; no IO.

Every byte goes through unchanged, except a NACK: on Artemis it would destroy the message. So the
message, kept from its MESSAGE frame, is sent to the intake queue over the client's own connection.
When the broker's receipt confirms the send, the original is acknowledged.

Why not in one transaction: Artemis acknowledges at once, ignoring the transaction of an ACK. If the
connection ends in between, the consumer gets the message again. Its next NACK makes a copy with the
same duplicate id, which the broker drops.

Until the receipt, only NACKs and heart-beats are read from the client: a cumulative ACK, or a
DISCONNECT, could otherwise acknowledge a message whose copy is refused.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from amqsidecar.formats.interception_seal import CopyKeysOf
from amqsidecar.formats.stomp_frame import read_head
from amqsidecar.formats.stomp_stream import (
    HEAD_BYTES_MAX,
    LOGIN_BYTES_MAX,
    Piece,
    PieceKind,
    StreamCutter,
    command_of,
    header_lines,
    raw_header,
)
from amqsidecar.listener.bodies import BodyBudget
from amqsidecar.listener.session import (
    BodyToBroker,
    ClientSession,
    Effect,
    GiveUp,
    NackOutcome,
    OnFailure,
    Settled,
    ToBroker,
    ToClient,
)
from amqsidecar.listener.stomp.rescue import Nack, ack_frame, reason_of, send_head
from amqsidecar.listener.stomp.unacked import ENTRY_BYTES, Deliveries, UnackedMessage

AT_ONCE_MAX: Final = 256
"""Maximum interceptions whose receipts are awaited at a time."""

_FIRST_WORDS: Final = (b"CONNECT\n", b"CONNECT\r\n", b"STOMP\n", b"STOMP\r\n")
_WEB: Final = b"GET "


@dataclass(slots=True)
class _Rescue:
    """One NACK whose copies are on their way; `missing` are their receipts."""

    messages: list[UnackedMessage]
    count: int
    missing: int
    then: bytes


class _Commit(NamedTuple):
    """A COMMIT whose receipt is awaited before the transaction's NACKs are saved.

    Attributes:
        receipt: ours.
        nacks: heads of the NACK frames.
        client_receipt: the client's own receipt header, encoded; b"" = none.
    """

    receipt: bytes
    nacks: list[bytes]
    client_receipt: bytes


class StompSession(ClientSession):
    """The two directions of one connection.

    Attributes:
        login: of the client's CONNECT; "" = none, or not yet.
    """

    _from_client: StreamCutter
    _from_broker: StreamCutter

    def __init__(
        self,
        budget: BodyBudget,
        key: str,
        on_failure: OnFailure,
        prefixes: tuple[str, ...] = (),
        keys: CopyKeysOf | None = None,
    ) -> None:
        """Begin with a connection that was just made."""
        super().__init__(on_failure, prefixes, keys)
        self._from_client, self._from_broker = StreamCutter(), StreamCutter()
        self._waiting: deque[Piece] = deque()
        self._from_client.head_bytes_max = LOGIN_BYTES_MAX
        self._client_id = ""
        self._key = key
        self._names = 0
        self._is_known = False
        self._is_dropping = False
        self._deliveries = Deliveries(budget)
        self._arriving: UnackedMessage | None = None
        self._rescues: deque[_Rescue] = deque()
        self._receipts: dict[bytes, _Rescue] = {}
        self._transactions: dict[bytes, list[bytes]] = {}
        self._transaction_bytes = 0
        self._commit: _Commit | None = None
        self._is_hiding = self._hides_line_end = False

    # What the relay asks

    @property
    def is_rescuing(self) -> bool:
        """Whether something was sent whose receipt is missing."""
        return bool(self._rescues) or self._commit is not None

    def from_client(self, data: bytes) -> list[Effect]:
        """Take in bytes of the client."""
        if not self._is_known:
            data = self._know(data)
        if self._client_is_plain:
            return self._done([ToBroker(data)] if data else [])
        self._waiting += self._from_client.feed(data)
        self._advance()
        if self._from_client.problem:
            self._give_up_client()
        return self._done()

    def from_broker(self, data: bytes) -> list[Effect]:
        """Take in bytes of the broker."""
        if self._broker_is_plain:
            return self._done([ToClient(data)])
        out: list[bytes] = []
        for piece in self._from_broker.feed(data):
            if piece.kind is PieceKind.BLANK:
                out.append(self._without_line_end(piece.raw))
                continue
            passes = self._take_broker_piece(piece)
            self._hides_line_end = not passes and piece.kind in _ENDS
            if passes:
                out.append(piece.raw)
            if self._said and piece.kind in _ENDS:
                out += self._said
                self._said.clear()
        if self._from_broker.problem:
            # Why no end here: a NACK of a message that was not seen is a failure of its own.
            self._broker_is_plain = True
            out.append(self._from_broker.rest())
        if out:
            self._effects.insert(0, ToClient(b"".join(out)))
        return self._done()

    @property
    def _named_bytes(self) -> int:
        of_open = self._transaction_bytes + self._deliveries.subscription_bytes
        return len(self._client_id) + of_open

    def close(self) -> None:
        """Release the space of all kept bodies."""
        self._deliveries.clear()
        for rescue in self._rescues:
            self._deliveries.drop(rescue.messages)

    # The client's side

    def _know(self, data: bytes) -> bytes:
        """Detect by the first bytes whether the client speaks STOMP; return bytes to pass on."""
        data = self._from_client.rest() + data
        begin = data.lstrip(b"\r\n")[:9]
        if any(begin.startswith(word) for word in _FIRST_WORDS):
            self._is_known = True
            return data
        if any(word.startswith(begin) for word in (*_FIRST_WORDS, _WEB)):
            self._from_client.hold(data)
            return b""
        self._is_known = self._client_is_plain = self._broker_is_plain = True
        self.is_logged_in = True
        if said := self._from_broker.rest():
            self._effects.append(ToClient(said))
        if begin.startswith(_WEB) and self._on_failure is OnFailure.CLOSED:
            self._end("STOMP over WebSocket is not intercepted")
            return b""
        return data

    def _give_up_client(self) -> None:
        if self._on_failure is OnFailure.CLOSED:
            self._end(f"the client's input can't be parsed: {self._from_client.problem}")
        else:
            self._client_is_plain = True
            # Why as blank: the rest follows all that waits, also within a frame that is dropped.
            self._waiting.append(Piece(PieceKind.BLANK, self._from_client.rest()))
            self._advance()

    def _advance(self) -> None:
        """Pass on the client's bytes until they have to wait."""
        out: list[bytes] = []
        while self._waiting and not self._is_over:
            piece = self._waiting[0]
            if piece.kind in (PieceKind.WHOLE, PieceKind.HEAD):
                if not self._may_pass(command_of(piece.head)):
                    break
                self._waiting.popleft()
                mark = len(self._effects)
                passed = self._client_frame(piece)
                if out and len(self._effects) > mark:
                    self._effects.insert(mark, ToBroker(b"".join(out)))
                    out.clear()
                if passed:
                    out.append(piece.raw)
                elif piece.kind is PieceKind.HEAD:
                    self._is_dropping = True
                continue
            self._waiting.popleft()
            if not self._is_dropping or piece.kind is PieceKind.BLANK:
                out.append(piece.raw)
            elif piece.kind is PieceKind.END:
                self._is_dropping = False
        if out:
            self._effects.append(ToBroker(b"".join(out)))

    def _may_pass(self, command: bytes) -> bool:
        if self._commit is not None:
            return False
        return not self._rescues or (command == b"NACK" and len(self._receipts) < AT_ONCE_MAX)

    def _client_frame(self, piece: Piece) -> bool:
        """Follow a frame of the client; return whether it is passed on unchanged."""
        command = command_of(piece.head)
        if command not in _NOTED:
            return True
        headers = dict(reversed(read_head(header_lines(piece.head))))
        match command:
            case b"NACK":
                return self._nack(piece.head, headers)
            case b"ACK":
                return self._ack(piece.head, headers)
            case b"COMMIT":
                return self._commit_frame(piece.head, headers)
            case b"BEGIN":
                self._end_transaction(headers)
                name = headers.get(b"transaction", b"")
                self._transactions[name] = []
                self._transaction_bytes += len(name) + ENTRY_BYTES
            case b"ABORT":
                self._end_transaction(headers)
                self._deliveries.abort(headers.get(b"transaction", b""))
            case b"SUBSCRIBE":
                self._deliveries.subscribe(headers)
            case b"UNSUBSCRIBE":
                self._deliveries.unsubscribe(headers.get(b"id", b""))
            case _:
                self.login = headers.get(b"login", b"").decode(errors="replace")
                self._client_id = headers.get(b"client-id", b"").decode(errors="replace")
        return True

    def _ack(self, head: bytes, headers: dict[bytes, bytes]) -> bool:
        covered = self._deliveries.covered(headers)
        given_up = [one for one in covered if one.given_up_in]
        is_cumulative = len(covered) > 1
        if is_cumulative and given_up:
            # Why: the broker acknowledges them with this one, even if their transaction aborts.
            return self._save(head, covered, given_up, raw_header(head, b"receipt"))
        self._deliveries.drop(covered)
        return True

    def _nack(self, head: bytes, headers: dict[bytes, bytes]) -> bool:
        if not self._deliveries.is_destroying_nacks:
            return True
        covered = self._deliveries.covered(headers)
        if not covered:
            return not self._broker_is_plain or self._failed(
                GiveUp.NACK, 1, "its delivery was not seen"
            )
        transaction = headers.get(b"transaction", b"")
        if transaction in self._transactions:
            for one in covered:
                one.given_up_in = transaction
            self._transactions[transaction].append(head)
            self._transaction_bytes += len(head)
            if b"receipt" in headers:
                self._say(b"RECEIPT\nreceipt-id:%b\n\n\0" % raw_header(head, b"receipt"))
            return False
        return self._save(head, covered, covered, raw_header(head, b"receipt"))

    def _save(
        self,
        head: bytes,
        covered: list[UnackedMessage],
        saved: list[UnackedMessage],
        receipt: bytes = b"",
    ) -> bool:
        """Send copies, then the frame as an ACK; return whether the frame is passed on instead.

        Args:
            covered: messages that the frame names.
            saved: of these, the messages given up.
            receipt: id that the ACK asks for, escaped; b"" = none.
        """
        known = self._deliveries
        if not all(one.is_whole for one in saved):
            known.drop(covered)
            return self._failed(GiveUp.NACK, len(saved), "no room was left to keep it")
        user, reason = self.login or self._client_id or "a STOMP client", reason_of(head)
        nack = Nack(user, self._client_id, known.session, reason, self._prefixes, known.version)
        key = self._sealing_key
        receipts = [self._name() for _ in saved]
        sent = list(zip(saved, receipts, strict=True))
        try:
            heads = [send_head(one, nack, own_receipt, key) for one, own_receipt in sent]
        except OSError as error:
            known.drop(covered)
            why = f"what was kept of it can't be read: {error}"
            return self._failed(GiveUp.NACK, len(saved), why)
        known.take(covered)
        rescue = _Rescue(covered, len(saved), len(saved), ack_frame(head, receipt))
        for (one, own_receipt), copy in zip(sent, heads, strict=True):
            self._receipts[own_receipt] = rescue
            self._effects += (ToBroker(copy), BodyToBroker(one.body), ToBroker(b"\0"))
        self._rescues.append(rescue)
        return False

    def _commit_frame(self, head: bytes, headers: dict[bytes, bytes]) -> bool:
        nacks = self._end_transaction(headers)
        if not nacks:
            return True
        receipt = self._name()
        self._commit = _Commit(receipt, nacks, raw_header(head, b"receipt"))
        named = raw_header(head, b"transaction")
        self._effects.append(
            ToBroker(b"COMMIT\ntransaction:%b\nreceipt:%b\n\n\0" % (named, receipt))
        )
        return False

    def _end_transaction(self, headers: dict[bytes, bytes]) -> list[bytes]:
        """Forget a transaction; return the heads of the NACKs in it."""
        name = headers.get(b"transaction", b"")
        nacks = self._transactions.pop(name, None)
        if nacks is None:
            return []
        self._transaction_bytes -= len(name) + ENTRY_BYTES + sum(map(len, nacks))
        return nacks

    def _committed(self, commit: _Commit) -> None:
        """Save the messages given up in a committed transaction."""
        self._commit = None
        for head in commit.nacks:
            covered = self._deliveries.covered(dict(reversed(read_head(header_lines(head)))))
            saved = [one for one in covered if one.given_up_in]
            if not saved:
                continue
            is_passed = self._save(head, covered, saved)
            if self._is_over:
                return
            if is_passed:
                self._effects.append(ToBroker(ack_frame(head)))
        if not commit.client_receipt:
            return
        asked = commit.client_receipt
        if self._rescues:
            # Why: the client must get the commit's receipt after its given-up messages are safe.
            last = self._rescues[-1]
            last.then = last.then[:-2] + b"receipt:%b\n\n\0" % asked
        else:
            self._say(b"RECEIPT\nreceipt-id:%b\n\n\0" % asked)

    # The broker's side

    def _take_broker_piece(self, piece: Piece) -> bool:
        """Follow a piece of the broker; return whether the client gets it."""
        kind = piece.kind
        if kind is PieceKind.WHOLE or kind is PieceKind.HEAD:
            return self._broker_frame(piece)
        arriving = self._arriving
        if arriving is not None:
            if kind is PieceKind.BODY:
                arriving.body.add(piece.raw)
            elif kind is PieceKind.END:
                arriving.is_here = True
                self._arriving = None
        is_hidden = self._is_hiding
        if kind is PieceKind.END:
            self._is_hiding = False
        return not is_hidden

    def _without_line_end(self, blank: bytes) -> bytes:
        """Return line ends without the one that belongs to a hidden frame.

        Quirk (stomp.py): it drops a frame behind two of them.
        """
        if not self._hides_line_end:
            return blank
        left = blank.removeprefix(b"\r")
        self._hides_line_end = not left
        return left.removeprefix(b"\n")

    def _broker_frame(self, piece: Piece) -> bool:
        head = piece.head
        command = command_of(head)
        if command == b"MESSAGE":
            message = self._deliveries.begin(head)
            if message is not None and piece.kind is PieceKind.WHOLE:
                message.body.add(piece.body)
                message.is_here = True
            else:
                self._arriving = message
        elif command == b"RECEIPT":
            if self.is_rescuing and self._is_ours(raw_header(head, b"receipt-id")):
                self._is_hiding = piece.kind is PieceKind.HEAD
                return False
        elif command == b"CONNECTED":
            self.is_logged_in = True
            self._from_client.head_bytes_max = HEAD_BYTES_MAX
            self._deliveries.connected(dict(reversed(read_head(header_lines(head)))))
        elif command == b"ERROR" and self.is_rescuing:
            why = raw_header(head, b"message").decode(errors="replace")
            count = sum(one.missing for one in self._rescues) or 1
            self._effects.append(Settled(GiveUp.NACK, NackOutcome.REFUSED, count, why))
            self._end(f"the broker refused a message that its consumer gave up: {why}")
        return True

    def _is_ours(self, receipt: bytes) -> bool:
        """Take a receipt that is ours; return whether it was."""
        commit = self._commit
        if commit is not None and commit.receipt == receipt:
            self._committed(commit)
            self._advance()
            return True
        rescue = self._receipts.pop(receipt, None)
        if rescue is None:
            return False
        rescue.missing -= 1
        while self._rescues and not self._rescues[0].missing:
            done = self._rescues.popleft()
            self._effects.append(ToBroker(done.then))
            self._effects.append(Settled(GiveUp.NACK, NackOutcome.INTERCEPTED, done.count))
            self._deliveries.drop(done.messages)
        self._advance()
        return True

    def _name(self) -> bytes:
        self._names += 1
        return b"%b-%d" % (self._key.encode(), self._names)


_ENDS: Final = (PieceKind.WHOLE, PieceKind.END)
_NOTED: Final = frozenset(
    (
        *(b"CONNECT", b"STOMP", b"SUBSCRIBE", b"UNSUBSCRIBE", b"ACK", b"NACK"),
        *(b"BEGIN", b"COMMIT", b"ABORT"),
    )
)
