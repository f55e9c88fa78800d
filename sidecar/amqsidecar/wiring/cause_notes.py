"""Wires `intake.cause_notes` and `policy.verdicts`: the notes of consumers."""

from collections.abc import Callable

from amqsidecar.clock import Clock
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.policy import VerdictPolicy
from amqsidecar.diagnosis.cause_notes import CauseNoteSettings
from amqsidecar.engine.cause_notebook import CauseNotebook
from amqsidecar.engine.judging.noted import SHARED_VERDICT_WAIT_MS, VERDICT_WAIT_MS, CauseNotes
from amqsidecar.engine.judging.one_queue import copied_by
from amqsidecar.engine.judging.origin import true_origins
from amqsidecar.messages.cause_notes import read_cause_note
from amqsidecar.model.destination import queue
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.runtime.late_notes import CauseNoteProblems


def cause_note_settings(config: Config) -> CauseNoteSettings | None:
    """Return how notes are read; None = the configuration names no queue of notes."""
    name = config.intake.cause_notes.removeprefix("queue://")
    if not name:
        return None
    return CauseNoteSettings(queue=queue(name), obeys=config.policy.verdicts is VerdictPolicy.OBEY)


def load_cause_notes(
    config: Config, clock: Clock, classic: ClassicRules | None, count_ambiguous: Callable[[], None]
) -> CauseNotes | None:
    """Return the taker of notes; None = the configuration names no queue of notes.

    Args:
        config: of the service.
        clock: of the schedule.
        classic: the given rules of Classic; None = others, or none are given.
        count_ambiguous: called with each note that may be about another copy of a message.
    """
    settings = cause_note_settings(config)
    if settings is None:
        return None
    problems = CauseNoteProblems(clock, count_ambiguous)
    return CauseNotes(
        queue=settings.queue,
        book=CauseNotebook(),
        read=read_cause_note,
        obeys=settings.obeys,
        wait_ms=SHARED_VERDICT_WAIT_MS if config.store.is_shared else VERDICT_WAIT_MS,
        clock=clock,
        true_origin=true_origins(classic),
        is_copied=copied_by(None if classic is None else classic.interceptors),
        report_unreadable=problems.unreadable,
        report_ambiguous=problems.ambiguous,
    )
