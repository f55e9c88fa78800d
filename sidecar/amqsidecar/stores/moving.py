"""A whole schedule in one form, between two stores; and the fence of a store that moves.

`TABLES` names the columns of this form. Each store's own `moving.py` says which of its columns
differ, and the statements follow from both.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from amqsidecar.errors import StoreMoved, StoreUnavailable

FENCED: Final = 1_000_000
"""Schema number of a fenced store: every program refuses it, even without knowing fences."""

_ROW: Final = (
    *("id", "state", "due_at_ms", "destination", "is_final", "source", "redelivery_id"),
    *("redelivery_count", "delay_ms", "expiration_ms", "rule", "encoding", "received_at_ms"),
    *("size_bytes", "cause", "message_id", "reason", "cause_group", "passes_gates", "gate"),
    *("message_group", "final_queue", "recall", "recall_operation"),
)
_GROUP: Final = ("destination", "cause_group")
TABLES: Final[Mapping[str, Sequence[str]]] = {
    "redelivery": _ROW,
    "discarded": (*_ROW, "operation", "discarded_at_ms"),
    "message": ("id", "body"),
    "hold": ("source", "remaining"),
    "event_block": ("seq", "newest_at_ms", "event_count", "packing", "body", "is_written"),
    "event_key": ("redelivery_id", "block"),
    "failure_group": (*_GROUP, "first_at_ms", "last_at_ms", "total", "example_id"),
    "failure_count": ("bucket_ms", "kind", *_GROUP, "attempt", "count"),
    "operation": ("id", "body"),
    "operation_member": (
        *("operation", "redelivery_id", "destination", "changed_at_ms", "resent_at_ms"),
        *("outcome", "evidence"),
    ),
    "original": ("id", "redelivery_id", "row_id", "edited_at_ms", "actor", "encoding", "body"),
    "queue_observation": ("destination", "minute", "at_ms", "body"),
    "group_note": (
        *("id", *_GROUP, "at_ms", "author", "text", "owner", "snoozed_until_ms", "muted_deaths"),
        "merged_into",
    ),
    "service_mark": (
        *("id", "at_ms", "instance", "kind", "rules_digest", "destination", "text", "author"),
    ),
    "kept_value": ("name", "body"),
    "signal": ("name", "at_ms", "author", "last_block"),
}
"""The columns of each table, in the order in which tables are copied."""

ROWS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 8 << 20


class Fence(NamedTuple):
    """Why no program may use a store.

    Attributes:
        is_source: True = its schedule has moved away; False = it has a copy that is not used yet.
        other: the store at the other end, as people may see it.
    """

    is_source: bool
    other: str

    def refusal(self, place: str) -> StoreMoved:
        """Return the error for a program that opens the store at this place."""
        if self.is_source:
            return StoreMoved(
                f"{place} was moved to {self.other}: set store.url to that; if the move was "
                "interrupted, run the same `amqsidecar schedule move` again"
            )
        return StoreMoved(
            f"{place} has an unfinished copy of {self.other}: run the same `amqsidecar schedule "
            "move` again"
        )


class MovedInstance(NamedTuple):
    """An instance of a schedule; see `StoreState`."""

    name: str
    uid: str
    cycle: int
    token_created: bool


class MovedHead(NamedTuple):
    """The identity and ownership of a whole schedule.

    Attributes:
        group_key: see `ScheduleView.group_key`; goes with the schedule, and so names it.
        instances: the oldest first.
        next_id: no row has had this number or a higher one.
        is_kept: see `Outbox.keep_for_journal`.
        stream: of the journal, with the number of its last segment.
    """

    group_key: bytes
    instances: list[MovedInstance]
    next_id: int
    is_kept: bool
    stream: str
    last_number: int


class Contents(Protocol):
    """All of a schedule, which nobody changes meanwhile."""

    head: MovedHead

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """Return the rows of one of `TABLES`."""
        ...


class MovedStore(Protocol):
    """One end of a move, open and without another user.

    Attributes:
        place: as errors name it.
    """

    place: str

    def fence(self) -> Fence | None:
        """Return why no program may use it; None = it has no fence."""
        ...

    def group_key(self) -> bytes:
        """Return the key that identifies its schedule."""
        ...

    def is_unused(self) -> bool:
        """Whether no service has ever done anything with it."""
        ...

    def tokens(self) -> set[str]:
        """Return the instances that have a token in the broker."""
        ...

    def giving_up(self, other: str) -> AbstractContextManager[Contents]:
        """Read all while nobody writes; the end of the block is the fence, durably.

        Promise: if the process dies in the block, or it ends by an exception, nothing has changed.

        Raises:
            StoreUnavailable: others use it, or it has something unfinished.
        """
        ...

    def receive(self, contents: Contents, other: str) -> None:
        """Replace all by a copy under a fence; durable at the return, in one transaction.

        Raises:
            StoreUnavailable: it can't be written, or others use it.
        """
        ...

    def open_up(self) -> None:
        """Remove the fence; durable at the return."""
        ...

    def close(self) -> None:
        """Close; safe to call twice."""
        ...


def read_statement(
    columns: Sequence[str], source: str, expressions: Mapping[str, str] | None = None
) -> str:
    """Return the SELECT of columns.

    Args:
        columns: by name.
        source: follows FROM.
        expressions: of columns that the source has under another name or in another form.
    """
    selected = ", ".join((expressions or {}).get(name, name) for name in columns)
    return f"SELECT {selected} FROM {source}"  # noqa: S608 - names of ours


def portions(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Return rows a few at a time, fewer where they hold many bytes."""
    portion: list[tuple[Any, ...]] = []
    size_bytes = 0
    for row in rows:
        portion.append(row)
        size_bytes += sum(len(value) for value in row if isinstance(value, bytes))
        if len(portion) == ROWS_AT_ONCE or size_bytes >= BYTES_AT_ONCE:
            yield portion
            portion, size_bytes = [], 0
    if portion:
        yield portion


def unfinished(place: str, what: str) -> StoreUnavailable:
    """Return the error for a store that is not at rest."""
    return StoreUnavailable(f"{place} can't be moved: {what}; nothing was changed")


def instance_for_file(head: MovedHead, name: str | None) -> MovedInstance:
    """Return the one instance of a file: that of the name, else the first that has a token.

    With a name that the schedule doesn't have, it is an instance without a token.
    """
    owners = [one for one in head.instances if one.token_created] or head.instances
    for one in owners:
        if name in (None, one.name):
            return one
    uid = owners[0].uid if owners else secrets.token_hex(4)
    cycle = max((one.cycle for one in owners), default=0)
    return MovedInstance(name or secrets.token_hex(4), uid, cycle, token_created=False)
