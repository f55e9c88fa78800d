"""Markers, which may explain a new group, and events outside: people and pipelines report both."""

from collections.abc import Sequence
from typing import Final

from amqsidecar.model.destination import parse_pattern
from amqsidecar.model.marker import MARKS_KEPT, Marker
from amqsidecar.model.row_changes import Exhausting, end_wait
from amqsidecar.model.schedule import RowFilter
from amqsidecar.model.signal import Signal, signal_name
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.words import one_line, span
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

LONGEST_MARKER: Final = 200
PATTERNS_MAX: Final = 200
"""Maximum patterns with markers; a further pattern waits until another's markers expire."""
MARKERS_MAX: Final = PATTERNS_MAX * MARKS_KEPT

NEW_SINCE_MS: Final = 24 * 3_600_000
"""A marker this long before a group's first death may still explain it."""


def set_marker(schedule: Schedule, text: str, destination: str, author: str, now_ms: int) -> Marker:
    """Store a marker of this moment; return it.

    Args:
        text: in a few words.
        destination: a pattern such as `orders.>`; "" = all destinations.
        author: its writer's name.

    Raises:
        ActionRefused: the text is empty or too long, there is no such pattern, or too many patterns
            have markers.
    """
    text = text.strip()
    if not 0 < len(text) <= LONGEST_MARKER:
        raise ActionRefused(f"the text of a marker has 1 to {LONGEST_MARKER} characters")
    try:
        pattern = str(parse_pattern(destination)) if destination else ""
    except ValueError as error:
        raise ActionRefused(str(error)) from error
    if "," in pattern or len(pattern) > LONGEST_MARKER:
        raise ActionRefused(
            f"a pattern has at most {LONGEST_MARKER} characters, and names no list of destinations"
        )
    patterns = {one.destination for one in schedule.markers(0, MARKERS_MAX)}
    if pattern not in patterns and len(patterns) >= PATTERNS_MAX:
        raise ActionRefused(
            f"{PATTERNS_MAX} patterns have markers already: use one of them, or a wider one"
        )
    marker = Marker(at_ms=now_ms, text=text, destination=pattern, author=author)
    schedule.add_marker(marker)
    audit.write("mark", selection={"destination": pattern}, after={"text": text})
    return marker


def marker_before(markers: Sequence[Marker], destination: str, first_at_ms: int) -> Marker | None:
    """Return the latest marker of a destination in the day before a group's first death there."""
    return next(
        (
            one
            for one in markers
            if 0 <= first_at_ms - one.at_ms <= NEW_SINCE_MS and one.concerns(destination)
        ),
        None,
    )


def new_since(marker: Marker, now_ms: int) -> str:
    """Return that a group is new since a marker, for people.

    Example:
        >>> new_since(Marker(at_ms=0, text="orders 4.2"), 840_000)
        'new since orders 4.2 (14m ago)'
    """
    return f"new since {one_line(marker.text)} ({span(max(0, now_ms - marker.at_ms))} ago)"


ENDED_AT_ONCE: Final = 500


def report_event(schedule: Schedule, name: str, author: str, now_ms: int) -> Signal:
    """Store that an outside event has happened; the service releases the messages waiting for it.

    Promise: durable when this returns; reported twice it is the same event, and the latter counts.

    Raises:
        ActionRefused: its name is invalid.
    """
    try:
        signal = Signal(name=signal_name(name), at_ms=now_ms, author=author)
    except ValueError as error:
        raise ActionRefused(str(error)) from error
    schedule.add_signal(signal)
    audit.write("event", selection={"event": signal.name})
    return signal


def end_waits(schedule: Schedule, since_ms: int, now_ms: int, exhausting: Exhausting | None) -> int:
    """End the waits of some messages; return how many.

    Promise: a message is changed in one transaction with its history, and only while it still
    waits; if the process dies inside, the next call does the rest.

    Args:
        since_ms: only events that a service saw at this time or later, or has not seen yet.
        exhausting: see `end_wait`.
    """
    found = schedule.ended_waits(since_ms, now_ms, ENDED_AT_ONCE)
    # Why reversed: an event that was reported comes first, and has the last word.
    ended = {wait.id: wait for wait in reversed(found)}
    if not ended:
        return 0
    return schedule.change(RowFilter(ids=tuple(ended)), end_wait(ended, now_ms, exhausting))
