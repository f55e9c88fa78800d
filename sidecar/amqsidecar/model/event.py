"""All events, as a union of types; the schema of the history.

Events of a cycle are written to the store in the transaction that changes the schedule, so they
match the changes even after kills. The same values feed log and metrics after the broker's commit.
Times are milliseconds since the epoch, counts are 0-based unless said otherwise.
"""

from typing import Final, Protocol, TypedDict

import msgspec


class Event(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="type", omit_defaults=True
):
    """Base of all events.

    Attributes:
        at_ms: when the sidecar decided or did it.
        id: number of the row in the store; 0 = concerns no single message.
        redelivery_id: a message's id over all its deaths; "" = concerns no single message.
    """

    at_ms: int
    id: int = 0
    redelivery_id: str = ""


class About(TypedDict):
    """The fields that every event about a row has."""

    at_ms: int
    id: int
    redelivery_id: str
    destination: str


class _Known(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def redelivery_id(self) -> str: ...


def about_row(row: _Known, at_ms: int, destination: str) -> About:
    """Return these fields for a row, from the row or from one of its events."""
    return About(at_ms=at_ms, id=row.id, redelivery_id=row.redelivery_id, destination=destination)


class Received(Event, frozen=True, gc=False, kw_only=True, tag="received"):
    """A dead letter was taken from the broker for the first time.

    Attributes:
        properties: application properties that `journal.properties` names, as text; None = none.
        cause_group: the group by `intake.group_by`; "" = that of its cause.
        life: an id of the delivery, equal on the broker's dead letter and the listener's copy,
            behind `dead:` or `copy:`; "" = not known, or without the listener.
        traceparent: the producer's trace context; "" = the message is not traced, or has none.
    """

    source: str
    origin: str | None = None
    cause: str | None = None
    expired: bool = False
    redelivery_count: int = 0
    message_id: str | None = None
    size_bytes: int = 0
    persistent: bool = True
    properties: dict[str, str] | None = None
    cause_group: str = ""
    life: str = ""
    traceparent: str = ""


class Returned(Received, frozen=True, gc=False, kw_only=True, tag="returned"):
    """A message that the sidecar had re-sent died again and was taken again."""


AMBIGUOUS: Final = (
    "ambiguous: it names no queue, or that of this death is not known, and it may be about another "
    "copy of the message; it decides nothing"
)
"""The answer to a note that is recorded with each death that it may be about."""


class Explained(Event, frozen=True, gc=False, kw_only=True, tag="explained"):
    """Its consumer wrote a note of why it failed on it (`cause-notes.md`); once for each death.

    Attributes:
        destination: where it died.
        cause: in the consumer's words.
        consumer: the application's name and version.
        stack_hash, traceparent: as in the note; "" = it has none.
        verdict: the consumer's advice; "" = none.
        answer: why the verdict was not obeyed; "" = it was obeyed, or there is none. `AMBIGUOUS` =
            the note gives neither cause nor group, and its verdict is not obeyed.
        died_at_ms: the time of the death.
        cause_group: the group that it has by the note; "" = the note is ambiguous.
        former_group: the group that it was counted in, where it was taken before the note came; ""
            = it is in the right one.
        attempt: as `CountKey.attempt` of the death.
    """

    destination: str
    cause: str | None = None
    consumer: str = ""
    stack_hash: str = ""
    traceparent: str = ""
    verdict: str = ""
    answer: str = ""
    died_at_ms: int = 0
    cause_group: str = ""
    former_group: str = ""
    attempt: int = 0


class Regrouped(Event, frozen=True, gc=False, kw_only=True, tag="regrouped"):
    """The group that it was in became a part of another one: by later texts, or by a person.

    Attributes:
        destination: where it died.
        cause_group: the group that it is in now.
        former_group: the group that it was in.
    """

    destination: str
    cause_group: str
    former_group: str


class Scheduled(Event, frozen=True, gc=False, kw_only=True, tag="scheduled"):
    """The rules redeliver it; `redelivery_count` is the count that the re-send will carry."""

    destination: str
    delay_ms: int
    due_at_ms: int
    redelivery_count: int
    rule: str


class Exhausted(Event, frozen=True, gc=False, kw_only=True, tag="exhausted"):
    """No rule redelivers it; it goes to the final queue, lies there, or is kept for a person.

    Attributes:
        destination: the final dead-letter queue.
        decided_destination: the queue that the broker's rules name, if the sidecar renamed it.
    """

    destination: str
    rule: str
    expiration_ms: int = 0
    decided_destination: str | None = None


class Discarded(Event, frozen=True, gc=False, kw_only=True, tag="discarded"):
    """The rules or a person discarded it; the message is gone."""

    destination: str
    rule: str
    actor: str | None = None


class Restored(Event, frozen=True, gc=False, kw_only=True, tag="restored"):
    """A person undid its discard: it is in the schedule again, as it was before."""

    destination: str
    actor: str


class Missed(Event, frozen=True, gc=False, kw_only=True, tag="missed"):
    """It is gone from its queue: consumed, moved or purged by somebody else, or expired."""

    destination: str


class Parked(Event, frozen=True, gc=False, kw_only=True, tag="parked"):
    """It can't be redelivered now; it is kept for a person."""

    destination: str
    reason: str


class Held(Event, frozen=True, gc=False, kw_only=True, tag="held"):
    """It is kept until a person, or an event outside that `reason` names, releases it."""

    destination: str
    reason: str
    actor: str | None = None


class Resent(Event, frozen=True, gc=False, kw_only=True, tag="resent"):
    """It was sent to its original destination; `redelivery_count` is the count it carries."""

    destination: str
    redelivery_count: int
    lateness_ms: int


class OutcomeProved(Event, frozen=True, gc=False, kw_only=True, tag="outcome_proved"):
    """The broker's counters prove the outcome of a re-send; once for each re-send.

    Without it and without a `Returned`, the outcome is unknown.

    Attributes:
        outcome: `consumed`, or `queued`: it still lies in its queue.
        redelivery_count: the count that the re-send carried.
        lateness_ms: of the re-send.
        consumer: the application's name and version by the note of the death before; "" = none.
    """

    destination: str
    outcome: str
    redelivery_count: int
    lateness_ms: int
    consumer: str = ""


class DeadLettered(Event, frozen=True, gc=False, kw_only=True, tag="dead_lettered"):
    """It was sent to the final dead-letter queue."""

    destination: str
    redelivery_count: int


class DuplicateSuppressed(Event, frozen=True, gc=False, kw_only=True, tag="duplicate_suppressed"):
    """The broker had this re-send already, so it counts as sent.

    Only in histories of versions that sent messages with `_AMQ_DUPL_ID`; never recorded now.
    """

    destination: str
    redelivery_count: int


class DestinationBlocked(Event, frozen=True, gc=False, kw_only=True, tag="destination_blocked"):
    """A destination can't take re-sends for now; its due messages wait.

    Attributes:
        gate: the gate that closed; "" = the destination itself takes nothing.
    """

    destination: str
    reason: str
    retry_at_ms: int
    gate: str = ""


class Retried(Event, frozen=True, gc=False, kw_only=True, tag="retried"):
    """A person asked to redeliver it now.

    If it was exhausted, its redeliveries are counted from here.

    Attributes:
        reason: why, in the person's words.
    """

    destination: str
    actor: str
    reason: str = ""


class Released(Event, frozen=True, gc=False, kw_only=True, tag="released"):
    """A person or an event outside released a held message; `due_at_ms` is its new time."""

    destination: str
    due_at_ms: int
    actor: str


class Cancelled(Event, frozen=True, gc=False, kw_only=True, tag="cancelled"):
    """A person gave up on it: it goes to the final dead-letter queue."""

    destination: str
    actor: str


class Redirected(Event, frozen=True, gc=False, kw_only=True, tag="redirected"):
    """A person asked to send it to another destination now; `destination` is the new one.

    Attributes:
        reason: see `Retried`.
    """

    destination: str
    actor: str
    reason: str = ""


class Edited(Event, frozen=True, gc=False, kw_only=True, tag="edited"):
    """A person changed body or properties; the original is kept as long as the history."""

    destination: str
    actor: str


class Marked(Event, frozen=True, gc=False, kw_only=True, tag="marked"):
    """A person or a deployment pipeline set a marker.

    Attributes:
        destination: the pattern of the destinations that it concerns; "" = all destinations.
        reason: its text.
    """

    destination: str
    actor: str
    reason: str


class CycleInDoubt(Event, frozen=True, gc=False, kw_only=True, tag="cycle_in_doubt"):
    """The token is gone or of another time: messages that the cycle took and sent count as waiting.

    If it is of another time, all waiting messages were held.

    Attributes:
        token_is_missing: the broker has no token, like a new and empty broker.
    """

    cycle: int
    taken_count: int
    sent_count: int
    reason: str
    token_is_missing: bool = False

    @property
    def doubts_nothing(self) -> bool:
        """Whether no cycle was unfinished, and no token says that something else happened."""
        return self.token_is_missing and not (self.taken_count or self.sent_count)


class CycleRecovered(Event, frozen=True, gc=False, kw_only=True, tag="cycle_recovered"):
    """The token proved how an interrupted cycle ended.

    Attributes:
        verdict: `committed` or `rolled_back`.
    """

    cycle: int
    verdict: str
    taken_count: int
    sent_count: int


AnyEvent = (
    Received
    | Returned
    | Explained
    | Regrouped
    | Scheduled
    | Exhausted
    | Discarded
    | Restored
    | Missed
    | Parked
    | Held
    | Resent
    | OutcomeProved
    | DeadLettered
    | DuplicateSuppressed
    | DestinationBlocked
    | Retried
    | Released
    | Cancelled
    | Redirected
    | Edited
    | Marked
    | CycleInDoubt
    | CycleRecovered
)
