"""The outcome of a re-send, from observations of its destination.

A re-send counts as consumed only if nothing else can have become of it: its queue was empty after
its window, and all that had left it since before the re-send was acknowledged, or came to the
sidecar as a dead letter. So it makes no difference how many others were on their way.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from amqsidecar.model.operation import OutcomeKind

ARRIVAL_MS: Final = 3_000
"""Maximum time a dead letter may be on its way to the sidecar where no counter shows it."""

PATIENCE_MS: Final = 20_000
"""After this long without a death, stop waiting for a missing dead letter."""


_EMPTIES_MAX = 20

NOT_COUNTED: Final = "this broker shows no acknowledged counter"
"""Why it is unknown whether a message was consumed."""

COUNTING_PLUGIN: Final = "<statisticsBrokerPlugin/>"
COUNTING_MENDS: Final = (
    f"add {COUNTING_PLUGIN} to activemq.xml (for openwire:// only), or set broker.jolokia_url, to "
    "know"
)


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's counters of a queue at one moment.

    Attributes:
        depth: messages in it, those in delivery too; None = unknown.
        acknowledged: how many were acknowledged since the counter began; None = unknown.
        removed: how many went otherwise (expired, killed, purged, moved) since then; None =
            unknown.
        run: counters of different runs, such as before and after a restart, can't be compared.
        counts_deaths_late: dead letters count as acknowledged here, so that only their arrival at
            the sidecar shows them.
        at_least: where the depth is unknown, it holds no fewer.
    """

    depth: int | None
    acknowledged: int | None = None
    removed: int | None = None
    run: str = ""
    counts_deaths_late: bool = False
    at_least: int = 0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One observation of a destination, and the proof that it and earlier observations give.

    It stores its comparison with earlier ones, so a minute's last observation is self-contained.

    Attributes:
        destination: canonical text.
        at_ms: when, by the sidecar's clock.
        depth: messages in it, those in delivery too; None = unknown.
        acknowledged: how many were acknowledged since the broker's counter began; None = this
            broker does not report it.
        removed: how many left otherwise (expired, killed, purged) since then; None = unknown.
        steady_since_ms: since then the counters were not reset, and every message that left without
            an acknowledgement came to the sidecar as a dead letter; None = not known.
        moved_at_ms: the last time that `acknowledged` was seen to rise; None = never.
        empty_at_ms: the last time that it was seen empty, and up to which `steady_since_ms` holds;
            None = never.
        unknown: least number of messages in a dead-letter queue that is not read and that the
            schedule does not hold; 0 for all other queues.
        missing: least number of messages that another program took out of this final queue.
    """

    destination: str
    at_ms: int
    depth: int | None
    acknowledged: int | None = None
    removed: int | None = None
    steady_since_ms: int | None = None
    moved_at_ms: int | None = None
    empty_at_ms: int | None = None
    unknown: int = 0
    missing: int = 0


class Account:
    """Compares observations of one destination; each one holds the proof of all so far.

    A message that left the queue without an acknowledgement is owed, until as many messages that
    died there came to the sidecar. While a message is owed, nothing is proved: it may be a dead
    letter on its way, or a purged message.
    """

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self._last: Counters | None = None
        self._since_ms: int | None = None
        self._owed = 0
        self._owed_since_ms = 0
        self._moved_at_ms: int | None = None
        self._empties_ms: list[int] = []
        self._empty_at_ms: int | None = None

    def look(self, at_ms: int, counters: Counters, died: int, expired: int = 0) -> Observation:
        """Return the observation to keep.

        Args:
            at_ms: the time of the counters, not before they were read.
            counters: the broker's answer.
            died: how many messages that died at this destination came to the sidecar since the last
                call; counted before the counters were read, so that none is ahead of them.
            expired: how many of these had expired.
        """
        # Why: deaths that count as acknowledged must not cancel purged messages.
        is_counted = not counters.counts_deaths_late
        self._compare(at_ms, counters, died, died if is_counted else expired)
        self._last = counters
        return Observation(
            destination=self._destination,
            at_ms=at_ms,
            depth=counters.depth,
            acknowledged=counters.acknowledged,
            removed=counters.removed,
            steady_since_ms=self._since_ms,
            moved_at_ms=self._moved_at_ms,
            empty_at_ms=self._empty_at_ms,
        )

    def _compare(self, at_ms: int, counters: Counters, died: int, paid: int) -> None:
        gone = _gone_between(self._last, counters)
        if gone is None:
            self._begin(None)
            return
        if self._last is not None and (counters.acknowledged or 0) > (self._last.acknowledged or 0):
            self._moved_at_ms = at_ms
        if self._since_ms is None and gone == died == 0:
            self._begin(at_ms)
        if self._since_ms is None:
            return
        if gone or died:
            # Why not below 0: deaths before the first observation must not cancel later removals.
            self._owed = max(0, self._owed + gone - paid)
            self._owed_since_ms = at_ms
        elif self._owed and at_ms - self._owed_since_ms >= PATIENCE_MS:
            self._begin(at_ms)
        if counters.depth == 0:
            self._empties_ms = [*self._empties_ms[-_EMPTIES_MAX:], at_ms]
        if not self._owed:
            until_ms = at_ms - (ARRIVAL_MS if counters.counts_deaths_late else 0)
            settled = [one for one in self._empties_ms if one <= until_ms]
            self._empty_at_ms = settled[-1] if settled else self._empty_at_ms

    def _begin(self, at_ms: int | None) -> None:
        self._since_ms = at_ms
        self._owed = 0
        self._empties_ms = []
        self._empty_at_ms = None
        if at_ms is None:
            self._moved_at_ms = None


def _gone_between(last: Counters | None, now: Counters) -> int | None:
    """Return how many went otherwise than by an acknowledgement; None = can't be compared."""
    if last is None or last.run != now.run:
        return None
    if last.removed is None or now.removed is None or last.acknowledged is None:
        return None
    if now.acknowledged is None or now.acknowledged < last.acknowledged:
        return None
    return now.removed - last.removed if now.removed >= last.removed else None


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a re-send and its evidence, as a sentence."""

    kind: OutcomeKind
    evidence: str


def outcome_of(
    resent_at_ms: int,
    returned_at_ms: int | None,
    observations: Sequence[Observation],
    now_ms: int,
    window_ms: int,
) -> Outcome:
    """Return the outcome of a re-send.

    For as long again as its window it stays RESENT while its queue was not seen empty.

    Args:
        resent_at_ms: when it was re-sent.
        returned_at_ms: when it died again; None = it did not. Has to be asked for after the
            observations, so that no death is missing that they count.
        observations: of its destination, from its re-send on.
        window_ms: time after a re-send in which the message may come back.
    """
    if returned_at_ms is not None and returned_at_ms >= resent_at_ms:
        later = _seconds(returned_at_ms - resent_at_ms)
        return Outcome(OutcomeKind.CAME_BACK, f"died again {later} after it was re-sent")
    window_end_ms = resent_at_ms + window_ms
    if now_ms < window_end_ms:
        left = _seconds(window_end_ms - now_ms)
        return Outcome(OutcomeKind.RESENT, f"it may still come back for {left}")
    after = [one for one in observations if one.at_ms >= window_end_ms]
    reason = "its queue was not examined after its window"
    for one in after:
        problem = _doubt(one, resent_at_ms, window_end_ms)
        if problem is None:
            empty = _seconds((one.empty_at_ms or 0) - resent_at_ms)
            evidence = (
                f"its queue was empty {empty} after its re-send, every message that left it was "
                "acknowledged or visibly died, and it did not come back"
            )
            return Outcome(OutcomeKind.CONSUMED, evidence)
        reason = problem
    if now_ms < window_end_ms + window_ms:
        return Outcome(OutcomeKind.RESENT, f"it did not come back; not proved yet: {reason}")
    if any(one.acknowledged is None and one.depth == 0 for one in after):
        reason = f"left its queue, did not come back; {NOT_COUNTED}: {COUNTING_MENDS}"
    return Outcome(OutcomeKind.UNKNOWN, reason)


def lies_in_queue(seen: Observation, resent_at_ms: int) -> bool:
    """Return whether an observation proves that a re-send is still in its queue.

    Nothing has left the queue since before the re-send.
    """
    is_steady = seen.steady_since_ms is not None and seen.steady_since_ms <= resent_at_ms
    has_left = (seen.moved_at_ms or 0) > resent_at_ms or (seen.empty_at_ms or 0) > resent_at_ms
    return is_steady and bool(seen.depth) and not has_left and seen.at_ms > resent_at_ms


def _doubt(seen: Observation, resent_at_ms: int, window_end_ms: int) -> str | None:
    """Return why an observation proves nothing; None = it proves that all was consumed."""
    is_empty = seen.empty_at_ms is not None and seen.empty_at_ms >= window_end_ms
    is_steady = seen.steady_since_ms is not None and seen.steady_since_ms <= resent_at_ms
    has_moved = seen.moved_at_ms is not None and seen.moved_at_ms > resent_at_ms
    if is_empty and is_steady and has_moved:
        return None
    if seen.depth is None:
        return "the broker does not report its queue's depth"
    if seen.depth and not is_empty:
        return f"its queue was never seen empty; last seen with {seen.depth}"
    if seen.acknowledged is None:
        return "its queue is empty, and the broker does not report acknowledgements"
    if not has_moved:
        return "its queue is empty, but nothing was acknowledged there since"
    return (
        "its queue was not watched without a break since before the re-send, or messages left it "
        "without an acknowledgement or a visible death, such as by a purge; on Classic also by a "
        "consumer that was there only between two checks"
    )


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s"
