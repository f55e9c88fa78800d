"""The API's side about notes on groups."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from amqsidecar.http.access import Refused
from amqsidecar.http.api_look import canonical
from amqsidecar.http.api_table import Call, Endpoint
from amqsidecar.http.desk import Desk, OpenStore
from amqsidecar.model.note import GroupNote
from amqsidecar.model.schedule import StoreState
from amqsidecar.operations import act
from amqsidecar.operations.notes import write_note


class NotesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which group."""

    destination: Annotated[str, Meta(description="Where it died.")]
    cause_group: Annotated[str, Meta(description="Its cause, as groups name it.")]


class NewNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A note on a group."""

    destination: str
    cause_group: str
    text: str


class Noting:
    """Keeps and shows notes."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def endpoints(self) -> Sequence[Endpoint]:
        """Return its part of the table."""
        return [
            Endpoint(
                method="GET",
                path="/notes",
                summary="What people wrote down about a group, the latest first.",
                run=self._notes,
                answer=list[GroupNote],
                query=NotesQuery,
            ),
            Endpoint(
                method="POST",
                path="/notes",
                summary="Write a note on a group.",
                run=self._write_note,
                answer=GroupNote,
                body=NewNote,
                status=201,
            ),
        ]

    async def _notes(self, call: Call) -> list[GroupNote]:
        place = canonical(call.query.destination), call.query.cause_group
        return await self._desk.ask(lambda store, _state, _now_ms: store.notes(*place))

    async def _write_note(self, call: Call) -> GroupNote:
        wanted: NewNote = call.body
        place = canonical(wanted.destination), wanted.cause_group

        def write(store: OpenStore, _state: StoreState, now_ms: int) -> GroupNote:
            try:
                return write_note(store, place, wanted.text, call.actor, now_ms)
            except act.Refused as error:
                raise Refused(400, str(error)) from error

        return await self._desk.ask(write)
