"""Dead letters that were there before the sidecar came are held for a person."""

from collections import Counter
from collections.abc import Callable, Mapping

from amqsidecar.model.destination import Destination

AskStore = Callable[[], Mapping[str, int]]
"""Returns the rest of each backlog, which is locked until the cycle is stored."""


class BacklogGate:
    """Knows how many more dead letters of each source are backlog.

    A source is counted when it is first read (`meet`), else when its first dead letter arrives. The
    store keeps the counts. Several sidecars may share a backlog, so each cycle that may still find
    backlog reads the store's counts first (`begin`).

    Args:
        count: asks the broker how many messages a dead-letter queue holds.
        holds: False = a backlog is processed like anything else.
        threshold: a queue that holds no more than this is no backlog.
        count_limit: counts don't go beyond this (Classic's browser); a held backlog of at least
            this many is counted again when it has been taken. None = counts are exact.
        is_newborn: returns whether a queue was made while we looked: nothing in it is backlog,
            however many died before it was first read.
    """

    def __init__(
        self,
        count: Callable[[Destination], int],
        *,
        holds: bool,
        threshold: int,
        count_limit: int | None = None,
        is_newborn: Callable[[Destination], bool] = lambda _source: False,
    ) -> None:
        self._remaining: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._taken: Counter[str] = Counter()
        self._ask: AskStore | None = None
        self._met: dict[str, int] = {}
        self._count = count
        self._holds = holds
        self._threshold = threshold
        self._count_limit = count_limit
        self._is_newborn = is_newborn
        self._recounts: set[str] = set()

    def remember(self, remaining: Mapping[str, int]) -> None:
        """Set the rest of each source from the store, once its last cycle is settled."""
        self._remaining = dict(remaining)

    def meet(self, source: Destination) -> None:
        """Take note of a queue that is read from now on; counts it unless it is known.

        Without it a queue that was empty, and gets many dead letters at once, would look old.
        """
        key = str(source)
        if key not in self._remaining and key not in self._met:
            self._met[key] = self._count_now(source, key)

    def begin(self, ask: AskStore) -> None:
        """A cycle begins; the store is asked at most once, and only if something may be left."""
        self._ask = ask
        self._counted = {}

    def is_backlog(self, source: Destination) -> bool:
        """Return whether the next dead letter of this source is backlog, and count it."""
        key = str(source)
        left = self._remaining.get(key)
        if self._ask is not None and (left != 0 or key in self._recounts):
            self._remaining, self._ask = dict(self._ask()), None
            left = self._remaining.get(key)
        if left is None:
            known = self._met.get(key)
            left = self._set(key, self._count_now(source, key) if known is None else known)
        elif left == 0 and key in self._recounts:
            self._recounts.discard(key)
            left = self._set(key, self._count_now(source, key))
        if left > 0 and self._is_newborn(source):
            # Why: a queue that was deleted and created again holds none of the counted messages.
            left = self._set(key, 0)
        if left <= 0:
            return False
        self._remaining[key] = left - 1
        self._taken[key] += 1
        return True

    def is_over(self, source: Destination) -> bool:
        """Return whether it is known that nothing of this source is backlog any more."""
        key = str(source)
        return self._remaining.get(key) == 0 and key not in self._recounts

    def _set(self, key: str, count: int) -> int:
        self._remaining[key] = self._counted[key] = count
        return count

    def _count_now(self, source: Destination, key: str) -> int:
        if not self._holds or self._is_newborn(source):
            return 0
        total = self._count(source)
        if self._count_limit is not None and total >= self._count_limit:
            self._recounts.add(key)
        return total if total > self._threshold else 0

    @property
    def counted(self) -> Mapping[str, int]:
        """The counts of this cycle, for the store; they hold even if the cycle fails."""
        return self._counted

    @property
    def taken(self) -> Mapping[str, int]:
        """How many dead letters of the cycle were backlog, for the store."""
        return self._taken

    def commit(self) -> None:
        """The cycle is committed: its takes are final."""
        self._taken.clear()

    def rollback(self) -> None:
        """The cycle failed: its dead letters will be judged again."""
        for key, count in self._taken.items():
            self._remaining[key] += count
        self._taken.clear()
