"""The parts of sidecars' answers used here; fields that older versions lack have defaults."""

from hashlib import sha256
from typing import Any, Final

import msgspec

from amqsidecar.model.marker import Marker

COUNTS: Final = ("recent_messages", "day_before", "waiting", "held", "parked", "exhausted")


class SaidGroup(msgspec.Struct, frozen=True):
    """See `operations.failures.groups.Group`."""

    number: int
    destination: str
    cause_group: str
    trend: str = ""
    last_at_ms: int = 0
    recent_messages: int = 0
    day_before: int = 0
    waiting: int = 0
    held: int = 0
    parked: int = 0
    exhausted: int = 0
    new_since: Marker | None = None


class _Exhausted(msgspec.Struct, frozen=True):
    destination: str
    count: int
    since_ms: int


class _Died(msgspec.Struct, frozen=True):
    messages: int = 0


class _Waiting(msgspec.Struct, frozen=True):
    overdue: int = 0
    overdue_ms: int = 0


class _Wellness(msgspec.Struct, frozen=True):
    is_well: bool = True
    broker: str = ""


class _Unapproved(msgspec.Struct, frozen=True):
    id: int
    actor: str = ""


class SaidOverview(msgspec.Struct, frozen=True):
    """See `operations.overview.Overview`; `wellness` is None for roles that view only some."""

    groups: list[SaidGroup] = []
    exhausted: list[_Exhausted] = []
    died: _Died = _Died()
    waiting: _Waiting = _Waiting()
    wellness: _Wellness | None = None
    unapproved: list[_Unapproved] = []

    @property
    def is_well(self) -> bool:
        """Whether the sidecar says nothing else."""
        return self.wellness is None or self.wellness.is_well

    @property
    def broker(self) -> str:
        """Product, version and address of its broker; "" = not known to this person."""
        return "" if self.wellness is None else self.wellness.broker

    @property
    def exhausted_count(self) -> int:
        """Messages that wait for a person."""
        return sum(one.count for one in self.exhausted)


class SaidStatus(msgspec.Struct, frozen=True):
    """See `operations.browse.Status`; there are instances on a shared schedule only."""

    instances: list[dict[str, Any]] = []

    @property
    def uids(self) -> tuple[str, ...]:
        """Unique names of these, in order."""
        return tuple(sorted(str(one.get("uid")) for one in self.instances))


class SaidPolicies(msgspec.Struct, frozen=True):
    """See `operations.policies.PolicyView`."""

    source: str = ""
    yaml: str = ""

    @property
    def lines(self) -> list[str]:
        """The rules without comments, which name files; empty = read live, or unknown."""
        return [one for one in self.yaml.splitlines() if not one.lstrip().startswith("#")]

    @property
    def digest(self) -> str:
        """A short digest of these; "" = there are none."""
        text = "\n".join(self.lines)
        return sha256(text.encode()).hexdigest()[:8] if text else ""
