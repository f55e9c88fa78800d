"""Groups of places and causes that are one thing to people, even if their names vary."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as f

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.cause_groups import CauseGroups, own_group
from amqsidecar.model.failure import GroupNote
from amqsidecar.pipeline.sources.output_files import read_file

TEXTS_MAX: Final = 10_000
"""Maximum number of texts at destinations that are learned from, those with the most deaths; each
other text is a group of its own."""

_NON_DURABLE_NAME: Final = "::(non-durable)"
"""In place of the name of a subscription that lives as long as its consumer."""
_NON_DURABLE: Final = "::[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
"""The end of such a place, as a regular expression."""


Merges = Mapping[tuple[str, str], tuple[int, str]]
"""By destination and group: when it last became a part of another one, and of which."""


class _Group(msgspec.Struct):
    destination: str
    cause_group: str
    note: GroupNote | None


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
    """Return the result of `grouped_place` for one name."""
    return re.sub(_NON_DURABLE, _NON_DURABLE_NAME, place) if "::" in place else place


def load_owners(path: str) -> dict[tuple[str, str], str]:
    """Return the owners of groups, by destination and cause group.

    Args:
        path: a file or a URL with the output of `amqsidecar groups --output json`.

    Raises:
        ConfigError: it can't be read, or holds something else.
    """
    try:
        groups = msgspec.json.decode(read_file(path), type=list[_Group])
    except (OSError, msgspec.MsgspecError) as error:
        what = f"expected the output of `amqsidecar groups --output json`: {error}"
        raise ConfigError([Problem(path, what)]) from error
    return {
        (grouped_name(one.destination), one.cause_group): one.note.owner
        for one in groups
        if one.note is not None and one.note.owner
    }


def learn_groups(
    causes: Iterable[tuple[str, str, int, int]], merges: Merges
) -> dict[tuple[str, str], str]:
    """Return the group of each cause at each destination, as a sidecar has it.

    Args:
        causes: destination ("" = not known), text, number of deaths and time of the first, of each.
        merges: groups that became parts of others.
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
    return {
        (place, text): _merged(place, known.find(place, group), merges)
        for (place, text), group in groups.items()
    }


def _merged(place: str, group: str, merges: Merges) -> str:
    at, known = merges.get((place, group), (0, group))
    # Why only later: groups that were merged and split again can't make a cycle.
    while (place, known) in merges and merges[place, known][0] > at:
        at, known = merges[place, known]
    return known
