"""Markers are bounded, named on what is new since then, and drawn where they concern."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqsidecar.model.cause import cause_group
from amqsidecar.operations import markers
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.charts import marks_since
from amqsidecar.operations.failures.groups import DAY_MS, HOUR_MS, read_groups
from amqsidecar.operations.markers import LONGEST_MARKER, PATTERNS_MAX, new_since, set_marker
from amqsidecar.stores.sqlite.store import SqliteStore
from support.web.console_store import dead, keep, open_store

NOW_MS = 40 * DAY_MS
ORDERS, PAY = "queue://orders.eu", "queue://pay"
FULL = "com.acme.LimitException: the limit is reached"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = open_store(tmp_path / "schedule.db")
    yield opened
    opened.close()


def marked(store: SqliteStore, text: str, destination: str, at_ms: int) -> None:
    set_marker(store, text, destination, "cli:ann", at_ms)


def test_a_new_group_names_the_latest_marker_before_it(store: SqliteStore) -> None:
    begun_ms = NOW_MS - HOUR_MS
    marked(store, "orders 4.1", "orders.>", begun_ms - 60_000)
    marked(store, " orders 4.2 ", "orders.#", begun_ms - 1_000)
    marked(store, "pay 7", "pay", begun_ms - 500)
    marked(store, "orders 4.3", "orders.>", begun_ms + 1)
    rows = [
        dead(1, FULL, begun_ms, destination=ORDERS),
        dead(2, "old.Error: x", NOW_MS - 3 * DAY_MS, destination=ORDERS),
        dead(3, FULL, NOW_MS - 5, destination="queue://mail"),
    ]
    keep(store, rows)
    found = {
        (one.destination, one.cause_group): one.new_since for one in read_groups(store, NOW_MS)
    }
    since = found.pop((ORDERS, cause_group(FULL)))
    assert since is not None
    assert new_since(since, NOW_MS) == "new since orders 4.2 (1h ago)"
    assert set(found.values()) == {None}


def test_a_marker_of_an_earlier_day_explains_nothing(store: SqliteStore) -> None:
    marked(store, "orders 4.2", "", NOW_MS - 1_000 - markers.NEW_SINCE_MS - 1)
    keep(store, [dead(1, FULL, NOW_MS - 1_000, destination=ORDERS)])
    assert read_groups(store, NOW_MS)[0].new_since is None


def test_charts_show_the_markers_that_concern_them(store: SqliteStore) -> None:
    for number, place in enumerate(("orders.>", "pay", "")):
        marked(store, f"rollout {number}", place, NOW_MS + number)

    def shown(destination: str | None) -> list[str]:
        return [one.what for one in marks_since(store, NOW_MS, destination)]

    assert shown(None) == [f"rollout {n}, marked by cli:ann" for n in range(3)]
    assert shown(ORDERS) == [f"rollout {n}, marked by cli:ann" for n in (0, 2)]
    assert marks_since(store, NOW_MS + 3) == []


def test_what_is_no_marker_is_refused(store: SqliteStore) -> None:
    for text in ("", " \n", "x" * (LONGEST_MARKER + 1)):
        with pytest.raises(ActionRefused, match="the text of a marker"):
            marked(store, text, "orders", 1)
    for pattern in ("a..b", "a,b", "queue://", "x" * 300):
        with pytest.raises(ActionRefused):
            marked(store, "x", pattern, 1)
    assert store.markers(0, 9) == []


def test_patterns_are_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PATTERNS_MAX == 200
    monkeypatch.setattr(markers, "PATTERNS_MAX", 2)
    for pattern in ("a", "b", "a", ""):
        if pattern:
            marked(store, "x", pattern, 1)
    with pytest.raises(ActionRefused, match="2 patterns have markers already"):
        marked(store, "x", "", 1)
