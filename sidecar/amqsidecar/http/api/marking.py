"""The API's side about what happens outside: markers, and events that messages wait for."""

from collections.abc import Sequence

import msgspec

from amqsidecar.http.api.table import ApiEndpoint, Call
from amqsidecar.http.store_queries import QueryContext, StoreQueries
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


class Marking:
    """Sets and shows markers, and takes reports of events."""

    def __init__(self, queries: StoreQueries) -> None:
        self._queries = queries

    def endpoints(self) -> Sequence[ApiEndpoint]:
        """Return its part of the table."""
        return [
            ApiEndpoint("/markers", "Markers, the latest first.", self._markers, list[Marker]),
            ApiEndpoint(
                method="POST",
                path="/markers",
                summary="Mark this moment, as a deployment pipeline does.",
                run=self._set_marker,
                answer=Marker,
                body=NewMarker,
                status=201,
            ),
            ApiEndpoint(
                method="POST",
                path="/events/{name}",
                summary="Report an event outside: what waits for it is released.",
                run=self._report_event,
                answer=Signal,
            ),
        ]

    async def _markers(self, call: Call) -> list[Marker]:
        return await self._queries.ask(call.caller, lambda at: at.store.markers(0, MARKERS_MAX))

    async def _report_event(self, call: Call) -> Signal:
        def report(at: QueryContext) -> Signal:
            return report_event(at.store, call.part("name"), call.actor, at.now_ms)

        return await self._queries.ask(call.caller, report)

    async def _set_marker(self, call: Call) -> Marker:
        wanted: NewMarker = call.body

        def mark(at: QueryContext) -> Marker:
            return set_marker(at.store, wanted.text, wanted.destination, call.actor, at.now_ms)

        return await self._queries.ask(call.caller, mark)
