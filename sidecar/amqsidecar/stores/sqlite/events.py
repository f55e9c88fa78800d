"""How the SQLite store keeps events: packed blocks, and which blocks mention a message."""

from collections.abc import Iterable, Sequence

import msgspec

from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.packing import block_values, keys_of, storable, unpack_events
from amqsidecar.stores.rows import LAST_ID
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.outbox import planned_range
from amqsidecar.stores.sqlite.rows import read_unfinished


def write_block(database: SqliteDatabase, events: Sequence[AnyEvent]) -> int | None:
    """Append events; returns their block, None = there were none."""
    if not events:
        return None
    block: int = database.rows("add_block", **block_values(events))[0][0]
    database.query("add_event_count", (len(events),))
    database.add_each("add_key", [(storable(key), block) for key in sorted(keys_of(events))])
    return block


def read_block(database: SqliteDatabase, block: int) -> list[AnyEvent]:
    """Return the events of a block."""
    return unpack_events(*database.query("read_block", (block,)).fetchone())


def read_since(
    database: SqliteDatabase, redelivery_ids: Iterable[str], since: int
) -> list[AnyEvent]:
    """Return the events of the blocks above a number that mention some messages."""
    names = msgspec.json.encode([storable(one) for one in redelivery_ids]).decode()
    blocks = database.query("blocks_about", {"since": since, "redelivery_ids": names}).fetchall()
    return [event for (block,) in sorted(blocks) for event in read_block(database, block)]


def rewrite_block(
    database: SqliteDatabase, block: int, events: Sequence[AnyEvent], left: Sequence[AnyEvent]
) -> None:
    """Remove the other events of a block."""
    gone = keys_of(events) - keys_of(left)
    database.query_each("delete_key", [(key, block) for key in sorted(gone)])
    database.query("add_event_count", (len(left) - len(events),))
    if left:
        database.queue("replace_block", seq=block, **block_values(left))
    else:
        database.queue("delete_block", seq=block)


def forget_events(database: SqliteDatabase, blocks: str, limit: int, **conditions: int) -> int:
    """Remove at most `limit` events of the blocks that a query names; returns how many.

    Events kept for the journal stay. Segments that lose some are whole no longer.
    """
    removed = written = 0
    record = read_unfinished(database)
    first, last = planned_range(database)
    is_kept = database.query("read_outbox").fetchone()[0]
    values = conditions | {
        "unfinished": None if record is None else record.event_block,
        "until": first - 1 if is_kept else LAST_ID,
        "planned_first": first,
        "planned_last": last,
        "limit": limit,
    }
    for block, count in database.query(blocks, values).fetchall():
        forgotten = min(count, limit - removed)
        if forgotten <= 0:
            break
        events = read_block(database, block)
        rewrite_block(database, block, events, events[forgotten:])
        removed += forgotten
        if block < first:
            database.query("forget_segment", {"block": block})
            written += forgotten
    database.queue("add_written_count", count=-written)
    return removed
