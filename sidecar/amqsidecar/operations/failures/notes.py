"""Notes of people on groups of failures."""

from typing import Final

from amqsidecar.model.group_note import GroupNote
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.failures.groups import Place, read_group
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

LONGEST_NOTE: Final = 2_000
LONGEST_OWNER: Final = 100


SNOOZE_MAX_MS: Final = 90 * 24 * 3_600_000


def write_note(
    schedule: Schedule,
    place: Place,
    text: str,
    author: str,
    now_ms: int,
    *,
    owner: str | None = None,
    snooze_ms: int | None = None,
) -> GroupNote:
    """Store a note on a group, with its owner and the end of its snooze; return it.

    Args:
        schedule: an open one.
        place: the group.
        text: the note; may be empty where owner or snooze are given.
        author: the author's name.
        now_ms: the time.
        owner: the group's new owner; "" = no owner, None = unchanged.
        snooze_ms: time to hide the group, unless another message dies of it; 0 = show it again,
            None = as it is.

    Raises:
        ActionRefused: it is empty or too long, or no message ever died of that there.
    """
    text, owner = text.strip(), owner if owner is None else owner.strip()
    if not text and owner is None and snooze_ms is None:
        raise ActionRefused("a note needs a text")
    if len(text) > LONGEST_NOTE:
        raise ActionRefused(f"a note has at most {LONGEST_NOTE} characters")
    if owner is not None and len(owner) > LONGEST_OWNER:
        raise ActionRefused(f"the name of an owner has at most {LONGEST_OWNER} characters")
    if snooze_ms is not None and not 0 <= snooze_ms <= SNOOZE_MAX_MS:
        raise ActionRefused("a group can be snoozed for 90 days at most")
    group = read_group(schedule, place, now_ms)
    if group is None:
        raise ActionRefused("the history has no death of this cause there")
    had = group.note.owner if group.note else ""
    until_ms = group.note.snoozed_until_ms if group.note and group.is_snoozed(now_ms) else 0
    note = GroupNote(
        destination=place[0],
        cause_group=place[1],
        at_ms=now_ms,
        author=author,
        text=text,
        owner=had if owner is None else owner,
        snoozed_until_ms=until_ms if snooze_ms is None else snooze_ms and now_ms + snooze_ms,
    )
    schedule.add_note(note)
    before = {"owner": had, "snoozed_until_ms": until_ms}
    after = {"owner": note.owner, "snoozed_until_ms": note.snoozed_until_ms, "text": text}
    selection = {"destination": place[0], "cause_group": place[1]}
    audit.write("note", selection=selection, before=before, after=after)
    return note
