"""The API's side about notes on groups."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from amqsidecar.http.api.table import ApiEndpoint, Call
from amqsidecar.http.api.views import canonical
from amqsidecar.http.store_queries import QueryContext, StoreQueries
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.failures.find_group import with_numbered
from amqsidecar.operations.failures.former_groups import Place
from amqsidecar.operations.failures.notes import SNOOZE_MAX_MS, read_notes, write_note
from amqsidecar.schedule import Schedule


class GroupNotesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The group."""

    destination: Annotated[str, Meta(description="Where it died.")]
    cause_group: Annotated[
        str, Meta(description="Its cause, as groups name it, or `#` and its number.")
    ]


class NewGroupNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note on a group, with its owner and how long it is snoozed.

    Attributes:
        text: may be empty where one of the others is given.
        owner: the group's new owner; "" = no owner; None = unchanged.
        snooze_s: seconds to hide the group, unless another message dies of it; 0 = show it again;
            None = as it is.
        is_muted: hide the group until more die of it than now; false = show it again; None = as it
            is.
        merge_into: the cause group of the same destination that it becomes a part of; "" = it
            stands alone again; None = as it is.
    """

    destination: str
    cause_group: str
    text: str = ""
    owner: str | None = None
    snooze_s: Annotated[int, Meta(ge=0, le=SNOOZE_MAX_MS // 1000)] | None = None
    is_muted: bool | None = None
    merge_into: str | None = None


class Noting:
    """Keeps and shows notes."""

    def __init__(self, queries: StoreQueries) -> None:
        self._queries = queries

    def endpoints(self) -> Sequence[ApiEndpoint]:
        """Return its part of the table."""
        return [
            ApiEndpoint(
                path="/notes",
                summary="Notes on a group, the latest first.",
                run=self._notes,
                answer=list[GroupNote],
                query=GroupNotesQuery,
                problems={
                    403: "The cause has a masked part: name the group by `#` and its number."
                },
            ),
            ApiEndpoint(
                method="POST",
                path="/notes",
                summary="Write a note on a group, set its owner, snooze, mute or merge it.",
                run=self._write_note,
                answer=GroupNote,
                body=NewGroupNote,
                status=201,
            ),
        ]

    async def _notes(self, call: Call) -> list[GroupNote]:
        place = canonical(call.query.destination), call.query.cause_group
        return await self._queries.ask(
            call.caller, lambda at: read_notes(at.store, self._named(at.store, call, place))
        )

    def _named(self, store: Schedule, call: Call, place: Place) -> Place:
        """Return a group whose cause may be given as a number."""
        asked = Selection(rows=RowFilter(destination=place[0], cause_group=place[1]))
        self._queries.masking.check_selection(asked, call.caller)
        return place[0], with_numbered(store, asked).rows.cause_group or ""

    async def _write_note(self, call: Call) -> GroupNote:
        wanted: NewGroupNote = call.body
        place = canonical(wanted.destination), wanted.cause_group

        def write(at: QueryContext) -> GroupNote:
            return write_note(
                at.store,
                self._named(at.store, call, place),
                wanted.text,
                call.actor,
                at.now_ms,
                owner=wanted.owner,
                snooze_ms=None if wanted.snooze_s is None else wanted.snooze_s * 1000,
                is_muted=wanted.is_muted,
                merge_into=wanted.merge_into
                and self._named(at.store, call, (place[0], wanted.merge_into))[1],
            )

        return await self._queries.ask(call.caller, write)
