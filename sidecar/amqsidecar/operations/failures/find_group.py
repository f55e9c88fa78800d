"""Finds a group by a number, or by a part of its cause."""

from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches

import msgspec

from amqsidecar.errors import NothingFound
from amqsidecar.model.cause import former_group_number, group_number
from amqsidecar.model.operation import Selection
from amqsidecar.model.schedule import RowFilter
from amqsidecar.operations.failures.former_groups import Place, current_places
from amqsidecar.operations.words import many
from amqsidecar.schedule import ScheduleView

_SHOWN = 5


def with_group(
    schedule: ScheduleView,
    rows: RowFilter,
    *,
    part: str | None = None,
    number: int | None = None,
    shown: Callable[[str], str] = str,
) -> RowFilter:
    """Return a filter narrowed to the group that a person means.

    Args:
        schedule: knows the groups.
        rows: the other conditions; its destination selects one of several groups.
        part: the cause, or a part of it that is unique (case is ignored); or a number.
        number: of a group, as outputs print it, or printed it before schedules had keys.
        shown: returns the visible text of a cause; `part` is searched only there.

    Raises:
        NothingFound: no group matches, or several do; the message names similar groups.
    """
    if part is None and number is None:
        return rows
    groups = current_places(schedule)
    places = [one for one in groups if rows.destination in (None, one[0])]
    if number is not None or (part is not None and part not in map(shown, _causes(places))):
        wanted = number if number is not None else _number(part or "")
        key = schedule.group_key
        found = [groups[one] for one in places if group_number(key, *one) == wanted]
        if number is not None and not found:
            found = [groups[one] for one in places if former_group_number(*one) == wanted]
        if found or number is not None:
            destination, cause = _the_only(list(dict.fromkeys(found)), f"#{wanted}", places)
            return msgspec.structs.replace(rows, destination=destination, cause_group=cause)
    former = _cause(part or "", places, shown)
    causes = {groups[one][1] for one in places if one[1] == former}
    if len(causes) > 1:
        raise NothingFound(
            f"the group {shown(former)!r} is a part of {len(causes)} groups: "
            + _list(sorted(map(shown, causes)))
        )
    return msgspec.structs.replace(rows, cause_group=causes.pop())


def the_group(
    schedule: ScheduleView,
    rows: RowFilter,
    *,
    part: str | None,
    number: int | None = None,
    shown: Callable[[str], str] = str,
) -> Place:
    """Return the one group that a person means; arguments and errors as `with_group`."""
    found = with_group(schedule, rows, part=part, number=number, shown=shown)
    places = [
        (destination, cause)
        for destination, cause in dict.fromkeys(current_places(schedule).values())
        if cause == found.cause_group and found.destination in (None, destination)
    ]
    if len(places) > 1:
        raise NothingFound(
            f"{len(places)} groups have this cause: add --destination, one of "
            + _list([destination for destination, _ in places])
        )
    return places[0]


def numbered_groups(schedule: ScheduleView, number: int) -> list[Place]:
    """Return the groups that have a number or had it; hardly ever more than one."""
    key, groups = schedule.group_key, current_places(schedule).items()
    return list(dict.fromkeys(now for place, now in groups if group_number(key, *place) == number))


def with_numbered(schedule: ScheduleView, selection: Selection) -> Selection:
    """Return a selection with the cause of its group, which may be given as `#` and its number."""
    rows = selection.rows
    if not (rows.cause_group or "").startswith("#") or _number(rows.cause_group or "") is None:
        return selection
    found = [
        one
        for one in numbered_groups(schedule, _number(rows.cause_group or "") or 0)
        if rows.destination in (None, one[0])
    ]
    if len(found) != 1:
        return selection
    destination, cause = found[0]
    rows = msgspec.structs.replace(rows, destination=destination, cause_group=cause)
    return msgspec.structs.replace(selection, rows=rows)


def where_else(schedule: ScheduleView, rows: RowFilter) -> str:
    """Return near matches of a filter without a match, as the end of a sentence; "" = none."""
    tallies = schedule.tallies()
    if not tallies:
        return "; the schedule is empty"
    names = list(dict.fromkeys(tally.destination for tally in tallies))
    if rows.destination is not None and rows.destination not in names:
        near = get_close_matches(rows.destination, names, _SHOWN, 0.5) or names
        return f"; the schedule has no messages of {rows.destination}, but of {_list(near)}"
    total = sum(tally.count for tally in tallies)
    return f"; {many(total, 'message is', 'messages are')} in the schedule, see `amqsidecar status`"


def _cause(part: str, places: Collection[Place], shown: Callable[[str], str]) -> str:
    causes = [(shown(cause), cause) for cause in _causes(places)]
    found = [one for one in causes if part == one[0]]
    found = found or [one for one in causes if part.casefold() in one[0].casefold()]
    if len(found) == 1:
        return found[0][1]
    texts = [text for text, _ in found or causes]
    if found:
        raise NothingFound(f"no group {part!r}; {len(found)} groups contain it: {_list(texts)}")
    near = get_close_matches(part, texts, _SHOWN, 0.4)
    raise NothingFound(
        f"no group {part!r}" + (f"; near it: {_list(near)}" if near else _others(len(places)))
    )


def _the_only(found: list[Place], name: str, places: Collection[Place]) -> Place:
    if len(found) == 1:
        return found[0]
    if found:
        raise NothingFound(
            f"{len(found)} groups have the number {name}: add --destination, one of "
            + _list([destination for destination, _ in found])
        )
    raise NothingFound(f"no group {name}{_others(len(places))}")


def _others(count: int) -> str:
    what = many(count, "other", "others")
    return f"; `amqsidecar groups` lists {what}" if count else "; there is none"


def _causes(places: Iterable[Place]) -> list[str]:
    return list(dict.fromkeys(cause for _, cause in places))


def _number(text: str) -> int | None:
    digits = text.removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 7 else None


def _list(found: Collection[str]) -> str:
    shown = [repr(one) for one in list(found)[:_SHOWN]]
    more = len(found) - _SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
