"""The contract of a schedule: waiting messages, their outcomes, and people's actions on them.

A schedule has three parts: `Store` for cycles, `Ledger` for people, `Outbox` for the journal. A
function that needs one part names that part. Opening returns the schedule (`OpenSchedule`), so no
schedule can be held that was never opened.
"""

from collections.abc import Callable
from typing import Protocol

from amqsidecar.journal import Outbox
from amqsidecar.ledger import Ledger
from amqsidecar.model.failure import FailureGroup, GroupNote, GroupTally
from amqsidecar.model.operation import Operation
from amqsidecar.model.outcome import Observation
from amqsidecar.model.schedule import ExhaustedTally, GateTally, RowFilter
from amqsidecar.store import ReportProgress, Rows, Store


class ScheduleView(Rows, Protocol):
    """The part of a schedule that people read, whether a store or the broker keeps it."""

    @property
    def keeps_exhausted_rows(self) -> bool:
        """Whether messages in final dead-letter queues stay as EXHAUSTED rows."""
        ...

    @property
    def group_key(self) -> bytes:
        """The secret of an open schedule that the numbers of its groups are made with."""
        ...

    def exhausted_tallies(self) -> list[ExhaustedTally]:
        """Return where exhausted messages are, the largest number first; scans no rows."""
        ...

    def gate_tallies(self, now_ms: int) -> list[GateTally]:
        """Return how many messages gates delay beyond a time, the largest number first."""
        ...

    def group_tallies(self) -> list[GroupTally]:
        """Return the number of rows by destination, state and cause group; scans no rows."""
        ...

    def failure_groups(self, since_ms: int, limit: int) -> list[FailureGroup]:
        """Return groups of which one died since, the latest death first, at most `limit`."""
        ...

    def latest_notes(self, limit: int) -> list[GroupNote]:
        """Return the latest note of each group, the latest first, at most `limit`."""
        ...

    def messages_called(self, name: str, limit: int) -> list[str]:
        """Return redelivery ids of messages by the id that consumers saw, or a row's number.

        Waiting messages come first.

        Reads all rows and the whole history: for commands, not for screens.
        """
        ...

    def operation(self, number: int) -> Operation | None:
        """Return an operation; None = no operation has this number."""
        ...

    def observations(self, destination: str, from_ms: int, until_ms: int) -> list[Observation]:
        """Return the observations of a destination in [from, until), the oldest first."""
        ...

    def recent_observations(self, since_ms: int) -> list[Observation]:
        """Return the observations of all destinations since a time, the oldest first."""
        ...


class Schedule(Store, ScheduleView, Ledger, Outbox, Protocol):
    """An open schedule in a store; one object belongs to one thread."""


OpenSchedule = Callable[[], Schedule]
"""Opens a schedule, and creates it where it is missing; the caller closes it.

Raises StoreUnavailable if it can't be opened, SchemaMismatch if an unknown version wrote it.
"""


class BrokerSchedule(ScheduleView, Protocol):
    """A schedule that the broker keeps: reads and actions.

    An action runs in small steps; if it is interrupted, another call does the rest.
    """

    def retry(self, row_filter: RowFilter, progress: ReportProgress) -> None:
        """Make the broker deliver messages now, except parked messages."""
        ...

    def cancel(self, row_filter: RowFilter, suffix: str, progress: ReportProgress) -> None:
        """Move messages to the final dead-letter queue of their address.

        If the process dies inside, some are there and appear at their old time.

        Args:
            suffix: the final dead-letter queue is that of the address plus this.
            progress: called after each step.
        """
        ...


class ShowsSchedule(Protocol):
    """A session of a link to a broker that itself keeps waiting messages."""

    def schedule(self) -> BrokerSchedule:
        """Return the schedule that the broker keeps; it is usable while this session is open."""
        ...
