"""What doctor says of the queue of notes."""

from amqsidecar.diagnosis.cause_notes import CauseNoteSettings, cause_note_findings
from amqsidecar.model.destination import queue

NOTES = CauseNoteSettings(queue=queue("amqsidecar.causes"), obeys=False)
OBEYED = CauseNoteSettings(queue=queue("amqsidecar.causes"), obeys=True)


def test_a_queue_that_can_be_read_is_right() -> None:
    [found] = cause_note_findings(NOTES, "", {"deadLetterAddress": ""}, ())
    assert (found.severity, found.subject) == ("ok", "queue://amqsidecar.causes")


def test_a_refusal_is_a_warning_with_the_brokers_words() -> None:
    [found] = cause_note_findings(NOTES, "may not consume", {}, ())
    assert found.severity == "warning"
    assert found.what.endswith(": may not consume")


def test_notes_that_become_dead_letters_are_noted_with_the_line_that_mends_it() -> None:
    settings = {"deadLetterAddress": "DLQ", "expiryAddress": "ExpiryQueue"}
    _, found = cause_note_findings(NOTES, "", settings, ())
    assert found.severity == "note"
    assert "go to DLQ, ExpiryQueue," in found.what
    assert 'match="amqsidecar.causes"><dead-letter-address/>' in found.mend


def test_verdicts_that_may_redirect_anywhere_are_a_warning() -> None:
    _, found = cause_note_findings(OBEYED, "", {}, ())
    assert (found.severity, found.subject) == ("warning", "redelivery.allowed_origins")
    assert len([*cause_note_findings(OBEYED, "", {}, ("orders.>",))]) == 1
