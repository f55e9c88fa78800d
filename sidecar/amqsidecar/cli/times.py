"""Times that people write."""

from datetime import UTC, datetime

import typer


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
