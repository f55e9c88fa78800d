"""Filters of messages in requests of the API; named like the options of commands."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.datastructures import QueryParams

from amqsidecar.http.access import Caller, HttpRefused
from amqsidecar.http.console.query import MessageQuery, QueryError, read_query
from amqsidecar.http.masking import Masking
from amqsidecar.http.store_queries import QueryContext
from amqsidecar.ledger import RowOrder
from amqsidecar.model.operation import Action
from amqsidecar.model.schedule import RowState, WholeNumber
from amqsidecar.operations.conditions import CONDITIONS
from amqsidecar.operations.failures.find_group import with_numbered
from amqsidecar.operations.select import IDS_MAX

Age = Annotated[str, Meta(pattern=r"^([0-9]{1,9}[smhd]|@[0-9]{1,16})$")]


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of messages; all given conditions must hold, and none means all messages."""

    id: Annotated[list[WholeNumber], Meta(description="Row numbers.")] = []
    destination: Annotated[
        str | None, Meta(description="Their destination, such as `queue://orders`.")
    ] = None
    state: RowState | None = None
    cause_group: Annotated[
        str | None, Meta(description="The cause group, in full, or `#` and its number.")
    ] = None
    cause: Annotated[str | None, Meta(description="A part of the cause.")] = None
    source: Annotated[str | None, Meta(description="Their dead-letter queue.")] = None
    attempt: Annotated[
        WholeNumber | None, Meta(description="Number of the waiting redelivery.")
    ] = None
    older_than: Annotated[
        Age | None,
        Meta(description="Taken longer ago than this, such as `15m`, or before `@` milliseconds."),
    ] = None
    newer_than: Annotated[Age | None, Meta(description="Taken since, in the same way.")] = None
    count_at_least: Annotated[
        WholeNumber | None,
        Meta(description="Minimum number of the waiting redelivery."),
    ] = None
    event: Annotated[str | None, Meta(description="The event that they wait for.")] = None
    property: Annotated[list[str], Meta(description="`name=value` of application properties.")] = []
    contains: Annotated[
        str | None,
        Meta(
            description="A text in cause, properties or the first 64 KiB of the body, in any case."
        ),
    ] = None


class RowsQuery(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter, order and begin of a page of messages."""

    order: RowOrder = RowOrder.NEWEST
    after: Annotated[str | None, Meta(description="`next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ActedOn(Filter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of the messages of an action."""

    limit: (
        Annotated[
            int,
            Meta(ge=1, le=IDS_MAX, description="Exactly this many of them, the oldest first."),
        ]
        | None
    ) = None
    one_per_message_id: Annotated[
        bool,
        Meta(
            description="Of those with the same message id only the first, such as one of the "
            "copies for several subscriptions."
        ),
    ] = False


class PreviewQuery(ActedOn, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The action of a preview, and its messages."""

    action: Action
    target: Annotated[
        str | None, Meta(description="Redirect: where to, so that the broker is asked about it.")
    ] = None


_IN_ADDRESSES: Final = {
    **{one.parameter: one.address for one in CONDITIONS if one.parameter and one.address},
    "order": "order",
    "after": "after",
}
"""Its name in the console."""


def understood(at: QueryContext, given: Filter, masking: Masking, caller: Caller) -> MessageQuery:
    """Return the filter that a caller may use; the store knows groups by number.

    Raises:
        HttpRefused: it is not understood, or not theirs to ask.
    """
    pairs: list[tuple[str, str]] = []
    for name, called in _IN_ADDRESSES.items():
        value: Any = getattr(given, name, None)
        if value is not None:
            values = value if isinstance(value, list) else [value]
            pairs += [(called, str(item)) for item in values]
    try:
        asked = read_query(QueryParams(pairs), at.now_ms)
    except QueryError as error:
        raise HttpRefused(400, str(error)) from error
    masking.check_selection(asked.selection, caller)
    return msgspec.structs.replace(asked, selection=with_numbered(at.store, asked.selection))
