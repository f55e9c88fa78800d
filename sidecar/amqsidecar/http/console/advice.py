"""Facts about a group and advice, in sentences."""

from collections.abc import Container
from typing import Final

from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import Recall, RowState, RowView
from amqsidecar.operations.failures.groups import Group
from amqsidecar.operations.overview import DestinationRecovery, RecoveryState
from amqsidecar.operations.select import NEEDED_STATES
from amqsidecar.operations.words import CAUSE_SOURCES, lacks_cause, many

_LYING: Final = {Recall.RULES: RowState.WAITING, Recall.HELD: RowState.HELD}


def known_of(group: Group, recovery: DestinationRecovery | None) -> list[str]:
    """Return the facts about a group, the most important first.

    Args:
        recovery: of its destination; None = nothing was re-sent there in the last 24 hours.
    """
    said = [died(group.recent_messages, group.recent)]
    states = (
        (group.exhausted, "exhausted"),
        (group.parked, "parked"),
        (group.held, "held"),
        (group.waiting, "waiting for the next attempt"),
    )
    kept = [f"{count:,} {word}" for count, word in states if count]
    if kept:
        said.append(f"Now: {', '.join(kept)}.")
    if recovery is not None:
        part, whole = recovery.came_back.part, recovery.came_back.whole
        since = f" since {recovery.since}" if recovery.since else " in 24 hours"
        said.append(f"Of {whole:,} re-sent to its destination{since}, {part:,} came back.")
    return said


def next_steps(group: Group, recovery: DestinationRecovery | None) -> list[str]:
    """Return advice, the most urgent first; empty if the group has a cause and no messages left."""
    state = None if recovery is None else recovery.state
    steps = []
    if group.exhausted:
        steps.append("The exhausted messages wait for a person: fix the cause, then retry them.")
    if group.parked:
        steps.append(
            "The parked messages can't be sent: open one to see the reason, then retry or redirect "
            "them."
        )
    if state is RecoveryState.LIES:
        steps.append("The re-sent messages are still in their queue: check the consumers.")
    if group.waiting and state is RecoveryState.FAILS:
        steps.append("Most re-sends come back: hold the group until the cause is fixed.")
    elif group.waiting and group.recent:
        steps.append(
            "The waiting messages are sent automatically; hold them if the cause needs time to be "
            "fixed."
        )
    elif group.waiting:
        steps.append("Nothing to do: they are sent automatically when they are due.")
    if group.held:
        steps.append(
            "The held messages are sent when a person releases or retries them, or when their wait "
            "for an event ends: it is reported, or the longest time has passed."
        )
    if lacks_cause(group.cause_group):
        steps.append(CAUSE_SOURCES)
    return steps


def acting_states(row: RowView) -> list[RowState]:
    """Return the states of rows whose actions may change a row."""
    lying = _LYING.get(row.recall) if row.is_in_final_queue else None
    also = RowState.WAITING if row.awaits is not None else lying
    return [row.state, *([also] if also else [])]


def useless_actions(states: Container[RowState]) -> list[Action]:
    """Return actions that would change no message in these states."""
    return [action for action, needed in NEEDED_STATES.items() if needed not in states]


def died(messages: int, deaths: int) -> str:
    """Return the number of messages of the last hour by their deaths.

    Example:
        >>> died(5000, 9730)
        '5,000 messages died in the last hour, 9,730 times.'
    """
    if not deaths:
        return "No death of this group in the last hour."
    times = "" if deaths == messages else f", {many(deaths, 'time')}"
    return f"{many(messages, 'message')} died in the last hour{times}."
