"""Messages that wait in Artemis for their delivery time, presented like a store.

Quirks (Artemis 2.44): messages that wait are not counted by a filter and not browsed, only listed,
all of a queue at once; and one of them is not moved by its number, but by a filter.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby, islice
from typing import Any

from amqsidecar.brokers.artemis.management import ArtemisQuestions, ManagementQuestion, QueueRow
from amqsidecar.brokers.selectors import of_redelivery_ids
from amqsidecar.engine.broker_held_queues import PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.errors import StoreUnavailable
from amqsidecar.formats.amqp_artemis_message import ENCODING
from amqsidecar.model.destination import Destination, DestinationKind, final_queue, queue
from amqsidecar.model.event import AnyEvent
from amqsidecar.model.failure import FailureGroup, GroupNote, GroupTally
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import (
    ExhaustedTally,
    GateTally,
    InstanceView,
    Recall,
    RowFilter,
    RowState,
    RowView,
    StoreState,
    Tally,
)
from amqsidecar.model.sidecar_names import (
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_DELAY,
    PROPERTY_REDELIVERY_ID,
)
from amqsidecar.store import ENOUGH_ROOM, ReportProgress, Room

LISTED_MAX = 10_000
"""Maximum messages listed at once: each is some hundred bytes of one answer."""

CHUNK = 100
"""Maximum messages named in one command to the broker."""

COMES_AGAIN = "its destination accepts no messages at present; it returns as a dead letter"


class ArtemisSchedule:
    """A `BrokerSchedule` over an open link, which the caller closes."""

    def __init__(self, management: ArtemisQuestions, instance: str) -> None:
        self._management = management
        self._instance = instance

    def state(self) -> StoreState:
        """Return that there are no cycles.

        Raises:
            StoreUnavailable: the user may not ask the broker.
        """
        self._management.demand(error=StoreUnavailable)
        return StoreState(
            instance=self._instance, uid="", cycle=0, unfinished=None, token_created=False
        )

    # ------------------------------------------------------------------ looking

    def tallies(self) -> list[Tally]:
        """Return how many messages wait in each queue, including messages applications delay."""
        found = [
            Tally(
                destination=str(_destination(row)),
                state=RowState.WAITING,
                count=row.scheduled_count,
            )
            for row in self._management.queues()
            if row.scheduled_count
        ]
        parked = self._management.message_count(PARKED_QUEUE.name)
        if parked:
            found.append(Tally(destination=str(PARKED_QUEUE), state=RowState.PARKED, count=parked))
        return found

    def next_due_ms(self) -> None:
        """Return None: finding it would list every message."""

    def holds(self) -> dict[str, int]:
        """Return {}: the broker can't hold a backlog."""
        return {}

    def size_bytes(self) -> int:
        """Return 0: the broker stores everything."""
        return 0

    def room(self) -> Room:
        """Return that there is room: the broker watches its own volume."""
        return ENOUGH_ROOM

    def snapshot(self) -> AbstractContextManager[None]:
        """Do nothing: the broker answers each question as of its own moment."""
        return nullcontext()

    def list_rows(self, row_filter: RowFilter, limit: int, after_id: int = 0) -> list[RowView]:
        """Return our waiting messages, by the broker's number.

        Raises:
            StoreUnavailable: too many wait to be listed, or the broker does not answer.
        """
        rows = sorted(self._rows(row_filter), key=lambda row: row.id)
        return [row for row in rows if row.id > after_id][:limit]

    def count_rows(self, row_filter: RowFilter) -> int:
        """Return how many of our messages the filter matches."""
        return sum(1 for _ in self._rows(row_filter))

    def message(self, row_id: int) -> bytes:
        """Refuse.

        Raises:
            StoreUnavailable: always.
        """
        raise StoreUnavailable("the broker does not show the bytes of waiting messages")

    def history(self, redelivery_id: str) -> list[AnyEvent]:
        """Return nothing: the log is the history."""
        return []

    @property
    def keeps_exhausted_rows(self) -> bool:
        """Return False: the broker does not record which messages this sidecar has sent."""
        return False

    @property
    def group_key(self) -> bytes:
        """Return nothing: the broker keeps no groups."""
        return b""

    def exhausted_tallies(self) -> list[ExhaustedTally]:
        """Return nothing: see `keeps_exhausted_rows`."""
        return []

    def recalled(self, recall: Recall, limit: int) -> list[RowView]:
        """Return nothing: see `keeps_exhausted_rows`."""
        return []

    def gate_tallies(self, now_ms: int) -> list[GateTally]:
        """Return nothing: gates ask for a schedule in a store."""
        return []

    def group_tallies(self) -> list[GroupTally]:
        """Return nothing: the broker keeps no groups."""
        return []

    def failure_groups(self, since_ms: int, limit: int) -> list[FailureGroup]:
        """Return nothing: the broker keeps no groups."""
        return []

    def latest_notes(self, limit: int) -> list[GroupNote]:
        """Return nothing: the broker keeps no groups."""
        return []

    def messages_called(self, name: str, limit: int) -> list[str]:
        """Return nothing: the broker keeps no history."""
        return []

    def operation(self, number: int) -> None:
        """Return None: operations are done at once."""

    def recent_observations(self, since_ms: int) -> list[Observation]:
        """Return none: there are no looks."""
        return []

    def observations(self, destination: str, from_ms: int, until_ms: int) -> list[Observation]:
        """Return nothing: no observations are kept."""
        return []

    def instances(self) -> list[InstanceView]:
        """Return nothing: it has no instances."""
        return []

    def _rows(self, row_filter: RowFilter) -> Iterator[RowView]:
        listed = 0
        for place in self._management.queues():
            destination = _destination(place)
            if row_filter.destination not in (None, str(destination)):
                continue
            is_parked = destination == PARKED_QUEUE
            count = place.message_count if is_parked else place.scheduled_count
            if not count:
                continue
            listed += count
            if listed > LISTED_MAX:
                raise StoreUnavailable(
                    f"more than {LISTED_MAX} messages wait, too many for the broker to list: name "
                    "one --destination with fewer, or use the broker's console"
                )
            for told in self._list(place.name, is_parked=is_parked):
                row = _row(told, destination, is_parked=is_parked)
                if row is not None and _matches(row, row_filter):
                    yield row

    def _list(self, name: str, *, is_parked: bool) -> list[Mapping[str, Any]]:
        question = ManagementQuestion(f"queue.{name}", "listScheduledMessagesAsJSON")
        if is_parked:
            question = ManagementQuestion(f"queue.{name}", "listMessagesAsJSON", ("",))
        answer = self._management.ask(question)
        if not answer.is_ok:
            raise StoreUnavailable(
                f"the waiting messages of {name} can't be listed: {answer.value}"
            )
        found: list[Mapping[str, Any]] = json.loads(answer.value or "[]")
        return found

    # ------------------------------------------------------------------ acting

    def retry(self, row_filter: RowFilter, progress: ReportProgress) -> None:
        for place, names, rows in self._chunks(row_filter):
            self._do(f"queue.{place}", "deliverScheduledMessages", names)
            progress(rows, rows)

    def cancel(self, row_filter: RowFilter, suffix: str, progress: ReportProgress) -> None:
        """Move messages to the final dead-letter queue of their address.

        If the process dies inside, some are there and appear at their old time.
        """
        for place, names, rows in self._chunks(row_filter):
            if place == WAITING_QUEUE.name:
                progress(rows, 0)
                continue
            final = self._final(place, suffix)
            refused = self._management.create_queue(final.name, final.name, is_anycast=True)
            if refused is not None:
                raise StoreUnavailable(f"queue {final.name} can't be made: {refused}")
            moved = int(self._do(f"queue.{place}", "moveMessages", names, final.name))
            self._do(f"queue.{final.name}", "deliverScheduledMessages", names)
            progress(rows, moved)

    def _chunks(self, row_filter: RowFilter) -> Iterator[tuple[str, str, int]]:
        """Yield the name of a queue, a filter for some messages in it, and how many they are."""
        rows = [row for row in self._rows(row_filter) if row.state is RowState.WAITING]
        for destination, of_one in groupby(rows, key=lambda row: row.destination):
            place = destination.rpartition("://")[2].rpartition("::")[2]
            while some := list(islice(of_one, CHUNK)):
                yield place, of_redelivery_ids([row.redelivery_id for row in some]), len(some)

    def _final(self, place: str, suffix: str) -> Destination:
        address = next((row.address for row in self._management.queues(name=place)), place)
        settings = self._management.settings([address])[0]
        name = str(settings.get("deadLetterAddress") or "")
        if not name:
            raise StoreUnavailable(f"address {address} has no dead-letter address to move it to")
        if settings.get("autoCreateDeadLetterResources"):
            prefix = settings.get("deadLetterQueuePrefix", "DLQ.")
            name = f"{prefix}{address}{settings.get('deadLetterQueueSuffix', '')}"
        return final_queue(queue(name), suffix)

    def _do(self, resource: str, operation: str, *arguments: object) -> Any:
        answer = self._management.ask(ManagementQuestion(resource, operation, arguments))
        if not answer.is_ok:
            raise StoreUnavailable(f"{operation} of {resource}: {answer.value}")
        return answer.value or 0


def _destination(row: QueueRow) -> Destination:
    kind = DestinationKind.QUEUE if row.is_anycast else DestinationKind.TOPIC
    is_plain = row.is_anycast and row.name == row.address
    return Destination(kind, row.name if is_plain else f"{row.address}::{row.name}")


def _row(told: Mapping[str, Any], destination: Destination, *, is_parked: bool) -> RowView | None:
    """Return a message as a row; None = it is not ours."""
    redelivery_id = told.get(PROPERTY_REDELIVERY_ID)
    if not redelivery_id:
        return None
    due_at_ms = int(told.get("x-opt-delivery-time") or told.get("_AMQ_SCHED_DELIVERY") or 0)
    delay_ms = int(told.get(PROPERTY_REDELIVERY_DELAY, 0))
    return RowView(
        id=int(told["messageID"]),
        state=RowState.PARKED if is_parked else RowState.WAITING,
        due_at_ms=due_at_ms,
        destination=str(destination),
        is_final=False,
        source="",
        redelivery_id=str(redelivery_id),
        redelivery_count=int(told.get(PROPERTY_REDELIVERY_COUNT, 0)),
        delay_ms=delay_ms,
        rule="",
        cause=None,
        message_id=told.get(PROPERTY_ORIGINAL_MESSAGE_ID),
        received_at_ms=max(0, due_at_ms - delay_ms),
        encoding=ENCODING,
        size_bytes=0,
        reason=COMES_AGAIN if destination == WAITING_QUEUE else None,
    )


def _matches(row: RowView, wanted: RowFilter) -> bool:
    is_older = wanted.received_before_ms is None or row.received_at_ms < wanted.received_before_ms
    return (
        (wanted.ids is None or row.id in wanted.ids)
        and wanted.redelivery_id in (None, row.redelivery_id)
        and wanted.state in (None, row.state)
        and wanted.cause_contains is None
        and is_older
        and (wanted.destinations is None or row.destination in wanted.destinations)
    )
