"""Every query of the PostgreSQL store that runs while many wait finds its rows by an index."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.stores.postgres.database import QUERIES
from amqsidecar.stores.postgres.rows import conditions_of, filter_values
from amqsidecar.stores.rows import LAST_ID
from support.stores.postgres_schedule import EmptiedStore
from support.stores.postgres_server import PostgresServer
from support.virtual_clock import VirtualClock

WAITING_COUNT = 30_000
FILL = f"""
INSERT INTO redelivery
SELECT id, (id % 10 = 8)::int + 2 * (id % 1000 = 9)::int, id * 7919 % {WAITING_COUNT},
    'queue://' || id % 50, false, 'queue://DLQ', 'test-' || id, 1, 500, 0, 'policy.yaml:3',
    'amqp/1.0', 500, 12, NULL, 'ID:' || id, NULL, 'g' || id % 20
FROM generate_series(1, {WAITING_COUNT}) AS id;
INSERT INTO message SELECT id, 'x' FROM generate_series(1, {WAITING_COUNT}) AS id;
INSERT INTO event_block (newest_at_ms, event_count, packing, body)
SELECT n, 100, 0, 'x' FROM generate_series(1, 3000) AS n;
UPDATE event_block SET segment = seq / 100 WHERE seq % 3000 < 2000;
INSERT INTO journal_segment (stream, number, event_count) VALUES ('s', 1, 1);
INSERT INTO event_key SELECT 'test-' || n, n FROM generate_series(1, 3000) AS n;
INSERT INTO operation_member
SELECT n % 3, 'test-' || n, 'queue://7', 1, n,
    (ARRAY['re-sent', 'consumed', 'consumed', 'came back', NULL])[n % 5 + 1]
FROM generate_series(1, 30000) AS n;
INSERT INTO failure_count
SELECT n * 300000, 'died', 'queue://7', 'g' || d, 0, 0, 1
FROM generate_series(1, 300) AS n, generate_series(1, 20) AS d;
INSERT INTO queue_observation
SELECT 'queue://' || d, n, n * 60000, '' FROM generate_series(1, 300) AS n,
generate_series(1, 20) AS d;
ANALYZE redelivery, message, event_block, event_key, operation_member, failure_count;
ANALYZE queue_observation;
"""

ABOUT: dict[str, RowFilter] = {
    "by_ids": RowFilter(ids=(5, 6)),
    "by_redelivery_id": RowFilter(redelivery_id="test-5"),
    "kept": RowFilter(state=RowState.HELD),
    "by_destination": RowFilter(destination="queue://7"),
    "by_group": RowFilter(destination="queue://7", cause_group="g7"),
    "all": RowFilter(),
}
SORTED = {
    *("list_by_ids", "list_by_redelivery_id", "lock_rows", "blocks_of_message", "read_lag"),
    *("blocks_since", "failure_counts", "read_observations", "due_counts"),
    # Why: those that wait for events, by destination; the planner hashes many.
    "gate_tallies",
}
"""What they sort is little, whatever waits; or is grouped by it."""

INDEXES = {
    "by_ids": "pkey",
    "by_redelivery_id": "by_redelivery_id",
    "kept": "kept",
    "by_destination": "by_destination",
    "by_group": "by_group",
    "all": "pkey",
}
PAGED = ("kept", "by_destination", "by_group", "all")

LARGE = "redelivery|message|event_block|event_key|operation_member|failure_count|queue_observation"
PAGE = {"after_id": 9, "until_id": LAST_ID, "look": 20, "limit": 10}
NEWEST = {"before": LAST_ID, "floor": 0, "look": 20, "limit": 10}
DUE = {
    "kept": 1,
    "after_ms": 9,
    "after_id": 0,
    "until_ms": LAST_ID,
    "until_id": LAST_ID,
    "look": 100,
    "limit": 10,
}
IDS = {"ids": [3, 4, 5]}

PLANS: list[tuple[str, dict[str, Any], str]] = [
    ("claim_due", {"now_ms": 2_000, "limit": 100}, "Index Scan using redelivery_due"),
    ("claim_due", {"now_ms": 10**12, "limit": 1_000}, "Index Scan using redelivery_due"),
    ("next_due", {}, "Index Only Scan using redelivery_due"),
    ("read_messages", IDS, "using message_pkey"),
    ("read_message", {"id": 5}, "using message_pkey"),
    ("lock_rows", IDS, "using redelivery_pkey"),
    (
        "postpone_rows",
        {**IDS, "due_at_ms": 1, "reason": "r", "gate": "pace"},
        "using redelivery_pkey",
    ),
    ("park_rows", {**IDS, "reason": "r"}, "using redelivery_pkey"),
    ("delete_sent_rows", {"instance": 1}, "redelivery_pkey"),
    ("delete_sent_messages", {"instance": 1}, "message_pkey"),
    ("newest_id", {}, "Index Only Scan Backward using redelivery_pkey"),
    ("blocks_of_message", {"key": "test-7"}, "event_key_pkey"),
    ("oldest_blocks", {"before_ms": 2_900, "limit": 10}, "event_block_by_age"),
    ("first_blocks", {"limit": 10}, "event_block_pkey"),
    ("unplanned_blocks", {"limit": 10}, "event_block_by_segment"),
    ("segment_blocks", {"segment": 2, "after": 1, "limit": 10}, "event_block_by_segment"),
    ("mark_blocks", {"seqs": [3, 4], "segment": 3}, "event_block_pkey"),
    ("read_lag", {}, "event_block_by_segment"),
    ("delete_keys", {"keys": ["test-7"], "block": 7}, "event_key_pkey"),
    *(
        (f"list_{name}", filter_values(ABOUT[name])[1] | PAGE, f"redelivery_{index}")
        for name, index in INDEXES.items()
    ),
    *(
        (f"count_{name}", filter_values(ABOUT[name])[1], f"redelivery_{index}")
        for name, index in INDEXES.items()
        if name != "all"
    ),
    # Pages, and steps of operations.
    *(
        (f"{query}_{name}", filter_values(ABOUT[name])[1] | NEWEST, f"redelivery_{INDEXES[name]}")
        for name in PAGED
        for query in ("newest", "floor")
    ),
    *(
        (f"ceiling_{name}", filter_values(ABOUT[name])[1] | PAGE, f"redelivery_{INDEXES[name]}")
        for name in PAGED
    ),
    ("due_waiting", conditions_of(RowFilter()) | DUE, "redelivery_due"),
    ("until_waiting", DUE, "Index Only Scan using redelivery_due"),
    ("due_kept", conditions_of(RowFilter()) | DUE, "redelivery_kept_due"),
    ("until_kept", DUE, "Index Only Scan using redelivery_kept_due"),
    ("gate_tallies", {"now_ms": 5}, "redelivery_gated"),
    ("due_counts", {"bounds": [5, 9, 20], "from_ms": 5, "until_ms": 200}, "redelivery_due"),
    # Following, and what operations do to their members.
    (
        "blocks_since",
        {
            "since": "9:9:",
            "hidden_since": [1],
            "until": "99:99:",
            "hidden_until": [3],
            "after_xid": "0",
            "after_seq": 0,
            "limit": 10,
        },
        "event_block_by_xid",
    ),
    ("open_members", {"redelivery_ids": ["test-7", "test-8"]}, "operation_member_open"),
    ("due_members", {"number": 1, "before_ms": 30_000, "limit": 9}, "operation_member_due"),
    (
        "list_members",
        {"number": 1, "after": "test-3", "outcome": None, "limit": 9},
        "operation_member_pkey",
    ),
    ("members_among", {"number": 1, "redelivery_ids": ["test-7"]}, "operation_member_pkey"),
    (
        "failure_counts",
        {"from_ms": 1, "until_ms": 900_000, "kinds": ["died"], "step_ms": 1},
        "count_pkey",
    ),
    ("merge_hours", {"before_ms": 900_000, "limit": 9}, "failure_count_unmerged"),
    (
        "read_observations",
        {"destination": "queue://7", "from_ms": 1, "until_ms": 99_999},
        "queue_observation_pkey",
    ),
]


@pytest.fixture(scope="module")
def store(postgres: PostgresServer) -> Iterator[EmptiedStore]:
    """A store in which many wait and one cycle is unfinished."""
    with postgres.database() as url:
        store = EmptiedStore(url, clock=VirtualClock())
        store.open()
        store._database.run(FILL)
        with store.transaction() as tx:
            tx.record_cycle(1, [], tx.claim_due(10**12, 1_000), [])
        yield store
        store.close()


@pytest.mark.parametrize(("name", "values", "index"), PLANS)
def test_a_query_uses_its_index(
    store: EmptiedStore, name: str, values: dict[str, Any], index: str
) -> None:
    connection = store._database._connected()
    plan = "\n".join(
        line
        for (line,) in connection.execute(f"EXPLAIN VERBOSE {QUERIES[name]}", values).fetchall()
    )
    assert index in plan, plan
    assert not re.search(rf"Seq Scan on \w+\.({LARGE})", plan), plan
    assert "Sort Key" not in plan or name in SORTED, plan
    # What unfinished cycles name is asked once for all rows, not once for each.
    plans = {*re.findall(r"^ +SubPlan (\d+)", plan, re.MULTILINE)}
    assert {*re.findall(r"hashed SubPlan (\d+)", plan)} == plans, plan


def test_a_claim_touches_no_more_than_it_returns(store: EmptiedStore) -> None:
    """A claim reads pages by what it claims and what is in flight, however many wait."""
    connection = store._database._connected()
    query = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {QUERIES['claim_due']}"
    ((plan,),) = connection.execute(query, {"now_ms": 10**12, "limit": 100}).fetchall()
    assert plan[0]["Plan"]["Actual Rows"] == 100
    assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 2_500
