"""The gate `windows`: never outside, at once at the opening, also when the clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqsidecar.errors import ConfigError
from amqsidecar.model.destination import queue
from amqsidecar_windows import plugin
from support.gates import SOURCE, due, gate_of

BERLIN = ZoneInfo("Europe/Berlin")
YEARS = (datetime(2026, 1, 1), datetime(2027, 12, 31))  # noqa: DTZ001 - as Hypothesis wants it
NIGHT = {"opens": "0 22 * * *", "open_for_minutes": 480}


def ms(text: str, zone: ZoneInfo = BERLIN, *, fold: int = 0) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp() * 1000)


def until(now_ms: int, *windows: dict[str, object], zone: str = "Europe/Berlin") -> int | None:
    """Return until when a message waits at a time; None = it goes."""
    entry = {"time_zone": zone, "windows": list(windows or (NIGHT,))}
    wait = gate_of(plugin, default_entry=entry).wait_of(due(0), now_ms)
    return None if wait is None else wait.until_ms


@settings(max_examples=150, deadline=None)
@given(at=st.datetimes(*YEARS), fold=st.integers(0, 1))
def test_it_is_open_for_so_long_after_each_opening(at: datetime, fold: int) -> None:
    """22:00 comes once on each day, so the wall clock says when it opens."""
    now_ms = round(at.replace(tzinfo=BERLIN, fold=fold).timestamp() * 1000)
    today = datetime.fromtimestamp(now_ms / 1000, BERLIN).date()
    openings = [ms(f"{today + timedelta(days=day)}T22:00") for day in (-1, 0, 1)]
    is_open = any(opening <= now_ms < opening + 480 * 60_000 for opening in openings)
    following = min(opening for opening in openings if opening > now_ms)
    assert until(now_ms) == (None if is_open else following)


def test_the_edges_belong_to_what_begins() -> None:
    assert until(ms("2026-11-22T21:59:59.999")) == ms("2026-11-22T22:00")
    assert until(ms("2026-11-22T22:00")) is None
    assert until(ms("2026-11-23T05:59:59.999")) is None
    assert until(ms("2026-11-23T06:00")) == ms("2026-11-23T22:00")


def test_an_hour_that_is_left_out_still_opens() -> None:
    """On 2026-03-29 in Berlin 02:00 to 03:00 does not exist."""
    window = {"opens": "30 2 * * *", "open_for_minutes": 60}
    assert until(ms("2026-03-29T01:59"), window) == ms("2026-03-29T03:30")
    assert until(ms("2026-03-29T03:00"), window) == ms("2026-03-29T03:30")
    assert until(ms("2026-03-29T03:30"), window) is None
    assert until(ms("2026-03-29T04:29"), window) is None
    assert until(ms("2026-03-29T04:30"), window) == ms("2026-03-30T02:30")


def test_an_hour_that_comes_twice_is_no_trap() -> None:
    """On 2026-10-25 in Berlin 02:00 to 03:00 comes twice."""
    window = {"opens": "30 2 * * *", "open_for_minutes": 45}
    assert until(ms("2026-10-25T02:29"), window) == ms("2026-10-25T02:30")
    assert until(ms("2026-10-25T02:45"), window) is None
    assert until(ms("2026-10-25T04:00"), window) == ms("2026-10-26T02:30")


def test_a_night_over_a_change_of_the_clocks_is_as_long_as_others() -> None:
    assert until(ms("2026-03-29T06:59")) is None
    assert until(ms("2026-03-29T07:00")) == ms("2026-03-29T22:00")
    assert until(ms("2026-10-25T04:59")) is None
    assert until(ms("2026-10-25T05:00")) == ms("2026-10-25T22:00")


def test_an_opening_while_it_is_open_prolongs_it() -> None:
    window = {"opens": "0 8,9 * * *", "open_for_minutes": 90}
    assert until(ms("2026-11-22T09:45"), window) is None
    assert until(ms("2026-11-22T10:29"), window) is None
    assert until(ms("2026-11-22T10:30"), window) == ms("2026-11-23T08:00")


def test_any_of_several_windows_opens() -> None:
    noon = {"opens": "0 12 * * mon-fri", "open_for_minutes": 60}
    assert until(ms("2026-11-20T12:30"), NIGHT, noon) is None
    assert until(ms("2026-11-20T11:00"), NIGHT, noon) == ms("2026-11-20T12:00")
    # A Saturday.
    assert until(ms("2026-11-21T11:00"), NIGHT, noon) == ms("2026-11-21T22:00")


def test_time_zones_are_those_of_the_entry_and_others_pass() -> None:
    at_ms = ms("2026-11-22T22:30", ZoneInfo("Asia/Tokyo"))
    assert until(at_ms, zone="Asia/Tokyo") is None
    assert until(at_ms) is not None
    entry = {"queue": "night.>", "windows": [NIGHT]}
    gate = gate_of(plugin, entries=[entry])
    assert gate.wait_of(due(0, queue("day.a")), at_ms) is None
    wait = gate.wait_of(due(0, queue("night.a")), at_ms)
    assert wait is not None
    assert wait.reason == "outside its window until 2026-11-22 22:00 UTC (sidecar.yaml:7)"


def test_one_gate_follows_the_clock_forward_and_back() -> None:
    """What it remembers until the next change is no lie after it."""
    entry = {"time_zone": "Europe/Berlin", "windows": [NIGHT]}
    gate = gate_of(plugin, default_entry=entry)
    at = datetime(2026, 10, 24, tzinfo=BERLIN)
    steps = [at + timedelta(minutes=37 * step) for step in range(150)]
    for moment in [*steps, *reversed(steps)]:
        now_ms = round(moment.timestamp() * 1000)
        wait = gate.wait_of(due(0), now_ms)
        assert (None if wait is None else wait.until_ms) == until(now_ms)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"windows": [{"opens": "0 22 * *"}]}, "expected five fields"),
        ({"windows": [{"opens": "0 25 * * *"}]}, "is no cron expression"),
        ({"windows": [{"opens": "0 1 * * 1-5"}]}, "days of the week as"),
        ({"windows": [{"opens": "0 1 30 2 *"}]}, "never comes true"),
        ({"windows": [{"open_for_minutes": 5}]}, "expected five fields"),
        ({"windows": [NIGHT | {"open_for_minutes": 0}]}, "expected an integer from 1"),
        ({"windows": [NIGHT], "time_zone": "Mars/Olympus"}, "there is no time zone"),
        ({"windows": [NIGHT], "time_zone": "../etc/passwd"}, "there is no time zone"),
        ({}, "expected at least one window"),
    ],
)
def test_wrong_options_are_reported(entry: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plugin.parse_options({"default_entry": entry}, SOURCE)
