"""The API's side about what happens outside: markers, and events that messages wait for."""

import msgspec

from amqsidecar.http.api.table import ApiTable, StoreCall
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.model.marker import Marker
from amqsidecar.model.signal import Signal
from amqsidecar.operations.markers import MARKERS_MAX, report_event, set_marker


class NewMarker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A marker of this moment.

    Attributes:
        text: what happened, such as `orders 4.2`.
        destination: a pattern of what it concerns, such as `orders.>`; "" = all destinations.
    """

    text: str
    destination: str = ""


marking = ApiTable()
"""Sets and shows markers, and takes reports of events."""


@marking.get("/markers")
def _markers(_call: StoreCall, at: QueryContext) -> list[Marker]:
    """Markers, the latest first."""
    return at.store.markers(0, MARKERS_MAX)


@marking.post("/markers", body=NewMarker, status=201)
def _set_marker(call: StoreCall, at: QueryContext) -> Marker:
    """Mark this moment, as a deployment pipeline does."""
    return set_marker(at.store, call.body.text, call.body.destination, call.actor, at.now_ms)


@marking.post("/events/{name}")
def _report_event(call: StoreCall, at: QueryContext) -> Signal:
    """Report an event outside: what waits for it is released."""
    return report_event(at.store, call.part("name"), call.actor, at.now_ms)
