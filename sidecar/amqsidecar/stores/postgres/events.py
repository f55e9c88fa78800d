"""How the PostgreSQL store keeps events: packed blocks, and which blocks mention a message."""

from collections.abc import Iterable, Sequence

from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.packing import block_values, keys_of, unpack_events
from amqsidecar.stores.postgres.database import PostgresDatabase, pg_text

_KEY_CHARACTERS = 200  # An index takes no long text; events carry the whole redelivery id.


def event_key(redelivery_id: str) -> str:
    """Return the key of a redelivery id in the index of events."""
    return pg_text(redelivery_id)[:_KEY_CHARACTERS]


def write_block(database: PostgresDatabase, events: Sequence[AnyEvent]) -> int | None:
    """Append events; returns their block, None = there were none."""
    if not events:
        return None
    block: int = database.rows("add_block", **block_values(events))[0][0]
    keys = _keys(events)
    if keys:
        database.copy("add_keys", ("text", "int8"), [(key, block) for key in sorted(keys)])
    return block


def read_block(database: PostgresDatabase, block: int) -> list[AnyEvent]:
    """Return the events of a block."""
    ((_, packing, body),) = database.rows("read_blocks", seqs=[block])
    return unpack_events(packing, body)


def read_since(
    database: PostgresDatabase, redelivery_ids: Iterable[str], since: int
) -> list[AnyEvent]:
    """Return the events of the blocks above a number that mention some messages."""
    keys = sorted({event_key(one) for one in redelivery_ids})
    blocks = database.rows("blocks_about", keys=keys, since=since)
    return [event for packing, body in blocks for event in unpack_events(packing, body)]


def rewrite_block(
    database: PostgresDatabase, block: int, events: Sequence[AnyEvent], left: Sequence[AnyEvent]
) -> int:
    """Remove the other events of a block; returns how many."""
    gone = sorted(_keys(events) - _keys(left))
    if gone:
        database.queue("delete_keys", keys=gone, block=block)
    if left:
        database.queue("replace_block", seq=block, **block_values(left))
    else:
        database.queue("delete_block", seq=block)
    return len(events) - len(left)


def lock_journal(database: PostgresDatabase) -> None:
    """Block planning of segments and removal of events by others until the transaction ends."""
    database.rows("lock", lock=database.advisory_lock("journal"))


def forget_events(database: PostgresDatabase, blocks: str, limit: int, **conditions: int) -> int:
    """Remove at most `limit` events of the blocks that a query names; returns how many.

    Events kept for the journal stay. Segments that lose some are whole no longer.
    """
    lock_journal(database)
    removed = written = 0
    segments = set[int]()
    for block, count, segment in database.rows(blocks, limit=limit, **conditions):
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
        database.queue("add_written_count", count=-written)
    return removed


def _keys(events: Sequence[AnyEvent]) -> set[str]:
    return {event_key(key) for key in keys_of(events)}
