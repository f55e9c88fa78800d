"""Which rows several passes through a queue have shown, and which messages moved meanwhile."""

from collections import defaultdict
from typing import Final

from amqsidecar.schedule import Schedule

GONE_S: Final = 10.0
"""Time in which no pass shows a message that is gone: a browse of Classic may show too few."""
_EVENTS_AT_ONCE: Final = 5_000
_READS_MAX: Final = 20
_MOVED_MAX: Final = 100_000
_CHUNK: Final = 8_192
"""Numbers of one chunk: 1 KiB for rows that were added together."""


class SeenRows:
    """The passes through a queue since one of them missed a row; a bit for each row.

    Attributes:
        began: number of the first look; see `Moves.look`.
    """

    def __init__(self, began: int, first_new_id: int) -> None:
        """Begin it; rows from this number on are newer, so that they are not missed."""
        self.began = began
        self._before: float = first_new_id
        self._seen: defaultdict[int, bytearray] = defaultdict(lambda: bytearray(_CHUNK // 8))
        self._agreed_at_s: float | None = None

    def add(self, row_id: int) -> None:
        """Note that a pass showed the message of a row."""
        chunk, bit = divmod(row_id, _CHUNK)
        self._seen[chunk][bit >> 3] |= 1 << (bit & 7)

    @property
    def count(self) -> int:
        """How many rows were shown."""
        return sum(int.from_bytes(one).bit_count() for one in self._seen.values())

    def agree(self, last: float, now_s: float) -> bool:
        """Note the end of a pass; return whether the passes prove which rows are gone.

        Args:
            last: rows behind it may lie there without being shown; infinity = all were shown.
        """
        self._before = min(self._before, last)
        if self._agreed_at_s is None:
            self._agreed_at_s = now_s
        return now_s - self._agreed_at_s >= GONE_S

    def misses(self, row_id: int) -> bool:
        """Return whether no pass showed a row that it would have shown."""
        chunk, bit = divmod(row_id, _CHUNK)
        is_seen = chunk in self._seen and self._seen[chunk][bit >> 3] >> (bit & 7) & 1
        return row_id < self._before and not is_seen


class Moves:
    """The messages of which something became, by the events, since a look began.

    Attributes:
        look: number of the present look.
        own: rows that were just added, whose events move nothing.
    """

    def __init__(self) -> None:
        self.look = 0
        self.own = range(0)
        self._known_since = 0
        self._position = ""
        self._looks: dict[str, int] = {}
        """The look in which a message moved last, by redelivery id."""

    def begin_look(self, schedule: Schedule) -> None:
        """Begin the next look."""
        self.look += 1
        if not self._position:
            self._forget(schedule)
        self.read_on(schedule)

    def _forget(self, schedule: Schedule) -> None:
        self._looks.clear()
        self._position = schedule.tail()
        self._known_since = self.look

    def read_on(self, schedule: Schedule) -> bool:
        """Read later events; return whether all that moved since this look began is known."""
        for _ in range(_READS_MAX if len(self._looks) < _MOVED_MAX else 0):
            tail = schedule.events_after(self._position, _EVENTS_AT_ONCE)
            if tail.position == self._position:
                return self._known_since <= self.look
            self._position = tail.position
            for event in tail.events:
                if event.id not in self.own:
                    self._looks[event.redelivery_id] = self.look
        self._forget(schedule)
        self._known_since = self.look + 1
        return False

    def has_moved(self, redelivery_id: str, since: int) -> bool:
        """Return whether a message may have moved since a look began."""
        return since < self._known_since or self._looks.get(redelivery_id, 0) >= since
