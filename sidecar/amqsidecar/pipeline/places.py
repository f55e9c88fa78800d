"""Names of places as groups: what is one place to people, whatever Artemis calls it today."""

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

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
