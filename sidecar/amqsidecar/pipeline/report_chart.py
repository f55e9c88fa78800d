"""Plots as inline SVG, drawn without a browser: only shapes and text."""

import re
from collections.abc import Mapping
from typing import Any, Final

import altair
import vl_convert
from lxml import etree

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

    Only shapes and text of known kinds come through, whatever a specification or a label says.
    Times are drawn as UTC; those without a zone are taken for it.

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
