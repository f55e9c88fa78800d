"""Reports of jobs: one HTML file each, without network or scripts."""

import base64
import hashlib
import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final

import altair
import pandas
import vl_convert
from lxml import etree

from amqsidecar.pipeline.sources.output_files import write_file

_SVG: Final = "{http://www.w3.org/2000/svg}"
_ELEMENTS: Final = re.compile(
    "svg|g|a|defs|clipPath|linearGradient|radialGradient|stop"
    "|path|rect|line|circle|ellipse|polygon|polyline|text|tspan"
)
_ATTRIBUTES: Final = re.compile(
    "id|d|[xy][12]?|d[xy]|c[xy]|f[xy]|r[xy]?|points|width|height|viewBox|transform|display"
    "|offset|clip-path|fill|fill-opacity|opacity|stop-color|stop-opacity|gradientUnits"
    "|stroke|stroke-(width|dasharray|dashoffset|linecap|linejoin|miterlimit|opacity)"
    "|text-anchor|font-(family|size|style|weight)"
)
_INNER_URL: Final = re.compile(r"url\(#([A-Za-z0-9_-]+)\)")
_TIME_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
_NOT_IN_MARKUP: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

# Why such colours: each stands out against white and against the dark page.
_CATEGORIES: Final = ("#2f7fc1", "#d9651f", "#1a9a76", "#c0609a", "#a8851a", "#7d74c9", "#808890")
_INK: Final = "currentColor"
_CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": "sans-serif",
    "axis": {"domainColor": _INK, "gridColor": _INK, "gridOpacity": 0.15, "tickColor": _INK}
    | {"labelColor": _INK, "titleColor": _INK},
    "header": {"labelColor": _INK, "titleColor": _INK},
    "legend": {"labelColor": _INK, "titleColor": _INK},
    "mark": {"color": _CATEGORIES[0]},
    "range": {"category": _CATEGORIES},
    "rule": {"color": _INK},
    "text": {"color": _INK},
    "title": {"color": _INK, "subtitleColor": _INK},
    "view": {"stroke": None},
}


def printable(text: str) -> str:
    """Return the text with a visible sign for each character that markup can't hold."""

    def sign(found: re.Match[str]) -> str:
        code = ord(found[0])
        return chr(0x2400 + code) if code < 0x20 else "\N{REPLACEMENT CHARACTER}"

    return _NOT_IN_MARKUP.sub(sign, text)


def draw(chart: altair.TopLevelMixin, name: str) -> tuple[etree._Element, str]:
    """Return the plot as an SVG element, and its description.

    Only shapes and text of known kinds come through: specifications and labels are untrusted.
    Times are drawn as UTC, also times without a zone.

    Args:
        chart: its `description` is returned; without one, the names of its axes.
        name: makes ids unique on the page.
    """
    spec = _cleaned(chart.to_dict())
    text = vl_convert.vegalite_to_svg(spec, config=_CONFIG, allowed_base_urls=[])
    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)
    drawn = etree.fromstring(text.encode(), parser)
    groups = (one for one in drawn.iter(f"{_SVG}g") if "role-axis-title" in one.get("class", ""))
    axes = ", ".join(dict.fromkeys("".join(map(str, one.itertext())) for one in groups))
    ids = dict.fromkeys(str(one.get("id")) for one in drawn.iter() if one.get("id"))
    names = {old: f"{name}-{number}" for number, old in enumerate(ids)}
    return _shapes(drawn, names), str(spec.get("description") or f"Axes: {axes or 'none'}.")


def _cleaned(value: Any) -> Any:
    """Return a part of a specification with printable text, times as UTC, and no links."""
    if isinstance(value, str):
        zone = "Z" if _TIME_WITHOUT_ZONE.fullmatch(value) else ""
        return printable(value) + zone
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value]
    if not isinstance(value, dict):
        return value
    cleaned = {
        printable(key): _cleaned(one)
        for key, one in value.items()
        if key != "href" or not isinstance(one, dict)
    }
    if cleaned.get("type") == "temporal":
        cleaned["scale"] = {"type": "utc"} | (cleaned.get("scale") or {})
    unit = cleaned.get("timeUnit")
    if isinstance(unit, str) and not unit.startswith(("utc", "binned")):
        cleaned["timeUnit"] = f"utc{unit}"
    return cleaned


def _shapes(drawn: etree._Element, names: Mapping[str, str]) -> etree._Element:
    """Return a copy that has only known elements and attributes, and the new names of its ids."""
    kind = etree.QName(drawn).localname
    copy = etree.Element("g" if kind == "a" else kind)
    for key, value in ((str(key), str(value)) for key, value in drawn.attrib.items()):
        outer = _INNER_URL.sub("", value).lower()
        if _ATTRIBUTES.fullmatch(key) and "url" not in outer and "\\" not in outer:
            inner = _INNER_URL.sub(lambda found: f"url(#{names[found[1]]})", value)
            copy.set(key, names[value] if key == "id" else inner)
    copy.text, copy.tail = drawn.text, drawn.tail
    for child in drawn:
        if isinstance(child.tag, str) and _ELEMENTS.fullmatch(etree.QName(child).localname):
            copy.append(_shapes(child, names))
    return copy


_STYLE: Final = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --faint: #59636e; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #14181d; --ink: #e8ebee; --faint: #9aa4af; --line: #3a434d; }
}
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
h1, h2 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1rem; }
p { max-width: 45rem; overflow-wrap: anywhere; white-space: pre-line; }
dl { display: grid; gap: 0 1.5rem; grid-template-columns: max-content 1fr; }
dt, caption, figcaption { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1.5rem 0; }
.wide:focus-visible { outline: 2px solid; }
table { border-collapse: collapse; }
caption, figcaption { font-weight: 600; padding: 0.3rem 0; text-align: left; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 1rem 0.25rem 0; text-align: left;
  vertical-align: top; overflow-wrap: break-word; max-width: 40rem; }
tbody th { font-weight: inherit; }
.number { font-variant-numeric: tabular-nums; text-align: right; }
td.number, time { white-space: nowrap; }
figure { margin: 1.5rem 0; overflow-x: auto; }
svg { height: auto; max-width: 100%; }
summary { border-top: 1px solid var(--line); cursor: pointer; font-weight: 600; padding: 0.5rem 0; }
ul { margin: 0; max-width: 60rem; padding-left: 1.2rem; }
li { margin: 0.3rem 0; overflow-wrap: anywhere; }
@media (max-width: 45rem) {
  body { margin: 0.5rem auto; }
  h1, h2 { margin: 0.8rem 0 0.4rem; }
  dl { grid-template-columns: minmax(0, 1fr); }
  svg { max-width: none; }
}
@media print {
  body { margin: 0; max-width: none; }
  .wide { overflow: visible; }
  figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
)
_MISSING: Final = "–"
_WHOLE_PERCENTS: Final = 0.02
"""Between this share and the rest of it, percents have no digits."""


MOST_ROWS: Final = 200
"""Of a table that are shown in a report."""
MOST_LINES: Final = 5
"""Of each list on the first screen of a report."""
_MUCH: Final = 1 / 3
"""Of the messages; who loses more has something to do."""


class Report:
    """A page, built from top to bottom and then written; the same input gives the same bytes.

    All input is text, never markup: message texts are untrusted.

    Args:
        facts: lines below the title; see `facts`.

    Attributes:
        summary: the lists of the first screen, by heading, such as `what_changed`.
    """

    def __init__(self, title: str, facts: Mapping[str, str]) -> None:
        self._title = title
        self._parts = [f"<h1>{_text(title)}</h1>"]
        self._charts = 0
        self.summary: dict[str, list[str]] = {}
        self.facts(facts)

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{_text(text)}</h2>")

    def points(self, heading: str, lines: Sequence[str], otherwise: str) -> None:
        """Begin a section with a list, or with one sentence if the list is empty."""
        self.heading(heading)
        self.summary[heading.lower().replace("-", "_").replace(" ", "_")] = list(lines)
        items = "".join(f"<li>{_text(one)}</li>" for one in lines)
        self._parts.append(f"<ul>{items}</ul>" if lines else f"<p>{_text(otherwise)}</p>")

    @contextmanager
    def folded(self, title: str) -> Iterator[None]:
        """Fold the content that the block adds behind a line."""
        self._parts.append(f"<details><summary>{_text(title)}</summary>")
        yield
        self._parts.append("</details>")

    def facts(self, facts: Mapping[str, str]) -> None:
        """Add names with values, in this order."""
        pairs = "".join(f"<dt>{_text(key)}</dt><dd>{_text(one)}</dd>" for key, one in facts.items())
        self._parts.append(f"<dl>{pairs}</dl>" if pairs else "")

    def text(self, paragraph: str) -> None:
        """Add a paragraph; lines stay lines."""
        self._parts.append(f"<p>{_text(paragraph)}</p>")

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        caption: str,
        *,
        shares: Collection[str] = (),
    ) -> None:
        """Add a table; its first column names the rows. Columns named in `shares` are in percent.

        Numbers stand right, with separators for thousands; None and NaN are a dash; times are shown
        in UTC, and one without a zone is local time, as Spark collects it.
        """
        is_share = [name in shares for name in columns]
        lines = [list(row) for row in rows]
        if any(len(line) != len(columns) for line in lines):
            raise ValueError(f"{caption}: each row needs {len(columns)} values")
        numeric = [_is_numeric([row[at] for row in lines]) for at in range(len(columns))]
        kinds = [' class="number"' if one else "" for one in numeric]
        head = "".join(
            f'<th scope="col"{kind}>{_text(name)}</th>'
            for name, kind in zip(columns, kinds, strict=True)
        )
        body = "".join(_row(row, kinds, is_share) for row in lines)
        if not lines:
            body = f'<tr><td colspan="{len(columns)}">nothing</td></tr>'
        # Why a region with a tab stop: a table that is too wide is scrolled with the keyboard.
        self._parts.append(
            f'<div class="wide" role="region" tabindex="0" aria-label="{_text(caption)}">'
            f"<table><caption>{_text(caption)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table></div>"
        )

    def chart(self, chart: altair.TopLevelMixin, caption: str) -> None:
        """Add a plot; its `description` is its text for screen readers."""
        self._charts += 1
        name = f"chart-{self._charts}"
        svg, description = draw(chart, name)
        svg.set("role", "img")
        svg.set("aria-labelledby", f"{name}-title {name}-desc")
        for at, (kind, words) in enumerate((("title", caption), ("desc", description))):
            said = etree.Element(kind, id=f"{name}-{kind}")
            said.text = printable(words)
            svg.insert(at, said)
        drawn = etree.tostring(svg, encoding="unicode", method="html")
        self._parts.append(f"<figure>{drawn}<figcaption>{_text(caption)}</figcaption></figure>")

    def write(self, path: str) -> None:
        """Write the page, whole or not at all, in place of an existing one.

        Args:
            path: see `output_files`.
        """
        write_file(path, self._page().encode())

    def _page(self) -> str:
        parts = "\n".join(part for part in self._parts if part)
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="referrer" content="no-referrer">\n'
            f"<title>{_text(self._title)}</title>\n<style>{_STYLE}</style></head>\n"
            f"<body><main>\n{parts}\n<p>Times are UTC.</p>\n</main></body></html>\n"
        )


def _text(text: str) -> str:
    return html.escape(printable(text))


def percent(share: float) -> str:
    """Return a share for people: whole percents, with a digit more where it is small or near all.

    Example:
        >>> percent(0.5), percent(0.012), percent(0.9987)
        ('50 %', '1.2 %', '99.9 %')
    """
    is_near_an_end = not _WHOLE_PERCENTS <= share <= 1 - _WHOLE_PERCENTS
    return f"{share * 100:.1f} %" if is_near_an_end and 0 < share < 1 else f"{share * 100:.0f} %"


def shortened(text: str, most: int) -> str:
    """Return a text of at most this many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _row(row: Sequence[object], kinds: Sequence[str], is_share: Sequence[bool]) -> str:
    texts = [
        percent(value) if one and isinstance(value, float) and not _is_missing(value)
        else _cell(value)
        for value, one in zip(row, is_share, strict=True)
    ]  # fmt: skip
    cells = [
        f'<th scope="row"{kind}>{text}</th>' if at == 0 else f"<td{kind}>{text}</td>"
        for at, (text, kind) in enumerate(zip(texts, kinds, strict=True))
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, Real | datetime) and bool(pandas.isna(value)))


def _is_numeric(values: Sequence[object]) -> bool:
    present = [value for value in values if not _is_missing(value)]
    return bool(present) and all(
        isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in present
    )


def _cell(value: object) -> str:
    if _is_missing(value):
        return _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real | Decimal):
        number = float(value)
        return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:,.4g}"
    if isinstance(value, datetime):
        moment = value.astimezone(UTC)
        digits = "milliseconds" if moment.microsecond else "seconds"
        shown = moment.replace(tzinfo=None).isoformat(" ", digits)
        return f'<time datetime="{shown.replace(" ", "T")}Z">{shown} UTC</time>'
    return _text(str(value))


def doubt(report: Report, lines: Sequence[str]) -> None:
    """Add the doubts, if any, to the first screen of a report."""
    if lines:
        more = len(lines) - MOST_ROWS
        rest = [f"and {more:,} more"] if more > 0 else []
        report.points("What to doubt", [*lines[:MOST_ROWS], *rest], "")


def given_up_line(given_up: int, messages: int) -> list[str]:
    """Return the last-resort advice; empty where few messages are given up."""
    if given_up <= _MUCH * messages:
        return []
    return [
        f"Look for why {given_up:,} of {messages:,} messages do not recover: no re-send of the "
        "history shows what would help."
    ]


def show_frame(
    report: Report, table: pandas.DataFrame, caption: str, *, shares: Collection[str] = ()
) -> None:
    """Add the first `MOST_ROWS` rows of a table to a report; the caption says if there are more.

    Columns named in `shares` are in percent.
    """
    rows = list(table.head(MOST_ROWS).itertuples(index=False, name=None))
    if len(table) > MOST_ROWS:
        caption = f"{caption} (the first {MOST_ROWS} rows; the Parquet table has all)"
    report.table(list(table.columns), rows, caption, shares=shares)
