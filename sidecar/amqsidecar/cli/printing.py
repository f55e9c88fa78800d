"""Data on standard output, words for people on standard error.

It makes control characters visible, so untrusted text can't act on a terminal.
"""

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import typer

from amqsidecar.model.cause import root_reason
from amqsidecar.model.shown import escaped, shown, shown_line

_CAUSE_LEAST = 30
"""Characters of a cause that share a line with the rest."""


Advance = Callable[[int], None]
"""Adds a number of finished items to a progress bar."""


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(escaped(msgspec.json.encode(value).decode()) + "\n")


def print_line(text: str = "") -> None:
    """Print a line of data."""
    sys.stdout.write(shown_line(text) + "\n")


def print_lines(text: str) -> None:
    """Print lines of data."""
    sys.stdout.write(shown(text) + "\n")


def say(text: str) -> None:
    """Print a line for people; a terminal gets it in several lines, cut between words."""
    line = shown_line(text)
    if sys.stderr.isatty():
        most = shutil.get_terminal_size().columns
        line = textwrap.fill(line, most, break_long_words=False, break_on_hyphens=False)
    sys.stderr.write(line + "\n")


def confirmed(question: str, *, default: bool = False) -> bool:
    """Return a person's answer; a terminal that ends without an answer aborts the command."""
    return typer.confirm(shown_line(question), default=default, err=True)


def print_fact(line: str) -> None:
    """Print a line that begins with a name of 13 columns; a terminal gets it in several lines."""
    if sys.stdout.isatty():
        most = shutil.get_terminal_size().columns
        line = textwrap.fill(line, most, subsequent_indent=" " * 13, break_on_hyphens=False)
    for part in line.splitlines():
        print_line(part)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: with lines on a terminal, plain and whole columns otherwise."""
    if sys.stdout.isatty():
        from rich import box, console, table, text  # noqa: PLC0415 - only on a terminal

        drawn = table.Table(*headers, box=box.SIMPLE_HEAD)
        for row in rows:
            # Why: a cause in square brackets is no markup.
            drawn.add_row(*(text.Text(shown_line(cell)) for cell in row))
        console.Console().print(drawn)
        return
    _print_columns(list(zip(headers, *rows, strict=True)))


def print_rows(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    below: int,
    spare: Sequence[str] = (),
    is_wide: bool = False,
) -> None:
    """Print a table that fits a terminal: two lines a row, or more, where one line is too short.

    There the last column, a cause, comes before the others of its line, from its root on.

    Not a terminal, or `is_wide`: all columns side by side, regardless of width.

    Args:
        headers: names of the columns.
        rows: their cells.
        below: number of the last columns that are printed in the second line of a row.
        spare: columns to leave out where there is no room, in this order.
    """
    columns = list(zip(headers, *rows, strict=True))
    if is_wide or not sys.stdout.isatty():
        _print_columns(columns)
        return
    most = shutil.get_terminal_size().columns
    if _width(columns) <= most:
        _print_columns(columns)
        return
    above, under = columns[:-below], columns[: -below - 1 : -1]
    for name in spare:
        if _width(above) > most:
            above = [column for column in above if column[0] != name]
    lines = _lines(above)
    for line, *cells in zip(lines, *under, strict=True):
        print_line(line)
        cause, rest = root_reason(cells[0]), "  ".join(cells[1:])
        room = most - 6 - len(rest)
        if room >= min(len(cause), _CAUSE_LEAST):
            print_line(f"    {_cut(cause, room)}  {rest}")
        else:
            for part in (cause, rest):
                print_line(f"    {_cut(part, most - 4)}")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _print_columns(columns: Sequence[Sequence[str]]) -> None:
    for line in _lines(columns):
        print_line(line)


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    columns = [list(map(shown_line, column)) for column in columns]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1)


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Advance]:
    """Show progress on standard error while the block runs, where that is a terminal."""
    if not sys.stderr.isatty() or (total is not None and total < 1000):
        yield lambda _count: None
        return
    from rich import console, progress, text  # noqa: PLC0415 - only on a terminal

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> text.Text:
            return text.Text(f"{task.speed or 0:,.0f}/s")

    columns = (
        *(progress.TextColumn("{task.description}"), progress.BarColumn()),
        *(progress.MofNCompleteColumn(), Rate(), progress.TimeRemainingColumn()),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)
