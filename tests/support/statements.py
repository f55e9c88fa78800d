"""Counts the statements that a SQLite store runs."""

from __future__ import annotations

from collections import Counter

import pytest

from amqsidecar.stores.sqlite.store import SqliteStore


def counted(store: SqliteStore | None, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the statements that a store executes from now on."""
    statements = Counter[str]()
    assert store is not None
    database = store._database
    query, query_each = database.query, database.query_each

    def count(name: str, *values: object) -> object:
        statements[name] += 1
        return query(name, *values)

    def count_each(name: str, *values: object) -> object:
        statements[name] += 1
        return query_each(name, *values)

    patch.setattr(database, "query", count)
    patch.setattr(database, "query_each", count_each)
    return statements
