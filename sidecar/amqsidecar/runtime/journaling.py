"""The journal is written beside the cycles, from events kept in the store.

A segment is fixed in the store, written, and noted in the store. If the process ends between two
steps, the next writer of this store continues with the same segment.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import structlog

from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import JournalError, SegmentTaken
from amqsidecar.journal import Outbox, OutboxLag, Segment
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import Recall, RowView
from amqsidecar.runtime.recalling import end_discard
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry.metrics import Metrics

LOOK_EVERY_S: Final = 1.0
FORGET_EVERY_S: Final = 3600.0
EXPORTED_AT_ONCE: Final = 500
EXPORTED_BYTES: Final = 16 << 20
"""Maximum bytes of a file of messages that has more than one."""

log = structlog.get_logger("amqsidecar.journal")


class SegmentWriter(Protocol):
    """Where segments are written."""

    def write(self, segment: Segment, blocks: Iterable[Sequence[AnyEvent]]) -> int:
        """Write a segment's file, unless it is there; returns the bytes written.

        Raises:
            JournalError: it can't be written.
            SegmentTaken: there are other events under its number.
        """
        ...

    def write_messages(
        self, folder: str, operation: int, messages: Sequence[tuple[RowView, bytes]]
    ) -> int:
        """Write messages that an operation exports into a file; returns the bytes written.

        Raises:
            JournalError: it can't be written.
        """
        ...

    def forget(self, before_ms: int) -> int:
        """Remove files whose events are all older; returns how many."""
        ...


class Journaling:
    """Writes due segments repeatedly, in a thread with its own store.

    Attributes:
        worker: runs `look`; a write that takes too long at its end is as if killed.

    Args:
        schedule: no other thread uses it.
        clock: gives the age of events.
        metrics: shows unwritten events, and counts.
        segment_events: number of events at which a segment is written,
        segment_ms: or age of the oldest event at which it is.
        keep_ms: files with older events only are removed; 0 = never.
        shares_volume: it lies on the store's volume, so it waits while that is short of space.
        crash_point: tests may end the process at `JOURNAL_NAMES`.
    """

    def __init__(
        self,
        *,
        schedule: KeptSchedule,
        writer: SegmentWriter,
        clock: Clock,
        metrics: Metrics,
        segment_events: int,
        segment_ms: int,
        keep_ms: int,
        shares_volume: bool = False,
        crash_point: CrashPoint = no_crash,
    ) -> None:
        self.worker = Worker("journal", self._step, first_pause_s=LOOK_EVERY_S, release=self.close)
        self._stop = self.worker.stop
        self._kept = schedule
        self._writer = writer
        self._clock = clock
        self._metrics = metrics
        self._segment_events = segment_events
        self._segment_ms = segment_ms
        self._keep_ms = keep_ms
        self._shares_volume = shares_volume
        self._crash_point = crash_point
        self._forget_at_s = clock.monotonic_s()

    def look(self) -> None:
        """Remove old files, and write all segments that are due.

        Raises:
            StoreError: the store can't be asked.
            JournalError: a file can't be written.
        """
        # Why first: on a full volume it is what makes room.
        self._forget()
        with self._kept.open() as store:
            self._drain(store)
            self._export(store)

    def close(self) -> None:
        """Close the store, which stays open from look to look; safe to call twice."""
        self._kept.close()

    def _drain(self, store: Schedule) -> None:
        while self._is_due(self._lag(store)) and not self._stop.is_set():
            self._leave_the_reserve(store)
            began_s = self._clock.monotonic_s()
            segment = store.plan_segment(self._segment_events)
            if segment is None:
                return
            self._write(store, segment)
            # Why: a long outbox must leave the processor and the store to cycles in between.
            self._stop.wait(self._clock.monotonic_s() - began_s)

    def _export(self, store: Schedule) -> None:
        """Write the messages that operations export, then discard them.

        If the process dies between the two, the next one writes them again.
        """
        for recall in (Recall.EXPORT, Recall.DROP):
            wanted: dict[int, list[RowView]] = {}
            for row in store.recalled(recall, EXPORTED_AT_ONCE):
                wanted.setdefault(row.recall_operation, []).append(row)
            for number, rows in wanted.items():
                operation = store.operation(number)
                if operation and operation.exports and not operation.unread_fields:
                    self._leave_the_reserve(store)
                    self._export_of(store, number, rows)

    def _export_of(self, store: Schedule, number: int, rows: Sequence[RowView]) -> None:
        found: list[tuple[RowView, bytes]] = []
        size_bytes = 0
        for row in rows:
            if found and size_bytes + row.size_bytes > EXPORTED_BYTES:
                break
            if (message := store.message(row.id)) is not None:
                found.append((row, message))
                size_bytes += row.size_bytes
        if found:
            self._writer.write_messages(store.state().uid, number, found)
            ids = tuple(row.id for row, _ in found)
            end_discard(store, number, ids, self._clock.now_ms())
            log.info("messages_exported", operation=number, count=len(ids))

    def _leave_the_reserve(self, store: Schedule) -> None:
        reason = store.room().reason if self._shares_volume else ""
        if reason:
            raise JournalError(
                f"{reason}; the journal on the same volume waits too, make room or move it with "
                "journal.path"
            )

    def _write(self, store: Outbox, segment: Segment) -> None:
        """Write a planned segment and note it; where its number is taken, begin a new stream.

        Raises:
            StoreError: the store can't be asked.
            JournalError: the file can't be written.
        """
        self._crash_point("segment_planned")
        try:
            size_bytes = self._writer.write(segment, store.segment_events(segment))
        except SegmentTaken as error:
            # What is there was written by a later state of the store, and happened, too.
            store.plan_anew(segment)
            log.warning("stream_begun_anew", stream=segment.stream, reason=str(error))
            return
        self._crash_point("segment_there")
        store.segment_written(segment)
        self._crash_point("segment_noted")
        self._metrics.add("amqsidecar_journal_segments_total", 1)
        self._metrics.add("amqsidecar_journal_written_bytes_total", size_bytes)
        log.debug(
            "segment_written",
            stream=segment.stream,
            segment=segment.number,
            events=segment.event_count,
            bytes=size_bytes,
        )

    def _lag(self, store: Outbox) -> OutboxLag:
        lag = store.outbox_lag()
        self._metrics.set_journal_lag(lag, self._clock.now_ms())
        return lag

    def _is_due(self, lag: OutboxLag) -> bool:
        if lag.events == 0 or lag.oldest_at_ms is None:
            return False
        age_ms = self._clock.now_ms() - lag.oldest_at_ms
        # Why not below 0: a clock that was set back must not stop the journal.
        return lag.events >= self._segment_events or not 0 <= age_ms < self._segment_ms

    def _forget(self) -> None:
        if not self._keep_ms or self._clock.monotonic_s() < self._forget_at_s:
            return
        self._forget_at_s = self._clock.monotonic_s() + FORGET_EVERY_S
        removed = self._writer.forget(self._clock.now_ms() - self._keep_ms)
        if removed:
            log.info("segments_forgotten", files=removed)

    def _step(self) -> float:
        try:
            self.look()
        except Exception:
            self._metrics.add("amqsidecar_journal_failures_total", 1)
            raise
        return LOOK_EVERY_S
