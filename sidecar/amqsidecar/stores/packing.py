"""Packed forms in the store: id sets and event lists of a cycle, and large messages."""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

import msgspec

from amqsidecar.errors import StoreUnavailable
from amqsidecar.model.event import AnyEvent, Received
from amqsidecar.model.failure import CountFields, FailureGroup, Failures
from amqsidecar.model.schedule import ExhaustedTally, GateTally

_S = TypeVar("_S", bound=msgspec.Struct)

PLAIN, DEFLATED = 0, 1

EVENTS_BYTES_MAX = 128 << 20
"""Bytes that a deflated block may unpack to; larger blocks are kept as they are."""

HISTORY_MAX = 2_000
"""Events of one message that are read: a message may die for ever, each time with a long cause."""

# Why: 600 KB of JSON per thousand messages shrink to a tenth for some µs per message; a small list
# would grow.
_DEFLATE_FROM_BYTES = 512

# Why: from here on deflating text takes no more of the processor than writing it to the disk twice
# and reading it again, and half of a page or more stays empty beside each such message.
_DEFLATE_MESSAGE_FROM_BYTES = 4096
_SAMPLE_BYTES = 4096
_DEFLATED_AT_ONCE_BYTES = 1 << 18
_WORTH = 0.75


class TallyDelta(NamedTuple):
    """A change of a count of rows; texts and state are numbers.

    Attributes:
        cause_group: unset if packed before causes were grouped.
        final_queue: of exhausted rows; 0 = of rows in any other state.
        is_final: of exhausted rows: whether they lie in it.
    """

    destination: int
    state: int
    difference: int
    cause_group: int = 0
    final_queue: int = 0
    is_final: bool = False


class _Named(msgspec.Struct, gc=False):
    """The fields that identify the message of an event."""

    redelivery_id: str = ""


_encode_events = msgspec.json.Encoder().encode
_decode_events = msgspec.json.Decoder(list[AnyEvent]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_event = msgspec.json.Decoder(AnyEvent).decode
_decode_named = msgspec.json.Decoder(_Named).decode
_encode_numbers = msgspec.msgpack.Encoder().encode
_decode_numbers = msgspec.msgpack.Decoder(list[int]).decode
_decode_deltas = msgspec.msgpack.Decoder(list[TallyDelta]).decode
_decode_failures = msgspec.msgpack.Decoder(
    tuple[list[tuple[CountFields, int]], list[FailureGroup]]
).decode
_decode_holds = msgspec.msgpack.Decoder(dict[str, int]).decode


def pack_events(events: Sequence[AnyEvent]) -> tuple[int, bytes]:
    """Return the name of the packing, and the packed events."""
    try:
        body = _encode_events(events)
    except UnicodeEncodeError:
        body = _encode_events(_storable_parts(msgspec.to_builtins(events)))
    if not _DEFLATE_FROM_BYTES <= len(body) <= EVENTS_BYTES_MAX:
        return PLAIN, body
    return DEFLATED, zlib.compress(body, 1)


def keys_of(events: Sequence[AnyEvent]) -> set[str]:
    """Return the keys by which the index of blocks finds events."""
    keys = {event.redelivery_id for event in events}
    keys |= {event.life for event in events if isinstance(event, Received)}
    return keys - {""}


def block_values(events: Sequence[AnyEvent]) -> dict[str, Any]:
    """Return events as values of the queries that write a block."""
    packing, body = pack_events(events)
    return {
        "newest_at_ms": max(event.at_ms for event in events),
        "event_count": len(events),
        "packing": packing,
        "body": body,
    }


def unpack_events(packing: int, body: bytes) -> list[AnyEvent]:
    """Unpack the result of `pack_events`.

    Raises:
        StoreUnavailable: it is damaged, of a newer version, or has more than `EVENTS_BYTES_MAX`.
    """
    with _reading():
        return _decode_events(_plain(packing, body))


def _plain(packing: int, body: bytes) -> bytes:
    return body if packing == PLAIN else _inflated(body, EVENTS_BYTES_MAX)


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except msgspec.ValidationError as error:
        raise of_newer_version(error) from error
    except msgspec.DecodeError as error:
        raise _damaged(f"a block of events can't be read: {error}") from error


def _inflated(packed: bytes, bytes_max: int) -> bytes:
    inflater, plain = zlib.decompressobj(), BytesIO()
    view = memoryview(packed)
    try:
        # Why in pieces: at once, a large message would be in memory twice.
        for at in range(0, len(view), _DEFLATED_AT_ONCE_BYTES):
            piece = view[at : at + _DEFLATED_AT_ONCE_BYTES]
            plain.write(inflater.decompress(piece, bytes_max + 1 - plain.tell()))
            if plain.tell() > bytes_max:
                raise _damaged(f"{len(packed)} bytes unpack to more than {bytes_max}")
    except zlib.error as error:
        raise _damaged(str(error)) from error
    if not inflater.eof:
        raise _damaged(f"{len(packed)} packed bytes are cut off")
    return plain.getvalue()


def of_newer_version(error: msgspec.ValidationError) -> StoreUnavailable:
    """Return the error for a value that only a newer version can read."""
    return StoreUnavailable(f"a newer amqsidecar wrote into the store, run that one: {error}")


def _damaged(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store is damaged: {what}; stop the service and recover it from a backup"
    )


def events_called(blocks: Iterable[tuple[int, bytes]], name: str) -> Iterator[str]:
    """Return redelivery ids of events by the id of their messages or a row's number; may repeat.

    Args:
        blocks: how events are packed, and the packed events.
        name: the id that consumers saw, storable, or the number of a row.
    """
    row_id = int(name) if name.isascii() and name.isdecimal() and len(name) < 20 else 0
    quoted, numbered = msgspec.json.encode(name), b'"id":%d' % row_id
    for packing, body in blocks:
        plain = _plain(packing, body)
        # Why: to decode all that was ever written takes ten times as long.
        if quoted in plain or (row_id and numbered in plain):
            with _reading():
                events = _decode_events(plain)
            for event in events:
                is_row = bool(row_id) and event.id == row_id
                if is_row or (isinstance(event, Received) and event.message_id == name):
                    yield event.redelivery_id


def of_message(
    blocks: Iterable[tuple[int, bytes]], is_meant: Callable[[str], bool]
) -> list[AnyEvent]:
    """Return the events of blocks that concern a message, the latest `HISTORY_MAX` at most.

    Args:
        blocks: how events are packed, and the packed events.
        is_meant: whether it is the message of a redelivery id.

    Raises:
        StoreUnavailable: as `unpack_events`.
    """
    found = (
        _decode_event(one)
        for packing, body in blocks
        for one in _decode_list(_plain(packing, body))
        if is_meant(_decode_named(one).redelivery_id)
    )
    with _reading():
        return list(deque(found, HISTORY_MAX))


def pack_message(message: bytes) -> bytes:
    """Return the message, or fewer bytes from which `unpack_message` restores it."""
    size = len(message)
    if size < _DEFLATE_MESSAGE_FROM_BYTES:
        return message
    # Why a sample: compressed bodies should cost little.
    middle = (size - _SAMPLE_BYTES) // 2
    sample = message[middle : middle + _SAMPLE_BYTES]
    if len(zlib.compress(sample, 1)) > _WORTH * _SAMPLE_BYTES:
        return message
    return _deflated(message, int(_WORTH * size)) or message


def _deflated(message: bytes, bytes_max: int) -> bytes | None:
    """Return the deflated message; None = it has more bytes than that."""
    deflater, view, packed = zlib.compressobj(1), memoryview(message), BytesIO()
    # Why in pieces: at once, a large message would be in memory three times.
    for at in range(0, len(message), _DEFLATED_AT_ONCE_BYTES):
        packed.write(deflater.compress(view[at : at + _DEFLATED_AT_ONCE_BYTES]))
        if packed.tell() > bytes_max:
            return None
    packed.write(deflater.flush())
    return packed.getvalue() if packed.tell() <= bytes_max else None


def unpack_message(body: bytes, size_bytes: int) -> bytes:
    """Return a message of this size, unpacked from the result of `pack_message`.

    Raises:
        StoreUnavailable: it is damaged, or has more bytes.
    """
    return body if len(body) == size_bytes else _inflated(body, size_bytes)


def storable(text: str) -> str:
    r"""Return a text that UTF-8 can encode; other characters are escaped.

    Example:
        >>> storable("a\ud800")
        'a\\ud800'
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def structs_of(kind: type[_S], rows: Iterable[Sequence[Any]]) -> list[_S]:
    """Return rows of a query, whose columns are the fields of a struct in their order."""
    names = kind.__struct_fields__
    return [msgspec.convert(dict(zip(names, row, strict=True)), kind) for row in rows]


def runs_of(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers, each with its first and last.

    Example:
        >>> runs_of([3, 1, 2, 7])
        [(1, 3), (7, 7)]
    """
    runs: list[tuple[int, int]] = []
    first = last = -1
    for number in sorted(set(ids)):
        if number == last + 1 and last >= 0:
            last = number
            continue
        if last >= 0:
            runs.append((first, last))
        first = last = number
    if last >= 0:
        runs.append((first, last))
    return runs


def pack_runs(runs: Iterable[tuple[int, int]]) -> bytes:
    """Return the runs as bytes."""
    return _encode_numbers([number for run in runs for number in run])


def unpack_runs(body: bytes) -> list[tuple[int, int]]:
    """Unpack the result of `pack_runs`."""
    numbers = _decode_numbers(body)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


unpack_deltas = _decode_deltas
"""Unpack the result of `pack_deltas`."""


def pack_deltas(deltas: Iterable[TallyDelta]) -> bytes:
    """Return differences of tallies as bytes."""
    return _encode_numbers(list(deltas))


def pack_failures(failures: Failures) -> bytes:
    """Return the additions of a cycle to the counts of failures, as bytes."""
    counts = [
        ((bucket_ms, kind, storable(destination), group, attempt), count)
        for (bucket_ms, kind, destination, group, attempt), count in failures.counts.items()
    ]
    groups = [
        msgspec.structs.replace(
            group,
            destination=storable(group.destination),
            example_id=storable(group.example_id),
        )
        for group in failures.groups.values()
    ]
    return _encode_numbers((counts, groups))


def unpack_failures(body: bytes) -> Failures:
    """Unpack the result of `pack_failures`."""
    counts, groups = _decode_failures(body)
    return Failures(dict(counts), {(one.destination, one.cause_group): one for one in groups})


def pack_struct(value: msgspec.Struct) -> bytes:
    """Return a value as JSON; characters that UTF-8 can't encode are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable_parts(msgspec.to_builtins(value)))


def _storable_parts(value: object) -> object:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {name: _storable_parts(part) for name, part in value.items()}
    return [_storable_parts(part) for part in value] if isinstance(value, list | tuple) else value


pack_holds: Callable[[dict[str, int]], bytes] = _encode_numbers
"""Return as bytes the dead letters taken out of the backlog, by source."""

unpack_holds = _decode_holds
"""Unpack the result of `pack_holds`."""


def exhausted_tallies(rows: Iterable[tuple[Any, ...]]) -> list[ExhaustedTally]:
    """Return rows of a query for where exhausted messages are, the largest number first."""
    found = structs_of(ExhaustedTally, rows)
    return sorted(found, key=lambda one: (-one.count, one.queue, one.destination, one.is_in_queue))


def gate_tallies(rows: Iterable[tuple[Any, ...]]) -> list[GateTally]:
    """Return rows of a query for messages that gates delay, the largest number first."""
    found = structs_of(GateTally, rows)
    return sorted(found, key=lambda one: (-one.count, one.destination, one.gate))
