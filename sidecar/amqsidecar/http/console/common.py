"""Fields that the messages of a group share and other messages of their destination don't."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from amqsidecar.http.access import Caller
from amqsidecar.http.console.differing import is_of_brokers, read_facts
from amqsidecar.http.store_queries import StoreQueries
from amqsidecar.ledger import RowOrder
from amqsidecar.model.schedule import RowFilter, RowView
from amqsidecar.operations.failures.former_groups import Place
from amqsidecar.schedule import Schedule

SAMPLE_MAX: Final = 50
"""Messages that are looked at of the group, and of the others."""

SHOWN_MAX: Final = 10

_LOOKED_THROUGH: Final = 4 * SAMPLE_MAX
_SHARED: Final = 0.9
_RARE: Final = 0.25


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
        return [*read_facts(queries, store.message, rows, caller).values()]

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
        and not is_of_brokers(name)
    ]
    found.sort(key=lambda one: (one.others_share, -one.share, one.name))
    return found[:SHOWN_MAX]
