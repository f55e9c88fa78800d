"""A history in which something happens on a day: the jobs say what, when, and show it readably."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import pandas
import pytest
from playwright.sync_api import Browser, ViewportSize
from pyspark.sql import SparkSession

from amqsidecar.pipeline.recovery.over_time import over_time
from amqsidecar.pipeline.tables import EVERYWHERE
from pipeline.incident_history import (
    DUPLICATE,
    HOUR_MS,
    INVOICES,
    MAIL,
    NEW_AT_MS,
    ORDERS,
    ROLLOUT_MS,
    UNTIL_MS,
    write_incident,
)
from pipeline.running import rows_of, run_job
from support.web.chromium import running_chromium

DESK: Final[ViewportSize] = {"width": 1280, "height": 900}
NARROWER: Final[ViewportSize] = {"width": 1200, "height": 900}
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
MOST_SCREENS: Final = 3
JOBS: Final = {
    "causes": (),
    "recovery": ("--horizon", "10m"),
    # Why two days: its report has the same parts, and it decides about each message.
    "whatif": (
        *("--horizon", "10m", "--no-search", "--policy", "quick={folder}/quick.yaml"),
        *("--since", "2026-01-13T00:00:00Z"),
    ),
}
FIRST_SCREEN: Final = {"whatif": "What changes"}
"""The first heading, where it is not `What changed`."""
QUICK: Final = """\
plugins:
  - redelivery: {default_entry: {maximum_redeliveries: 3, initial_redelivery_delay_ms: 5000}}
"""


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the outputs; the session is that of the tests."""
    assert spark
    folder = tmp_path_factory.mktemp("incident")
    write_incident(folder / "journal")
    (folder / "markers.csv").write_text("# ours\n2026-01-13T10:00:00Z,rollout 4.2\n")
    (folder / "quick.yaml").write_text(QUICK)
    for job, more in JOBS.items():
        asked = [one.format(folder=folder) for one in more]
        if job != "whatif":
            asked += ["--markers", str(folder / "markers.csv")]
        assert run_job(job, folder / "journal", folder / job, *asked) == 0
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as started:
        yield started


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def lines(page: Path, heading: str) -> str:
    """Return the list of a section of a report."""
    found = re.search(rf"<h2>{heading}</h2>\n(.*)", page.read_text())
    assert found
    return found[1]


def test_a_rollout_that_halves_recovery_is_seen_on_the_next_day(ran: Path) -> None:
    """The only change of all groups is that of invoices: begin, jump, and both intervals."""
    (change,) = rows_of(ran / "recovery/recovery_changes")
    assert change["origin"] == INVOICES
    assert ms(change["earliest_at"]) <= ROLLOUT_MS <= ms(change["latest_at"])
    assert ms(change["latest_at"]) - ms(change["earliest_at"]) <= 12 * HOUR_MS
    assert abs(ms(change["begins_at"]) - ROLLOUT_MS) <= 6 * HOUR_MS
    assert change["ends_at"] is None
    assert change["jump_low"] <= 0.4 - 0.8 <= change["jump_high"] < 0
    days = {
        ms(one["begins_at"]): one
        for one in rows_of(ran / "recovery/recovery_over_time")
        if one["origin"] == INVOICES
    }
    first, *_, last = sorted(days)
    assert days[first]["low"] <= 0.8 <= days[first]["high"]
    assert days[last]["low"] <= 0.4 <= days[last]["high"]
    told = lines(ran / "recovery/report.html", "What changed")
    assert "at that time: rollout 4.2" in told


def test_what_began_on_day_10_is_new_on_day_14(ran: Path) -> None:
    found = rows_of(ran / "causes/cause_groups")
    groups = {one["cause_group"]: one for one in found if one["origin"] == EVERYWHERE}
    assert [name for name, one in groups.items() if one["is_new"]] == [DUPLICATE]
    change = next(
        one for one in rows_of(ran / "causes/cause_changes") if one["cause_group"] == DUPLICATE
    )
    assert abs(ms(change["begins_at"]) - NEW_AT_MS) <= HOUR_MS
    assert ms(change["earliest_at"]) <= NEW_AT_MS <= ms(change["latest_at"])
    assert change["per_day_before"] == 0
    deaths = groups[DUPLICATE]["deaths"]
    assert change["per_day"] == pytest.approx(deaths / ((UNTIL_MS - NEW_AT_MS) / 86_400_000), 0.05)
    assert "Duplicate entry" in lines(ran / "causes/report.html", "What changed")


def test_what_is_lost_comes_first(ran: Path) -> None:
    """Mail loses most, though invoices have more messages; no re-send of it ever helps."""
    page = ran / "recovery/report.html"
    first = lines(page, "What does not recover").split("</li>")[0]
    assert MAIL in first
    assert "0 % (0 % to " in first
    assert f"{MAIL} · " in lines(page, "What to do")
    assert ORDERS in page.read_text()


def test_weeks_begin_on_monday() -> None:
    """Sunday's last hour and Monday's first are of two weeks; 2 of 4 have Wilson's bounds."""
    monday = pandas.Timestamp("2026-01-05", tz="UTC")
    hour = int(monday.timestamp()) // 3_600
    hours = [hour - 1, hour, hour + 167]
    hourly = pandas.DataFrame({"group": 0, "hour": hours, "resends": 2, "recovered": [2, 2, 0]})
    weeks = over_time(hourly, 7, 0.95)
    assert list(weeks["begins_at"]) == [monday - pandas.Timedelta(days=7), monday]
    assert list(weeks["share_recovered"]) == [1.0, 0.5]
    assert weeks["low"].iloc[1] == pytest.approx(0.150, abs=0.001)
    assert weeks["high"].iloc[1] == pytest.approx(0.850, abs=0.001)


@pytest.mark.browser
@pytest.mark.parametrize("job", list(JOBS))
def test_a_report_is_three_screens_at_most_and_fits_a_phone(
    browser: Browser, ran: Path, job: str
) -> None:
    address = (ran / job / "report.html").as_uri()
    desk = browser.new_page(viewport=DESK)
    desk.goto(address)
    desk.screenshot(path=ran / f"{job}-desk.png", full_page=True)
    assert desk.evaluate("document.body.scrollHeight") <= MOST_SCREENS * DESK["height"]
    tops = [
        (desk.get_by_role("heading", name=one).bounding_box() or {"y": DESK["height"]})["y"]
        for one in (FIRST_SCREEN.get(job, "What changed"), "What to do")
    ]
    assert tops[0] < tops[1] < DESK["height"]
    desk.set_viewport_size(NARROWER)
    assert desk.evaluate(_THINNEST) >= 2
    phone = browser.new_page(viewport=PHONE)
    phone.goto(address)
    phone.screenshot(path=ran / f"{job}-phone.png", full_page=True)
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for page in (desk, phone):
        page.close()


_THINNEST: Final = """
Math.min(9, ...[...document.querySelectorAll("svg line[stroke-width='2.5']")].map(
  (line) => 2.5 * line.ownerSVGElement.getBoundingClientRect().width
            / line.ownerSVGElement.viewBox.baseVal.width))
"""
"""Width in pixels of the thinnest interval that is drawn."""
