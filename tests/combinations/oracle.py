"""One law for all rows: a message is in exactly one place, which its history names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from amqsidecar.model.event import (
    AnyEvent,
    DeadLettered,
    Discarded,
    Parked,
    Resent,
)
from amqsidecar.model.schedule import RowState, RowView
from combinations.axes import ARRIVES, NEVER_SENT, Note
from combinations.case import COUNTED_OTHERWISE, FOREIGN_RULE, Case, Contents, queue_of

DECIDED = (Resent, DeadLettered, Parked, Discarded)
"""Events after which nothing happens without a new reason."""

Changes = Mapping[str, Counter[str]]
"""By queue: how many more of each message it holds than before; negative = fewer."""


class Seen(NamedTuple):
    """What the sidecar says of a message, and what the broker has.

    Attributes:
        rows: of the store, by `list` and `show`.
        history: by `show`, oldest first.
        after: what the broker's queues hold.
    """

    rows: Sequence[RowView]
    history: Sequence[AnyEvent]
    after: Contents


class Place(NamedTuple):
    """Where a message is by the sidecar's own words.

    Attributes:
        name: in reports.
        queues: in one of which the broker has it; empty = the store has it.
    """

    name: str
    queues: frozenset[str] = frozenset()


def named_place(case: Case, seen: Seen) -> Place | None:
    """Return the place that store and history name; None = they name none."""
    kept = [one for one in seen.rows if one.state is not RowState.EXHAUSTED or not one.is_final]
    if kept:
        return Place(f"store, {kept[0].state}")
    if seen.rows and seen.rows[0].final_queue == f"queue://{case.source}":
        return Place("where it died", frozenset({case.source}))
    last = next((one for one in reversed(seen.history) if isinstance(one, DECIDED)), None)
    match last:
        case DeadLettered():
            return Place(last.destination, frozenset({queue_of(last.destination)}))
        case Resent():
            is_there = last.destination == case.destination or not case.destination
            known = case.arrived_in if is_there else frozenset({case.died_in})
            return Place(last.destination, known)
        case _:
            return None


def changes(case: Case, after: Contents) -> Changes:
    """Return what has changed in the broker of the row's messages, wherever they are."""
    ids = (case.test_id, case.filler_id, COUNTED_OTHERWISE)
    found: dict[str, Counter[str]] = {}
    for queue in {*case.before, *after}:
        delta = Counter(after.get(queue, Counter()))
        delta.subtract(case.before.get(queue, Counter()))
        own = {
            one: count
            for one, count in delta.items()
            if count and one in ids and (one != COUNTED_OTHERWISE or case.owns(queue))
        }
        if own:
            found[queue] = Counter(own)
    return found


def problems(case: Case, seen: Seen) -> Iterator[str]:
    """Return each way in which the law is broken."""
    place = named_place(case, seen)
    if place is None:
        yield f"the history names no place: {_words(seen.history)}"
    if len([one for one in seen.rows if one.state is not RowState.EXHAUSTED]) > 1:
        yield f"the store has it twice: {seen.rows}"
    found = changes(case, seen.after)
    expected = {case.source: Counter({case.test_id: -1})}
    arrived = sorted(place.queues) if place else []
    if arrived == [case.source]:
        expected = {}
    elif arrived:
        at = next((one for one in arrived if one in found), arrived[0])
        expected[at] = Counter({case.test_id: 1})
        if case.copied_to:
            expected[case.copied_to] = Counter({case.test_id: 1})
    if found != expected:
        name = place.name if place else "no place"
        yield f"named: {name}; the broker: {_told(found)}; expected: {_told(expected)}"
    yield from _fate_problems(case, seen, place)


def _fate_problems(case: Case, seen: Seen, place: Place | None) -> Iterator[str]:
    """Return what is wrong about the place itself, wherever the message is counted."""
    if place is None:
        return
    asked = case.arrived_in
    if case.row.place in NEVER_SENT and place.queues & asked:
        yield f"sent where nothing may be sent: {place.name}"
    if case.row.place in ARRIVES and not place.queues & asked:
        reasons = [one.reason for one in seen.rows]
        yield f"is not where it was asked to be: {place.name}; {reasons}; {case.refused}"
    if case.row.note in (Note.FOREIGN_CAUSE, Note.FOREIGN_VERDICT):
        rules = [getattr(event, "rule", "") for event in seen.history]
        for rule in rules:
            if "verdict of" in rule or FOREIGN_RULE in rule:
                yield f"a note of somebody else decides: {rule}"


def _words(history: Sequence[AnyEvent]) -> str:
    return ", ".join(type(one).__name__ for one in history) or "it is empty"


def _told(found: Changes) -> str:
    told = [f"{one}{count:+d} in {queue}" for queue in found for one, count in found[queue].items()]
    return "; ".join(sorted(told)) or "nothing has changed"
