"""API routes for notes by people and pipelines: notes on groups, markers, outside events."""

from typing import Annotated

import msgspec
from msgspec import Meta

from amqsidecar.http.api.table import ApiTable, StoreCall
from amqsidecar.http.api.views import canonical
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.model.failure import GroupNote
from amqsidecar.model.marker import Marker
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.model.signal import Signal
from amqsidecar.operations.failures.find_group import with_numbered
from amqsidecar.operations.failures.former_groups import Place
from amqsidecar.operations.failures.notes import SNOOZE_MAX_MS, read_notes, write_note
from amqsidecar.operations.markers import MARKERS_MAX, report_event, set_marker
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
        text: may be empty if another field is given.
        owner: the group's new owner; "" = no owner; None = unchanged.
        snooze_s: seconds to hide the group, unless another message dies of it; 0 = show it again;
            None = unchanged.
        is_muted: hide the group until it dies more often than now; false = show it again; None =
            unchanged.
        merge_into: the cause group of the same destination to merge this group into; "" = separate
            it again; None = unchanged.
    """

    destination: str
    cause_group: str
    text: str = ""
    owner: str | None = None
    snooze_s: Annotated[int, Meta(ge=0, le=SNOOZE_MAX_MS // 1000)] | None = None
    is_muted: bool | None = None
    merge_into: str | None = None


class NewMarker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A marker of the current time.

    Attributes:
        text: what happened, such as `orders 4.2`.
        destination: a pattern of the destinations concerned, such as `orders.>`; "" = all.
    """

    text: str
    destination: str = ""


noting = ApiTable()
"""Keeps and shows notes and markers, and takes reports of events."""


@noting.get(
    "/notes",
    query=GroupNotesQuery,
    problems={403: "The cause has a masked part: name the group by `#` and its number."},
)
def _notes(call: StoreCall, at: QueryContext) -> list[GroupNote]:
    """Notes on a group, the latest first."""
    place = canonical(call.query.destination), call.query.cause_group
    return read_notes(at.store, _named(at.store, call, place))


def _named(store: Schedule, call: StoreCall, place: Place) -> Place:
    """Return a group whose cause may be given as a number."""
    asked = Selection(rows=RowFilter(destination=place[0], cause_group=place[1]))
    call.queries.masking.check_selection(asked, call.caller)
    return place[0], with_numbered(store, asked).rows.cause_group or ""


@noting.post("/notes", body=NewGroupNote, status=201)
def _write_note(call: StoreCall, at: QueryContext) -> GroupNote:
    """Write a note on a group, set its owner, snooze, mute or merge it."""
    wanted: NewGroupNote = call.body
    destination, into = canonical(wanted.destination), wanted.merge_into
    return write_note(
        at.store,
        _named(at.store, call, (destination, wanted.cause_group)),
        wanted.text,
        call.actor,
        at.now_ms,
        owner=wanted.owner,
        snooze_ms=None if wanted.snooze_s is None else wanted.snooze_s * 1000,
        is_muted=wanted.is_muted,
        merge_into=into and _named(at.store, call, (destination, into))[1],
    )


@noting.get("/markers")
def _markers(_call: StoreCall, at: QueryContext) -> list[Marker]:
    """Markers, the latest first."""
    return at.store.markers(0, MARKERS_MAX)


@noting.post("/markers", body=NewMarker, status=201)
def _set_marker(call: StoreCall, at: QueryContext) -> Marker:
    """Mark this moment, as a deployment pipeline does."""
    return set_marker(at.store, call.body.text, call.body.destination, call.actor, at.now_ms)


@noting.post("/events/{name}")
def _report_event(call: StoreCall, at: QueryContext) -> Signal:
    """Report an outside event: messages that wait for it are released."""
    return report_event(at.store, call.part("name"), call.actor, at.now_ms)
