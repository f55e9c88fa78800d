"""Plots as inline SVG, without scripts and styles of their own.

Colours are classes of the style sheet (`s0` to `s5`). Each plot also has a table beside it; see the
macro `plot`.
"""

from collections.abc import Sequence
from math import ceil, log10
from typing import NamedTuple
from xml.etree import ElementTree as ET

import msgspec
from markupsafe import Markup

from amqsidecar.model.shown import shown
from amqsidecar.operations.charts import Zoom

_WIDTH, _WIDE, _HEIGHT = 600, 1160, 226
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 18, 30
_INNER_HEIGHT = _HEIGHT - _TOP - _BOTTOM
_LABELS_MAX = 8
_CHARACTER_PX = 9
"""Width of a character of a mark's label, on a phone."""
_LINES_APART_PX = 4
_EVERY = (1, 2, 3, 4, 6, 10, 12, 24)
"""Steps between labels; they keep hours and minutes round."""


class PlottedMark(msgspec.Struct, frozen=True, kw_only=True):
    """An event, as a line across a plot.

    Attributes:
        place: in steps from the start of the axis.
        at_ms: its time.
        what: a short description.
        operation: its number; None = not an operation.
    """

    place: float
    at_ms: int
    what: str
    operation: int | None


class Plotted(msgspec.Struct, frozen=True, kw_only=True):
    """A plot's data.

    Attributes:
        key: names the plot in its page.
        title: what it shows.
        description: text alternative of the picture.
        axis: the meaning of the labels.
        labels: of the places along the axis.
        counts: one list for each series, each as long as `labels`.
        empty: text to show without data.
        note: a remark on the period shown.
        zoom: the period shown, if others can be chosen.
        is_compared: the series are overlaid lines, not stacked.
        marks: events meanwhile, in order of time.
        width: of the picture, in its own units.
    """

    key: str
    title: str
    description: str
    axis: str
    labels: list[str]
    names: list[str]
    counts: list[list[int]]
    empty: str
    note: str = ""
    zoom: Zoom | None = None
    is_compared: bool = False
    marks: list[PlottedMark] = []
    width: int = _WIDTH

    @property
    def inner_width(self) -> int:
        """Width between the axes."""
        return self.width - _LEFT - _RIGHT

    def widened(self) -> "Plotted":
        """Return this plot at the width of a page."""
        return msgspec.structs.replace(self, key=f"{self.key}-wide", width=_WIDE)

    @property
    def by_size(self) -> list[int]:
        """The indices of the series, the largest first; colours go by the order of `names`."""
        return sorted(range(len(self.names)), key=lambda at: -sum(self.counts[at]))

    @property
    def is_empty(self) -> bool:
        """Whether the plot has no data."""
        return not any(any(counts) for counts in self.counts)


class MarkLabel(NamedTuple):
    """The label of one mark, or of several beside each other.

    Attributes:
        first: number of its first mark.
        last: number of its last one.
        lines_px: places of the lines of its marks, which can be distinguished.
    """

    first: int
    last: int
    lines_px: tuple[float, ...]
    width_px: float

    @property
    def text(self) -> str:
        """The numbers of its marks."""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"

    @property
    def _length_px(self) -> float:
        return _CHARACTER_PX * (len(self.text) + 1)

    @property
    def center_px(self) -> float:
        """Its middle: that of its marks, except at the edges of the picture."""
        middle = (self.lines_px[0] + self.lines_px[-1]) / 2
        return min(max(middle, _LEFT + self._length_px / 2), self.width_px - self._length_px / 2)

    @property
    def begin_px(self) -> float:
        """Its left edge, on a phone, where characters are largest."""
        return self.center_px - self._length_px / 2

    @property
    def end_px(self) -> float:
        """Its right edge."""
        return self.center_px + self._length_px / 2


def draw(plotted: Plotted) -> Markup:
    """Return the picture."""
    root = _lines(plotted) if plotted.is_compared else _stacked_bars(plotted)
    step = plotted.inner_width / max(len(plotted.labels), 1)
    for label in label_marks([_LEFT + mark.place * step for mark in plotted.marks], plotted.width):
        whats = "\n".join(mark.what for mark in plotted.marks[label.first - 1 : label.last])
        for x in map(_px, label.lines_px):
            ends = {"x1": x, "x2": x, "y1": _px(_TOP), "y2": _px(_TOP + _INNER_HEIGHT)}
            _add(_add(root, "line", {"class": "mark", **ends}), "title", {}, whats)
        place = {"class": "mark", "x": _px(label.center_px), "y": _px(_TOP - 3)}
        _add(root, "text", place, label.text)
    # Why Markup: ElementTree has escaped every text and attribute.
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704


def _stacked_bars(plotted: Plotted) -> ET.Element:
    heights = [sum(column) for column in zip(*plotted.counts, strict=True)]
    root, top = _frame(plotted, max(heights, default=0))
    places = max(len(plotted.labels), 1)
    step = plotted.inner_width / places
    for at, label in enumerate(plotted.labels):
        base = float(_TOP + _INNER_HEIGHT)
        for number, (name, counts) in enumerate(zip(plotted.names, plotted.counts, strict=True)):
            if not counts[at]:
                continue
            height = max(counts[at] / top * _INNER_HEIGHT, 1.0)
            base -= height
            bar = _add(
                root,
                "rect",
                {
                    "class": f"s{number}",
                    "x": _px(_LEFT + at * step + step * 0.1),
                    "y": _px(base),
                    "width": _px(step * 0.8),
                    "height": _px(height),
                },
            )
            _add(bar, "title", {}, f"{label} · {name}: {counts[at]:,}")
    return root


def _lines(plotted: Plotted) -> ET.Element:
    """Return a line for each series, all but the first dashed."""
    root, top = _frame(plotted, max((max(one, default=0) for one in plotted.counts), default=0))
    step = plotted.inner_width / max(len(plotted.labels), 1)
    for number in reversed(range(len(plotted.names))):
        counts = plotted.counts[number]
        points = [
            f"{_px(_LEFT + (at + 0.5) * step)},{_px(_TOP + _INNER_HEIGHT * (1 - count / top))}"
            for at, count in enumerate(counts)
        ]
        attributes = {"class": f"line l{number}", "points": " ".join(points)}
        if number:
            attributes["stroke-dasharray"] = "5 4"
        _add(root, "polyline", attributes)
    return root


def nice_top(highest: int) -> int:
    """Return the end of an axis: not below the highest value, with four even parts.

    Example:
        >>> nice_top(0), nice_top(7), nice_top(312)
        (4, 8, 400)
    """
    if highest <= 4:
        return 4
    unit: int = 10 ** int(log10(highest / 4))
    parts = (ceil(unit * factor) for factor in (1, 2, 2.5, 5, 10))
    return next(4 * part for part in parts if 4 * part >= highest)


def _frame(plotted: Plotted, highest: int) -> tuple[ET.Element, int]:
    """Return an empty plot with its axes, and the end of the upward one."""
    names = f"{plotted.key}-title {plotted.key}-description"
    root = ET.Element(
        "svg",
        {
            "viewBox": f"0 0 {plotted.width} {_HEIGHT}",
            "role": "img",
            "aria-labelledby": names,
            "class": "plot",
        },
    )
    _add(root, "title", {"id": f"{plotted.key}-title"}, plotted.title)
    _add(root, "desc", {"id": f"{plotted.key}-description"}, plotted.description)
    top = nice_top(highest)
    for part in range(5):
        y = _TOP + _INNER_HEIGHT * (1 - part / 4)
        line = {"x1": _px(_LEFT), "x2": _px(plotted.width - _RIGHT), "y1": _px(y), "y2": _px(y)}
        _add(root, "line", {"class": "grid" if part else "axis", **line})
        place = {"x": _px(_LEFT - 6), "y": _px(y + 4), "text-anchor": "end"}
        _add(root, "text", place, _short(top * part // 4))
    places = len(plotted.labels)
    most = _LABELS_MAX * plotted.width // _WIDTH
    every = next((one for one in _EVERY if places <= one * most), places)
    step = plotted.inner_width / max(places, 1)
    for at in range(0, places, every):
        place = {
            "x": _px(_LEFT + (at + 0.5) * step),
            "y": _px(_HEIGHT - 12),
            "text-anchor": "middle",
        }
        _add(root, "text", place, plotted.labels[at])
    return root, top


def label_marks(places_px: Sequence[float], width_px: float) -> list[MarkLabel]:
    """Return the labels of marks, from left to right; marks whose labels would collide share one.

    Args:
        places_px: of the marks, in order.
        width_px: of the picture; every label is within it.

    Example:
        >>> [one.text for one in label_marks([100, 101, 103, 300], 600)]
        ['1–3', '4']
    """
    found: list[MarkLabel] = []
    for number, place_px in enumerate(places_px, 1):
        label = MarkLabel(number, number, (place_px,), width_px)
        while found and found[-1].end_px > label.begin_px:
            before = found.pop()
            apart = label.lines_px[0] - before.lines_px[-1] >= _LINES_APART_PX
            lines_px = before.lines_px + label.lines_px[0 if apart else 1 :]
            label = MarkLabel(before.first, label.last, lines_px, width_px)
        found.append(label)
    return found


def _short(count: int) -> str:
    """Return a number for an axis.

    Example:
        >>> _short(950), _short(2_500), _short(40_000), _short(3_000_000)
        ('950', '2.5k', '40k', '3M')
    """
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:.10g}{letter}"
    return str(count)


def _add(
    parent: ET.Element, tag: str, attributes: dict[str, str], text: str | None = None
) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = None if text is None else shown(text)
    return element


def _px(value: float) -> str:
    return f"{value:.1f}"
