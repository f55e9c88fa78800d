"""The history of a message, in order, with the outcome of each re-send."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from amqsidecar.model import event as events
from amqsidecar.model.cause import given_reason
from amqsidecar.model.failure import death_group
from amqsidecar.model.outcome import Observation, Outcome, outcome_of
from amqsidecar.operations.words import clock_time, one_line, span
from amqsidecar.schedule import Schedule

LOOK_MS: Final = 24 * 3_600_000
"""Time after a re-send in which observations of its destination are used."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a message's life.

    Attributes:
        event: what happened.
        kind: its name in the history, such as `resent`.
        said: its further details, for people.
        cause_group: of a death; None = not a death.
        outcome: of a re-send, with its evidence; None = not a re-send.
    """

    event: events.AnyEvent
    kind: str
    said: str
    cause_group: str | None = None
    outcome: Outcome | None = None


def read_life(
    schedule: Schedule,
    history: Callable[[], Sequence[events.AnyEvent]],
    now_ms: int,
    window_ms: int,
) -> list[Moment]:
    """Return the events of a message, the oldest first.

    Args:
        window_ms: time after a re-send in which the message may come back.
    """
    seen = {
        event: schedule.observations(
            event.destination, event.at_ms, min(now_ms, event.at_ms + LOOK_MS) + 1
        )
        for event, returned_at_ms in _resends(history())
        if returned_at_ms is None
    }
    # Why again: a death that the observations count must not be missing.
    found = history()
    outcomes = {
        event: outcome_of(event.at_ms, returned_at_ms, seen.get(event, _NOTHING), now_ms, window_ms)
        for event, returned_at_ms in _resends(found)
    }
    return [
        Moment(
            event=event,
            kind=tag_of(event),
            said=words,
            cause_group=death_group(event) if isinstance(event, events.Received) else None,
            outcome=outcomes.get(event) if isinstance(event, _Resend) else None,
        )
        for event, words in zip(found, describe_all(found), strict=True)
    ]


_NOTHING: Sequence[Observation] = ()
_Resend = events.Resent | events.DuplicateSuppressed


def _resends(history: Sequence[events.AnyEvent]) -> list[tuple[_Resend, int | None]]:
    """Return re-sends, each with when it was seen to have come back; None = it was not."""
    found: list[tuple[_Resend, int | None]] = []
    returned_at_ms: int | None = None
    for event in reversed(history):
        if isinstance(event, events.Returned):
            returned_at_ms = event.at_ms
        elif isinstance(event, _Resend):
            found.append((event, returned_at_ms))
            returned_at_ms = None
    return found[::-1]


def tag_of(event: events.AnyEvent) -> str:
    """Return the tag of a kind of event in the history."""
    return str(event.__struct_config__.tag)


DESCRIPTIONS: Final[Mapping[type[events.Event], Callable[[Any], str]]] = {
    events.Explained: lambda event: (
        f"{event.consumer} says: {_first_line(event.cause) or 'nothing'}{_advised(event)}"
    ),
    events.Regrouped: lambda event: (
        f"in the group {one_line(event.cause_group)}, formerly {one_line(event.former_group)}"
    ),
    events.Scheduled: lambda event: (
        f"to {event.destination} in {span(max(0, event.delay_ms))}, "
        f"count {event.redelivery_count}: {event.rule}"
    ),
    events.Exhausted: lambda event: f"to {event.destination}: {event.rule}",
    events.Discarded: lambda event: f"{event.destination}: {event.rule}",
    events.Restored: lambda event: f"{event.destination}: {event.actor} undid its discard",
    events.Missed: lambda event: (
        f"gone from {event.destination}: consumed, moved or purged by somebody else, or expired"
    ),
    events.Parked: lambda event: f"{event.destination}: {event.reason}",
    events.Held: lambda event: f"{event.destination}: {event.reason}",
    events.Resent: lambda event: (
        f"to {event.destination}, count {event.redelivery_count}, "
        f"{span(max(0, event.lateness_ms))} after its time"
    ),
    events.OutcomeProved: lambda event: (
        f"{event.destination}, count {event.redelivery_count}: {event.outcome}"
    ),
    events.DeadLettered: lambda event: f"to {event.destination}, count {event.redelivery_count}",
    events.DuplicateSuppressed: lambda event: f"{event.destination}: the broker already had it",
    events.DestinationBlocked: lambda event: f"{event.destination}: {event.reason}",
    events.Retried: lambda event: f"to {event.destination} by {event.actor}{_because(event)}",
    events.Cancelled: lambda event: f"to {event.destination} by {event.actor}",
    events.Redirected: lambda event: f"to {event.destination} by {event.actor}{_because(event)}",
    events.Edited: lambda event: f"{event.destination}: edited by {event.actor}",
    events.Marked: lambda event: (
        f"{one_line(event.reason, 200)} by {event.actor}, {event.destination or 'all destinations'}"
    ),
    events.Released: lambda event: (
        f"to {event.destination} by {event.actor}, due {clock_time(event.due_at_ms)}"
    ),
    events.CycleInDoubt: lambda event: f"cycle {event.cycle}: {event.reason}",
    events.CycleRecovered: lambda event: f"cycle {event.cycle}: {event.verdict}",
}


def _first_line(cause: str | None) -> str:
    """Return the begin of a cause without its stack trace."""
    return one_line(given_reason(cause).partition("\n")[0], 200)


def _advised(event: events.Explained) -> str:
    advice = f"; its verdict: {event.verdict}" if event.verdict else ""
    return f"{advice} ({event.answer})" if event.answer else advice


def _because(event: events.Retried | events.Redirected) -> str:
    return f" because: {one_line(event.reason, 200)}" if event.reason else ""


def describe_all(history: Iterable[events.AnyEvent]) -> list[str]:
    """Return the moments of one message's history; numbers the lives that people gave it."""
    said, lives, has_ended = [], 1, False
    for event in history:
        words = describe(event)
        if isinstance(event, events.Exhausted | events.Cancelled):
            has_ended = True
        elif isinstance(event, events.Retried | events.Redirected) and has_ended:
            lives, has_ended = lives + 1, False
            words = f"life {lives} begins: {words}"
        said.append(words)
    return said


def describe(event: events.AnyEvent) -> str:
    """Return an event's content besides its type, for people."""
    if isinstance(event, events.Received):
        expired = "expired, " * event.expired
        reason = _first_line(event.cause) or "no reason given"
        return f"from {event.source}, {expired}{reason}"
    return DESCRIPTIONS[type(event)](event)
