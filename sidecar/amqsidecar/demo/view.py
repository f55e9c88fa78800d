"""How the demo looks: a board of tiles that move in a terminal, plain lines elsewhere."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

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


class TileLooks(NamedTuple):
    """A tile, and its words in the legend and in lines; "" = it has none."""

    sign: str
    style: str
    legend: str = ""
    line: str = ""


_LOOKS: Mapping[Fate, TileLooks] = {
    Fate.QUEUED: TileLooks("·", "grey42"),
    Fate.DEAD: TileLooks("✖", "bold white on red3", "died", "dead"),
    Fate.WAITING: TileLooks("5", "bold black on gold1", "waits 5 s", "waiting"),
    Fate.RETURNING: TileLooks("»", "bold black on deep_sky_blue1", "back", "coming back"),
    Fate.RECOVERED: TileLooks("✔", "bold white on green4", "recovered", "recovered"),
    Fate.EXHAUSTED: TileLooks("■", "bold white on medium_purple4", "exhausted", "exhausted"),
    Fate.DISCARDED: TileLooks("∅", "grey70 on grey30", "discarded", "discarded"),
}
_ALARM = "bold white on red3"
_LATE = "bold black on dark_orange"


View = Callable[[str, Snapshot, float], None]
"""Shows a caption, how things stand now, and the seconds since the begin."""


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
            f"{snapshot.number(fate)} {one.line}"
            for fate, one in _LOOKS.items()
            if one.line and snapshot.number(fate)
        )
        if numbers != self._last:
            self._last = numbers
            self._print(elapsed_s, f"  {snapshot.title}: {numbers}")

    def _print(self, elapsed_s: float, text: str) -> None:
        self._console.print(f"{elapsed_s:5.1f} s  {text}", soft_wrap=True, highlight=False)


def _board(caption: str, snapshot: Snapshot, elapsed_s: float) -> RenderableType:
    """Return one frame."""
    head = Table.grid(expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(
        Text("amqsidecar", "bold") + Text("  every tile is a message"), f"{elapsed_s:.0f} s"
    )
    style = _ALARM if snapshot.sidecar.is_dead else "bold"
    return Group(head, _legend(), _panel(snapshot), Text(f" {caption} ", style))


def _legend() -> Text:
    text = Text()
    for one in _LOOKS.values():
        if one.legend:
            text.append(f" {one.sign} ", one.style).append(f" {one.legend}  ")
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
        border_style="red3" if one.sidecar.is_dead else "grey50",
        padding=(0, 1),
    )


def _sidecar(one: Snapshot) -> Text:
    if one.sidecar.is_dead:
        words = f" ✖ {one.sidecar.words}: {one.number(Fate.WAITING)} wait on disk "
        return Text(words, _ALARM, no_wrap=True, overflow="ellipsis")
    sign = Text("● ", "green3" if one.sidecar.is_running else "grey50")
    return sign + Text(one.sidecar.words, "dim", no_wrap=True, overflow="ellipsis")


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
    sign, style, *_ = _LOOKS[tile.fate]
    if tile.fate is not Fate.WAITING:
        return f" {sign}", style
    if tile.seconds < -0.5:
        return " !", _LATE
    return f" {min(9, max(0, math.ceil(tile.seconds)))}", style


def _numbers(one: Snapshot) -> Text:
    seen = sum(len(tiles) for _, tiles in one.groups) - one.number(Fate.QUEUED)
    text = Text("in ").append(str(seen), "bold")
    for fate in (Fate.RECOVERED, Fate.EXHAUSTED, Fate.DISCARDED):
        sign, style, *_ = _LOOKS[fate]
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
        run(Lines(console).show)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        run(lambda *now: live.update(_board(*now), refresh=True))
