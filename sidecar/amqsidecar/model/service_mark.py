"""Starts, stops and changes of services, which charts show beside deaths."""

from enum import StrEnum
from typing import Final

import msgspec

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
