"""Filters of a query that leave out whole streams and row groups."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_COLUMNS: Final = (("stream",), ("segment",), ("at",))
"""A file has one stream; the others grow along it, so that the bounds of a row group are narrow."""

_REACHES: Final[dict[type[Filter], Callable[[Any, Any, Any], bool]]] = {
    EqualTo: lambda value, low, high: low <= value <= high,
    GreaterThan: lambda value, _low, high: high > value,
    GreaterThanOrEqual: lambda value, _low, high: high >= value,
    LessThan: lambda value, low, _high: low < value,
    LessThanOrEqual: lambda value, low, _high: low <= value,
    In: lambda values, low, high: any(low <= one <= high for one in values),
}


def useful(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    """Return the filters that `may_hold` understands."""
    return tuple(
        one
        for one in filters
        if type(one) in _REACHES and getattr(one, "attribute", None) in _COLUMNS
    )


def may_hold(filters: Sequence[Any], column: str, low: Any, high: Any) -> bool:
    """Return whether rows whose values of a column lie within bounds can pass these filters.

    Args:
        filters: see `useful`; all must be passed.
        column: its name.
        low: the smallest value.
        high: the largest value.
    """
    own = (one for one in filters if one.attribute == (column,))
    return all(_REACHES[type(one)](one.value, low, high) for one in own)
