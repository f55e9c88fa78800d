"""Joins notes of consumers with the deaths that they are about, whichever comes first.

A note is about the death of its message id, in its queue, at its redelivery: all copies of one
publication share the id, and each has a consumer of its own. A note without a queue is about a
death only if no copy of the message can have died elsewhere; else it is shown and decides nothing.

All of it is in memory, bounded in bytes and in time: a process that dies forgets it, which costs
causes. Where instances share a schedule, each hands its notes over to the others. Notes are
accepted in the cycle that takes them, so that an undone cycle brings them again.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from amqsidecar.model.cause_note import (
    NOTES_KEPT_BYTES,
    NOTES_KEPT_S,
    CauseNote,
    cause_note_key,
    cause_note_queue,
)
from amqsidecar.model.destination import Destination

HasOneQueue = Callable[[Destination], bool]
"""Takes the origin of a message; returns whether it is a queue whose messages nobody copies."""


class MessageCopy(NamedTuple):
    """The identity of the death of one copy of a message.

    Attributes:
        message_id: by `cause_note_key`; "" = it has none.
        queue: that it died in, by `cause_note_queue`; "" = not known, as of a topic.
        attempt: redeliveries by a sidecar before it, 0-based.
    """

    message_id: str
    queue: str
    attempt: int


def copy_at(message_id: str | None, origin: str | None, attempt: int) -> MessageCopy:
    """Return the copy that died at an origin; None = the origin is not known."""
    return MessageCopy(cause_note_key(message_id), cause_note_queue(origin or ""), attempt)


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A death as the schedule has it.

    Attributes:
        row_id: number of its row.
        destination: where it died.
        cause_group: the group that it was counted in.
        is_expired: it died because its time to live ran out.
    """

    row_id: int
    redelivery_id: str
    at_ms: int
    copy: MessageCopy
    destination: Destination
    cause_group: str
    is_expired: bool = False

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, about."""
        texts = (self.destination.name, self.redelivery_id, self.copy.message_id, self.copy.queue)
        return 500 + sum(map(len, texts))


class Join(msgspec.Struct, frozen=True):
    """A death that was taken before its note came.

    Attributes:
        is_ambiguous: the note may be about another copy of the message, and decides nothing.
    """

    death: Death
    note: CauseNote
    is_ambiguous: bool = False


class CauseNotebook:
    """Notes without their deaths, and deaths without their notes; belongs to one thread.

    Attributes:
        position: up to where notes that others handed over were added; None = none were.
    """

    def __init__(self) -> None:
        self.position: int | None = None
        self._unshared: dict[_Key, None] = {}
        self._notes = _Bounded[CauseNote]()
        self._deaths = _Bounded[Death]()
        self._explained = _Bounded[int]()
        self._shown = _Bounded[int]()
        self._late: dict[_Key, Join] = {}
        self._message_ids = _Bounded[str]()

    @property
    def size_bytes(self) -> int:
        """The memory that all of it takes, about."""
        kept = (self._notes, self._deaths, self._explained, self._shown, self._message_ids)
        return sum(one.size_bytes for one in kept)

    def add(
        self, note: CauseNote, now_s: float, has_one_queue: HasOneQueue, *, is_shared: bool = False
    ) -> None:
        """Take a note: the last one before a death is the death's, else the first one after it.

        One that does not name its redelivery may be of a later death of the same message, too.

        Args:
            now_s: when it came.
            is_shared: another instance handed it over.
        """
        note = self._by_message_id(note, now_s)
        deaths = [
            death for death in self._deaths.of(note.message_id, now_s) if _fits(note, death.copy)
        ]
        for death in deaths:
            place = death.copy[:2]
            if self._is_about(note, death.copy, death.destination, now_s, has_one_queue):
                self._deaths.remove(place)
                self._mark(self._explained, death.copy, now_s)
                self._late[place] = Join(death, note)
                return
        if self._is_used(note, now_s):
            return
        for death in deaths:
            place = death.copy[:2]
            is_shown = self._shown.get(place, now_s) == death.copy.attempt
            if _may_be_about(note, death.copy) and not is_shown:
                self._mark(self._shown, death.copy, now_s)
                self._late[place] = Join(death, note, is_ambiguous=True)
        for queue in note.queues or ("",):
            self._keep(note, queue, now_s, is_shared=is_shared)

    def learn_id(self, copy: MessageCopy, other_id: str, now_s: float) -> None:
        """Join notes that call a message by another id with the deaths of this copy, too.

        Consumers of one message that use other protocols may see another id.
        """
        other_id = cause_note_key(other_id)
        if not copy.message_id or other_id in ("", copy.message_id):
            return
        size_bytes = _MARK_BYTES + len(other_id) + len(copy.queue) + len(copy.message_id)
        self._message_ids.put((other_id, copy.queue), copy.message_id, size_bytes, now_s)
        for queue in (copy.queue, ""):
            note = self._notes.get((other_id, queue), now_s)
            if note is not None:
                self._notes.remove((other_id, queue))
                is_shared = (other_id, queue) not in self._unshared
                self._keep(self._by_message_id(note, now_s), queue, now_s, is_shared=is_shared)

    def unshared(self, now_s: float) -> list[CauseNote]:
        """Return notes since `forget_unshared` that may be of another instance's deaths."""
        found = [self._notes.get(key, now_s) for key in self._unshared]
        # Why a dictionary: a note of several queues counts once.
        notes = {id(note): note for note in found if note is not None}
        return [note for note in notes.values() if not self._is_used(note, now_s)]

    def forget_unshared(self) -> None:
        """Forget the notes that `unshared` returns: they were handed over."""
        self._unshared.clear()

    def find(self, copy: MessageCopy, now_s: float) -> CauseNote | None:
        """Return the note about a death; None = none came by now, or none that fits."""
        note = self._notes.get(copy[:2], now_s) if copy.queue else None
        return note if note is not None and _fits(note, copy) else None

    def assign(
        self, copy: MessageCopy, destination: Destination, now_s: float, has_one_queue: HasOneQueue
    ) -> None:
        """Let `find` return a note without a queue, where it can be about this death alone."""
        unnamed = copy.message_id, ""
        note = self._notes.get(unnamed, now_s)
        if (
            note is not None
            and _fits(note, copy)
            and self.find(copy, now_s) is None
            and self._is_about(note, copy, destination, now_s, has_one_queue)
        ):
            self._notes.remove(unnamed)
            self._notes.put(copy[:2], note, note.size_bytes, now_s)

    def find_ambiguous(self, copy: MessageCopy, now_s: float) -> CauseNote | None:
        """Return the last note that may be about a death without a note; no late note follows."""
        for note in reversed(self._notes.of(copy.message_id, now_s)):
            if _fits(note, copy) and _may_be_about(note, copy):
                self._mark(self._shown, copy, now_s)
                return note
        return None

    def meet(self, death: Death, *, is_explained: bool, now_s: float) -> None:
        """Learn of a death that was judged, with its note or without.

        An undone cycle judges the same deliveries again: its note is found again then.
        """
        if not death.copy.message_id:
            return
        place = death.copy[:2]
        self._late.pop(place, None)
        if is_explained:
            self._deaths.remove(place)
            self._mark(self._explained, death.copy, now_s)
        else:
            self._explained.remove(place)
            self._deaths.put(place, death, death.size_bytes, now_s)

    @property
    def has_late(self) -> bool:
        """Whether `take_late` returns anything."""
        return bool(self._late)

    def take_late(self) -> list[Join]:
        """Return, once, the deaths whose notes came after them."""
        late, self._late = list(self._late.values()), {}
        return late

    def _by_message_id(self, note: CauseNote, now_s: float) -> CauseNote:
        """Return a note with the id by which the deaths of its message are known."""
        found = self._message_ids.of(note.message_id, now_s, note.queues)
        return msgspec.structs.replace(note, message_id=found[-1]) if found else note

    def _keep(self, note: CauseNote, queue: str, now_s: float, *, is_shared: bool) -> None:
        key = note.message_id, queue
        self._notes.put(key, note, note.size_bytes, now_s)
        if not is_shared:
            self._unshared[key] = None

    def _is_about(
        self,
        note: CauseNote,
        copy: MessageCopy,
        destination: Destination,
        now_s: float,
        has_one_queue: HasOneQueue,
    ) -> bool:
        if not copy.queue or note.queues:
            return copy.queue in note.queues
        message_id, _, attempt = copy
        waiting = [one.copy for one in self._deaths.of(message_id, now_s)]
        queues = {one.queue for one in waiting if one.attempt == attempt}
        queues.update(self._explained.queues(message_id, attempt, now_s))
        return queues <= {copy.queue} and has_one_queue(destination)

    def _is_used(self, note: CauseNote, now_s: float) -> bool:
        """Return whether a note is one more about a death that has its note."""
        if note.redelivery_count is None:
            return False
        explained = self._explained.queues(note.message_id, note.redelivery_count, now_s)
        if note.queues:
            return any(queue in explained for queue in note.queues)
        waiting = [one.copy.attempt for one in self._deaths.of(note.message_id, now_s)]
        return bool(explained) and note.redelivery_count not in waiting

    @staticmethod
    def _mark(marks: "_Bounded[int]", copy: MessageCopy, now_s: float) -> None:
        message_id, queue, attempt = copy
        size_bytes = _MARK_BYTES + len(message_id) + len(queue)
        marks.put((message_id, queue), attempt, size_bytes, now_s)


_MARK_BYTES: Final = 250


def _fits(note: CauseNote, copy: MessageCopy) -> bool:
    return note.redelivery_count in (None, copy.attempt)


def _may_be_about(note: CauseNote, copy: MessageCopy) -> bool:
    return not note.queues or not copy.queue


_Key = tuple[str, str]
"""Message id and queue; a queue "" = not known."""

_T = TypeVar("_T")


class _Bounded(Generic[_T]):
    """Values by key, the oldest of which go where there are too many bytes of them."""

    def __init__(self) -> None:
        self._of: OrderedDict[_Key, tuple[_T, int, float]] = OrderedDict()
        self._queues: dict[str, dict[str, None]] = {}
        self.size_bytes = 0

    def get(self, key: _Key, now_s: float) -> _T | None:
        found = self._of.get(key)
        return None if found is None or found[2] + NOTES_KEPT_S < now_s else found[0]

    def of(self, message_id: str, now_s: float, queues: Sequence[str] = ()) -> list[_T]:
        """Return the values of these queues of a message; none given = of all, the oldest first."""
        queues = queues or tuple(self._queues.get(message_id, ()))
        found = [self.get((message_id, queue), now_s) for queue in queues]
        return [one for one in found if one is not None]

    def queues(self, message_id: str, value: _T, now_s: float) -> list[str]:
        """Return the queues of a message that have a value."""
        queues = self._queues.get(message_id, ())
        return [queue for queue in queues if self.get((message_id, queue), now_s) == value]

    def put(self, key: _Key, value: _T, size_bytes: int, now_s: float) -> None:
        self.remove(key)
        self._of[key] = (value, size_bytes, now_s)
        self._queues.setdefault(key[0], {})[key[1]] = None
        self.size_bytes += size_bytes
        while self._of:
            oldest, (_, _, since_s) = next(iter(self._of.items()))
            if self.size_bytes <= NOTES_KEPT_BYTES and since_s + NOTES_KEPT_S >= now_s:
                return
            self.remove(oldest)

    def remove(self, key: _Key) -> None:
        found = self._of.pop(key, None)
        if found is not None:
            self.size_bytes -= found[1]
            queues = self._queues[key[0]]
            del queues[key[1]]
            if not queues:
                del self._queues[key[0]]
