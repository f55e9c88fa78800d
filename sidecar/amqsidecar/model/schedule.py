"""Rows, states and filters of the schedule."""

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

WholeNumber = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number, or a time in milliseconds, that every store can compare."""


class RowState(StrEnum):
    """Where a scheduled message stands."""

    WAITING = "waiting"
    HELD = "held"
    PARKED = "parked"
    EXHAUSTED = "exhausted"
    """No rule redelivers it, or a person gave it up; kept here, or in a dead-letter queue."""

    # Why: that of enumerations is written in Python, and each row is looked up by it.
    __hash__ = str.__hash__


class Recall(StrEnum):
    """The next step of an exhausted message with its final dead-letter queue."""

    NONE = "none"
    """It stays where it is."""
    SEND = "send"
    """It lies in the queue; taken back, it is sent to its destination."""
    KEEP = "keep"
    """It lies in the queue; taken back, it stays in the schedule."""
    DISCARD = "discard"
    """It lies in the queue; taken back, it is discarded."""
    DROP = "drop"
    """It was taken back to be discarded."""
    RETURN = "return"
    """It was taken back beside others, and goes back when no operation runs."""
    LEAVE = "leave"
    """It lies in the queue by a person's word, or was put back: `keep` leaves it there, too."""
    EXPORT = "export"
    """It is parked or kept in the schedule; written to the journal's folder, it is discarded."""
    RULES = "rules"
    """It lies in the queue; once it is due, the rules redeliver or discard it from there."""
    HELD = "held"
    """It lies in the queue; the rules have it again once a person releases it."""

    __hash__ = str.__hash__  # Why: see `RowState`.


WANTED = (Recall.SEND, Recall.KEEP, Recall.DISCARD)
"""The next steps of messages to be taken back."""

GROUP_PLACES_MAX = 100
"""Maximum rows counted before a row."""


_DATE_DIGITS: Final = 12
_HEXADECIMAL: Final = frozenset("0123456789abcdef")


def first_redelivery_id(uid: str, row_id: int) -> str:
    """Return the redelivery id of a message that dies for the first time.

    Of one store they are in the order of these deaths, as texts.

    Args:
        uid: of the store; see `StoreState`.
        row_id: number of its first row.
    """
    return f"{uid}-{row_id:012d}"


def dated_redelivery_id(redelivery_id: str, now_ms: int) -> str:
    """Return a redelivery id that contains the time of its message's first death.

    Only rules that ask for an age need it; no store and no property of a message has to keep it.
    """
    return f"{redelivery_id}.{now_ms:x}"


def age_ms(redelivery_id: str, now_ms: int) -> int:
    """Return the milliseconds since a message's first death by its id; 0 = the id has no time.

    Any client can write an id: the answer is 0 to `now_ms` for any text.
    """
    _, dot, date = redelivery_id.rpartition(".")
    if not dot or not 0 < len(date) <= _DATE_DIGITS or not _HEXADECIMAL.issuperset(date):
        return 0
    return max(0, now_ms - int(date, 16))


class TakenRow(msgspec.Struct, frozen=True, gc=False):
    """A dead letter as the schedule keeps it.

    Attributes:
        id: from `Store.allocate_ids`; never used again for another message.
        state: whether it goes by itself when due, or waits for a person.
        due_at_ms: when it is to be sent.
        destination: where it belongs, canonical text: the destination that its consumers read.
        is_final: True = it goes to `final_queue` instead, with its provenance.
        source: the dead-letter queue it was taken from, canonical text.
        redelivery_id: the message's id over all its deaths.
        redelivery_count: the count that the sent message will carry.
        delay_ms: the delay that the rules gave; written on the message.
        expiration_ms: final only: time to live there; 0 = for ever.
        rule: the rule that decided, or the reason why it is parked or held.
        cause: the broker's words for why it died.
        cause_group: by `model.failure.failure_cause`; "" = taken before causes were grouped.
        message_id: the id that consumers saw.
        received_at_ms: when it was taken.
        encoding: how `message` is encoded.
        message: the encoded dead letter, as received.
        message_group: `JMSXGroupID`, where a gate needs it and it may be sent again; None = none.
            A schedule that sidecars share doesn't keep it.
        final_queue: its final dead-letter queue, canonical text; None = not decided, which means
            `destination` where `is_final`.
        recall: its next step with its final queue.
        recall_operation: number of the operation that asked for `recall`; 0 = none.
        passes_gates: see `DueRow`.
        gate: the external event that it waits for, where HELD; where it was taken out of its final
            queue: the `Recall` that it has there again; None = none.
    """

    id: int
    state: RowState
    due_at_ms: int
    destination: str
    is_final: bool
    source: str
    redelivery_id: str
    redelivery_count: int
    delay_ms: int
    expiration_ms: int
    rule: str
    cause: str | None
    message_id: str | None
    received_at_ms: int
    encoding: str
    message: bytes
    cause_group: str = ""
    message_group: str | None = None
    final_queue: str | None = None
    recall: Recall = Recall.NONE
    recall_operation: int = 0
    passes_gates: bool = False
    gate: str | None = None

    @property
    def is_in_final_queue(self) -> bool:
        """See `RowView`."""
        return self.state is RowState.EXHAUSTED and self.is_final

    @property
    def decided_queue(self) -> str | None:
        """Its final dead-letter queue; None = it is not final, and none was decided."""
        is_ended = self.is_final or self.state is RowState.EXHAUSTED
        return self.final_queue or (self.destination if is_ended else None)


class DueRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A due row with the fields that a send needs; see `TakenRow`.

    Attributes:
        destination: where it is sent: the final dead-letter queue where `is_final`.
        passes_gates: a person asked to send it now (`acts.Change`).
    """

    id: int
    due_at_ms: int
    destination: str
    is_final: bool
    redelivery_id: str
    redelivery_count: int
    delay_ms: int
    expiration_ms: int
    encoding: str
    message: bytes
    passes_gates: bool = False
    message_group: str | None = None


class GroupPlace(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A row's place among the rows of its destination and message group, by their first death.

    Attributes:
        before: how many rows are before it, `GROUP_PLACES_MAX` at most; 0 = it is the first.
        first_id: the first row of the group.
        first_state: the state of the first row.
        first_due_at_ms: when the first row is to be sent, where it waits; see `RowView.gate`.
        first_awaits: the event outside that the first row waits for, where HELD; None = none.
    """

    before: int
    first_id: int
    first_state: RowState
    first_due_at_ms: int
    first_awaits: str | None = None


class RowView(msgspec.Struct, frozen=True, kw_only=True):
    """A row as people see it; see `TakenRow`.

    Attributes:
        reason: why it is parked, held, or postponed; None = nothing of that.
        in_flight: it is in the current cycle, and only that cycle may change it.
        size_bytes: size of the encoded message.
        cause_group: see `RowFilter`.
        gate: the gate that delays it, or the event outside that it waits for until its due time at
            the latest, where HELD; None = none.
        final_queue: the final dead-letter queue that it goes to or lies in (`is_final`), or would
            go to (EXHAUSTED and kept here); None = none was decided.
        recall, recall_operation: see `TakenRow`.
        group: number of its group, as `cause.group_number`; None = it has none.
    """

    id: int
    state: RowState
    due_at_ms: int
    destination: str
    is_final: bool
    source: str
    redelivery_id: str
    redelivery_count: int
    delay_ms: int
    rule: str
    cause: str | None
    message_id: str | None
    received_at_ms: int
    encoding: str
    size_bytes: int
    reason: str | None = None
    in_flight: bool = False
    cause_group: str = ""
    gate: str | None = None
    final_queue: str | None = None
    recall: Recall = Recall.NONE
    recall_operation: int = 0
    group: int | None = None

    @property
    def awaits(self) -> str | None:
        """The event outside that it waits for; None = none."""
        return self.gate if self.state is RowState.HELD else None

    @property
    def is_in_final_queue(self) -> bool:
        """Whether the broker has the message, and this row only describes it."""
        return self.state is RowState.EXHAUSTED and self.is_final

    @property
    def goes_to(self) -> str:
        """Where it is sent next; its final queue, if it is there."""
        return self.final_queue or self.destination if self.is_final else self.destination


class RowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of rows; all given conditions must hold.

    Attributes:
        ids: row numbers; None = any.
        redelivery_id: None = any.
        destination: canonical text; None = any.
        state: None = any.
        cause_contains: a part of the cause, case-sensitive; None = any.
        cause_group: as `failure.failure_cause` gives it; "" = taken before causes were grouped;
            None = any.
        source: dead-letter queue, canonical text; None = any.
        redelivery_count: the count that the re-send will carry; None = any.
        received_from_ms: taken then or later; None = any.
        received_before_ms: None = any.
        due_before_ms: None = any.
        count_at_least: `redelivery_count` is this or more; None = any.
        lies_in: final queue that holds the message, canonical text; None = any.
        event: name of the event that a held message waits for; None = any.
        destinations: canonical texts of destinations that a person with limited rights may act on;
            None = any.
    """

    ids: tuple[int, ...] | None = None
    redelivery_id: str | None = None
    destination: str | None = None
    state: RowState | None = None
    cause_contains: str | None = None
    cause_group: str | None = None
    source: str | None = None
    redelivery_count: int | None = None
    received_from_ms: int | None = None
    received_before_ms: int | None = None
    due_before_ms: int | None = None
    count_at_least: int | None = None
    lies_in: str | None = None
    event: str | None = None
    destinations: tuple[str, ...] | None = None

    @property
    def only_state(self) -> RowState | None:
        """The state of all rows that it can find; None = any."""
        return RowState.HELD if self.state is None and self.event is not None else self.state


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """How many rows a destination has in one state."""

    destination: str
    state: RowState
    count: int


class ExhaustedTally(msgspec.Struct, frozen=True, kw_only=True):
    """How many exhausted messages of a destination there are in one place.

    Attributes:
        queue: the final dead-letter queue.
        is_in_queue: True = they lie in it; False = the schedule keeps them, it would be theirs.
        since_ms: when the first of them was taken for the last time.
    """

    destination: str
    queue: str
    is_in_queue: bool
    count: int
    since_ms: int


class MissingTally(msgspec.Struct, frozen=True, kw_only=True):
    """A final dead-letter queue that holds fewer messages than went there.

    Attributes:
        count: at least how many are gone: a consumer took them, or the queue was purged.
        seen_at_ms: when the queue was looked at.
    """

    queue: str
    count: int
    seen_at_ms: int


class UnknownTally(msgspec.Struct, frozen=True, kw_only=True):
    """A dead-letter queue that is not read, with messages that are not in the schedule.

    They were given up before the sidecar came, or others put them there.

    Attributes:
        count: how many there are.
        at_least: there may be more, which the broker does not show.
        seen_at_ms: when the queue was looked at.
    """

    queue: str
    count: int
    at_least: bool
    seen_at_ms: int


class GateTally(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of a destination a gate delays, or wait for events outside.

    Attributes:
        gate: "" = they wait for events outside.
        next_due_at_ms: when the first of them asks it again, or waits no more.
        last_due_at_ms: when the last of them does.
    """

    destination: str
    gate: str
    count: int
    next_due_at_ms: int
    last_due_at_ms: int


class UnfinishedCycle(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle that the store knows and whose end it doesn't know."""

    cycle: int
    taken_count: int
    sent_count: int


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a store when it is opened.

    Attributes:
        instance: name of this sidecar's share of the schedule; names the token queue.
        uid: made with the store, never chosen: a row's number is unique together with it, also
            after a store was lost and replaced under the same instance name.
        cycle: the last finished cycle; 0 = none yet.
        unfinished: the cycle after it, where one was begun.
        token_created: whether the first token was put into the broker.
        taken_until_ms: when the newest row of the schedule was taken; 0 = it has none.
    """

    instance: str
    uid: str
    cycle: int
    unfinished: UnfinishedCycle | None
    token_created: bool
    taken_until_ms: int = 0


class InstanceView(msgspec.Struct, frozen=True, kw_only=True):
    """A sidecar that has worked on a shared schedule; see `StoreState`.

    Attributes:
        is_held: a process is this instance now.
        seen_seconds_ago: how long ago its last sign of life was.
        unfinished_cycle: the cycle that it is in, or was in when it ended; None = none.
        manual: patterns of dead letters that it leaves to a person, as `Manual` takes them.
    """

    instance: str
    uid: str
    is_held: bool
    seen_seconds_ago: float
    cycle: int
    unfinished_cycle: int | None
    manual: tuple[str, ...] = ()
