"""Notes on groups of failures: what a person leaves for the next one."""

from typing import Final

from amqsidecar.ledger import Ledger
from amqsidecar.model.note import GroupNote
from amqsidecar.operations.act import Refused
from amqsidecar.operations.groups import Place, read_group

LONGEST_NOTE: Final = 2_000


def write_note(ledger: Ledger, place: Place, text: str, author: str, now_ms: int) -> GroupNote:
    """Keep a note on a group; returns it.

    Args:
        ledger: of an open store.
        place: the group.
        text: the note.
        author: who writes it.
        now_ms: the time.

    Raises:
        Refused: it is empty or too long, or nobody ever died of that there.
    """
    text = text.strip()
    if not text:
        raise Refused("a note needs a text")
    if len(text) > LONGEST_NOTE:
        raise Refused(f"a note has at most {LONGEST_NOTE} characters")
    if read_group(ledger, place, now_ms) is None:
        raise Refused("nothing died of this cause there, as far as the history goes")
    note = GroupNote(
        destination=place[0], cause_group=place[1], at_ms=now_ms, author=author, text=text
    )
    ledger.add_note(note)
    return note
