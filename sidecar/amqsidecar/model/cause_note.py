"""A note of a consumer: why it failed on a message, and its advice (`cause-notes.md`).

Each client with the right to write to the queue of notes may write one, so each part is bounded
here. A note changes nothing but the cause, unless verdicts are obeyed.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from amqsidecar.errors import UndecodableMessage
from amqsidecar.model.cause import LINE_MAX, bounded_cause, cause_group
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.provenance import kept_message_id
from amqsidecar.model.signal import (
    DEFAULT_WAIT_MS,
    LONGEST_SIGNAL,
    WAIT_MAX_MS,
    signal_name,
)

NOTE_BYTES_MAX: Final = 65_536
"""Bytes of a note, as UTF-8; a larger one is dropped."""

WORD_MAX: Final = 256
"""Characters of a name, a version, a hash or a trace context; the rest is cut."""

NOTES_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of notes that are kept, and again of deaths; the oldest go first."""

NOTES_KEPT_S: Final = 600.0
"""How long a note waits for its death, and a death for its note."""

QUEUES_MAX: Final = 4
"""Names of queues in a note, of which one is meant."""

DELAY_MAX_MS: Final = 30 * 86_400_000
"""The longest delay that a consumer may advise: 30 days."""

_ID_PREFIX = "ID:"


class RetryAfter(msgspec.Struct, frozen=True, tag_field="action", tag="retry_after"):
    """The verdict to redeliver after a delay, counted from the time the message was taken."""

    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MAX_MS)]

    def __str__(self) -> str:
        return f"retry after {self.delay_ms} ms"


class Never(msgspec.Struct, frozen=True, tag_field="action", tag="never"):
    """The verdict to redeliver no more."""

    def __str__(self) -> str:
        return "never"


class RedirectTo(msgspec.Struct, frozen=True, tag_field="action", tag="redirect"):
    """The verdict to send it to another destination instead."""

    destination: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]

    def __str__(self) -> str:
        return f"redirect to {parse_destination(self.destination)}"


class WaitFor(msgspec.Struct, frozen=True, tag_field="action", tag="wait_for"):
    """The verdict to hold it until an event outside is reported.

    Attributes:
        event: its name, as `signal_name` takes it.
        longest_ms: the longest wait, counted from the time the message was taken.
    """

    event: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_SIGNAL)]
    longest_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)] = DEFAULT_WAIT_MS

    def __str__(self) -> str:
        return f"wait for {self.event}"


Verdict = RetryAfter | Never | RedirectTo | WaitFor
"""The consumer's advice; obeyed only where `policy.verdicts` is `obey`."""


class CauseNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note of a consumer about one failed delivery.

    Attributes:
        message_id: as the consumer saw it: `JMSMessageID`, or AMQP message-id as text.
        redelivery_count: `amqsidecarRedeliveryCount` of the delivery, 0 without one; None = the
            note does not say, and is of the next death that it fits.
        queue: that the consumer read, as `cause_note_queue` gives it; of a topic that of the
            subscription. Several = one of these, the client does not know which; empty = the note
            does not say.
        exception: class of the exception.
        root_exception, root_text: of the innermost cause; "" = there is no other.
        trace: stack trace of the exception and its causes, with the frames of the application;
            "" = there is none.
        stack_hash: the same for each failure at the same place of the code.
        consumer, consumer_version: the application's name and version.
        traceparent: W3C trace context of the delivery.
        verdict: None = the rules decide.
    """

    message_id: Annotated[str, msgspec.Meta(min_length=1)]
    redelivery_count: Annotated[int, msgspec.Meta(ge=0)] | None = None
    queue: str | Annotated[tuple[str, ...], msgspec.Meta(max_length=QUEUES_MAX)] = ()
    exception: str = ""
    text: str = ""
    root_exception: str = ""
    root_text: str = ""
    trace: str = ""
    stack_hash: str = ""
    consumer: str = ""
    consumer_version: str = ""
    traceparent: str = ""
    verdict: Verdict | None = None

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of which the consumer read one; empty = the note does not say."""
        return (self.queue,) if isinstance(self.queue, str) else self.queue

    @property
    def cause(self) -> str:
        """The cause of death in the consumer's words, in the form of a stack trace; "" = none."""
        if self.trace:
            return self.trace
        head = _line(self.exception, self.text)
        root = _line(self.root_exception, self.root_text)
        return "\nCaused by: ".join(one for one in (head, root) if one)

    @property
    def place(self) -> str:
        """The classes of its exceptions and the method that threw, as a group; "" = no class.

        The method is the first method of the innermost exception that names a method.
        """
        if not self.exception:
            return ""
        classes = "\nCaused by: ".join(filter(None, (self.exception, self.root_exception)))
        parts = reversed(self.trace.split("\nCaused by:"))
        frame = next(filter(None, map(_FRAME.search, parts)), None)
        method = _LAMBDA_NUMBER.sub("", frame[1]) if frame else ""
        return cause_group(classes) + (f" at {method}" if method else "")

    @property
    def author(self) -> str:
        """The consumer's name and version, as events name it."""
        return f"{self.consumer} {self.consumer_version}".strip() or "a consumer"

    @property
    def size_bytes(self) -> int:
        """About the memory that it takes: at most five times the bytes of the note."""
        texts = (
            *(self.message_id, self.exception, self.text, self.root_exception, self.root_text),
            *(self.trace, self.stack_hash, self.consumer, self.consumer_version, self.traceparent),
            *self.queues,
        )
        return 400 + sum(4 * len(one) if not one.isascii() else len(one) for one in texts)


class SharedNotes(msgspec.Struct, frozen=True):
    """Notes that instances of one schedule handed over.

    Attributes:
        position: up to where they were read.
        notes: with their ages in seconds, the oldest first.
    """

    position: int
    notes: Sequence[tuple[float, CauseNote]] = ()


def parse_cause_note(body: str) -> CauseNote:
    """Return the note that a body holds, its texts cut to their bounds.

    Raises:
        UndecodableMessage: it is no note; the error names the fault, and quotes nothing of it.
    """
    data = body.encode("utf-8", "surrogatepass")
    if len(data) > NOTE_BYTES_MAX:
        raise UndecodableMessage(f"a note of {len(data)} bytes, more than {NOTE_BYTES_MAX}")
    try:
        note = _decode(data)
        if isinstance(note.verdict, RedirectTo):
            parse_destination(note.verdict.destination)
        if isinstance(note.verdict, WaitFor) and note.verdict.event != signal_name(
            note.verdict.event
        ):
            raise ValueError("the name of its event begins or ends with a space")
        if not cause_note_key(note.message_id):
            raise ValueError("its message_id is empty")
    except (ValueError, RecursionError) as error:
        raise UndecodableMessage(f"no note: {error}"[:LINE_MAX]) from error
    cut = {name: getattr(note, name)[:WORD_MAX] for name in _WORDS}
    return msgspec.structs.replace(
        note,
        message_id=cause_note_key(note.message_id),
        queue=tuple(one for one in dict.fromkeys(map(cause_note_queue, note.queues)) if one),
        text=bounded_cause(note.text, _TEXT_BYTES_MAX),
        root_text=bounded_cause(note.root_text, _TEXT_BYTES_MAX),
        trace=bounded_cause(note.trace),
        **cut,
    )


def cause_note_key(message_id: str | None) -> str:
    """Return a message id normalised to match notes with dead letters; "" = it has no id.

    Some clients add the prefix `ID:` to an id that lacks it on the wire.
    """
    return (kept_message_id(message_id) or "").removeprefix(_ID_PREFIX)


def cause_note_queue(name: str) -> str:
    """Return a queue's name normalised to match notes with origins of dead letters.

    It keeps the queue of a fully qualified name, and cuts off schemes of destinations and usual
    prefixes of acceptors. "" = the name of a topic, which does not show the queue.
    """
    if "::" in name:
        name = name.rpartition("::")[2]
    elif name.startswith(_TOPICS):
        return ""
    for prefix in _QUEUES:
        name = name.removeprefix(prefix)
    return name[:_QUEUE_MAX]


_QUEUES: Final = ("queue://", "temp-queue://", "/queue/", "jms.queue.")
_TOPICS: Final = ("topic://", "temp-topic://", "/topic/", "jms.topic.")
_QUEUE_MAX: Final = 2_048

_TEXT_BYTES_MAX: Final = 8_000
"""Bytes of a text, as UTF-8; two of them with their classes are a cause that is kept whole."""

_FRAME: Final = re.compile(r"^\s+at ([\w.$<>]{1,150})\(", re.MULTILINE)
_LAMBDA_NUMBER: Final = re.compile(r"\$\d+$")

_WORDS: Final = (
    "exception",
    "root_exception",
    "stack_hash",
    "consumer",
    "consumer_version",
    "traceparent",
)

_decode = msgspec.json.Decoder(CauseNote).decode


def _line(exception: str, text: str) -> str:
    return ": ".join(one for one in (exception, text) if one)
