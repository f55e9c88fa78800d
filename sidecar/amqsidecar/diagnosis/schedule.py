"""Looks at the schedule that the service would open."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from amqsidecar.diagnosis.finding import Check, Finding, Severity, has_problem, new_finding
from amqsidecar.engine.foreign_tokens import (
    ORPHAN_MENDS,
    describe,
    foreign_sentence,
    has_other_rules,
    orphan_sentence,
)
from amqsidecar.engine.rules_at_work import different_rules, rules_at_work
from amqsidecar.errors import StoreError
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.schedule import ExhaustedTally, RowFilter
from amqsidecar.schedule import OpenSchedule, Schedule

_finding = partial(Finding, Check.SCHEDULE)

_PAGE = 1000
_LOOKED_AT_MAX = 20_000


class ScheduleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the schedule.

    Attributes:
        total: rows; 0 also where there is no schedule yet.
        encodings: rows by encoding of their message, of the first rows.
        seen: dead-letter queues that were read before, canonical text.
        is_new: no sidecar has worked with it.
        problem: why it can't be opened; "" = it can, or there is none yet.
        place: findings about its database.
        exhausted: where exhausted messages are, as far as it knows.
        rules: digest of the rules by sidecar at work on it.
    """

    total: int = 0
    destinations: tuple[Destination, ...] = ()
    encodings: Mapping[str, int] = {}
    seen: frozenset[str] = frozenset()
    instances: frozenset[str] = frozenset()
    is_new: bool = True
    problem: str = ""
    place: tuple[Finding, ...] = ()
    exhausted: tuple[ExhaustedTally, ...] = ()
    rules: Mapping[str, str] = {}


def look_at_schedule(open_schedule: OpenSchedule) -> ScheduleFacts:
    """Return the content of a schedule, opened for reading only.

    Source: the engine sends rows of its link's own encoding only.
    """
    try:
        with closing(open_schedule()) as schedule:
            return _facts_of(schedule)
    except StoreError as error:
        return ScheduleFacts(problem=str(error))


def _facts_of(schedule: Schedule) -> ScheduleFacts:
    state, shared = schedule.state(), schedule.instances()
    tallies = schedule.tallies()
    encodings: dict[str, int] = {}
    after = looked_at = 0
    while looked_at < _LOOKED_AT_MAX:
        rows = schedule.list_rows(RowFilter(), _PAGE, after)
        for row in rows:
            encodings[row.encoding] = encodings.get(row.encoding, 0) + 1
        looked_at += len(rows)
        if len(rows) < _PAGE:
            break
        after = rows[-1].id
    return ScheduleFacts(
        total=sum(tally.count for tally in tallies),
        destinations=tuple(
            dict.fromkeys(parse_destination(tally.destination) for tally in tallies)
        ),
        encodings=encodings,
        seen=frozenset(schedule.holds()),
        instances=frozenset((state.instance, *(one.instance for one in shared))),
        is_new=not state.token_created and len(shared) <= 1,
        exhausted=tuple(schedule.exhausted_tallies()),
        rules=rules_at_work(schedule),
    )


def place_problem(path: Path) -> str:
    """Return why no store can be made at a path; "" = it can."""
    folder = path.parent
    if not folder.is_dir():
        return f"its folder {folder} does not exist"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"this user may not write to its folder {folder}"
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return f"this user may not read and write {path}"
    return ""


def schedule_findings(
    url: str, facts: ScheduleFacts, encodings: Sequence[str]
) -> Iterator[Finding]:
    """Yield findings about the schedule.

    Args:
        url: `store.url`.
        facts: its content.
        encodings: that the link can send; () = the broker was not reached.
    """
    yield from facts.place
    if has_problem(facts.place):
        return
    if facts.problem:
        mend = (
            ""
            if not url.startswith("sqlite:")
            else "store: {url: sqlite:///path/that/can/be/written}"
        )
        yield _finding(Severity.PROBLEM, url, facts.problem, mend)
        return
    foreign = {name: count for name, count in facts.encodings.items() if name not in encodings}
    for name, count in foreign.items() if encodings else ():
        scheme = name.partition("/")[0]
        yield new_finding(
            "rows_of_another_wire",
            url,
            count=count,
            scheme=scheme,
            name=name,
            encodings=", ".join(encodings),
        )
    if not foreign:
        yield new_finding("rows_wait", url, total=facts.total)


def shared_rules_findings(facts: ScheduleFacts, rules_digest: str) -> Iterator[Finding]:
    """Yield that sidecars at work on the schedule decide by other rules."""
    if what := different_rules(facts.rules, rules_digest):
        yield _finding(Severity.WARNING, "policy", what)


def foreign_token_findings(
    tokens: Iterable[ForeignToken],
    facts: ScheduleFacts,
    *,
    accepts_orphans: bool,
    rules_digest: str,
) -> Iterator[Finding]:
    """Yield findings about tokens of schedules that are not in this store."""
    for token in () if facts.problem else tokens:
        if token.is_held:
            other = has_other_rules(token, rules_digest)
            severity = Severity.WARNING if other else Severity.NOTE
            yield _finding(severity, describe(token), foreign_sentence(token, rules_digest))
            continue
        what = f"{orphan_sentence([token])}; {ORPHAN_MENDS}"
        severity = Severity.NOTE if accepts_orphans else Severity.WARNING
        if facts.is_new and not accepts_orphans:
            what = f"a run would refuse to start with a new store: {what}"
            severity = Severity.PROBLEM
        yield _finding(severity, describe(token), what, "store: {accept_orphans: true}")
