"""Counts the statements that a SQLite store runs."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from amqsidecar.stores.sqlite.store import SqliteStore

SqlValues = Sequence[Any] | Mapping[str, Any]


def counted(store: SqliteStore | None, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the statements that a store executes from now on."""
    statements = Counter[str]()
    assert store is not None
    database = store._database
    query, query_each = database.query, database.query_each

    def count(name: str, values: SqlValues = ()) -> sqlite3.Cursor:
        statements[name] += 1
        return query(name, values)

    def count_each(name: str, rows: Iterable[SqlValues]) -> None:
        statements[name] += 1
        query_each(name, rows)

    patch.setattr(database, "query", count)
    patch.setattr(database, "query_each", count_each)
    return statements
