"""Wires `intake.cause_notes` and `policy.verdicts`: the notes of consumers."""

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.policy import VerdictPolicy
from amqsidecar.engine.cause_notebook import CauseNotebook
from amqsidecar.engine.judging.noted import CauseNotes
from amqsidecar.messages.cause_notes import read_cause_note
from amqsidecar.model.destination import queue
from amqsidecar.runtime.late_notes import UnreadableCauseNotes


def load_cause_notes(config: Config, clock: Clock) -> CauseNotes | None:
    """Return what takes notes; None = the configuration names no queue of notes."""
    name = config.intake.cause_notes.removeprefix("queue://")
    if not name:
        return None
    return CauseNotes(
        queue=queue(name),
        book=CauseNotebook(),
        read=read_cause_note,
        obeys=config.policy.verdicts is VerdictPolicy.OBEY,
        clock=clock,
        report_unreadable=UnreadableCauseNotes(clock).report,
    )
