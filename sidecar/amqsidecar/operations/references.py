"""Resolves ids in any output: of a message, an operation, a group or a store."""

from typing import Final

import msgspec

from amqsidecar.model.event import AnyEvent
from amqsidecar.model.schedule import RowView, StoreState
from amqsidecar.operations.browse import is_row_number, read_story
from amqsidecar.operations.failures.find_group import numbered_groups
from amqsidecar.operations.failures.former_groups import Place
from amqsidecar.operations.words import clock_time, one_line
from amqsidecar.schedule import ScheduleView

MESSAGES_MAX: Final = 20
"""Maximum messages named that have the same message id."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """An object that an id names besides the shown message.

    Attributes:
        kind: `message`, `operation`, `group` or `store`.
        id: names it in the command.
        what: its description.
        command: shows its details; "" = no command does.
    """

    kind: str
    id: str
    what: str
    command: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The object of an id; see `Story`.

    Attributes:
        redelivery_id: of the message; None = the id names no message.
        also: other objects that it names.
    """

    redelivery_id: str | None = None
    rows: list[RowView] = []
    history: list[AnyEvent] = []
    also: list[Reference] = []


def find_reference(schedule: ScheduleView, reference: str, state: StoreState) -> Found | None:
    """Return all that an id names; None = nothing.

    Message ids and numbers of former rows are looked for in all rows and in the whole history.

    Args:
        reference: a row number, a redelivery id, a message id, the number of an operation or of a
            group (`#4711`), or the id or name of a store.
        state: the state that opening the store returned.
    """
    also: list[Reference] = []
    story = read_story(schedule, reference, state.uid)
    if story is None:
        names = schedule.messages_called(reference, MESSAGES_MAX)
        story = read_story(schedule, names[0], state.uid) if names else None
        also += [_message(one) for one in names[1:]]
    also += [*_operations(schedule, reference), *_groups(schedule, reference)]
    also += _stores(schedule, reference, state)
    if story is not None:
        return Found(**msgspec.structs.asdict(story), also=also)
    return Found(also=also) if also else None


def list_groups_of(schedule: ScheduleView, reference: str, state: StoreState) -> list[Place]:
    """Return the groups that an id names: by their number, or by a message that waits in them.

    Args:
        schedule: as `find_reference`.
        reference: as `find_reference`.
        state: as `find_reference`.
    """
    found = find_reference(schedule, reference, state) or Found()
    places = [(row.destination, row.cause_group) for row in found.rows if row.cause_group]
    number = reference.removeprefix("#")
    if is_row_number(number):
        places += numbered_groups(schedule, int(number))
    return list(dict.fromkeys(places))


def _message(redelivery_id: str) -> Reference:
    return Reference(
        kind="message",
        id=redelivery_id,
        what="another message with this message id",
        command=f"amqsidecar show {redelivery_id}",
    )


def _operations(schedule: ScheduleView, reference: str) -> list[Reference]:
    operation = schedule.operation(int(reference)) if is_row_number(reference) else None
    if operation is None:
        return []
    began = clock_time(operation.created_at_ms)
    what = f"{operation.action.word} by {one_line(operation.actor)}, {began}, {operation.state}"
    command = f"amqsidecar operation show {reference}"
    return [Reference(kind="operation", id=reference, what=what, command=command)]


def _groups(schedule: ScheduleView, reference: str) -> list[Reference]:
    number = reference.removeprefix("#")
    if not is_row_number(number):
        return []
    return [
        Reference(
            kind="group",
            id=number,
            what=f"{one_line(destination)}: {one_line(cause_group)}",
            command=f"amqsidecar list --group {number}",
        )
        for destination, cause_group in numbered_groups(schedule, int(number))
    ]


def _stores(schedule: ScheduleView, reference: str, state: StoreState) -> list[Reference]:
    known = {state.uid: state.instance}
    known |= {one.uid: one.instance for one in schedule.instances()}
    return [
        Reference(
            kind="store",
            id=uid,
            what=f"this schedule, instance {instance}; its messages are {uid}-NUMBER",
            command="amqsidecar status",
        )
        for uid, instance in known.items()
        if reference in (uid, instance)
    ]
