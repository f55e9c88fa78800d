"""Dispositions of consumers, and the notes that keep them (`cause-notes.md`); no IO."""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from amqsidecar.errors import UndecodableMessage
from amqsidecar.formats import amqp_frames as frames
from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_frames import TRUE, Performative, read_described
from amqsidecar.listener.amqp.own_session import NOTES, Parcel
from amqsidecar.listener.session import GiveUp
from amqsidecar.model.cause_note import DELAY_MAX_MS, WORD_MAX, CauseNote, RetryAfter
from amqsidecar.model.sidecar_names import PROPERTY_REDELIVERY_COUNT

_TEXT_MAX: Final = 8_000
_COUNT_KEY: Final = amqp.string(PROPERTY_REDELIVERY_COUNT)
_DELIVERY_TIME, _DELIVERY_DELAY = "x-opt-delivery-time", "x-opt-delivery-delay"


class NoteSettings(NamedTuple):
    """How notes are written.

    Attributes:
        queue: in which the sidecar reads them.
        are_obeyed: it obeys a delay that a note names.
        now_ms: the time, in milliseconds since the epoch.
    """

    queue: str
    are_obeyed: bool
    now_ms: Callable[[], int]


class Answer(NamedTuple):
    """How a consumer gave messages up.

    Attributes:
        how: `REJECTED` or `MODIFIED`.
        condition, description: of its error; "" = none.
        delay_ms: after which it wants them again; 0 = it does not say.
    """

    how: GiveUp
    condition: str = ""
    description: str = ""
    delay_ms: int = 0

    @property
    def reason(self) -> str:
        """Its error in one line; "" = none."""
        return ": ".join(one for one in (self.condition, self.description) if one)


def read_answer(said: Performative, now_ms: int) -> Answer | None:
    """Return how a frame of a client gives messages up; None = it does not.

    Raises:
        UndecodableMessage: it is not well-formed.
    """
    if said.code != frames.DISPOSITION or not said.flag(0):
        return None
    state, fields = read_described(said.field(4))
    if state == frames.REJECTED:
        return Answer(GiveUp.REJECTED, *read_error(fields[0] if fields else amqp.NULL))
    is_failed = state == frames.MODIFIED and bool(fields) and amqp.scalar(fields[0]) is True
    delay_ms = _chosen_delay_ms(fields[2], now_ms) if is_failed and len(fields) > 2 else 0
    return Answer(GiveUp.MODIFIED, delay_ms=delay_ms) if delay_ms > 0 else None


def read_error(error: bytes) -> tuple[str, str]:
    """Return condition and description of an encoded error; "" = none."""
    code, fields = read_described(error)
    said = [amqp.scalar(one) for one in (fields[:2] if code == frames.ERROR else [])]
    condition, description = (*(one if isinstance(one, str) else "" for one in said), "", "")[:2]
    return condition, description


def _chosen_delay_ms(annotations: bytes, now_ms: int) -> int:
    if annotations == amqp.NULL:
        return 0
    items = amqp.items(annotations)
    # Why scalar: they are symbols, but rhea writes strings.
    for name, value in zip(items[::2], items[1::2], strict=False):
        key = amqp.scalar(name)
        if key in (_DELIVERY_TIME, _DELIVERY_DELAY):
            chosen = amqp.scalar(value)
            if isinstance(chosen, int):
                delay_ms = chosen - now_ms if key == _DELIVERY_TIME else chosen
                return min(delay_ms, DELAY_MAX_MS)
    return 0


class Identity(NamedTuple):
    """The properties that join a note with its message.

    Attributes:
        message_id: as text.
        redelivery_count: by a sidecar, so far; None = it does not show it.
        is_durable: the producer sent it as durable.
    """

    message_id: str
    redelivery_count: int | None
    is_durable: bool


def read_identity(beginning: bytes) -> Identity | None:
    """Return the identity of an encoded message; None = it has none, or can't be read.

    Args:
        beginning: up to the first byte of its body.
    """
    try:
        sections, _ = amqp.split_head(beginning)
        header = sections.get(amqp.HEADER)
        properties = sections.get(amqp.PROPERTIES)
        if properties is None:
            return None
        shown = amqp.shown_id(amqp.scalar(amqp.first_element(properties)))
        application = sections.get(amqp.APPLICATION_PROPERTIES)
        pairs = [] if application is None else amqp.pairs(application)
        counts = [
            value for key, value in zip(pairs[::2], pairs[1::2], strict=True) if key == _COUNT_KEY
        ]
        count = amqp.scalar(counts[0]) if counts else None
        is_durable = header is not None and amqp.scalar(amqp.first_element(header)) is True
    except UndecodableMessage:
        return None
    known = count if isinstance(count, int) and count >= 0 else None
    return Identity(shown, known, is_durable) if shown else None


def note_of(identity: Identity, answer: Answer, consumer: str, queue: str) -> Parcel:
    """Return the note that keeps a consumer's answer about a message of a queue."""
    note = CauseNote(
        message_id=identity.message_id,
        redelivery_count=identity.redelivery_count,
        queue=queue,
        exception=answer.condition[:WORD_MAX],
        text=answer.description[:_TEXT_MAX],
        consumer=consumer[:WORD_MAX],
        verdict=RetryAfter(answer.delay_ms) if answer.delay_ms else None,
    )
    text = amqp.string(msgspec.json.encode(note).decode())
    encoded = _DURABLE + b"\x00\x53\x77" + text
    return Parcel(NOTES, len(encoded), lambda: iter((encoded,)))


_DURABLE: Final = amqp.make_list(amqp.HEADER, [TRUE])
