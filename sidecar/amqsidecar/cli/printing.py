"""Data on standard output, words for people on standard error."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol


class Advance(Protocol):
    """Tells a progress bar that so many more are done."""

    def __call__(self, count: int, /) -> None:
        """Move on."""
        ...


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    import msgspec  # noqa: PLC0415 - keeps `--help` fast

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_line(text: str = "") -> None:
    """Print a line of data."""
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """Print a line for people."""
    sys.stderr.write(text + "\n")


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with lines on a terminal, plain and whole columns otherwise."""
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - as above
        from rich.console import Console  # noqa: PLC0415 - as above
        from rich.table import Table  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        table = Table(*headers, box=SIMPLE_HEAD)
        for row in rows:
            # Why: a cause in square brackets is no markup.
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_line("  ".join(cells).rstrip())


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Advance]:
    """Show progress on standard error while the block runs, where that is a terminal.

    Args:
        title: what is done.
        total: how much it is; None = nobody knows.
    """
    if not sys.stderr.isatty() or (total is not None and total < 1000):
        yield lambda _count: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text  # noqa: PLC0415 - as above

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


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


def one_line(text: str | None, limit: int = 100) -> str:
    """Return a text on one line, cut to a length; "" for None."""
    line = " ".join((text or "")[: 4 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
