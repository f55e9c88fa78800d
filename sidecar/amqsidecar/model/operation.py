"""Operations: what a person does to many messages, as a value that survives a restart.

An operation goes through the rows that its selection hits, in the order of their numbers and up to
the newest there was when it began, in steps. `next_step` says what is next; nothing here knows of
stores or clocks.
"""

from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.schedule import RowFilter


class Action(StrEnum):
    """What an operator can do to scheduled messages."""

    RETRY = "retry"
    """Redeliver now, held and parked ones too."""
    REDIRECT = "redirect"
    """Send now to another destination."""
    CANCEL = "cancel"
    """Give up: to the final dead-letter queue now."""
    DISCARD = "discard"
    """Give up: gone for good, with nothing left but its history."""
    HOLD = "hold"
    RELEASE = "release"


SENDS: Final = frozenset({Action.RETRY, Action.REDIRECT})
"""Actions whose messages may come back."""


class OperationState(StrEnum):
    """Where an operation stands."""

    RUNNING = "running"
    PAUSED = "paused"
    """By a person."""
    STOPPED = "stopped"
    """By itself: too many came back. A person may resume it."""
    CANCELLED = "cancelled"
    DONE = "done"
    """Every row was looked at; outcomes may still come."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows an operation is about.

    Attributes:
        rows: what the store filters by.
        properties: names of application properties and the texts that they must have; reading
            them costs a look into each message.
    """

    rows: RowFilter = RowFilter()
    properties: tuple[tuple[str, str], ...] = ()


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How carefully an operation goes; nothing of it = all at once.

    Attributes:
        probe: so many messages first, then a wait of `window_ms` whether they come back; 0 = none.
        per_second: at most so many messages a second after the probe; None = as fast as it goes.
        ramp: after the probe begin with a tenth of `per_second` and double it with each window in
            which few came back.
        stop_share: stop by itself when more than this share of those came back whose window has
            passed or who came back already; None = never stop.
        window_ms: so long after its re-send a message counts as one that may still come back.
    """

    probe: int = 0
    per_second: float | None = None
    ramp: bool = False
    stop_share: float | None = None
    window_ms: int = 60_000


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation with its progress.

    Attributes:
        id: number in the store, 1-based; 0 = not in one yet.
        actor: who asked, such as `cli:anna` or `console:anna`.
        reason: why, in the person's words; may be empty.
        target: REDIRECT: where to, canonical text.
        expected: how many the preview counted; None = nobody counted.
        state_reason: why it is paused, stopped or cancelled.
        until_id: the newest row when it began: later ones are left alone.
        after_id: rows up to this were looked at.
        matched: rows that the selection hit; those in flight or final may have been left.
        changed: rows that were changed.
        resent: of the changed ones so many were sent since.
        came_back: so many of these died again.
        not_before_ms: no step before this.
        rate: what ramping has reached, messages a second; None = not begun.
        runner: who carries it out now, a name that no other process has; "" = nobody.
        runner_until_ms: if the runner gives no sign until then, anybody may go on.
    """

    id: int
    action: Action
    selection: Selection
    actor: str
    reason: str
    created_at_ms: int
    until_id: int
    pace: Pace = Pace()
    target: str | None = None
    expected: int | None = None
    state: OperationState = OperationState.RUNNING
    state_reason: str = ""
    ended_at_ms: int | None = None
    after_id: int = 0
    matched: int = 0
    changed: int = 0
    resent: int = 0
    came_back: int = 0
    not_before_ms: int = 0
    rate: float | None = None
    runner: str = ""
    runner_until_ms: int = 0


class OutcomeKind(StrEnum):
    """What became of a re-send. No word for success: a move is none."""

    RESENT = "re-sent"
    """It was sent, its window is still open."""
    CONSUMED = "consumed"
    """It left its queue by an acknowledgement, and did not come back within its window."""
    CAME_BACK = "came back"
    UNKNOWN = "unknown"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A message that an operation changed.

    Attributes:
        redelivery_id: of the message.
        destination: where it was to go.
        changed_at_ms: when the operation changed it.
        resent_at_ms: None = not sent yet.
        outcome: None = not sent yet, or an action that sends nothing.
        evidence: what the outcome rests on, a sentence.
    """

    redelivery_id: str
    destination: str
    changed_at_ms: int
    resent_at_ms: int | None = None
    outcome: OutcomeKind | None = None
    evidence: str = ""
