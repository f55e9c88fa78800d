"""Events to steps of lives, by numpy; Spark moves them as bytes, divided by message.

Texts become numbers here: a place or a cause by a hash of its name once per file, a message by two
hashes of its id.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Final

import msgspec
import numpy as np
import pyarrow
from numpy.typing import NDArray
from pandas.util import hash_array
from pyarrow.compute import binary_length

from amqsidecar.errors import ConfigError
from amqsidecar.model.event import (
    AnyEvent,
    Cancelled,
    DeadLettered,
    Discarded,
    DuplicateSuppressed,
    Event,
    Exhausted,
    Explained,
    OutcomeProved,
    Received,
    Redirected,
    Regrouped,
    Resent,
    Restored,
    Retried,
    Returned,
)
from amqsidecar.pipeline.places import grouped_name
from amqsidecar.pipeline.recovery.judge import (
    CONSUMED,
    FIRST_END,
    MOMENT_STEP,
    NOTED,
    NOTHING,
    QUEUED,
    RENEWED,
    STEPS,
)

DIVIDED: Final = "bucket int, content binary"
"""`STEPS` of messages of one bucket, column by column; in bucket `SEEN_BUCKET` a `Seen`."""
SEEN_BUCKET: Final = -1
TEXT_COLUMNS: Final = (
    *("stream", "type", "origin", "destination", "cause_group", "consumer", "outcome"),
    "former_group",
)
COLUMNS: Final = (*TEXT_COLUMNS, "at", "died_at", "redelivery_id", "redelivery_count")
"""Columns that are read of an event."""


def _tag(event: type[Event]) -> str:
    return str(event.__struct_config__.tag)


_KNOWN_TYPES: Final = frozenset(_tag(event) for event in AnyEvent.__args__)
"""Events of other types, of a later version, are counted and otherwise left alone."""
DEATHS: Final = (_tag(Received), _tag(Returned))
SENDS: Final = (_tag(Resent), _tag(DuplicateSuppressed))
ENDS: Final = tuple(_tag(event) for event in (Exhausted, Discarded, Cancelled, DeadLettered))
"""Acts on a message that died: sends, then ends, in the order of `judge`'s numbers."""
RENEWALS: Final = (_tag(Retried), _tag(Redirected), _tag(Restored))
"""Acts of persons after which a message that has ended begins a new life."""
_DEATH, _OTHER = -1, -2
"""In place of the number of an act."""
_KINDS: Final = {
    **dict.fromkeys(_KNOWN_TYPES, _OTHER),
    **dict.fromkeys(DEATHS, _DEATH),
    **{name: number for number, name in enumerate((*SENDS, *ENDS))},
    **dict.fromkeys(RENEWALS, RENEWED),
    _tag(Explained): NOTED,
    _tag(OutcomeProved): CONSUMED,
}
_HASH_KEYS: Final = ("amqsidecar steps", "amqsidecar check")
_LAST: Final = 2**31
"""Order of an end, which has no count: behind every event."""

_BUCKET_BITS: Final = 8
_LEAST_STEPS: Final = 200_000
"""That are divided at once: many small files make few rows of Spark."""

_Numbers = NDArray[np.int64]
_Causes = dict[tuple[int, int], tuple[int, int]]
_Merges = dict[tuple[str, str], tuple[int, str]]


class SeenStream(msgspec.Struct, array_like=True):
    """A stream of some files; times in microseconds since the epoch."""

    events: int
    unknown_types: int
    first_us: int
    last_us: int

    def add(self, other: "SeenStream") -> "SeenStream":
        """Return both as one."""
        return SeenStream(
            self.events + other.events,
            self.unknown_types + other.unknown_types,
            min(self.first_us, other.first_us),
            max(self.last_us, other.last_us),
        )


class Seen(msgspec.Struct):
    """Facts of some files beside steps.

    Attributes:
        streams: by their names.
        texts: all texts that have numbers.
        causes: number of deaths and notes, and time of the first, by origin and cause.
        merges: see `places.Merges`; times in microseconds.
        problems: place and error of an unreadable file; then nothing else counts.
    """

    streams: dict[str, SeenStream]
    texts: list[str]
    causes: _Causes = {}
    merges: _Merges = {}
    problems: list[tuple[str, str]] = []

    def add(self, other: "Seen") -> None:
        """Add streams, causes and merges; of a group the latest merge counts."""
        for name, stream in other.streams.items():
            known = self.streams.get(name)
            self.streams[name] = stream if known is None else known.add(stream)
        for place, (deaths, first_us) in other.causes.items():
            counted, known_us = self.causes.get(place, (0, first_us))
            self.causes[place] = counted + deaths, min(known_us, first_us)
        for group, merge in other.merges.items():
            self.merges[group] = max(self.merges.get(group, merge), merge)


def divided(
    batches: Iterable[pyarrow.RecordBatch], since_ms: int | None, until_ms: int | None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the steps of events as `DIVIDED`, and last the other facts (`Seen`).

    Args:
        batches: of events, with `COLUMNS`.
        since_ms: only events at or after this, in milliseconds since the epoch; None = all.
        until_ms: only events before this; None = all.
    """
    seen = Seen({}, [])
    numbers = _TextNumbers()
    waiting: list[_Numbers] = []
    try:
        for batch in batches:
            found, steps = _read(batch, numbers, since_ms, until_ms)
            seen.add(found)
            waiting.append(steps)
            if sum(one.shape[1] for one in waiting) >= _LEAST_STEPS:
                yield _in_buckets(waiting)
                waiting = []
    except ConfigError as error:
        # Why not raised: Spark would try again, and log it with a hundred lines of its own.
        seen.problems = [(one.where, one.what) for one in error.problems]
    if waiting:
        yield _in_buckets(waiting)
    seen.texts = numbers.texts()
    content = pyarrow.array([msgspec.msgpack.encode(seen)], pyarrow.binary())
    yield _rows(pyarrow.array([SEEN_BUCKET], pyarrow.int32()), content)


def seen_in(contents: Iterable[bytes]) -> Seen:
    """Return all of `Seen` as one."""
    whole = Seen({}, [])
    texts: set[str] = set()
    for content in contents:
        one = msgspec.msgpack.decode(content, type=Seen)
        whole.add(one)
        whole.problems += one.problems
        texts.update(one.texts)
    whole.texts = sorted(texts)
    return whole


def buckets_of(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
    """Yield `STEPS` of `DIVIDED`, by bucket: all of the messages that have one there."""
    parts: dict[int, list[bytes]] = {}
    for batch in batches:
        for bucket, content in zip(*(one.to_pylist() for one in batch.columns), strict=True):
            parts.setdefault(bucket, []).append(content)
    for contents in parts.values():
        matrix = np.concatenate(
            [np.frombuffer(one, np.int64).reshape(len(STEPS), -1) for one in contents], axis=1
        )
        yield pyarrow.table(list(matrix), schema=STEPS)


def text_number(text: str) -> int:
    """Return the number of a place, a cause group or a stream: a hash of 64 bits.

    In a history of a hundred thousand texts the probability of a collision is 3e-10.
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class _TextNumbers:
    """The numbers of texts, each computed once."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}

    def of(self, texts: Sequence[str | None], name: Callable[[str], str] = str) -> _Numbers:
        """Return the number of each text, after it was given its name; of None `NOTHING`."""
        return np.array([self._of(one, name) for one in texts], dtype=np.int64)

    def _of(self, text: str | None, name: Callable[[str], str]) -> int:
        if text is None:
            return NOTHING
        named = name(text)
        if named not in self._found:
            self._found[named] = text_number(named)
        return self._found[named]

    def texts(self) -> list[str]:
        return list(self._found)


def _read(
    batch: pyarrow.RecordBatch, numbers: _TextNumbers, since_ms: int | None, until_ms: int | None
) -> tuple[Seen, _Numbers]:
    """Return facts without texts, and steps as the rows of a matrix."""
    texts = {name: _encoded(batch.column(name)) for name in TEXT_COLUMNS}
    at_us = _microseconds(batch.column("at"))
    is_inside = np.ones(len(at_us), dtype=np.bool_)
    if since_ms is not None:
        is_inside &= at_us >= since_ms * 1_000
    if until_ms is not None:
        is_inside &= at_us < until_ms * 1_000
    type_codes, types = texts["type"]
    kinds = np.array([_KINDS.get(one or "", _OTHER) for one in types])[type_codes]
    is_unknown = np.array([one not in _KNOWN_TYPES for one in types])[type_codes]
    codes, names = texts["stream"]
    streams = _streams(codes, names, at_us, is_unknown, is_inside)
    ids = batch.column("redelivery_id").fill_null("")
    died_us = _microseconds(batch.column("died_at"))
    codes, names = texts["cause_group"]
    is_empty = (kinds == NOTED) & ((died_us == 0) | (codes == len(names) - 1))
    is_step = is_inside & (kinds != _OTHER) & ~is_empty
    chosen = np.flatnonzero(is_step & (binary_length(ids).to_numpy() > 0))
    act = kinds[chosen]
    is_death, is_send = act == _DEATH, (act >= 0) & (act < FIRST_END)
    is_note, is_proof = act == NOTED, act == CONSUMED
    count = batch.column("redelivery_count").cast(pyarrow.int64()).fill_null(0).to_numpy()[chosen]
    number = np.select(
        [is_death, is_send | is_proof, is_note], [count + 1, count, died_us[chosen] // 1_000], _LAST
    )
    origin, destination, cause, stream, consumer = (
        numbers.of(texts[name][1], rule)[texts[name][0][chosen]]
        for name, rule in (
            ("origin", grouped_name),
            ("destination", grouped_name),
            ("cause_group", str),
            ("stream", str),
            ("consumer", str),
        )
    )
    codes, outcomes = texts["outcome"]
    is_queued = is_proof & np.array([one == "queued" for one in outcomes])[codes[chosen]]
    turn = np.where(is_queued, QUEUED, np.maximum(act, 0))
    columns = {
        **dict(zip(("id", "check"), hashed(ids.take(chosen)), strict=True)),
        "step": number * 2 + ~is_death,
        "moment": at_us[chosen] // 1_000 * MOMENT_STEP + turn,
        "stream": stream,
        "place": np.select(
            [is_note, is_send | is_proof | (act == RENEWED)], [consumer, destination], origin
        ),
        "cause": np.where(is_death | is_note, cause, NOTHING),
    }
    steps = np.stack([columns[name].astype(np.int64) for name in STEPS.names])
    is_named = is_death | is_note
    causes = _causes(
        np.where(is_note, destination, origin)[is_named], cause[is_named], at_us[chosen][is_named]
    )
    merges = _merges(
        texts, at_us, is_inside & np.array([one == _tag(Regrouped) for one in types])[type_codes]
    )
    return Seen(streams, [], causes, merges), steps


def _microseconds(times: pyarrow.Array) -> _Numbers:
    """Return times since the epoch; 0 in place of null."""
    whole = times.cast(pyarrow.timestamp("us"), safe=False).cast(pyarrow.int64())
    found: _Numbers = whole.fill_null(0).to_numpy()
    return found


def _causes(place: _Numbers, cause: _Numbers, at_us: _Numbers) -> _Causes:
    """Return `Seen.causes` of deaths and of notes on them."""
    named = pyarrow.table([place, cause, at_us], ["place", "cause", "at"])
    found = named.group_by(["place", "cause"]).aggregate([("at", "count"), ("at", "min")])
    rows = (found.column(one).to_pylist() for one in ("place", "cause", "at_count", "at_min"))
    return {
        (where, of): (deaths, first_us)
        for where, of, deaths, first_us in zip(*rows, strict=True)
        if of != NOTHING
    }


def _merges(
    texts: Mapping[str, tuple[_Numbers, list[str | None]]],
    at_us: _Numbers,
    chosen: NDArray[np.bool_],
) -> _Merges:
    """Return `Seen.merges` of the chosen events."""
    rows = np.flatnonzero(chosen)
    names = ("destination", "former_group", "cause_group")
    columns = [[texts[name][1][code] or "" for code in texts[name][0][rows]] for name in names]
    found: _Merges = {}
    for place, former, group, at in sorted(
        zip(*columns, at_us[rows].tolist(), strict=True), key=itemgetter(3)
    ):
        found[grouped_name(place), former] = at, group
    return found


def _encoded(column: pyarrow.Array) -> tuple[_Numbers, list[str | None]]:
    """Return the place of each value in a list of texts, and this list; the last is None."""
    if not pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    texts = column.dictionary.to_pylist()
    return column.indices.fill_null(len(texts)).to_numpy(), [*texts, None]


def _streams(
    codes: _Numbers,
    names: Sequence[str | None],
    at_us: _Numbers,
    is_unknown: NDArray[np.bool_],
    is_inside: NDArray[np.bool_],
) -> dict[str, SeenStream]:
    found = {}
    for code in np.flatnonzero(np.bincount(codes[is_inside])).tolist():
        of_it = is_inside & (codes == code)
        times = at_us[of_it]
        unknown = int(np.count_nonzero(is_unknown & of_it))
        found[str(names[code])] = SeenStream(
            len(times), unknown, int(times.min()), int(times.max())
        )
    return found


# Messages to numbers


def hashed(texts: pyarrow.StringArray) -> tuple[_Numbers, _Numbers]:
    """Return two independent hashes, each of 64 bits (SipHash), of texts.

    Why two: of a hundred million texts two have the same by a chance of 3e-4.
    """
    words = texts.to_numpy(zero_copy_only=False)
    first, second = (hash_array(words, hash_key=key, categorize=False) for key in _HASH_KEYS)
    return first.view(np.int64), second.view(np.int64)


# Steps to bytes


def _in_buckets(parts: Sequence[_Numbers]) -> pyarrow.RecordBatch:
    """Return steps as `DIVIDED`, in buckets by the highest bits of their ids."""
    steps = np.concatenate(parts, axis=1)
    buckets = (steps[0].view(np.uint64) >> np.uint64(64 - _BUCKET_BITS)).astype(np.uint8)
    order = np.argsort(buckets, kind="stable")
    ends = np.cumsum(np.bincount(buckets, minlength=1 << _BUCKET_BITS))
    starts = np.append(0, ends[:-1])
    there = np.flatnonzero(ends > starts)
    content = np.empty(steps.size, dtype=np.int64)
    width = len(steps)
    for start, end in zip(starts[there], ends[there], strict=True):
        place = content[start * width : end * width].reshape(width, -1)
        # Why clipped: else numpy takes into a buffer first.
        np.take(steps, order[start:end], axis=1, out=place, mode="clip")
    offsets = np.append(starts[there], len(order)).astype(np.int32) * content.itemsize * width
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(content)]
    packed = pyarrow.Array.from_buffers(pyarrow.binary(), len(there), buffers)
    return _rows(pyarrow.array(there, pyarrow.int32()), packed)


def _rows(buckets: pyarrow.Array, contents: pyarrow.Array) -> pyarrow.RecordBatch:
    return pyarrow.RecordBatch.from_arrays([buckets, contents], ["bucket", "content"])
