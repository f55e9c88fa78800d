"""The query of a page's address: filter, order and begin of the messages.

The same words stand in every address, so that any page can be linked, kept and sent to a colleague.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams

from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.destination import parse_destination
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowFilter, RowState

_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_ID_MAX = 2**63 - 1


class QueryError(ValueError):
    """An address has an invalid parameter; the text names it."""


class MessageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The filter of the messages of a page.

    Attributes:
        selection: as an operation takes it.
        order: how they are listed.
        after: where the page before ended.
        fields: the address's parameters by name; ages as written.
    """

    selection: Selection
    order: RowOrder
    after: RowKey | None
    fields: dict[str, list[str]]

    @property
    def is_everything(self) -> bool:
        """Whether no condition is given."""
        return self.selection == Selection()

    def address(self, path: str, **changes: str | None) -> str:
        """Return the same address with changes; None = without it."""
        names = (*FILTER_NAMES, "order")
        pairs = [
            (name, value)
            for name in names
            if name not in changes
            for value in self.fields.get(name, [])
        ]
        pairs += [(name, value) for name, value in changes.items() if value is not None]
        return address(path, pairs)

    def fixed(self) -> str:
        """Return the conditions as a query whose ages stay fixed between pages."""
        rows = self.selection.rows
        moving = {"older": rows.received_before_ms, "younger": rows.received_from_ms}
        fields: dict[str, list[str]] = {
            name: self.fields[name] for name in FILTER_NAMES if name in self.fields
        }
        for name, at_ms in moving.items():
            if at_ms is not None:
                fields[name] = [f"@{at_ms}"]
        return urlencode(fields, doseq=True)


FILTER_NAMES: Final[tuple[str, ...]] = (
    "id",
    "destination",
    "state",
    "group",
    "cause",
    "source",
    "attempt",
    "older",
    "younger",
    "property",
    "contains",
)


def address(path: str, pairs: Mapping[str, object] | Iterable[tuple[str, str]] = ()) -> str:
    """Return an address with a query; of characters that no address can break."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    query = urlencode([(name, _encodable(str(value))) for name, value in items])
    return f"{path}?{query}" if query else path


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def read_query(params: QueryParams, now_ms: int) -> MessageQuery:
    """Return the query of an address.

    Args:
        params: fields that are empty count as not given.
        now_ms: reference time of ages.

    Raises:
        QueryError: it is not understood.
    """
    fields: dict[str, list[str]] = {}
    for name, value in params.multi_items():
        # Why: only of a group the empty one means something.
        if value or name == "group":
            fields.setdefault(name, []).append(value)

    def one(name: str) -> str | None:
        return fields.get(name, [None])[-1]

    rows = RowFilter(
        ids=_ids(fields.get("id", [])),
        destination=_destination("destination", one("destination")),
        state=_state(one("state")),
        cause_contains=one("cause"),
        cause_group=one("group"),
        source=_destination("source", one("source")),
        redelivery_count=_whole("attempt", one("attempt")),
        received_before_ms=_moment("older", one("older"), now_ms),
        received_from_ms=_moment("younger", one("younger"), now_ms),
    )
    properties = tuple(_property(text) for text in fields.get("property", []))
    return MessageQuery(
        selection=Selection(rows=rows, properties=properties, contains=one("contains") or ""),
        order=_order(one("order")),
        after=_after(one("after")),
        fields=fields,
    )


def group_query(destination: str, cause_group: str) -> MessageQuery:
    """Return the query for all messages of a group."""
    return MessageQuery(
        selection=Selection(rows=RowFilter(destination=destination, cause_group=cause_group)),
        order=RowOrder.NEWEST,
        after=None,
        fields={"destination": [destination], "group": [cause_group]},
    )


def message_query(row_id: int) -> MessageQuery:
    """Return the query for one message."""
    return MessageQuery(
        selection=Selection(rows=RowFilter(ids=(row_id,))),
        order=RowOrder.NEWEST,
        after=None,
        fields={"id": [str(row_id)]},
    )


def _ids(texts: list[str]) -> tuple[int, ...] | None:
    return tuple(_whole("id", text) or 0 for text in texts) or None


def _destination(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return str(parse_destination(text))
    except ValueError as error:
        raise QueryError(f"{name}: {error}") from error


def _state(text: str | None) -> RowState | None:
    try:
        return None if text is None else RowState(text)
    except ValueError as error:
        raise QueryError(f"state: expected {', '.join(RowState)}, found {text!r}") from error


def _order(text: str | None) -> RowOrder:
    try:
        return RowOrder.NEWEST if text is None else RowOrder(text)
    except ValueError as error:
        raise QueryError(f"order: expected {', '.join(RowOrder)}, found {text!r}") from error


def _whole(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > _ID_MAX:
        raise QueryError(f"{name}: expected a whole number, found {text!r}")
    return int(text)


def _moment(name: str, text: str | None, now_ms: int) -> int | None:
    """Return a time before now; `@` begins a time in milliseconds since the epoch."""
    if text is None:
        return None
    fixed = re.fullmatch(r"@([0-9]{1,16})", text)
    if fixed:
        return int(fixed[1])
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text.strip())
    if found is None:
        what = f"expected a number with a unit, such as 90s, 15m, 2h or 3d, found {text!r}"
        raise QueryError(f"{name}: {what}")
    return now_ms - int(found[1]) * _UNIT_MS[found[2]]


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise QueryError(f"property: expected name=value, found {text!r}")
    return name.strip(), value


def _after(text: str | None) -> RowKey | None:
    if text is None:
        return None
    found = re.fullmatch(r"(-?[0-9]{1,19})\.([0-9]{1,19})", text)
    if found is None or max(int(found[1]), int(found[2])) > _ID_MAX:
        raise QueryError("after: expected the value from the page before")
    return RowKey(int(found[1]), int(found[2]))
