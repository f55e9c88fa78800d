"""Differences and common values of a group's messages: properties, keys of the body."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from amqsidecar.http.access import Caller
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.ledger import RowOrder
from amqsidecar.model.message import BodyKind, MessageView
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.operations.failures.former_groups import Place
from amqsidecar.schedule import Schedule
from amqsidecar.telemetry import audit

BYTES_MAX: Final = 64 * 1024
"""Larger messages are not looked into for a row of a table."""

SAMPLE_MAX: Final = 50
"""Messages that are looked at of the group, and of the others."""

SHOWN_MAX: Final = 10
"""Values that are shown."""

_LOOKED_THROUGH: Final = 4 * SAMPLE_MAX
_SHARED: Final = 0.9
_RARE: Final = 0.25

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
    store: Schedule,
    rows: Sequence[RowView],
    caller: Caller,
    wanted: str,
) -> Differing:
    """Return the differences between messages that a caller may see; "" = they chose no name."""
    facts = _read_facts(queries, store, rows, caller)
    names = list(dict.fromkeys(name for found in facts.values() for name in found))
    name = wanted if wanted in names else most_telling(list(facts.values()))
    return Differing(
        name=name,
        names=names[:_NAMES_MAX],
        values={number: found[name] for number, found in facts.items() if name in found},
    )


def _read_facts(
    queries: StoreQueries, store: Schedule, rows: Sequence[RowView], caller: Caller
) -> dict[int, dict[str, str]]:
    """Return short values of messages by the number of their row, as far as a caller may see them.

    Large messages are left out.
    """
    facts: dict[int, dict[str, str]] = {}
    for row in rows:
        if not queries.masking.may_see(caller, row.destination):
            continue
        message = None if row.size_bytes > BYTES_MAX else store.message(row.id)
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


def _is_of_brokers(name: str) -> bool:
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
            if not _is_of_brokers(name):
                values.setdefault(name, set()).add(value)
    name = max(values, key=lambda name: len(values[name]), default="")
    return name if len(values.get(name, ())) > 1 else ""


class CommonValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that nearly all messages of a group have, and few others.

    Attributes:
        name: of a property, or `body.` and a key.
        share: of the messages of the group that were looked at, 0 to 1.
        others_share: of the other messages of the destination that were looked at.
    """

    name: str
    value: str
    share: float
    others_share: float


def read_common(
    queries: StoreQueries, store: Schedule, place: Place, caller: Caller
) -> list[CommonValue]:
    """Return the fields that a group's newest messages share, as far as a caller may see them."""
    if not queries.masking.may_see(caller, place[0]):
        return []
    members = RowFilter(destination=place[0], cause_group=place[1])
    here = store.page_rows(members, RowOrder.NEWEST, SAMPLE_MAX).rows
    beside = RowFilter(destination=place[0])
    found = store.page_rows(beside, RowOrder.NEWEST, _LOOKED_THROUGH).rows
    others = [row for row in found if row.cause_group != place[1]][:SAMPLE_MAX]

    def facts(rows: Sequence[RowView]) -> list[Mapping[str, str]]:
        return [*_read_facts(queries, store, rows, caller).values()]

    return common_values(facts(here), facts(others)) if others else []


def common_values(
    here: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]
) -> list[CommonValue]:
    """Return the values that nearly all of some messages have and few others, the rarest first.

    None where there are fewer than two messages, or no others to compare them with.

    Example:
        >>> [one.value for one in common_values([{"code": "E1"}] * 2, [{"code": "E2"}])]
        ['E1']
    """
    if len(here) < 2 or not others:
        return []
    elsewhere = Counter(pair for one in others for pair in one.items())
    shared = Counter(pair for one in here for pair in one.items())
    found = [
        CommonValue(
            name=name,
            value=value,
            share=count / len(here),
            others_share=elsewhere[name, value] / len(others),
        )
        for (name, value), count in shared.items()
        if count >= _SHARED * len(here)
        and elsewhere[name, value] <= _RARE * len(others)
        and not _is_of_brokers(name)
    ]
    found.sort(key=lambda one: (one.others_share, -one.share, one.name))
    return found[:SHOWN_MAX]
