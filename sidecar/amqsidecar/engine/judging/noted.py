"""Judges dead letters with the notes of their consumers, and takes the notes out of the intake."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.clock import Clock
from amqsidecar.engine.cause_notebook import CauseNotebook, Death, HasOneQueue, MessageCopy, copy_at
from amqsidecar.engine.judging.dead_letter_names import TrueOrigin
from amqsidecar.engine.judging.judge import Judgement, Judging
from amqsidecar.engine.judging.reported import OwnQueue
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.errors import UndecodableMessage
from amqsidecar.model.cause import cause_group
from amqsidecar.model.cause_note import CauseNote, Never, RedirectTo, RetryAfter, WaitFor
from amqsidecar.model.decision import Decision, Exhaust, Redeliver, Redirect
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.event import AMBIGUOUS, Explained, Received, Returned
from amqsidecar.model.failure import death_group
from amqsidecar.model.provenance import kept_cause

VERDICT_WAIT_MS: Final = 1_000
"""The shortest delay of a redelivery without a note, where verdicts are obeyed: one may come."""

SHARED_VERDICT_WAIT_MS: Final = 3_000
"""The same where another instance may read the note: both must end a turn before."""

IGNORED: Final = "ignored: policy.verdicts is ignore"
RULES_STAND: Final = "not obeyed: the rules' decision stands"

ReadNote = Callable[[str, bytes], CauseNote]
"""Encoding and message to its note; raises UndecodableMessage."""


class CauseNotes(OwnQueue, frozen=True, kw_only=True):
    """The queue of notes, and the parts needed to take them.

    Attributes:
        book: joins them with deaths.
        obeys: verdicts are obeyed.
        wait_ms: the shortest delay of a redelivery without a note, where verdicts are obeyed.
        clock: for the age of a note.
        true_origin: finds the origin where a message shows another.
        is_copied: see `OneQueue`.
        report_unreadable: called with the reason why a note can't be read.
        report_ambiguous: called with each event of a note that decides nothing.
    """

    book: CauseNotebook
    read: ReadNote
    obeys: bool
    wait_ms: int
    clock: Clock
    true_origin: TrueOrigin
    is_copied: Callable[[Destination], bool]
    report_unreadable: Callable[[str], None]
    report_ambiguous: Callable[[Explained], None]

    def find(self, delivery: Delivery) -> CauseNote | None:
        """Return the note about a dead letter; None = none came by now."""
        return self.book.find(self.copy_of(delivery), self.clock.monotonic_s())

    def copy_of(self, delivery: Delivery) -> MessageCopy:
        """Return the copy of a message that a dead letter is."""
        provenance, origin = delivery.provenance, self.origin_of(delivery)
        name = None if origin is None else str(origin)
        return copy_at(provenance.message_id, name, provenance.redelivery_count)

    def origin_of(self, delivery: Delivery) -> Destination | None:
        """Return where a dead letter died; None = it is not known."""
        named = delivery.provenance.origin
        return None if named is None else self.true_origin(named, delivery.source)

    def advise(self, delivery: Delivery, decision: Redeliver) -> Decision:
        """Apply the consumer's verdict to a redelivery."""
        note = self.find(delivery)
        if note is None:
            # Why: "retry after" is never early, also where the note comes a little later.
            return replace(decision, delay_ms=max(decision.delay_ms, self.wait_ms))
        return advised(decision, note)


def advised(decision: Redeliver, note: CauseNote) -> Decision:
    """Apply a note's verdict to a redelivery; the rules still limit the number."""
    count, rule = decision.redelivery_count, verdict_rule(note, decision.rule)
    match note.verdict:
        case RetryAfter(delay_ms):
            return replace(decision, delay_ms=delay_ms, rule=rule)
        case WaitFor(event, longest_ms):
            return replace(decision, until=event, longest_ms=longest_ms, rule=rule)
        case Never():
            return Exhaust(rule)
        case RedirectTo(destination):
            to = parse_destination(destination)
            return Redirect(to, decision.delay_ms, count, rule, decision.edit)
        case None:
            return decision


def verdict_rule(note: CauseNote, rule: str) -> str:
    """Return the rule of a decision that follows a verdict."""
    because = f" ({cause_group(note.cause)})" if note.cause else ""
    return f"verdict of {note.author}: {note.verdict}{because} -> {rule}"


class NotedJudge:
    """Judges with notes; asks another judge for the verdicts."""

    def __init__(self, judge: Judging, notes: CauseNotes, has_one_queue: HasOneQueue) -> None:
        self._judge = judge
        self._notes = notes
        self._has_one_queue = has_one_queue

    @property
    def send_rules(self) -> SendRules:
        """See `Judging`."""
        return self._judge.send_rules

    def prepare(self, deliveries: Sequence[Delivery], /) -> Sequence[Delivery]:
        """Read the notes among deliveries, in any order; see `Judging`."""
        deliveries = self._judge.prepare(deliveries)
        notes = self._notes
        now_s = notes.clock.monotonic_s()
        for delivery in deliveries:
            if notes.is_of(delivery):
                try:
                    note = notes.read(delivery.encoding, delivery.message)
                    notes.book.add(note, now_s, self._has_one_queue)
                except UndecodableMessage as error:
                    notes.report_unreadable(str(error))
        return deliveries

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the verdict on a delivery; a note is taken, and leaves nothing in the schedule."""
        notes = self._notes
        if notes.is_of(delivery):
            return Judgement(None, ())
        now_s, origin = notes.clock.monotonic_s(), notes.origin_of(delivery)
        copy, openwire_id = notes.copy_of(delivery), delivery.provenance.openwire_id
        if openwire_id is not None:
            notes.book.learn_id(copy, openwire_id, now_s)
        if origin is not None:
            notes.book.assign(copy, origin, now_s, self._has_one_queue)
        note = notes.find(delivery)
        if note is not None and note.cause:
            cause = kept_cause(note.cause)
            provenance = msgspec.structs.replace(delivery.provenance, cause=cause)
            delivery = msgspec.structs.replace(delivery, provenance=provenance)
        found = self._judge.judge(delivery, uid, row_id, now_ms, is_backlog=is_backlog)
        received = found.events[0] if found.events else None
        if not isinstance(received, Received):
            return found
        death = death_of(received)
        if note is not None:
            found = self._explained(found, received, note)
        elif (doubtful := notes.book.find_ambiguous(death.copy, now_s)) is not None:
            event = explain_ambiguous(doubtful, death, received.at_ms)
            notes.report_ambiguous(event)
            events = (received, event, *found.events[1:])
            found = msgspec.structs.replace(found, events=events)
        notes.book.meet(death, is_explained=note is not None, now_s=now_s)
        return found

    def _explained(self, found: Judgement, received: Received, note: CauseNote) -> Judgement:
        rule = found.row.rule if found.row is not None else ""
        explained = msgspec.structs.replace(
            explain(note, death_of(received), received.at_ms, death_group(received)),
            answer=self._answer(note, rule),
            # Why: it is counted with its death.
            former_group="",
        )
        return msgspec.structs.replace(found, events=(received, explained, *found.events[1:]))

    def _answer(self, note: CauseNote, rule: str) -> str:
        if note.verdict is None or rule.startswith("verdict of "):
            return ""
        return RULES_STAND if self._notes.obeys else IGNORED


def death_of(received: Received) -> Death:
    """Return the death that an event records."""
    attempt = received.redelivery_count if isinstance(received, Returned) else 0
    return Death(
        row_id=received.id,
        redelivery_id=received.redelivery_id,
        at_ms=received.at_ms,
        copy=copy_at(received.message_id, received.origin, attempt),
        destination=parse_destination(received.origin or received.source),
        cause_group=death_group(received),
        is_expired=received.expired,
    )


def explain(note: CauseNote, death: Death, now_ms: int, group: str) -> Explained:
    """Return the event of a death's note."""
    return Explained(
        at_ms=now_ms,
        id=death.row_id,
        redelivery_id=death.redelivery_id,
        destination=str(death.destination),
        cause=kept_cause(note.cause) or None,
        consumer=note.author,
        stack_hash=note.stack_hash,
        traceparent=note.traceparent,
        verdict="" if note.verdict is None else str(note.verdict),
        died_at_ms=death.at_ms,
        cause_group=group,
        former_group="" if group == death.cause_group else death.cause_group,
        attempt=death.copy.attempt,
    )


def explain_ambiguous(note: CauseNote, death: Death, now_ms: int) -> Explained:
    """Return the event of a note that may be about a death, and decides nothing."""
    return msgspec.structs.replace(
        explain(note, death, now_ms, death.cause_group), cause_group="", answer=AMBIGUOUS
    )
