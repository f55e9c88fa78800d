"""Queues that Artemis created and deleted since the last look, by ids and by notifications.

Wire-independent: the receiver of `activemq.notifications` hands over their bindings.

Source: Artemis, PostOfficeImpl (BINDING_ADDED, BINDING_REMOVED: address and routing name).
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from amqsidecar.clock import Clock

_log = logging.getLogger(__name__)

NOTIFICATIONS = "activemq.notifications"
BINDING_SELECTOR = "_AMQ_NotifType = 'BINDING_ADDED' OR _AMQ_NotifType = 'BINDING_REMOVED'"

_ASKED_AT_ONCE_MAX = 50
_UNASKED_MAX = 1000
_ASK_EVERY_S = 1.0
# Why: temporary queues have such names; their settings are of no use.
_TEMPORARY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

DeadLetterAddressesOf = Callable[[list[str]], Iterable[str]]
"""Asks the broker where the dead letters of these addresses go; "" among them = nowhere."""


Binding = tuple[str, str, bool]
"""Name and address of a queue, and whether it was created or deleted."""


def read_binding(name: object, address: object, kind: object) -> Binding | None:
    """Return the binding that a notification reports; None = it is about no queue."""
    if not (isinstance(name, str) and name and isinstance(address, str) and address):
        return None
    return name, address, kind == "BINDING_ADDED"


def log_unheard(cause: object) -> None:
    """Report that the broker's notifications can't be read."""
    _log.info(
        "new dead-letter queues are found at the next look and not at once: the broker's "
        "notifications can't be read (%s); grant createNonDurableQueue and consume on %s",
        cause,
        NOTIFICATIONS,
    )


class _NoLook(NamedTuple):
    """The queue was not asked about yet."""


class _LastLook(NamedTuple):
    """The result of the last look.

    Attributes:
        ids: of all queues, by name.
        asked: addresses whose settings are known to us, with those asked about since.
    """

    ids: Mapping[str, str]
    asked: set[str]


class ArtemisQueueWatch:
    """Records which queues are new, and whether another look would find more."""

    def __init__(self, clock: Clock, addresses_of: DeadLetterAddressesOf) -> None:
        self._clock = clock
        self._addresses_of = addresses_of
        self._last: _NoLook | _LastLook = _NoLook()
        self._born: set[str] = set()
        self._watched: frozenset[str] = frozenset()
        self._unasked: dict[str, None] = {}
        self._ask_at_s = 0.0
        self._has_changed = False

    def watch(self, names: Iterable[str]) -> None:
        """Add addresses and queues that hold dead letters."""
        self._watched |= frozenset(names)

    def looked(self, ids: Mapping[str, str], asked: Iterable[str]) -> None:
        """Note a look: all queues with their ids, and the addresses whose settings it read.

        A queue with another id than at the look before is newborn.
        """
        if isinstance(self._last, _LastLook):
            known = self._last.ids
            new = {name for name, number in ids.items() if known.get(name) != number}
            self._born = (self._born & ids.keys()) | new
        self._last = _LastLook(dict(ids), set(asked))
        self._unasked.clear()

    def bound(self, name: str, address: str, *, is_added: bool) -> None:
        """Note that a queue was bound to an address, or removed."""
        if name in self._watched or address in self._watched:
            self._has_changed = True
            if is_added:
                self._born.add(name)
        elif (
            is_added
            and isinstance(self._last, _LastLook)
            and address not in self._last.asked
            and len(self._unasked) < _UNASKED_MAX
            and not _TEMPORARY.fullmatch(address)
        ):
            self._unasked[address] = None

    def has_changed(self) -> bool:
        """Return whether discovery may find other queues than last time, once.

        Asks the broker, at most once a second, about addresses that are new to us.
        """
        now_s = self._clock.monotonic_s()
        if self._unasked and isinstance(self._last, _LastLook) and now_s >= self._ask_at_s:
            self._ask_at_s = now_s + _ASK_EVERY_S
            names = list(self._unasked)[:_ASKED_AT_ONCE_MAX]
            for name in names:
                del self._unasked[name]
            self._last.asked.update(names)
            if set(self._addresses_of(names)) - self._watched - {""}:
                self._has_changed = True
        changed, self._has_changed = self._has_changed, False
        return changed

    def is_newborn(self, name: str) -> bool:
        """Return whether a queue was made since the first look."""
        return name in self._born
