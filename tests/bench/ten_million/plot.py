"""How fast a sidecar is, and how late, with more and more waiting: a picture for the documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import altair
import vl_convert


def plot(path: Path, found: Sequence[Mapping[str, float]], subtitle: str) -> None:
    """Write an SVG.

    Args:
        path: the file.
        found: of each step `waiting`, `moved_per_second`, `p50_ms` and `p99_ms`.
        subtitle: where and how it was measured.
    """
    waiting = altair.X("waiting:Q", title="messages waiting").scale(type="log").axis(format="~s")
    speed = [{"waiting": one["waiting"], "value": one["moved_per_second"]} for one in found]
    late = [
        {"waiting": one["waiting"], "value": one[f"{name}_ms"], "which": name}
        for one in found
        for name in ("p50", "p99")
    ]
    left = (
        altair.Chart(altair.InlineData(values=speed), title="dead letters moved per second")
        .mark_line(point=True)
        .encode(waiting, altair.Y("value:Q", title="per second").scale(zero=True))
    )
    right = (
        altair.Chart(altair.InlineData(values=late), title="lateness at a steady rate")
        .mark_line(point=True)
        .encode(
            waiting,
            altair.Y("value:Q", title="milliseconds").scale(zero=True),
            altair.Color("which:N", title=None),
        )
    )
    chart = altair.hconcat(
        left.properties(width=300, height=200),
        right.properties(width=300, height=200),
        title=altair.TitleParams("More and more waiting", subtitle=subtitle),
    ).configure(background="white")
    path.write_text(vl_convert.vegalite_to_svg(chart.to_dict()), encoding="utf-8")
