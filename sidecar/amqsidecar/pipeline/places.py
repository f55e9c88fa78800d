"""Places and causes as groups: what is one to people, whatever it is called today."""

import re
from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from amqsidecar.model.cause_groups import CauseGroups, own_group

TEXTS_MAX: Final = 10_000
"""Maximum number of texts at destinations that are learned from, those with the most deaths; each
other text is a group of its own."""

_NON_DURABLE_NAME: Final = "::(non-durable)"
"""In place of the name of a subscription that lives as long as its consumer."""
_NON_DURABLE: Final = "::[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
"""The end of such a place, as a regular expression."""


def grouped_place(place: Column) -> Column:
    """Return the place, with all non-durable subscriptions of an address as one.

    Artemis names the queue of a non-durable subscription by a new UUID each time that a consumer
    connects: `topic://orders::<uuid>` is `topic://orders::(non-durable)`.
    """
    # Why asked first: of a hundred million names, nearly all have no subscription.
    return f.when(
        f.contains(place, f.lit("::")), f.regexp_replace(place, _NON_DURABLE, _NON_DURABLE_NAME)
    ).otherwise(place)


def grouped_name(place: str) -> str:
    """Return what `grouped_place` returns, of one name."""
    return re.sub(_NON_DURABLE, _NON_DURABLE_NAME, place) if "::" in place else place


def learn_groups(causes: Iterable[tuple[str, str, int, int]]) -> dict[tuple[str, str], str]:
    """Return the group of each cause at each destination, as a sidecar learns it.

    Args:
        causes: destination ("" = not known), text, number of deaths and time of the first, of each.
    """
    most = sorted(causes, key=lambda one: (-one[2], one[1], one[0]))[:TEXTS_MAX]
    known = CauseGroups()
    groups = {
        # Why its own group: a journal may be of several versions, and not by a sidecar.
        (place, text): own_group(text)
        for place, text, _, _ in sorted(most, key=lambda one: (one[3], one[1]))
    }
    for (place, _), group in groups.items():
        known.add(place, group)
    return {(place, text): known.find(place, group) for (place, text), group in groups.items()}
