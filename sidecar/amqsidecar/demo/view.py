"""How the demo looks: a board of tiles that move in a terminal, plain lines elsewhere."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from amqsidecar.demo.accounts import Count
from amqsidecar.demo.stage import Fate, Snapshot, Tile

FRAMES_PER_S = 8
PLAIN_LINE_EVERY_S = 2.0

_LOOKS: Mapping[Fate, tuple[str, str]] = {
    Fate.QUEUED: ("·", "grey42"),
    Fate.DEAD: ("✖", "bold white on red3"),
    Fate.WAITING: ("5", "bold black on gold1"),
    Fate.RETURNING: ("»", "bold black on deep_sky_blue1"),
    Fate.RECOVERED: ("✔", "bold white on green4"),
    Fate.EXHAUSTED: ("■", "bold white on medium_purple4"),
    Fate.DISCARDED: ("∅", "grey70 on grey30"),
}
_LEGEND = (
    (Fate.DEAD, "✖", "died"),
    (Fate.WAITING, "5", "waits 5 s"),
    (Fate.RETURNING, "»", "back"),
    (Fate.RECOVERED, "✔", "recovered"),
    (Fate.EXHAUSTED, "■", "exhausted"),
    (Fate.DISCARDED, "∅", "discarded"),
)
_ALARM = "bold white on red3"
_LATE = "bold black on dark_orange"


class View(Protocol):
    """Shows the stage for as long as the demo runs."""

    def show(self, caption: str, snapshot: Snapshot, elapsed_s: float) -> None:
        """Show how things stand now."""


class Board:
    """A board of tiles, one per message, drawn again several times a second."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, caption: str, snapshot: Snapshot, elapsed_s: float) -> None:
        """Draw the next frame."""
        self._live.update(board(caption, snapshot, elapsed_s), refresh=True)


class Lines:
    """One line every few seconds, and one for each new caption."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._caption = ""
        self._next_s = 0.0
        self._last = ""

    def show(self, caption: str, snapshot: Snapshot, elapsed_s: float) -> None:
        """Print the new lines."""
        if caption != self._caption:
            self._caption = caption
            self._print(elapsed_s, caption)
        if elapsed_s < self._next_s:
            return
        self._next_s = elapsed_s + PLAIN_LINE_EVERY_S
        numbers = ", ".join(
            f"{snapshot.number(fate)} {words}" for fate, words in _NUMBERS if snapshot.number(fate)
        )
        if numbers != self._last:
            self._last = numbers
            self._print(elapsed_s, f"  {snapshot.title}: {numbers}")

    def _print(self, elapsed_s: float, text: str) -> None:
        self._console.print(f"{elapsed_s:5.1f} s  {text}", soft_wrap=True, highlight=False)


_NUMBERS = (
    (Fate.DEAD, "dead"),
    (Fate.WAITING, "waiting"),
    (Fate.RETURNING, "coming back"),
    (Fate.RECOVERED, "recovered"),
    (Fate.EXHAUSTED, "exhausted"),
    (Fate.DISCARDED, "discarded"),
)


def board(caption: str, snapshot: Snapshot, elapsed_s: float) -> RenderableType:
    """Return one frame."""
    head = Table.grid(expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(
        Text("amqsidecar", "bold") + Text("  every tile is a message"), f"{elapsed_s:.0f} s"
    )
    style = _ALARM if snapshot.is_sidecar_dead else "bold"
    return Group(head, _legend(), _panel(snapshot), Text(f" {caption} ", style))


def _legend() -> Text:
    text = Text()
    for fate, sign, words in _LEGEND:
        text.append(f" {sign} ", _LOOKS[fate][1]).append(f" {words}  ")
    return text


def _panel(one: Snapshot) -> Panel:
    parts: list[RenderableType] = [_sidecar(one)]
    for group, tiles in one.groups:
        parts.append(Text(group.queue, "bold") + Text(f"  {group.why}", "not bold"))
        parts.append(_Tiles(tiles))
    parts.append(_numbers(one))
    return Panel(
        Group(*parts),
        title=f"[bold]{one.title}",
        subtitle=f"[dim]rules: {one.rules}",
        border_style="red3" if one.is_sidecar_dead else "grey50",
        padding=(0, 1),
    )


def _sidecar(one: Snapshot) -> Text:
    if one.is_sidecar_dead:
        words = f" ✖ {one.sidecar}: {one.number(Fate.WAITING)} wait on disk "
        return Text(words, _ALARM, no_wrap=True, overflow="ellipsis")
    sign = Text("● ", "green3" if one.is_sidecar_running else "grey50")
    return sign + Text(one.sidecar, "dim", no_wrap=True, overflow="ellipsis")


class _Tiles:
    """Tiles side by side, in as many lines as they need."""

    def __init__(self, tiles: Sequence[Tile]) -> None:
        self._tiles = tiles

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        per_line = max(1, options.max_width // 2)
        for first in range(0, len(self._tiles), per_line):
            line = Text()
            for tile in self._tiles[first : first + per_line]:
                line.append(*_look(tile))
            yield line


def _look(tile: Tile) -> tuple[str, str]:
    """Return the text of a tile and its style."""
    sign, style = _LOOKS[tile.fate]
    if tile.fate is not Fate.WAITING:
        return f" {sign}", style
    if tile.seconds < -0.5:
        return " !", _LATE
    return f" {min(9, max(0, math.ceil(tile.seconds)))}", style


def _numbers(one: Snapshot) -> Text:
    seen = sum(len(tiles) for _, tiles in one.groups) - one.number(Fate.QUEUED)
    text = Text("in ").append(str(seen), "bold")
    for fate in (Fate.RECOVERED, Fate.EXHAUSTED, Fate.DISCARDED):
        sign, style = _LOOKS[fate]
        text.append("   ").append(f" {sign} ", style).append(f" {one.number(fate)}", "bold")
    return text


def closing_table(title: str, result: Count, deaths: int) -> Table:
    """Return the fates of all messages, and how often a consumer failed."""
    caption = "By message id, as the consumers saw them"
    table = Table(title=caption, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("broker", no_wrap=True)
    for name in ("in", "deaths", "recovered", "exhausted", "discarded", "lost", "doubled"):
        table.add_column(name, justify="right")
    table.add_row(
        title,
        str(result.sent),
        str(deaths),
        *(str(len(ids)) for ids in (result.recovered, result.exhausted, result.discarded)),
        *(_coloured(len(ids)) for ids in (result.lost, result.doubled)),
    )
    return table


def _coloured(number: int) -> Text:
    return Text(str(number), _ALARM if number else "bold green3")


def with_view(console: Console, run: Callable[[View], None]) -> None:
    """Run with the view that suits where we write to."""
    if not console.is_terminal:
        run(Lines(console))
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        run(Board(live))
