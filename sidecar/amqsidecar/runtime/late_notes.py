"""Writes notes into the schedule that came after the deaths they are about, and obeys them."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from amqsidecar.clock import Clock
from amqsidecar.engine.cause_notebook import Death, HasOneQueue, Join
from amqsidecar.engine.engine import Engine
from amqsidecar.engine.judging.noted import (
    IGNORED,
    RULES_STAND,
    CauseNotes,
    explain,
    explain_ambiguous,
)
from amqsidecar.model import row_changes
from amqsidecar.model.cause_note import CauseNote, RedirectTo
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.event import Explained
from amqsidecar.model.row_changes import Change
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.schedule import Schedule

LOGGED_EVERY_S: Final = 60.0
"""Notes with a problem are logged this often at most, of each kind."""

log = structlog.get_logger("amqsidecar.service")


class NoteProblems:
    """Counts notes and reports that decide nothing, and logs them now and then.

    Args:
        clock: for the time between two lines.
        count_ambiguous: called with each ambiguous note.
    """

    def __init__(self, clock: Clock, count_ambiguous: Callable[[], None]) -> None:
        self._clock = clock
        self._count_ambiguous = count_ambiguous
        self._counts: dict[str, int] = {}
        self._not_before_s: dict[str, float] = {}

    def unreadable(self, kind: str, reason: str) -> None:
        """Record that a message of a kind can't be read; the reason quotes no part of it."""
        self._report(f"{kind}_unreadable", reason=reason)

    def ambiguous(self, event: Explained) -> None:
        """Record that a note may be about a death, and decides nothing."""
        self._count_ambiguous()
        self._report(
            "cause_note_ambiguous",
            consumer=event.consumer,
            destination=event.destination,
            meaning=f"{event.answer}; a note that names its `queue` is certain "
            "(deploy/reference/cause-notes.md)",
        )

    def _report(self, kind: str, **details: str) -> None:
        count = self._counts.get(kind, 0) + 1
        now_s = self._clock.monotonic_s()
        if now_s >= self._not_before_s.get(kind, now_s):
            log.warning(kind, count=count, **details)
            count, self._not_before_s[kind] = 0, now_s + LOGGED_EVERY_S
        self._counts[kind] = count


class LateCauseNotes:
    """Joins late notes over one link; belongs to one thread.

    Args:
        notes: hold the late notes.
        engine: of the link; settles its last cycle, whose rows may not change earlier.
        redirect_problem: see `SendRules`.
        has_one_queue: see `SendRules`.
        group_of: finds the group of a death by its note.
        exhausting: decides the place of exhausted messages.
    """

    def __init__(
        self,
        notes: CauseNotes,
        schedule: Schedule,
        engine: Engine,
        redirect_problem: Callable[[Destination], str | None],
        has_one_queue: HasOneQueue,
        group_of: Callable[[Death, CauseNote], str],
        clock: Clock,
        exhausting: row_changes.Exhausting,
    ) -> None:
        self._notes = notes
        self._schedule = schedule
        self._engine = engine
        self._redirect_problem = redirect_problem
        self._has_one_queue = has_one_queue
        self._group_of = group_of
        self._clock = clock
        self._exhausting = exhausting

    def tend(self) -> None:
        """Exchange notes with other instances, and join notes and deaths since the last call.

        Promise: if the process dies inside, causes and verdicts of this call may be lost, no
        message is.

        Raises:
            StoreUnavailable: the store fails.
        """
        self._exchange()
        if not self._notes.book.has_late:
            return
        self._engine.settle_up()
        now_ms = self._clock.now_ms()
        late = self._notes.book.take_late()
        ambiguous = [
            explain_ambiguous(join.note, join.death, now_ms) for join in late if join.is_ambiguous
        ]
        joins = {join.death.row_id: join for join in late if not join.is_ambiguous}
        events = {row_id: self._event(join, now_ms) for row_id, join in joins.items()}
        seen: set[int] = set()
        verdicts: set[int] = set()

        def explain_row(row: RowView) -> Change | None:
            join = joins[row.id]
            if row.redelivery_id != join.death.redelivery_id:
                return None
            seen.add(row.id)
            change = row_changes.explain(events[row.id])(row)
            if (
                self._notes.obeys
                and join.note.verdict is not None
                and row_changes.waits_for_redelivery(row)
            ):
                verdicts.add(row.id)
            return change

        self._schedule.change(RowFilter(ids=tuple(joins)), explain_row)
        if verdicts:
            self._obey({row_id: joins[row_id] for row_id in verdicts}, now_ms)
        gone = [event for row_id, event in events.items() if row_id not in seen]
        if gone or ambiguous:
            with self._schedule.transaction() as transaction:
                transaction.record(gone + ambiguous)
        for event in ambiguous:
            self._notes.report_ambiguous(event)

    def _exchange(self) -> None:
        book, now_s = self._notes.book, self._clock.monotonic_s()
        self._schedule.share_notes(book.unshared(now_s))
        book.forget_unshared()
        found = self._schedule.shared_notes(book.position)
        book.position = found.position
        for age_s, note in found.notes:
            book.add(note, now_s - age_s, self._has_one_queue, is_shared=True)

    def _event(self, join: Join, now_ms: int) -> Explained:
        event = explain(join.note, join.death, now_ms, self._group_of(join.death, join.note))
        if join.note.verdict is None or (self._notes.obeys and not self._problem(join)):
            return event
        answer = RULES_STAND if self._notes.obeys else IGNORED
        return msgspec.structs.replace(event, answer=answer)

    def _problem(self, join: Join) -> str | None:
        """Return why a verdict can't be obeyed, for any row; None = it can."""
        verdict = join.note.verdict
        if isinstance(verdict, RedirectTo):
            return self._redirect_problem(parse_destination(verdict.destination))
        return None

    def _obey(self, joins: Mapping[int, Join], now_ms: int) -> None:
        def obey(row: RowView) -> Change | None:
            join = joins[row.id]
            if self._problem(join) is not None or not row_changes.waits_for_redelivery(row):
                return None
            return row_changes.obey(join.note, join.death.at_ms, now_ms, self._exhausting)(row)

        self._schedule.change(RowFilter(ids=tuple(joins)), obey)
