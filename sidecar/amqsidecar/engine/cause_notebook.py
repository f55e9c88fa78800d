"""Joins notes of consumers with the deaths that they are about, whichever comes first.

All of it is in memory, bounded in bytes and in time: a process that dies forgets it, which costs
causes. Where instances share a schedule, each hands its notes over to the others. Notes are
accepted in the cycle that takes them, so that an undone cycle brings them again.
"""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

import msgspec

from amqsidecar.model.cause_note import NOTES_KEPT_BYTES, NOTES_KEPT_S, CauseNote, cause_note_key


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """A death as the schedule has it.

    Attributes:
        row_id: number of its row.
        attempt: redeliveries by a sidecar before it, 0-based.
        destination: where it died.
        cause_group: the group that it was counted in.
        is_expired: it died because its time to live ran out.
    """

    row_id: int
    redelivery_id: str
    at_ms: int
    attempt: int
    destination: str
    cause_group: str
    is_expired: bool = False

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, about."""
        return 500 + len(self.destination) + len(self.redelivery_id)


class Join(msgspec.Struct, frozen=True):
    """A death that was taken before its note came."""

    death: Death
    note: CauseNote


class CauseNotebook:
    """Notes without their deaths, and deaths without their notes; belongs to one thread.

    Attributes:
        position: up to where notes that others handed over were added; None = none were.
    """

    def __init__(self) -> None:
        self.position: int | None = None
        self._unshared: dict[str, None] = {}
        self._notes = _Bounded[CauseNote]()
        self._deaths = _Bounded[Death]()
        self._explained = _Bounded[int]()
        self._late: dict[str, Join] = {}

    @property
    def size_bytes(self) -> int:
        """The memory that all of it takes, about."""
        return self._notes.size_bytes + self._deaths.size_bytes + self._explained.size_bytes

    def add(self, note: CauseNote, now_s: float, *, is_shared: bool = False) -> None:
        """Take a note: the last one before a death is the death's, else the first one after it.

        One that does not name its redelivery may be of a later death of the same message, too.

        Args:
            note: the note.
            now_s: when it came.
            is_shared: another instance handed it over.
        """
        key = note.message_id
        death = self._deaths.get(key, now_s)
        if death is not None and _fits(note, death.attempt):
            self._deaths.remove(key)
            self._explained.put(key, death.attempt, _MARK_BYTES + len(key), now_s)
            self._late[key] = Join(death, note)
            return
        explained = self._explained.get(key, now_s)
        if explained is not None and note.redelivery_count == explained:
            return
        self._notes.put(key, note, note.size_bytes, now_s)
        if not is_shared:
            self._unshared[key] = None

    def unshared(self, now_s: float) -> list[CauseNote]:
        """Return notes since `forget_unshared` that may be of another instance's deaths."""
        found = [
            (self._notes.get(key, now_s), self._explained.get(key, now_s)) for key in self._unshared
        ]
        return [
            note
            for note, explained in found
            if note is not None
            and (note.redelivery_count is None or note.redelivery_count != explained)
        ]

    def forget_unshared(self) -> None:
        """Take note that what `unshared` returns is handed over."""
        self._unshared.clear()

    def find(self, message_id: str | None, attempt: int, now_s: float) -> CauseNote | None:
        """Return the note about a death; None = none came by now, or none that fits."""
        note = self._notes.get(cause_note_key(message_id), now_s)
        return note if note is not None and _fits(note, attempt) else None

    def meet(
        self, message_id: str | None, death: Death, *, is_explained: bool, now_s: float
    ) -> None:
        """Learn of a death that was judged, with its note or without.

        An undone cycle judges the same deliveries again: its note is found again then.
        """
        key = cause_note_key(message_id)
        if not key:
            return
        self._late.pop(key, None)
        if is_explained:
            self._deaths.remove(key)
            self._explained.put(key, death.attempt, _MARK_BYTES + len(key), now_s)
        else:
            self._explained.remove(key)
            self._deaths.put(key, death, death.size_bytes + len(key), now_s)

    @property
    def has_late(self) -> bool:
        """Whether `take_late` returns anything."""
        return bool(self._late)

    def take_late(self) -> list[Join]:
        """Return, once, the deaths whose notes came after them."""
        late, self._late = list(self._late.values()), {}
        return late


_MARK_BYTES: Final = 250


def _fits(note: CauseNote, attempt: int) -> bool:
    return note.redelivery_count in (None, attempt)


_T = TypeVar("_T")


class _Bounded(Generic[_T]):
    """Values by key, the oldest of which go where there are too many bytes of them."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, tuple[_T, int, float]] = OrderedDict()
        self.size_bytes = 0

    def get(self, key: str, now_s: float) -> _T | None:
        found = self._of.get(key)
        return None if found is None or found[2] + NOTES_KEPT_S < now_s else found[0]

    def put(self, key: str, value: _T, size_bytes: int, now_s: float) -> None:
        self.remove(key)
        self._of[key] = (value, size_bytes, now_s)
        self.size_bytes += size_bytes
        while self._of:
            oldest, (_, _, since_s) = next(iter(self._of.items()))
            if self.size_bytes <= NOTES_KEPT_BYTES and since_s + NOTES_KEPT_S >= now_s:
                return
            self.remove(oldest)

    def remove(self, key: str) -> None:
        found = self._of.pop(key, None)
        if found is not None:
            self.size_bytes -= found[1]
