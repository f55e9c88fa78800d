"""The query of a page's address: filter, order and begin of the messages.

The same words stand in every address, so that any page can be linked, kept and sent to a colleague.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams

from amqsidecar.http.access import HttpRefused
from amqsidecar.ledger import RowKey, RowOrder
from amqsidecar.model.operation import Action, Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.act import ActionRefused
from amqsidecar.operations.charts import Zoom
from amqsidecar.operations.conditions import CONDITIONS, ConditionRefused, given, select
from amqsidecar.operations.listing import Bounds, select_oldest
from amqsidecar.operations.select import IDS_MAX
from amqsidecar.schedule import Schedule

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
        bounds: of an operation on these messages.
    """

    selection: Selection
    order: RowOrder
    after: RowKey | None
    fields: dict[str, list[str]]
    bounds: Bounds = Bounds()

    @property
    def is_everything(self) -> bool:
        """Whether no condition is given."""
        return self.selection == Selection()

    def address(self, path: str, **changes: str | None) -> str:
        """Return the same address with changes; None = without it."""
        pairs = [
            (name, value)
            for name in (*FILTER_NAMES, "order")
            if name not in changes
            for value in self.fields.get(name, [])
        ]
        pairs += [(name, value) for name, value in changes.items() if value is not None]
        return address(path, pairs)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The conditions as parameters of an address, whose ages stay fixed between pages."""
        return _pairs_of(self.selection)

    def fixed(self) -> str:
        """Return conditions and bounds as a query whose ages stay fixed between pages."""
        limit, is_one = self.bounds.limit, self.bounds.one_per_message_id
        bounds = [("limit", limit)] * bool(limit) + [("one_per_message_id", "yes")] * is_one
        return urlencode([*self.pairs, *bounds])


FILTER_NAMES: Final = tuple(one.address for one in CONDITIONS if one.address is not None)


def _pairs_of(selection: Selection) -> list[tuple[str, str]]:
    """Return a selection as parameters of an address, without conditions it can't express."""
    return [
        (condition.address, text)
        for condition, value in given(selection)
        if condition.address is not None
        for text in condition.write(value)
    ]


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

    texts = {one.field: fields.get(one.address or "", []) for one in CONDITIONS}
    try:
        selection = select(texts, now_ms)
    except ConditionRefused as error:
        raise QueryError(f"{error.condition.address}: {error}") from error
    return MessageQuery(
        selection=selection,
        order=_order(fields.get("order", [None])[-1]),
        after=_after(fields.get("after", [None])[-1]),
        fields=fields,
        bounds=_bounds(fields),
    )


def _bounds(fields: Mapping[str, list[str]]) -> Bounds:
    text = fields.get("limit", [""])[-1]
    if text and not (re.fullmatch("[0-9]{1,9}", text) and 1 <= int(text) <= IDS_MAX):
        raise QueryError(f"limit: expected a whole number from 1 to {IDS_MAX:,}, found {text!r}")
    return Bounds(int(text) if text else None, "one_per_message_id" in fields)


def bounded(schedule: Schedule, action: Action, selection: Selection, bounds: Bounds) -> Selection:
    """Return the selection of the rows that an action would take now.

    Raises:
        HttpRefused: the rows would be too many, or each message would be opened.
    """
    if bounds != Bounds() and selection.looks_into_messages:
        # Why: it could open each of millions of messages before it answers.
        raise HttpRefused(
            400, "`limit` and `one_per_message_id` can't be used with `property` or `contains`"
        )
    try:
        return select_oldest(schedule, action, selection, bounds)
    except ActionRefused as error:
        raise HttpRefused(409, str(error)) from error


def read_zoom(params: QueryParams) -> Zoom | None:
    """Return the time that the charts of a page show; None = the page chooses it.

    Raises:
        QueryError: it is none.
    """
    text = params.get("span")
    try:
        return Zoom(text) if text else None
    except ValueError as error:
        raise QueryError(f"span: expected {', '.join(Zoom)}, found {text!r}") from error


def query_of(selection: Selection) -> MessageQuery:
    """Return the query for a selection."""
    fields: dict[str, list[str]] = {}
    for name, text in _pairs_of(selection):
        fields.setdefault(name, []).append(text)
    return MessageQuery(selection=selection, order=RowOrder.NEWEST, after=None, fields=fields)


def group_query(destination: str, cause_group: str) -> MessageQuery:
    """Return the query for all messages of a group."""
    return query_of(Selection(rows=RowFilter(destination=destination, cause_group=cause_group)))


def message_query(row_id: int) -> MessageQuery:
    """Return the query for one message."""
    return query_of(Selection(rows=RowFilter(ids=(row_id,))))


def _order(text: str | None) -> RowOrder:
    try:
        return RowOrder.NEWEST if text is None else RowOrder(text)
    except ValueError as error:
        raise QueryError(f"order: expected {', '.join(RowOrder)}, found {text!r}") from error


def _after(text: str | None) -> RowKey | None:
    if text is None:
        return None
    found = re.fullmatch(r"(-?[0-9]{1,19})\.([0-9]{1,19})", text)
    if found is None or max(int(found[1]), int(found[2])) > _ID_MAX:
        raise QueryError("after: expected the value from the page before")
    return RowKey(int(found[1]), int(found[2]))
