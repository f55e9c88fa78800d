"""Wires `intake.cause_notes` and `policy.verdicts`: the notes of consumers."""

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.policy import VerdictPolicy
from amqsidecar.diagnosis.cause_notes import CauseNoteSettings
from amqsidecar.engine.cause_notebook import CauseNotebook
from amqsidecar.engine.judging.noted import SHARED_VERDICT_WAIT_MS, VERDICT_WAIT_MS, CauseNotes
from amqsidecar.messages.cause_notes import read_cause_note
from amqsidecar.model.destination import queue
from amqsidecar.runtime.late_notes import UnreadableCauseNotes


def cause_note_settings(config: Config) -> CauseNoteSettings | None:
    """Return how notes are read; None = the configuration names no queue of notes."""
    name = config.intake.cause_notes.removeprefix("queue://")
    if not name:
        return None
    return CauseNoteSettings(queue=queue(name), obeys=config.policy.verdicts is VerdictPolicy.OBEY)


def load_cause_notes(config: Config, clock: Clock) -> CauseNotes | None:
    """Return the taker of notes; None = the configuration names no queue of notes."""
    settings = cause_note_settings(config)
    if settings is None:
        return None
    return CauseNotes(
        queue=settings.queue,
        book=CauseNotebook(),
        read=read_cause_note,
        obeys=settings.obeys,
        wait_ms=SHARED_VERDICT_WAIT_MS if config.store.is_shared else VERDICT_WAIT_MS,
        clock=clock,
        report_unreadable=UnreadableCauseNotes(clock).report,
    )
