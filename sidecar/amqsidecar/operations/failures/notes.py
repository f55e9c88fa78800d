"""Notes of people on groups of failures."""

from typing import Final

from amqsidecar.model.failure import GROUPS_MAX, GroupNote
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.failures.former_groups import Place, read_cause_groups
from amqsidecar.operations.failures.groups import Group, read_group
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
    is_muted: bool | None = None,
    merge_into: str | None = None,
) -> GroupNote:
    """Store a note on a group, with its owner, its snooze and its mute; return it.

    Args:
        text: the note; may be empty where owner or snooze are given.
        author: the author's name.
        owner: the group's new owner; "" = no owner, None = unchanged.
        snooze_ms: time to hide the group, unless another message dies of it; 0 = show it again,
            None = unchanged.
        is_muted: hide the group until it dies more often than now; False = show it again, None =
            unchanged.
        merge_into: cause group of the same destination to merge this group into; "" = separate it
            again, but its moved deaths stay; None = unchanged.

    Raises:
        ActionRefused: it is empty or too long, no message ever died of that there, or the groups
            can't be merged.
    """
    text, owner = text.strip(), owner if owner is None else owner.strip()
    if not text and (owner, snooze_ms, is_muted, merge_into) == (None, None, None, None):
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
    had = group.note or GroupNote(
        destination=group.destination, cause_group=group.cause_group, at_ms=0, author="", text=""
    )
    muted = group.recent if is_muted else had.muted_deaths if group.is_muted else None
    until_ms = group.snoozed_until(now_ms)
    note = GroupNote(
        destination=group.destination,
        # Why: it is the former group that stands alone again.
        cause_group=place[1] if merge_into == "" else group.cause_group,
        at_ms=now_ms,
        author=author,
        text=text,
        owner=had.owner if owner is None else owner,
        snoozed_until_ms=until_ms if snooze_ms is None else snooze_ms and now_ms + snooze_ms,
        muted_deaths=None if is_muted is False else muted,
        merged_into=_merged_into(schedule, group, merge_into, now_ms) if merge_into else "",
    )
    schedule.add_note(note)
    names = ("owner", "snoozed_until_ms", "muted_deaths", "merged_into")
    before = {name: getattr(had, name) for name in names} | {"snoozed_until_ms": until_ms}
    after = {name: getattr(note, name) for name in (*names, "text")}
    selection = {"destination": note.destination, "cause_group": note.cause_group}
    audit.write("note", selection=selection, before=before, after=after)
    return note


def _merged_into(schedule: Schedule, group: Group, wanted: str, now_ms: int) -> str:
    """Return the key of the group to merge into."""
    target = read_group(schedule, (group.destination, wanted), now_ms)
    if target is None:
        raise ActionRefused(f"{group.destination} has no group {wanted!r} to merge into")
    if target.cause_group == group.cause_group:
        raise ActionRefused("they are one group already")
    return target.cause_group


def read_notes(schedule: Schedule, place: Place) -> list[GroupNote]:
    """Return the notes on the group at a place and on groups merged into it, the latest first."""
    known = read_cause_groups(schedule)
    here = place[0], known.find(*place)
    latest = schedule.latest_notes(GROUPS_MAX)
    places = [(one.destination, one.cause_group) for one in latest]
    found = [
        note
        for one in places
        if (one[0], known.find(*one)) == here
        for note in schedule.notes(*one)
    ]
    return sorted(found, key=lambda note: -note.at_ms)
