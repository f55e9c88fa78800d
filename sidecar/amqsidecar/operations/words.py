"""Times, durations and sizes in words for people, equal on screens and command line."""

from datetime import UTC, datetime
from typing import Final

from amqsidecar.model.cause import NO_REASON, given_reason
from amqsidecar.model.schedule import ExhaustedTally, MissingTally, RowState, RowView, UnknownTally
from amqsidecar.model.shown import shown


def clock_time(at_ms: int) -> str:
    """Return a time for people, in UTC.

    Example:
        >>> clock_time(1_700_000_000_123)
        '2023-11-14 22:13:20.123Z'
    """
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{at_ms} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{at_ms % 1000:03d}Z"


def span(milliseconds: int) -> str:
    """Return a length of time for people, in its two largest units.

    Example:
        >>> span(3_723_000)
        '1h 2m'
        >>> span(450)
        '450ms'
    """
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds = milliseconds // 1000
    parts: list[tuple[int, str]] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count or parts:
            parts.append((count, unit))
        if len(parts) == 2:
            break
    return " ".join(f"{count}{unit}" for count, unit in parts if count)


def due(due_at_ms: int, now_ms: int) -> str:
    """Return when something is due, seen from now.

    Example:
        >>> due(61_000, 1_000), due(0, 1_000)
        ('in 1m', 'overdue 1s')
    """
    if due_at_ms > now_ms:
        return f"in {span(due_at_ms - now_ms)}"
    return f"overdue {span(now_ms - due_at_ms)}"


def size(count_bytes: int) -> str:
    """Return a size for people.

    Example:
        >>> size(1536)
        '1.5 KiB'
    """
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def many(count: int, thing: str, things: str | None = None) -> str:
    """Return how many of a thing.

    Example:
        >>> many(1, "message"), many(1200, "message")
        ('1 message', '1,200 messages')
    """
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def one_line(text: str | None, limit: int = 100) -> str:
    """Return a text on one line, with everything visible and cut to a length; "" for None."""
    line = shown(" ".join((text or "")[: 4 * limit].split()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def exhausted_line(one: ExhaustedTally, now_ms: int) -> str:
    """Return a line on exhausted messages: their queue, since when, and that a person must act."""
    queue = one_line(one.queue)
    place = f"in {queue}" if one.is_in_queue else f"kept here, not sent to {queue}"
    since = f"since {clock_time(one.since_ms)} ({span(max(0, now_ms - one.since_ms))} ago)"
    return f"{one.count} of {one_line(one.destination)} {place}, the first {since}"


def place(row: RowView) -> str:
    """Return where a message belongs, and where it goes or lies instead."""
    if row.is_in_final_queue:
        return f"{row.destination}, in {row.goes_to}"
    if row.is_final:
        return f"{row.destination}, goes to {row.goes_to}"
    if row.state is RowState.EXHAUSTED:
        return f"{row.destination}, kept here"
    return row.destination


def missing_line(one: MissingTally, now_ms: int) -> str:
    """Return how many messages are gone from a final dead-letter queue, and when that was seen."""
    seen = span(max(0, now_ms - one.seen_at_ms))
    return (
        f"{one.count} are gone from {one_line(one.queue)} (seen {seen} ago): consumed, moved or "
        "purged by somebody else, or expired"
    )


def unknown_line(one: UnknownTally, now_ms: int) -> str:
    """Return how many messages of a dead-letter queue the schedule does not know."""
    seen = span(max(0, now_ms - one.seen_at_ms))
    count = f"at least {one.count}" if one.at_least else str(one.count)
    return f"{count} in {one_line(one.queue)} are not in the schedule (seen {seen} ago)"


CAUSE_SOURCES: Final = (
    "Nobody gave a cause: JMS applications give it by the library in plugins/java/amqsidecar-jms, "
    "clients of AMQP and STOMP through `amqsidecar listen`, and every other application by a note "
    "(deploy/reference/causes.md)."
)
"""How people get causes for a group without one."""


def lacks_cause(cause_group: str) -> bool:
    """Return whether a group is of deaths without a known cause, divided by fields or not."""
    return cause_group == NO_REASON or cause_group.startswith(f"{NO_REASON} [")


def reason_lines(cause: str | None) -> list[str]:
    """Return the whole reason of a death, line by line, with everything visible."""
    return [shown(line) for line in given_reason(cause).splitlines()] or ["no reason given"]
