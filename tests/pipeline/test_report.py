"""A report is one file that needs nothing else, and nothing that it is given becomes markup."""

import base64
import hashlib
import os
import re
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import altair as alt
import pandas as pd
import pytest
from lxml import etree
from pyspark.sql import SparkSession

from amqsidecar.pipeline.report import Report
from support.machine.processes import run_program
from support.web.page import elements, strings, text_of

HOSTILE = (
    "<script>alert(1)</script>",
    '" onload="alert(1)" x="',
    "' onclick='alert(1)'",
    "]]><svg onload=alert(1)>",
    "</title></style></text><img src=x onerror=alert(1)>",
    "<!-- --!> <![CDATA[ <?php ?>",
    "&lt;b&gt; &#60;i&#62; &amp;",
    "javascript:alert(1)",
    "nul\x00 bell\x07 escape\x1b[31m del\x7f c1\x85 \ufffe\uffff",
    "lone \ud800 surrogates \udfff",
    "right \u202eto left\u202c",
)


def parsed(page: str) -> etree._Element:
    """Return the page as a strict parser of XML reads it: every tag closed, every entity known."""
    text = re.sub(r"<(meta [^>]*)>", r"<\1/>", page.removeprefix("<!DOCTYPE html>\n"))
    return etree.fromstring(text.encode(), etree.XMLParser(recover=False, resolve_entities=False))


def written(report: Report, folder: Path) -> str:
    report.write(str(folder / "report.html"))
    return (folder / "report.html").read_text(encoding="utf-8")


def bars(names: list[str]) -> alt.Chart:
    data = pd.DataFrame({"name": names, "count": range(1, len(names) + 1)})
    chart: alt.Chart = (
        alt.Chart(data, title=names[0])
        .mark_bar(clip=True)
        .encode(
            x=alt.X("count:Q", title=names[-1]), y=alt.Y("name:N"), href="name:N", color="name:N"
        )
    )
    return chart


def whole(texts: list[str]) -> Report:
    report = Report(texts[0], dict(zip(texts, reversed(texts), strict=True)))
    for text in texts:
        report.heading(text)
        report.text(text)
        report.table([text, "n"], [[text, 1], [None, 2]], text)
    report.chart(bars(texts), texts[1])
    report.chart(bars(texts).properties(description=texts[0]), texts[0])
    return report


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(whole(list(HOSTILE)), tmp_path_factory.mktemp("report"))


def test_what_it_is_given_is_text_and_never_markup(page: str) -> None:
    tree = parsed(page)
    tags = {str(one.tag) for one in tree.iter()}
    assert tags == {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "dl", "dt"),
        *("dd", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure"),
        *("figcaption", "svg", "g", "path", "rect", "line", "text", "defs", "clipPath", "desc"),
    }
    attributes = {str(name) for one in tree.iter() for name in one.attrib}
    assert not {one for one in attributes if one.startswith("on")}
    assert not attributes & {"style", "href", "{http://www.w3.org/1999/xlink}href", "src"}
    for text in HOSTILE[:7]:
        assert text in strings(tree, "//h2/text()")
        assert text in strings(tree, "//td/text() | //th/text()")


def test_what_markup_cannot_hold_is_shown_by_a_sign(page: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]", page)
    heads = strings(parsed(page), "//h2/text()")
    assert "nul␀ bell␇ escape␛[31m del\ufffd c1\ufffd \ufffd\ufffd" in heads
    assert "lone \ufffd surrogates \ufffd" in heads


def test_labels_of_plots_are_text_too(page: str) -> None:
    labels = strings(parsed(page), "//svg//text/text()")
    assert HOSTILE[0] in labels
    assert any(one.startswith("nul␀ bell␇") for one in labels)


def test_it_requests_nothing_and_its_policy_forbids_everything(page: str) -> None:
    tree = parsed(page)
    (policy,) = strings(tree, "//meta[@http-equiv='Content-Security-Policy']/@content")
    style = tree.findtext("head/style") or ""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert "url(" not in style
    assert "@import" not in style
    targets = re.findall(r"url\(([^)]*)\)", " ".join(strings(tree, "//svg//@*")))
    assert targets
    assert all(one.startswith("#chart-") for one in targets)


def test_ids_are_unique_and_what_refers_to_one_finds_it(page: str) -> None:
    tree = parsed(page)
    ids = strings(tree, "//@id")
    assert len(ids) == len(set(ids))
    named = " ".join(strings(tree, "//@aria-labelledby")).split()
    inner = re.findall(r"url\(#([^)]*)\)", " ".join(strings(tree, "//svg//@*")))
    assert {*named, *inner} <= set(ids)


def test_plots_and_tables_say_what_they_are(page: str) -> None:
    tree = parsed(page)
    for table in tree.iter("table"):
        assert table.findtext("caption")
        assert {one.get("scope") for one in table.iter("th")} == {"col", "row"}
    first, second = tree.iter("svg")
    assert first.get("role") == second.get("role") == "img"
    assert first.findtext("title") == HOSTILE[1]
    assert (first.findtext("desc") or "").startswith("Axes: right")
    assert second.findtext("desc") == HOSTILE[0]
    assert all(one.get("tabindex") == "0" for one in elements(tree, "//div[@role='region']"))


def test_the_same_input_gives_the_same_bytes(page: str, tmp_path: Path) -> None:
    assert written(whole(list(HOSTILE)), tmp_path) == page


def test_values_of_a_table(tmp_path: Path) -> None:
    berlin = timezone(timedelta(hours=2))
    report = Report("values", {})
    report.table(
        ["destination", "messages", "share", "seen", "is_open"],
        [
            ["queue://a", 1234567, 0.98765, datetime(2026, 7, 1, 14, 0, tzinfo=berlin), True],
            ["queue://b", None, float("nan"), datetime(2026, 1, 1, 0, 0, 0, 5000, UTC), False],
            ["queue://c", 7, 1234567.8, pd.NaT, None],
        ],
        "values",
    )
    tree = parsed(written(report, tmp_path))
    rows = [[text_of(cell) for cell in row] for row in tree.iter("tr")]
    assert rows[1:] == [
        ["queue://a", "1,234,567", "0.9877", "2026-07-01 12:00:00 UTC", "yes"],
        ["queue://b", "–", "–", "2026-01-01 00:00:00.005 UTC", "no"],
        ["queue://c", "7", "1,234,568", "–", "–"],
    ]
    numbers = [cell.get("class") for cell in next(iter(tree.iter("tr")))]
    assert numbers == [None, "number", "number", None, None]
    assert strings(tree, "//time/@datetime")[0] == "2026-07-01T12:00:00Z"


def test_a_table_without_rows_says_so_and_a_short_row_is_an_error(tmp_path: Path) -> None:
    report = Report("empty", {})
    report.table(["a", "b"], [], "empty")
    assert parsed(written(report, tmp_path)).findtext(".//td") == "nothing"
    with pytest.raises(ValueError, match="needs 2 values"):
        report.table(["a", "b"], [["only one"]], "short")


def test_times_of_plots_are_utc_wherever_the_machine_stands() -> None:
    """Midnight in UTC is 14:00 in Kiritimati; the label says 00:00, with and without a zone."""
    code = """
import altair as alt, pandas as pd
from amqsidecar.pipeline.report import draw
for zone in (None, "UTC"):
    at = pd.to_datetime(["2026-01-01T00:00", "2026-01-01T03:00"]).tz_localize(zone)
    rows = pd.DataFrame({"at": at, "n": [1, 2]})
    midnight_ms = int(pd.Timestamp("2026-01-01", tz="UTC").timestamp() * 1000)
    axis = alt.Axis(format="%H:%M", values=[midnight_ms])
    for x in (alt.X("at:T", axis=axis), alt.X("hours(at):T", axis=alt.Axis(format="%H:%M"))):
        svg, _ = draw(alt.Chart(rows).mark_line().encode(x=x, y="n:Q"), "c")
        print(next(t for t in svg.itertext() if ":" in t))
"""
    there = {**os.environ, "TZ": "Pacific/Kiritimati"}
    done = run_program([sys.executable, "-c", code], code=0, env=there)
    assert done.stdout.split() == ["00:00"] * 4


def test_a_report_lies_where_spark_writes_and_replaces_the_last_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert SparkSession.getActiveSession() is spark
    for title in ("first", "second"):
        Report(title, {}).write(tmp_path.as_uri() + "/a b/report.html")
    folder = tmp_path / "a b"
    assert parsed((folder / "report.html").read_text()).findtext("body/main/h1") == "second"
    assert sorted(one.name for one in folder.iterdir()) == ["report.html"]
