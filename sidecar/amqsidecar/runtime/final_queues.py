"""Compares final dead-letter queues with the rows of their messages.

A single observation proves nothing: a cycle may take and send during it. So messages count as
missing or unknown only if two observations agree and the sidecar took nothing out of the queue
between them. Other messages can hide missing messages from a depth; where it falls behind, the
queue is browsed and the missing rows are found by their redelivery ids.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import structlog

from amqsidecar.broker import IntakeQueue, LookSession
from amqsidecar.errors import BrokerRefused
from amqsidecar.model import row_changes
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.event import AnyEvent, Held
from amqsidecar.model.outcome import Observation
from amqsidecar.model.provenance import lying_id
from amqsidecar.model.schedule import Recall, RowFilter, RowState
from amqsidecar.schedule import Schedule

BROWSED_MAX: Final = 10_000
"""Maximum depth of a queue that is browsed, and maximum rows that one look forgets."""

log = structlog.get_logger("amqsidecar.watching")


class FinalLook(msgspec.Struct, frozen=True, kw_only=True):
    """A final queue at one look.

    Attributes:
        known: rows whose messages lay there before the look.
        depth: messages in it, those in delivery too; None = unknown.
        at_least: where the depth is unknown, it holds no fewer.
        is_suspect: it holds fewer messages than expected.
        was_suspect: so did the look before.
        gone: rows that a complete browse did not find; None = there was no complete browse.
    """

    known: int
    depth: int | None
    at_least: int = 0
    is_suspect: bool = False
    was_suspect: bool = False
    gone: frozenset[int] | None = None

    @property
    def surplus(self) -> int:
        """How many more messages than rows there are; negative = fewer."""
        return (self.at_least if self.depth is None else self.depth) - self.known

    @property
    def foreign(self) -> int | None:
        """Messages that the schedule does not know; None = only a complete browse could count."""
        if self.is_suspect and self.gone is None:
            return None
        return max(0, self.surplus + len(self.gone or ()))


def agree(before: FinalLook, now: FinalLook) -> tuple[int, int, frozenset[int]]:
    """Return the facts proved by two looks at a final queue; nothing left it between them.

    Returns:
        The least number of messages there unknown to the schedule; the least number of further rows
        without a message; and the rows whose messages are gone.
    """
    gone = (before.gone or frozenset()) & (now.gone or frozenset())
    surpluses = before.surplus, now.surplus
    is_counted = before.depth is not None and now.depth is not None
    unknown = max(0, min(surpluses) + len(gone)) if before.known == now.known else 0
    missing = max(0, -max(surpluses) - len(gone)) if is_counted else 0
    return unknown, missing, gone


class FinalQueueWatch:
    """Follows the final queues; one object belongs to one thread."""

    def __init__(self) -> None:
        self._looks: dict[str, FinalLook] = {}
        self._foreign: dict[str, int] = {}
        """Messages by queue that the schedule does not know; two looks agreed on them."""

    def count_known(self, schedule: Schedule) -> Mapping[str, int]:
        """Return how many rows lie in each final queue; to be called before each look."""
        if is_recalling(schedule):
            self._looks.clear()
        known = Counter[str]()
        for one in schedule.exhausted_tallies():
            if one.is_in_queue:
                known[one.queue] += one.count
        return known

    def follow(self, events: Iterable[AnyEvent]) -> None:
        """Forget looks at queues out of which messages were taken back since."""
        for event in events:
            if isinstance(event, Held) and event.reason == row_changes.TAKEN_BACK:
                self._looks.pop(event.destination, None)

    def forget_looks(self) -> None:
        """Forget all looks: something may have left one of the queues."""
        self._looks.clear()

    def needs_look_soon(self, queue: str) -> bool:
        """Return whether the next look may prove a suspicion of the latest look."""
        look = self._looks.get(queue)
        return look is not None and (look.is_suspect and (bool(look.gone) or not look.was_suspect))

    def compare(
        self,
        schedule: Schedule,
        link: LookSession | None,
        seen: Observation,
        known: int,
        at_least: int,
    ) -> Observation:
        """Return an observation with unknown and missing messages; forget rows that are gone.

        Promise: each forgotten row is removed together with its event.

        Args:
            link: the link that looked; None = lost.
            seen: the look.
            known: from `count_known` before the look.
            at_least: minimum depth, if the depth is unknown.

        Raises:
            LinkLost: the connection is gone.
        """
        name = seen.destination
        look = FinalLook(known=known, depth=seen.depth, at_least=at_least)
        foreign = self._foreign.get(name)
        if known and (look.surplus if foreign is None else look.surplus < foreign):
            gone = _find_gone(schedule, link, seen)
            look = msgspec.structs.replace(look, is_suspect=True, gone=gone)
        if is_recalling(schedule):
            self._looks.clear()
            return seen
        before = self._looks.get(name)
        self._looks[name] = look
        if before is None:
            return seen
        self._looks[name] = msgspec.structs.replace(look, was_suspect=before.is_suspect)
        unknown, missing, gone = agree(before, look)
        if before.foreign is not None and look.foreign is not None:
            self._foreign[name] = min(before.foreign, look.foreign)
        if gone:
            forget_gone(schedule, name, tuple(sorted(gone)), seen.at_ms)
        return msgspec.structs.replace(seen, unknown=unknown, missing=missing)


def forget_gone(schedule: Schedule, queue: str, ids: tuple[int, ...], now_ms: int) -> None:
    """Forget rows whose messages left a queue, each together with its event."""
    count = schedule.change(RowFilter(ids=ids), row_changes.miss(now_ms, queue))
    log.warning(
        "exhausted_gone",
        queue=queue,
        count=count,
        meaning="gone: consumed, moved or purged by somebody else, or expired",
    )


def is_recalling(schedule: Schedule) -> bool:
    """Return whether the sidecar takes messages out of final queues, or puts them back."""
    left = (Recall.NONE, Recall.LEAVE, Recall.RULES, Recall.HELD)
    return any(schedule.count_recalled(one) for one in Recall if one not in left)


def _find_gone(
    schedule: Schedule, link: LookSession | None, seen: Observation
) -> frozenset[int] | None:
    """Return rows whose messages a queue does not hold; None = it can't be seen as a whole."""
    if link is None or seen.depth is None or seen.depth > BROWSED_MAX:
        return None
    queue = parse_destination(seen.destination)
    # Why before the browse: a message that comes later has no row here. Why from the oldest: who
    # empties a queue takes these first.
    lying = RowFilter(state=RowState.EXHAUSTED, lies_in=seen.destination)
    rows = schedule.list_rows(lying, BROWSED_MAX)
    try:
        asked = IntakeQueue(queue, is_final=True)
        found = (lying_id(one.provenance) for one in link.browse(asked, BROWSED_MAX))
        held = Counter(found) if seen.depth else Counter[str]()
        after = link.queue_counters([queue]).get(queue)
    except BrokerRefused:
        return None
    if after is None or after.depth is None or held.total() < after.depth:
        # Why nothing: another reader has some in hand, or the browse ended early.
        return None
    return frozenset(row.id for row in rows if row.redelivery_id not in held)
