"""Rights of roles by destination, and the patterns that give them."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec

from amqsidecar.model.destination import (
    Destination,
    covers,
    overlap,
    parse_destination,
    parse_pattern,
)
from amqsidecar.model.operation import Action
from amqsidecar.policy.destination_map import DestinationMap

GivenPlaces = tuple[str, ...] | None
"""Patterns of destinations, such as `orders.>`; None = all."""


class Right(StrEnum):
    """A right on the messages of a destination."""

    VIEW = "view"
    """See that they exist."""
    BODIES = "bodies"
    """See their content."""
    ACT = "act"
    """Retry, redirect, hold, release, give up and take back; write notes."""
    DISCARD = "discard"
    EDIT = "edit"


_IMPLIED: Final = {
    Right.VIEW: {Right.VIEW},
    Right.BODIES: {Right.VIEW, Right.BODIES},
    Right.ACT: {Right.VIEW, Right.ACT},
    Right.DISCARD: {Right.VIEW, Right.ACT, Right.DISCARD},
    Right.EDIT: {Right.VIEW, Right.BODIES, Right.ACT, Right.EDIT},
}


class Rights(msgspec.Struct, frozen=True, kw_only=True):
    """Where each right is given."""

    view: GivenPlaces = None
    bodies: GivenPlaces = None
    act: GivenPlaces = None
    discard: GivenPlaces = None
    edit: GivenPlaces = None

    def patterns(self, right: Right) -> GivenPlaces:
        """Return where a right is given."""
        found: GivenPlaces = getattr(self, right)
        return found

    def allows(self, right: Right, destination: str | None) -> bool:
        """Whether a right is given on a destination, canonical text; None = on all it may view."""
        given = self.patterns(right)
        if given is None or (destination is None and given == self.view):
            return True
        return destination is not None and _is_within(given, destination)

    def allows_all_of(self, right: Right, pattern: str) -> bool:
        """Whether a right is given on all that a pattern matches; "" = everything."""
        given = self.patterns(right)
        return given is None or any(covers(one, pattern) for one in given)

    def sees_some_of(self, pattern: str) -> bool:
        """Whether something that a pattern matches may be viewed; "" = everything."""
        return self.view is None or any(overlap(one, pattern) for one in self.view)

    @property
    def is_limited(self) -> bool:
        """Whether they differ between destinations."""
        return self not in (EVERYTHING, VIEWING)

    @property
    def may_change(self) -> bool:
        """Whether anything may be changed anywhere."""
        return self.act != ()


EVERYTHING: Final = Rights()
"""Of operators."""

VIEWING: Final = Rights(act=(), discard=(), edit=())
"""Of viewers; `http.bodies` says whether they see content."""


def rights_of(given: Mapping[str, Iterable[Right]]) -> Rights:
    """Return the rights of a role by pattern; each right implies the rights that it needs."""
    found = {right: dict[str, None]() for right in Right}
    for pattern, rights in given.items():
        for right in Right:
            if any(right in _IMPLIED[one] for one in rights):
                found[right][pattern] = None
    return Rights(**{right.value: tuple(patterns) for right, patterns in found.items()})


def joined(parts: Iterable[Rights]) -> Rights:
    """Return the rights of a person with several roles."""
    found: dict[str, GivenPlaces] = {right.value: () for right in Right}
    for part in parts:
        for right in Right:
            before, more = found[right], part.patterns(right)
            found[right] = None if before is None or more is None else (*before, *more)
    return Rights(**found)


def right_of(action: Action) -> Right:
    """Return the right that an action needs."""
    return Right.DISCARD if action is Action.DISCARD else Right.ACT


@lru_cache(maxsize=256)
def _map_of(patterns: tuple[str, ...]) -> DestinationMap[bool]:
    return DestinationMap([((parse_pattern(text),), True) for text in patterns])


@lru_cache(maxsize=8_192)
def _is_within(patterns: tuple[str, ...], destination: str) -> bool:
    """Return whether a pattern matches; none does for a name of several destinations."""
    place = parse_destination(destination)
    address = Destination(place.kind, place.name.split("::", 1)[0])
    is_one = "," not in place.name and not {"*", ">", "#"} & {*address.name.split(".")}
    return is_one and _map_of(patterns).find(address) is not None
