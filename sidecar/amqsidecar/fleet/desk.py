"""Answers questions over all sidecars: the first screen, groups, search, rules, operations."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic
from urllib.parse import urlencode

import msgspec

from amqsidecar.fleet.answers import COUNTS, SaidGroup, SaidOverview, SaidPolicies, SaidStatus
from amqsidecar.fleet.gather import LONG_S, WAIT_S, Gatherer, Person, Said
from amqsidecar.fleet.watch import MemberState
from amqsidecar.http.api.views import RowsAnswer
from amqsidecar.http.store_queries import AnswerT
from amqsidecar.model.operation import CAREFUL, SENDS, Action, Operation, OperationPace
from amqsidecar.model.schedule import WholeNumber
from amqsidecar.operations.failures.groups import Trend
from amqsidecar.operations.preview import Preview

_SELDOM_S: Final = 60.0
_STATES: Final = ("unreachable", "refuses", "stale", "no answer yet", "needs a person", "well")


class SidecarLine(msgspec.Struct, frozen=True):
    """One sidecar on the first screen.

    Attributes:
        state: one of "unreachable", "refuses", "stale", "no answer yet", "needs a person", "well".
        shares_with: another sidecar on the same schedule, whose numbers are counted; "" = none.
        rules: short digest of its rules; "" = unknown, or read live from the broker.
    """

    seen: MemberState
    said: Said[SaidOverview]
    state: str
    shares_with: str
    rules: str

    @property
    def found(self) -> SaidOverview:
        """Its last answer; an empty overview where there is none."""
        return self.said.value or SaidOverview()


class FleetGroup(msgspec.Struct, frozen=True):
    """The failures of one cause, at all its places; see `operations.failures.groups.Group`."""

    cause_group: str
    trend: Trend
    last_at_ms: int
    counts: dict[str, int]
    places: list[Said[SaidGroup]]


class FleetOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The first screen.

    Attributes:
        problems: sources of sidecars that can't be read, a sentence each.
        died: messages in the last hour, as far as known.
        exhausted: messages that wait for a person, in the same way.
        sidecars: all, those in need of a person first.
        groups: groups of deaths, most deaths first.
        versions: sidecars by version, the most common first.
        rules: sidecars by kind of broker and digest of their rules, the most common first.
    """

    at_ms: int
    problems: list[str]
    died: int
    exhausted: int
    sidecars: list[SidecarLine]
    groups: list[FleetGroup]
    versions: dict[str, list[str]]
    rules: dict[str, dict[str, list[str]]]


class Gathered(msgspec.Struct, Generic[AnswerT], frozen=True):
    """The answers of all sidecars; `missing` says by name why an answer is old or absent."""

    found: list[AnswerT]
    missing: dict[str, str]


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The approval of an action at one place, with the values of the preview."""

    sidecar: str
    destination: str
    number: WholeNumber
    expected: WholeNumber
    since: WholeNumber
    target: str | None = None


class PlacePreview(msgspec.Struct, frozen=True):
    """The preview of one place; `approval` is None where nothing would be changed."""

    place: Said[SaidGroup]
    preview: Said[Preview]
    approval: Approval | None


class Desk:
    """Answers one person, within their own rights at each sidecar."""

    def __init__(self, gatherer: Gatherer, person: Person) -> None:
        self._gatherer = gatherer
        self._person = person

    async def overview(self) -> FleetOverview:
        """Return the first screen, from the answers within `WAIT_S`."""
        overviews, twins, policies = await asyncio.gather(
            self._gatherer.all(self._person, "/overview", SaidOverview, WAIT_S),
            self._twins(WAIT_S),
            self._gatherer.all(self._person, "/policies", SaidPolicies, WAIT_S, _SELDOM_S),
        )
        watch = self._gatherer.watch
        rules = {one.sidecar.name: one.value.digest for one in policies if one.value is not None}
        lines = [
            _line(seen, one, twins.get(one.sidecar.name, ""), rules.get(one.sidecar.name, ""))
            for one in overviews
            if (seen := watch.seen.get(one.sidecar.name)) is not None
        ]
        lines.sort(key=lambda one: (_STATES.index(one.state), -one.found.exhausted_count))
        versions: dict[str, list[str]] = defaultdict(list)
        kinds: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for line in lines:
            versions[line.seen.version or "unknown"].append(line.seen.sidecar.name)
            if line.rules and (broker := line.found.broker.lower()):
                kind = "Artemis" if "artemis" in broker else "Classic"
                kinds[kind][line.rules].append(line.seen.sidecar.name)
        counted = [line for line in lines if not line.shares_with]
        groups = (_at(line.said, group) for line in counted for group in line.found.groups)
        return FleetOverview(
            at_ms=self._gatherer.clock.now_ms(),
            problems=watch.sources.problems,
            died=sum(line.found.died.messages for line in counted),
            exhausted=sum(line.found.exhausted_count for line in counted),
            sidecars=lines,
            groups=_merged(groups),
            versions=_sorted(versions),
            rules={kind: _sorted(found) for kind, found in kinds.items()},
        )

    async def groups(self, cause_group: str | None = None) -> Gathered[FleetGroup]:
        """Return groups by cause: all, or the one of this cause."""
        said = await self._counted("/groups?limit=500", list[SaidGroup])
        places = (
            _at(one, group)
            for one in said.found
            for group in one.value or []
            if cause_group in (None, group.cause_group)
        )
        return Gathered(_merged(places), said.missing)

    async def search(self, conditions: Sequence[tuple[str, str]]) -> Gathered[Said[RowsAnswer]]:
        """Return the newest messages of each sidecar; conditions are as its API takes them."""
        path = f"/messages?{urlencode([*conditions, ('limit', '20')])}"
        return await self._counted(path, RowsAnswer)

    async def operations(self) -> Gathered[Said[Operation]]:
        """Return the newest operations of all sidecars, the newest first."""
        said = await self._counted("/operations", list[Operation])
        found = [(each.created_at_ms, one, each) for one in said.found for each in one.value or []]
        found.sort(key=lambda one: -one[0])
        return Gathered([_at(one, each) for _, one, each in found], said.missing)

    async def preview(
        self, action: Action, cause_group: str, target: str | None = None
    ) -> Gathered[PlacePreview]:
        """Return the preview of an action at each place of a cause, by its own sidecar.

        Args:
            action: to preview.
            target: of a redirect, at each broker; None = another action.
        """
        groups = await self.groups(cause_group)

        async def look(place: Said[SaidGroup]) -> PlacePreview:
            assert place.value is not None  # noqa: S101 - `_merged` was given it
            name, group = place.sidecar.name, place.value
            query = {"action": action, **_filter(group.destination, group.number)}
            query |= {} if target is None else {"target": target}
            path = f"/preview?{urlencode(query)}"
            said = await self._gatherer.one(self._person, name, path, Preview)
            approval = None
            if said.value is not None and said.value.count:
                approval = Approval(
                    sidecar=name,
                    destination=group.destination,
                    number=group.number,
                    expected=said.value.count,
                    since=said.value.since,
                    target=target,
                )
            return PlacePreview(place, said, approval)

        places = groups.found[0].places if groups.found else []
        return Gathered([*await asyncio.gather(*map(look, places))], groups.missing)

    async def begin(
        self,
        action: Action,
        approvals: Sequence[Approval],
        reason: str,
        *,
        is_careful: bool,
    ) -> list[Said[Operation]]:
        """Have each sidecar begin its operation; each refuses if its messages have changed since.

        If the process dies inside, the sidecars already asked carry out and list their operations.
        """
        pace = CAREFUL if is_careful and action in SENDS else OperationPace()

        async def ask(one: Approval) -> Said[Operation]:
            wish = {
                "action": action,
                "filter": _filter(one.destination, one.number),
                "expected": one.expected,
                "since": one.since,
                "target": one.target,
                "reason": reason,
                "pace": pace,
            }
            return await self._gatherer.one(
                self._person, one.sidecar, "/operations", Operation, wish
            )

        return [*await asyncio.gather(*map(ask, approvals))]

    async def _counted(self, path: str, kind: type[AnswerT]) -> Gathered[Said[AnswerT]]:
        """Return one answer for each schedule."""
        said, twins = await asyncio.gather(
            self._gatherer.all(self._person, path, kind), self._twins(LONG_S)
        )
        found = [one for one in said if one.sidecar.name not in twins]
        return Gathered(found, {one.sidecar.name: one.problem for one in found if one.problem})

    async def _twins(self, wait_s: float) -> dict[str, str]:
        """Return sidecars on the schedule of another one that is reached, and that other one."""
        return find_twins(
            await self._gatherer.all(self._person, "/status", SaidStatus, wait_s, _SELDOM_S)
        )


def find_twins(said: Iterable[Said[SaidStatus]]) -> dict[str, str]:
    """Return which sidecar is counted in place of another one on its schedule; one that answers."""
    first: dict[tuple[str, ...], str] = {}
    found = {}
    for one in sorted(said, key=lambda one: bool(one.problem)):
        uids = () if one.value is None else one.value.uids
        name = one.sidecar.name
        if uids and first.setdefault(uids, name) != name:
            found[name] = first[uids]
    return found


def _line(seen: MemberState, said: Said[SaidOverview], shares_with: str, rules: str) -> SidecarLine:
    state = "well"
    if seen.problem:
        state = "unreachable"
    elif said.value is None:
        state = "refuses" if said.is_refused else "no answer yet"
    elif said.problem:
        state = "stale"
    elif not said.value.is_well:
        state = "needs a person"
    return SidecarLine(seen, said, state, shares_with, rules)


def _at(said: Said[Any], value: AnswerT) -> Said[AnswerT]:
    """Return a part of an answer as the answer."""
    return Said(sidecar=said.sidecar, value=value, at_ms=said.at_ms, problem=said.problem)


def _merged(places: Iterable[Said[SaidGroup]]) -> list[FleetGroup]:
    """Return groups of one cause as one, those first of which most died in the last hour."""
    by_cause: dict[str, list[Said[SaidGroup]]] = defaultdict(list)
    for place in places:
        if place.value is not None:
            by_cause[place.value.cause_group].append(place)
    found = []
    for cause, here in by_cause.items():
        groups = [place.value for place in here if place.value is not None]
        counts = {name: sum(getattr(one, name) for one in groups) for name in COUNTS}
        trends = {one.trend for one in groups}
        trend = next((one for one in Trend if one in trends), Trend.STEADY)
        last_at_ms = max(one.last_at_ms for one in groups)
        found.append(FleetGroup(cause, trend, last_at_ms, counts, here))
    found.sort(key=lambda one: (-one.counts["recent_messages"], -one.last_at_ms))
    return found


def _filter(destination: str, number: int) -> dict[str, str]:
    # Why the number: parts of a cause may be masked.
    return {"destination": destination, "cause_group": f"#{number}"}


def _sorted(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return dict(sorted(found.items(), key=lambda one: (-len(one[1]), one[0])))
