"""Previews of actions."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from amqsidecar.engine.send_gate import GateAction, GateAnswer
from amqsidecar.errors import BrokerRefused, LinkLost
from amqsidecar.ledger import RowKey, RowOrder, Select
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.failure import EXPIRED
from amqsidecar.model.operation import SENDS, Action, OperationState, Selection
from amqsidecar.model.schedule import Recall, RowFilter, RowState, RowView, Tally
from amqsidecar.operations.act import effect_of
from amqsidecar.operations.reach import reach_notes
from amqsidecar.operations.select import NEEDED_STATES, is_tallied, narrowed, selector
from amqsidecar.operations.words import many
from amqsidecar.schedule import Schedule

ROWS_MAX: Final = 5_000
"""Maximum rows examined one by one; beyond it, only the tallies are used."""

MESSAGES_MAX: Final = 1_000
"""Maximum if each message has to be opened."""

_TOLERATED = 10
_TOLERATED_SHARE = 0.1

PAGES_MAX: Final = 20
_PAGE_ROWS = 500

BEING_SENT: Final = "being sent just now"
FINAL: Final = "already on the way to a final dead-letter queue"
IN_FINAL_QUEUE: Final = "already in a final dead-letter queue"

_TAKES: Final = {*SENDS, Action.DISCARD, Action.TAKE_BACK}

AskGate = Callable[[Destination], GateAnswer]
"""Returns the gate's answer for a destination (`SendGate.ask`)."""

OpenGate = Callable[[], AbstractContextManager[AskGate]]
"""Opens a connection to the broker to ask; raises `LinkLost` or `BrokerRefused`."""

ASKED_MAX: Final = 20
"""Destinations that the broker is asked about; those with the most messages come first."""


class SkippedRows(msgspec.Struct, frozen=True):
    """Selected rows that the action would skip, and why."""

    reason: str
    count: int


class SendTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A destination of the examined messages, and their number."""

    destination: str
    count: int


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The preview of an action.

    Attributes:
        count: rows that it would change.
        is_whole: False = some rows were not examined, so `count` is a minimum.
        looked_at: rows examined individually; 0 = only tallies were used.
        parts: the count by destination and state, the largest first.
        targets: where messages would be sent, by the examined rows, else by the newest; the largest
            number first. Empty if nothing is sent, or a person names the target.
        left: rows that would stay unchanged.
        delayed: of the count, rows whose destination took nothing when they were due.
        gated: of the count, rows that gates delay; the action bypasses the gates.
        notes: facts that can't be known before the action, as sentences.
        oldest_at_ms, newest_at_ms: when the first and the last of these rows was taken.
        example: the newest of them.
        since: pass it with the action, which then skips rows that others change from now on.
        next_after: pass it as `after` to examine the rest; None = all were examined.
    """

    action: Action
    count: int
    is_whole: bool
    looked_at: int
    parts: list[Tally]
    targets: list[SendTarget]
    left: list[SkippedRows]
    delayed: int
    gated: int
    notes: list[str]
    oldest_at_ms: int | None
    newest_at_ms: int | None
    example: RowView | None
    since: int
    next_after: RowKey | None = None


def preview(
    schedule: Schedule,
    action: Action,
    selection: Selection,
    *,
    suffix: str,
    after: RowKey | None = None,
    gate: OpenGate | None = None,
    target: str | None = None,
) -> Preview:
    """Return the preview of an action, with notes for a person.

    Args:
        action: what to do.
        selection: the messages.
        suffix: of final dead-letter queues, where none is decided.
        after: `next_after` of the previous preview, to continue it.
        gate: asks the broker about the destinations; None = it is not asked.
        target: where a redirect goes; None = another action, or not known yet.
    """
    found = examine(schedule, action, selection, suffix=suffix, after=after)
    notes = [*found.notes]
    # Why the first alone: the offers are about all of the selection.
    if after is None and found.count and action in _TAKES and not selection.looks_into_messages:
        notes += reach_notes(schedule, selection.rows, effect_of(action))
    names = [one.destination for one in found.targets] if target is None else [target]
    if action in SENDS and found.count and names:
        notes += gate_notes(gate, names[:ASKED_MAX])
    return msgspec.structs.replace(found, notes=notes)


def examine(
    schedule: Schedule,
    action: Action,
    selection: Selection,
    *,
    suffix: str,
    after: RowKey | None = None,
) -> Preview:
    """Return an action's changes: `preview` without the offers and the gate's notes.

    Above `ROWS_MAX` rows the tallies answer, where they can; else the newest rows
    are examined, up to a limit.
    """
    selection = narrowed(action, selection, schedule)
    since = schedule.event_mark()
    is_narrow = selection.rows.state is not None or action not in NEEDED_STATES
    if after is None and is_narrow and is_tallied(selection):
        parts = _tallied(schedule, selection.rows)
        if sum(parts.values()) > ROWS_MAX:
            return _by_tallies(schedule, action, selection.rows, parts, since, suffix)
    look = _Look(action, schedule, selector(selection), suffix)
    pages = 0
    while pages < PAGES_MAX and look.has_room:
        page = schedule.page_rows(selection.rows, RowOrder.NEWEST, look.room, after)
        look.add(page.rows)
        after = page.next_after
        pages += 1
        if after is None:
            break
    return Preview(
        action=action,
        count=sum(look.parts.values()),
        is_whole=after is None,
        looked_at=look.count,
        parts=_listed(look.parts),
        targets=look.listed_targets(),
        left=[SkippedRows(reason, count) for reason, count in look.left.most_common()],
        delayed=look.delayed,
        gated=look.gated,
        notes=_notes(schedule, action, look.expired, look.final, look.lying, look.unread),
        oldest_at_ms=look.oldest_at_ms,
        newest_at_ms=look.newest_at_ms,
        example=look.example,
        since=since,
        next_after=after,
    )


def gate_notes(gate: OpenGate | None, names: Sequence[str]) -> Iterator[str]:
    """Yield the objections to sends to destinations, a sentence each."""
    if gate is None:
        yield _NOT_ASKED
        return
    try:
        with gate() as ask:
            for name in names:
                yield from _gate_notes(name, ask(parse_destination(name)))
    except (LinkLost, BrokerRefused) as error:
        yield f"{_NOT_ASKED} (the broker can't be asked now: {error})"


def _gate_notes(name: str, answer: GateAnswer) -> Iterator[str]:
    if answer.action is not GateAction.SEND:
        what = "wait" if answer.action is GateAction.WAIT else "be parked"
        yield f"messages for {name} would {what}: {answer}"
    elif answer.filters:
        yield (f"{name} takes only messages that match {answer.selector}: others would be parked")
    if answer.terms.exists is False:
        yield f"{name} does not exist: the broker makes it at the first send; check the name"


def drift(count: int, expected: int, *, is_whole: bool) -> str | None:
    """Return a warning if a count is far from the one a person has seen; None = it is close.

    Args:
        count: how many would be changed now.
        expected: how many it were when the person looked.
        is_whole: False = a lower bound.
    """
    tolerated = max(_TOLERATED, int(expected * _TOLERATED_SHARE))
    is_more = count > expected + tolerated
    is_fewer = is_whole and count < expected - tolerated
    if not is_more and not is_fewer:
        return None
    about = "" if is_whole else "at least "
    return f"this would change {about}{many(count, 'message')}, not {expected:,}; look again"


def needs_second(found: Preview, above: int | None) -> bool:
    """Return whether an action waits for a second person: a discard, or one of more messages.

    Args:
        above: the number of messages; None = no action does.
    """
    is_large = above is not None and (found.count > above or not found.is_whole)
    return is_large or (above is not None and found.action is Action.DISCARD)


class _Look:
    """Looks at rows one by one."""

    def __init__(
        self, action: Action, schedule: Schedule, select: Select | None, suffix: str
    ) -> None:
        self._act = effect_of(action, suffix)
        self._has_target = action in (Action.RETRY, Action.CANCEL, Action.RELEASE)
        self._is_send = action in SENDS
        self._store = schedule
        self._select = select
        self._max = ROWS_MAX if select is None else MESSAGES_MAX
        self.count = 0
        self.parts = Counter[tuple[str, RowState]]()
        self.targets = Counter[str]()
        self.left = Counter[str]()
        self.delayed = 0
        self.gated = 0
        self.expired = 0
        self.final = 0
        self.lying: list[str] = []
        self.unread = 0
        self.oldest_at_ms: int | None = None
        self.newest_at_ms: int | None = None
        self.example: RowView | None = None

    @property
    def room(self) -> int:
        return min(_PAGE_ROWS, self._max - self.count)

    @property
    def has_room(self) -> bool:
        return self.count < self._max

    def add(self, rows: Sequence[RowView]) -> None:
        for row in rows:
            self.count += 1
            if self._select is None:
                self._count(row)
            elif row.is_in_final_queue:
                self.unread += 1
            elif self._select(row, self._store.message(row.id) or b""):
                self._count(row)

    def listed_targets(self) -> list[SendTarget]:
        return [SendTarget(destination=name, count=n) for name, n in self.targets.most_common()]

    def _count(self, row: RowView) -> None:
        if row.in_flight:
            self.left[BEING_SENT] += 1
            return
        change = self._act(row)
        if change is None:
            in_queue = IN_FINAL_QUEUE if row.is_in_final_queue else FINAL
            self.left[in_queue if row.is_final else row.state.value] += 1
            return
        self.parts[row.destination, row.state] += 1
        if self._has_target:
            # Why: a message taken back to be sent leaves its final queue.
            is_final = change.is_final and change.recall is not Recall.SEND
            final = change.final_queue or change.destination
            self.targets[final if is_final else change.destination] += 1
        if self._is_send and row.gate is not None and row.state is RowState.WAITING:
            self.gated += 1
        elif self._is_send and row.state is RowState.WAITING and row.reason:
            self.delayed += 1
        self.expired += row.cause_group == EXPIRED
        self.lying += [row.encoding] if row.is_in_final_queue else []
        self.final += row.is_final and not row.is_in_final_queue
        at_ms = row.received_at_ms
        self.oldest_at_ms = min(at_ms, self.oldest_at_ms or at_ms)
        self.newest_at_ms = max(at_ms, self.newest_at_ms or at_ms)
        self.example = self.example or row


def _tallied(schedule: Schedule, rows: RowFilter) -> Counter[tuple[str, RowState]]:
    parts = Counter[tuple[str, RowState]]()
    for tally in schedule.group_tallies():
        if (
            rows.destination in (None, tally.destination)
            and rows.state in (None, tally.state)
            and rows.cause_group in (None, tally.cause_group)
        ):
            parts[tally.destination, tally.state] += tally.count
    return parts


def _by_tallies(
    schedule: Schedule,
    action: Action,
    rows: RowFilter,
    parts: Counter[tuple[str, RowState]],
    since: int,
    suffix: str,
) -> Preview:
    newest = schedule.page_rows(rows, RowOrder.NEWEST, _PAGE_ROWS).rows
    look = _Look(action, schedule, None, suffix)
    look.add(newest)
    oldest = schedule.list_rows(rows, 1)
    expired = 0
    if rows.cause_group in (None, EXPIRED):
        of_expired = msgspec.structs.replace(rows, cause_group=EXPIRED)
        expired = sum(_tallied(schedule, of_expired).values())
    return Preview(
        action=action,
        count=sum(parts.values()),
        is_whole=True,
        looked_at=0,
        parts=_listed(parts),
        targets=look.listed_targets(),
        left=[],
        delayed=0,
        gated=_gated(schedule, action, rows),
        notes=[_NOT_LOOKED, *_notes(schedule, action, expired)],
        oldest_at_ms=oldest[0].received_at_ms if oldest else None,
        newest_at_ms=newest[0].received_at_ms if newest else None,
        example=newest[0] if newest else None,
        since=since,
    )


def _gated(schedule: Schedule, action: Action, rows: RowFilter) -> int:
    is_asked = rows.cause_group is None and rows.state in (None, RowState.WAITING)
    if action not in SENDS or not is_asked:
        return 0
    return sum(
        one.count
        for one in schedule.gate_tallies(0)
        if one.gate and rows.destination in (None, one.destination)
    )


_NOT_LOOKED = (
    "too many to examine each: messages that are being sent or are already final are counted "
    "here, but won't be changed"
)


_RUNNING_SHOWN: Final = 5


def running_notes(schedule: Schedule) -> list[str]:
    """Return warnings about running operations, for a preview of another one."""
    running = [
        f"{one.id} ({one.action} by {one.actor})"
        for one in schedule.open_operations()
        if one.state is OperationState.RUNNING
    ]
    if not running:
        return []
    shown = ", ".join(running[:_RUNNING_SHOWN]) + (", …" if running[_RUNNING_SHOWN:] else "")
    which, they = ("operation", "it skips") if len(running) == 1 else ("operations", "they skip")
    return [
        f"running {which} {shown}: {they} messages that you change; pause or cancel to "
        "keep the rest as it is"
    ]


_WHOLE_QUEUE: Final = (
    (
        {"openwire", "amqp"},
        "for messages of Classic behind 128 MiB of others (or more than the queue's memoryLimit)",
    ),
    (
        {"stomp"},
        "for messages of Classic behind 64 MiB or 16,384 others (or more than the queue's "
        "memoryLimit), and Classic counts deliveries of the others until it restarts",
    ),
    (
        {"core", "amqp", "stomp"},
        "for paged messages of Artemis where the whole queue in memory would fill 3/4 of "
        "global-max-size or this user may not manage the broker",
    ),
)
"""Wires, and when they take a whole queue."""


def _notes(
    schedule: Schedule,
    action: Action,
    expired: int = 0,
    final: int = 0,
    lying: Sequence[str] = (),
    unread: int = 0,
) -> list[str]:
    notes = running_notes(schedule)
    if lying:
        wires = {one.partition("/")[0] for one in lying}
        whole = "; ".join(words for one, words in _WHOLE_QUEUE if wires & one)
        notes.append(
            f"{len(lying):,} of them are in their final dead-letter queue: the sidecar first takes "
            "them out of it and reports any that are gone. The others stay in their place; it "
            f"takes the whole queue and puts the others back in order {whole}"
        )
    if unread:
        notes.append(
            f"{unread:,} more are in their final dead-letter queue, where their properties can't "
            "be read: take them back first (take-back)"
        )
    if action not in SENDS:
        return notes
    if action is Action.REDIRECT:
        notes.append("a redirect can't be undone")
    if expired:
        notes.append(f"{expired:,} of them expired: check whether they are still wanted")
    if final and action is Action.RETRY:
        notes.append(
            f"{final:,} of them are already going to the final dead-letter queue; they go there now"
        )
    return notes


_NOT_ASKED: Final = (
    "only the send shows whether the broker routes and accepts a message; a message that can't be "
    "sent waits, with the reason"
)


def _listed(parts: Counter[tuple[str, RowState]]) -> list[Tally]:
    return [
        Tally(destination=destination, state=state, count=count)
        for (destination, state), count in parts.most_common()
    ]
