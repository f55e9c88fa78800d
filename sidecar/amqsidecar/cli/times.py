"""Times that people write."""

import re
from datetime import UTC, datetime, time

import typer

from amqsidecar.operations.words import due


def next_time_ms(text: str | None, option: str, now_ms: int) -> int | None:
    """Return a time as `time_ms` does; a time of day is the next such one, in UTC.

    Example:
        >>> next_time_ms("06:00", "--at", 8 * 3_600_000) // 3_600_000
        30
    """
    if text is None or not re.fullmatch(r"[0-9]{1,2}:[0-9]{2}", text):
        return time_ms(text, option)
    try:
        of_day = time.fromisoformat(text.zfill(5))
    except ValueError as error:
        what = f"{text} is no time of day; expected one from 00:00 to 23:59"
        raise typer.BadParameter(what, param_hint=option) from error
    day = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    at_ms = round(datetime.combine(day, of_day, UTC).timestamp() * 1000)
    return at_ms if at_ms > now_ms else at_ms + 24 * 3_600_000


def zoned_time(at_ms: int, now_ms: int) -> str:
    """Return a time in UTC and in the zone of this machine, and how far off it is."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    here = moment.astimezone()
    zone = f"{here:%Y-%m-%d %H:%M} here, {here.tzname()}"
    return f"{moment:%Y-%m-%d %H:%M} UTC ({zone}), {due(at_ms, now_ms)}"


def time_ms(text: str | None, option: str) -> int | None:
    """Return the milliseconds since the epoch of a time; None = there is none.

    Args:
        text: such as 2026-11-01 or 2026-11-01T08:00:00Z; UTC where it names no zone.
        option: whose fault it is where it is no time; leaves with code 2.

    Example:
        >>> time_ms("1970-01-01T01:00:01+01:00", "--since")
        1000
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        what = f"expected a time such as 2026-11-01 or 2026-11-01T08:00:00Z, found {text!r}"
        raise typer.BadParameter(what, param_hint=option) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
