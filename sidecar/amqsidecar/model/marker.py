"""Markers of people and marks of services: moments that charts, groups and reports show."""

from enum import StrEnum
from typing import Final

import msgspec

from amqsidecar.model.destination import covers


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A remark of people or a deployment pipeline about a time; stores keep each pattern's latest.

    Attributes:
        text: in a few words.
        destination: the pattern of destinations that it concerns, canonical text; "" = all.
        author: its writer, as events name people; "" = not known.
    """

    at_ms: int
    text: str
    destination: str = ""
    author: str = ""

    def concerns(self, destination: str) -> bool:
        """Whether it concerns a destination, canonical text."""
        return covers(self.destination, destination)


MARKS_KEPT: Final = 100
"""Maximum marks kept per instance; the oldest are removed."""


class ServiceMarkKind(StrEnum):
    """A kind of change of a service.

    Attributes:
        START: it started, and read its rules.
        OBSERVE: it started with a user that may only look, so it takes and sends nothing.
        RULES: it read other settings of an address from its broker than before.
    """

    START = "start"
    OBSERVE = "observe"
    RULES = "rules"


class ServiceMark(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a service; stores keep the latest of each instance.

    Attributes:
        rules_digest: of the rules that it decides by from then on.
    """

    at_ms: int
    instance: str
    kind: ServiceMarkKind
    rules_digest: str
