"""The queues of a Classic broker, known from its advisories, so that wildcards leave some out.

A wildcard consumer would also get the sidecar's own messages: a final dead-letter queue's name is
that of its queue with a suffix. So wildcards are expanded here, and each queue gets a consumer of
its own.

Source: ActiveMQ Classic, AdvisoryBroker.addConsumer (a new consumer gets all destinations).
"""

import re
from collections.abc import Iterable

from amqsidecar.broker import IntakeQueue
from amqsidecar.errors import BrokerRefused, QueueRefused
from amqsidecar.model.destination import Destination, DestinationKind, queue, topic
from amqsidecar.model.sidecar_names import CAUSES, EVENTS, OWN_PREFIX

QUEUE_ADVISORIES = topic("ActiveMQ.Advisory.Queue")
# Precedent: the Java client's prefetch for topics; the broker holds back further messages.
ADVISORY_PREFETCH = 32_766
COUNT_MAX = 400
"""Classic's browsers see no further (maxBrowsePageSize)."""

EMPTIED = (
    "only openwire:// can remove a queue of Classic; it is empty now, and the next doctor of this "
    "user uses it again"
)
MENDS_ADVISORIES = (
    "give the sidecar's user the right to read the broker's advisories, "
    '<authorizationEntry topic="ActiveMQ.Advisory.>" read="..." admin="..."/>, or name the '
    "dead-letter queues one by one in intake.queues"
)


def is_wildcard(name: str) -> bool:
    """Whether a queue name holds one of the broker's wildcards."""
    return "*" in name or ">" in name


def pattern_of(name: str) -> re.Pattern[str]:
    """Return the pattern of a wildcard name; `A.>` matches `A` as well.

    Raises:
        QueueRefused: a wildcard is not a whole path element, or `>` is not the last one.

    Source: ActiveMQ Classic, PrefixDestinationFilter and WildcardDestinationFilter.
    """
    *elements, last = name.split(".")
    if ">" in elements or any(is_wildcard(e) and len(e) > 1 for e in (*elements, last)):
        raise QueueRefused(
            name,
            f"can't read queue://{name}: `*` stands for one whole part of a name, `>` for all the"
            " parts that follow",
        )
    parts = ["[^.]*" if element == "*" else re.escape(element) for element in elements]
    if last != ">":
        parts.append("[^.]*" if last == "*" else re.escape(last))
        return re.compile(r"\.".join(parts))
    return re.compile(r"\.".join(parts) + r"(?:\..*)?" if parts else ".*", re.DOTALL)


def is_ours(name: str, final_suffix: str) -> bool:
    """Whether the sidecar itself writes to a queue of that name."""
    return name.endswith(final_suffix) or name.startswith(OWN_PREFIX)


class ClassicQueues:
    """The queues of a broker, as far as advisories named them; a wire says how they are heard.

    Attributes:
        has_changed: queues came or went since the last `expand` or `list_names`.
        deleted: queues that went; its reader sets and clears it. None = nobody reads it.
        taken_back: final queues that are read on purpose (`IntakeQueue.is_final`).

    Args:
        place: of the broker, for sentences.
        final_suffix: suffix of final dead-letter queues.
    """

    def __init__(self, place: str, final_suffix: str) -> None:
        self._place = place
        self._final_suffix = final_suffix
        self._names: set[str] = set()
        self._born: set[str] = set()
        self._is_listening = False
        self.has_changed = False
        self.deleted: set[Destination] | None = None
        self.taken_back: frozenset[Destination] = frozenset()

    def _listen(self, known: Destination | None) -> None:
        """Begin to listen; when this returns, `told` was called for all queues that exist.

        Raises:
            BrokerRefused, or its counterpart in `brokers/`: no permission.
        """
        raise NotImplementedError

    def told(self, name: str, *, is_removed: bool) -> None:
        """Note that a queue exists, or was removed."""
        if is_removed:
            self._names.discard(name)
            self._born.discard(name)
            if self.deleted is not None:
                self.deleted.add(queue(name))
        elif name not in self._names:
            self._names.add(name)
            self._born.add(name)
        self.has_changed = self.has_changed or not self._is_ours(name)

    def expand(
        self, destinations: Iterable[Destination], known: Destination | None
    ) -> list[Destination]:
        """Return the queues that these names and wildcards stand for, without our own ones.

        Args:
            known: an existing queue: a broker that does not report it reports nothing. None = no
                such queue.

        Raises:
            QueueRefused: a name can't be read.
            BrokerRefused, or as `_listen`: the broker does not report its queues.
        """
        expanded: dict[Destination, None] = {}
        patterns: list[re.Pattern[str]] = []
        for destination in destinations:
            self._check(destination)
            if is_wildcard(destination.name):
                patterns.append(pattern_of(destination.name))
            else:
                expanded[destination] = None
        if patterns:
            self._begin(known)
        for name in sorted(self._names) if patterns else ():
            if not self._is_ours(name) and any(one.fullmatch(name) for one in patterns):
                expanded[queue(name)] = None
        self.has_changed = False
        return list(expanded)

    def list_names(self, known: Destination | None) -> tuple[str, ...]:
        """Return the names of all queues but ours; `known` and errors as with `expand`."""
        self._begin(known)
        self.has_changed = False
        return tuple(sorted(name for name in self._names if not self._is_ours(name)))

    def list_finals(self) -> tuple[str, ...]:
        """Return the names of all final dead-letter queues; errors as with `expand`."""
        self._begin(None)
        return tuple(sorted(name for name in self._names if name.endswith(self._final_suffix)))

    def is_newborn(self, name: str) -> bool:
        """Return whether a queue came to be after we began to listen."""
        return name in self._born

    def existing(self, intake: IntakeQueue) -> list[Destination]:
        """Return the queues that a name or wildcard stands for and that exist.

        Our own queues are left out, unless it is a final queue and asked for as one.

        Without an answer of the broker a name is assumed to exist, and a wildcard matches none.

        Raises:
            As `expand`.
        """
        asked = intake.destination
        expanded = [asked] if intake.is_final else self.expand([asked], None)
        self._begin(None)
        if not self._names:
            return expanded
        return [one for one in expanded if one.name in self._names]

    def _begin(self, known: Destination | None) -> None:
        if not self._is_listening:
            self._listen(known)
            self._is_listening = True
            self._born.clear()
        if known is not None and known.name not in self._names:
            raise BrokerRefused(
                f"{self._place} does not report which queues it has"
                ' (advisorySupport="false"?), so that wildcards can\'t be used for the intake: name'
                " its dead-letter queues one by one"
            )

    def _is_ours(self, name: str) -> bool:
        return is_ours(name, self._final_suffix)

    def _check(self, destination: Destination) -> None:
        if destination.kind is not DestinationKind.QUEUE or "," in destination.name:
            reason = f"can't read {destination}: dead letters are taken from single queues"
            raise QueueRefused(destination.name, reason)
        is_written = self._is_ours(destination.name) and not destination.name.startswith(
            (CAUSES, EVENTS)
        )
        if is_written and destination not in self.taken_back:
            reason = f"won't read {destination}: the sidecar itself writes to it"
            raise QueueRefused(destination.name, reason)
