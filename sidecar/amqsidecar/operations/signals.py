"""Events outside: reporting them, and ending the waits of held messages."""

from typing import Final

from amqsidecar.model.row_changes import Exhausting, end_wait
from amqsidecar.model.schedule import RowFilter
from amqsidecar.model.signal import Signal, signal_name
from amqsidecar.operations.act import ActionRefused
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

ENDED_AT_ONCE: Final = 500


def report_event(schedule: Schedule, name: str, author: str, now_ms: int) -> Signal:
    """Store that an event outside has happened; the service releases what waits for it.

    Promise: durable when this returns; reported twice it is the same event, with the later time.

    Raises:
        ActionRefused: it has no such name.
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
        schedule: an open one.
        since_ms: only events that were reported at this time or later.
        now_ms: the time.
        exhausting: see `end_wait`.
    """
    found = schedule.ended_waits(since_ms, now_ms, ENDED_AT_ONCE)
    # Why reversed: an event that was reported comes first, and has the last word.
    ended = {wait.id: wait for wait in reversed(found)}
    if not ended:
        return 0
    return schedule.change(RowFilter(ids=tuple(ended)), end_wait(ended, now_ms, exhausting))
