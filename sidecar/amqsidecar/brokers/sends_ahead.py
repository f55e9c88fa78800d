"""Sends that are begun before the commit of their transaction, on every wire."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from amqsidecar.broker import Resend


class BegunTransaction(Protocol):
    """A transaction whose sends are with the broker, and not yet committed."""

    @property
    def sends(self) -> Sequence[Resend]:
        """All its sends, as the caller gave them."""


BegunT = TypeVar("BegunT", bound=BegunTransaction)


Misrouted = Callable[[], Mapping[int, str]]
"""Returns why the broker may have routed some sends nowhere, by their index; once it has all."""

WatchSends = Callable[[Sequence[Resend]], Misrouted]
"""Notes where sends would go just before they are begun."""


def watch_nothing(_sends: Sequence[Resend]) -> Misrouted:
    """Return a check that finds nothing, for a broker that routes every accepted message."""
    return dict


class SendsAhead(Generic[BegunT]):
    """Holds the transaction begun for the next commit: at most one.

    If the process dies, nothing of the transaction has happened.

    Attributes:
        misrouted: returns why the broker routed some sends of the newest transaction nowhere.

    Args:
        start: begins a transaction and hands its sends to the broker.
        undo: rolls it back.
        watch: called before each start.
    """

    def __init__(
        self,
        start: Callable[[Sequence[Resend]], BegunT],
        undo: Callable[[BegunT], None],
        watch: WatchSends = watch_nothing,
    ) -> None:
        self._watch = watch
        self.misrouted: Misrouted = dict
        self._start = start
        self._undo = undo
        self._begun: list[BegunT] = []

    @property
    def sends(self) -> Sequence[Resend]:
        """The sends that are begun; empty = none."""
        return self._begun[0].sends if self._begun else ()

    def begin(self, sends: Sequence[Resend]) -> None:
        """Begin these sends, in place of begun sends."""
        self.abandon()
        self.misrouted = self._watch(sends)
        self._begun.append(self._start(sends))

    def abandon(self) -> None:
        """Undo begun sends, if any.

        Raises:
            LinkLost: the connection is gone, and the begun sends with it.
        """
        if self._begun:
            self._undo(self._begun.pop())

    def take(self, sends: Sequence[Resend]) -> BegunT:
        """Return the begun transaction of exactly these sends, or begin it; the caller commits."""
        if not self._begun or self._begun[0].sends is not sends:
            self.begin(sends)
        return self._begun.pop()

    def forget(self) -> None:
        """Forget the begun sends, because they are undone already."""
        self._begun.clear()


def begin_nothing() -> None:
    """Begin no sends while the broker commits, the default."""
