"""Differences between the messages of a group: a property or a key of the body, for rows."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from amqsidecar.http.access import Caller
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.model.message import BodyKind, MessageView
from amqsidecar.model.schedule import RowView
from amqsidecar.telemetry import audit

BYTES_MAX: Final = 64 * 1024
"""Larger messages are not looked into for a row of a table."""

_VALUE_MAX: Final = 80
_NAMES_MAX: Final = 40
_OF_BROKERS: Final = ("JMS", "_", "dlq", "original", "amqsidecar", "breadcrumb", "traceparent")
"""Properties whose names begin so are chosen by people only."""


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """The column of differences in a table.

    Attributes:
        name: of a property, or `body.` and a key; "" = nothing differs that may be shown.
        names: of which a person may choose.
        values: by number of a row; those without it have none.
    """

    name: str
    names: list[str]
    values: dict[int, str]


def read_differing(
    queries: StoreQueries,
    message_of: Callable[[int], bytes | None],
    rows: Sequence[RowView],
    caller: Caller,
    wanted: str,
) -> Differing:
    """Return the differences between messages that a caller may see.

    Args:
        queries: shows messages, masked.
        message_of: the encoded message of a row; None = it is not here.
        rows: of one page.
        caller: who asks.
        wanted: the name that they chose; "" = none.
    """
    facts = read_facts(queries, message_of, rows, caller)
    names = list(dict.fromkeys(name for found in facts.values() for name in found))
    name = wanted if wanted in names else most_telling(list(facts.values()))
    return Differing(
        name=name,
        names=names[:_NAMES_MAX],
        values={number: found[name] for number, found in facts.items() if name in found},
    )


def read_facts(
    queries: StoreQueries,
    message_of: Callable[[int], bytes | None],
    rows: Sequence[RowView],
    caller: Caller,
) -> dict[int, dict[str, str]]:
    """Return short values of messages by the number of their row, as far as a caller may see them.

    Args:
        queries: shows messages, masked.
        message_of: the encoded message of a row; None = it is not here.
        rows: of the messages; large ones are left out.
        caller: who asks.
    """
    facts: dict[int, dict[str, str]] = {}
    for row in rows:
        if not queries.masking.may_see(caller, row.destination):
            continue
        message = None if row.size_bytes > BYTES_MAX else message_of(row.id)
        if message is not None:
            facts[row.id] = facts_of(queries.view(row.encoding, message, BYTES_MAX, sees=True))
    if facts:
        audit.write("read-messages", audit.ActKind.READ, selection={"ids": [*facts]})
    return facts


def facts_of(view: MessageView) -> dict[str, str]:
    """Return short values by name: properties, and the first level of a map or of JSON."""
    found = {one.name: one.value for one in view.properties}
    entries = {one.name: one.value for one in view.body.entries if one.depth == 0}
    if view.body.kind is BodyKind.JSON and not view.body.is_cut:
        entries = _of_json(view.body.text)
    elif view.body.kind is not BodyKind.MAP:
        entries = {}
    found |= {f"body.{name}": value for name, value in entries.items()}
    return {name: value[:_VALUE_MAX] for name, value in found.items() if value}


def _of_json(text: str) -> dict[str, str]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):  # What is masked need not be JSON any more.
        return {}
    entries = body.items() if isinstance(body, dict) else ()
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in entries
        if isinstance(value, str | int | float)
    }


def is_of_brokers(name: str) -> bool:
    """Return whether brokers, the sidecar or tracing write this name."""
    return name.startswith(_OF_BROKERS)


def most_telling(facts: Sequence[Mapping[str, str]]) -> str:
    """Return the name whose values differ most; "" = there is none.

    Example:
        >>> most_telling([{"shop": "7", "order": "1"}, {"shop": "7", "order": "2"}])
        'order'
    """
    values: dict[str, set[str]] = {}
    for found in facts:
        for name, value in found.items():
            if not is_of_brokers(name):
                values.setdefault(name, set()).add(value)
    name = max(values, key=lambda name: len(values[name]), default="")
    return name if len(values.get(name, ())) > 1 else ""
