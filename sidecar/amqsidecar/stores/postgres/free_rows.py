"""How the PostgreSQL store locks rows for people, beside cycles that claim them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from amqsidecar.model.schedule import RowView
from amqsidecar.stores.postgres.database import PostgresDatabase
from amqsidecar.stores.postgres.rows import view_row


class FreeRows(NamedTuple):
    """Rows that an operator's action may change.

    Attributes:
        views: locked by us until the transaction ends.
        in_flight: numbers of rows in an unfinished cycle.
        skipped: numbers of rows that others have locked, the lowest first.
    """

    views: list[RowView]
    in_flight: list[int]
    skipped: list[int]


def lock_free(
    database: PostgresDatabase, ids: Sequence[int], conditions: Mapping[str, object]
) -> FreeRows:
    """Lock rows for an operator's action, in a transaction.

    Rows that are locked now are not waited for: a transaction that waits with locks for a
    lock can be waited for in turn.

    Args:
        conditions: of the filter; must hold still.
    """
    locked = database.rows("lock_to_change", **conditions, ids=list(ids))
    views = [view_row(database, row) for row in locked]
    # Why asked again: as in `PostgresTransaction.claim_due`.
    in_flight, at_rest = database.query_all(
        ("in_flight_of", {"ids": list(ids)}),
        ("left_at_rest", {**conditions, "ids": list(ids)}),
    )
    left_out = {row[0] for row in in_flight}
    skipped = {row[0] for row in at_rest} - {view.id for view in views}
    return FreeRows(
        [view for view in views if view.id not in left_out], sorted(left_out), sorted(skipped)
    )
