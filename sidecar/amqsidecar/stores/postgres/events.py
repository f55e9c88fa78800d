"""How the PostgreSQL store keeps events: packed blocks, and which blocks mention a message."""

from collections.abc import Iterable, Sequence
from typing import Any

from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.packing import keys_of, pack_events, unpack_events
from amqsidecar.stores.postgres.database import PostgresDatabase
from amqsidecar.stores.postgres.rows import pg_text

_KEY_CHARACTERS = 200  # An index takes no long text; events carry the whole redelivery id.


def event_key(redelivery_id: str) -> str:
    """Return the key of a redelivery id in the index of events."""
    return pg_text(redelivery_id)[:_KEY_CHARACTERS]


def write_block(database: PostgresDatabase, events: Sequence[AnyEvent]) -> int | None:
    """Append events; returns their block, None = there were none."""
    if not events:
        return None
    block: int = database.query("add_block", **_block_values(events))[0][0]
    keys = _keys(events)
    if keys:
        database.copy("add_keys", ("text", "int8"), [(key, block) for key in sorted(keys)])
    return block


def read_block(database: PostgresDatabase, block: int) -> list[AnyEvent]:
    """Return the events of a block."""
    ((_, packing, body),) = database.query("read_blocks", seqs=[block])
    return unpack_events(packing, body)


def read_since(
    database: PostgresDatabase, redelivery_ids: Iterable[str], since: int
) -> list[AnyEvent]:
    """Return the events of the blocks above a number that mention some messages."""
    keys = sorted({event_key(one) for one in redelivery_ids})
    blocks = database.query("blocks_about", keys=keys, since=since)
    return [event for packing, body in blocks for event in unpack_events(packing, body)]


def rewrite_block(
    database: PostgresDatabase, block: int, events: Sequence[AnyEvent], left: Sequence[AnyEvent]
) -> int:
    """Remove the other events of a block; returns how many."""
    gone = sorted(_keys(events) - _keys(left))
    if gone:
        database.queue("delete_keys", keys=gone, block=block)
    if left:
        database.queue("replace_block", seq=block, **_block_values(left))
    else:
        database.queue("delete_block", seq=block)
    return len(events) - len(left)


def lock_journal(database: PostgresDatabase) -> None:
    """Block planning of segments and removal of events by others until the transaction ends."""
    database.query("lock", lock=database.advisory_lock("journal"))


def forget_events(database: PostgresDatabase, blocks: str, limit: int, **conditions: int) -> int:
    """Remove at most `limit` events of the blocks that a query names; returns how many.

    Events kept for the journal stay. Segments that lose some are whole no longer.
    """
    lock_journal(database)
    removed = written = 0
    segments = set[int]()
    for block, count, segment in database.query(blocks, limit=limit, **conditions):
        forgotten = min(count, limit - removed)
        if forgotten <= 0:
            break
        events = read_block(database, block)
        removed += rewrite_block(database, block, events, events[forgotten:])
        if segment is not None:
            segments.add(segment)
            written += forgotten
    if segments:
        database.queue("forget_segments", ids=sorted(segments))
        database.queue("take_written_count", count=written)
    return removed


def _block_values(events: Sequence[AnyEvent]) -> dict[str, Any]:
    packing, body = pack_events(events)
    return {
        "newest_at_ms": max(event.at_ms for event in events),
        "event_count": len(events),
        "packing": packing,
        "body": body,
    }


def _keys(events: Iterable[AnyEvent]) -> set[str]:
    return {event_key(key) for event in events for key in keys_of(event)}
