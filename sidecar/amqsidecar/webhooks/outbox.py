"""The outbox of a subscription: reported matters, notices to send, and their log.

It is one value of the schedule, changed by compare and swap: an outbox that another process has
changed meanwhile is not overwritten. Notices report the difference between the schedule and the
matters reported before, so a notice that a crash prevents is found again after it.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from amqsidecar.schedule import Schedule

KNOWN_MAX: Final = 1_000
"""Maximum matters of a subscription at a time; further matters are dropped and counted."""
KNOWN_CHARACTERS_MAX: Final = 1 << 18
"""Maximum characters of their keys together: strangers name destinations."""
PENDING_MAX: Final = 50
"""Maximum notices that wait; a matter is reported later while there is no room."""
LOG_MAX: Final = 100
FIRST_PAUSE_MS: Final = 5_000
LONGEST_PAUSE_MS: Final = 3_600_000
LEASE_MS: Final = 40_000
"""Another process sends after this time without a sign of the one that did."""
GIVE_UP_MS: Final = 24 * 3_600_000
"""A notice that was not delivered for so long is dropped and counted."""

PREFIX: Final = "webhook:"
"""Begins the name of an outbox in the schedule; the subscription's name follows."""


class Kind(StrEnum):
    """A matter that a subscription can report."""

    NEW_CAUSE = "new_cause"
    EXHAUSTED = "exhausted"
    OPERATION = "operation"
    NOT_RECOVERING = "not_recovering"
    OLDEST = "oldest"
    STRANDED = "stranded"
    TEST = "test"


class Phase(StrEnum):
    """Where a matter stands at a notice."""

    BEGUN = "begun"
    UPDATED = "updated"
    ENDED = "ended"


_KINDS: Final = frozenset(one.value for one in Kind)
_ENDS: Final = frozenset(Kind) - {Kind.NEW_CAUSE, Kind.OPERATION}
"""Kinds that have ended when they are not there any more."""


class Matter(msgspec.Struct, frozen=True):
    """The current state of something that people may want to know.

    Attributes:
        destination: canonical text; "" = of all, or of several.
        cause_group: "" = of no single cause.
        reference: another name of it, such as the number of an operation.
        owner: the person or team responsible; "" = unknown.
        text: a sentence about it, or its name.
        marker: "new since" the latest marker before it, and when that was; "" = none.
        is_quiet: don't report it now; if already reported, it stays reported.
    """

    kind: Kind
    destination: str = ""
    cause_group: str = ""
    reference: str = ""
    count: int = 1
    since_ms: int = 0
    owner: str = ""
    text: str = ""
    path: str = ""
    marker: str = ""
    is_quiet: bool = False

    @property
    def key(self) -> str:
        """Its name in an outbox."""
        return "\n".join((self.kind, self.destination, self.cause_group, self.reference))


class ReportedMatter(msgspec.Struct, kw_only=True):
    """A matter with the count that was reported, and when it may be reported next."""

    matter: Matter
    reported: int = 0
    next_ms: int = 0


class Notice(msgspec.Struct, kw_only=True):
    """A message to people; it stays as it is until it is delivered.

    Attributes:
        id: the same with each attempt, so that a receiver can tell a repetition.
        more: part of the count that was not reported before.
        tried_ms: the latest attempt.
        problem: why that failed; "" = it did not.
    """

    id: str
    phase: Phase
    matter: Matter
    more: int
    at_ms: int
    attempts: int = 0
    next_ms: int = 0
    tried_ms: int = 0
    problem: str = ""


class WebhookOutbox(msgspec.Struct, kw_only=True):
    """See the module.

    Attributes:
        stream: begins the ids of notices.
        begun_ms: groups that had begun before are not new.
        holder: the process that sends; "" = none.
        held_until_ms: when another process may take its place.
        dropped: matters and notices that were dropped.
        beyond: matters of each kind that there is no room for now.
        has_looked: exhausted messages that were there before are not reported.
        unread: what a newer version wrote, by field: only a newer one reports it.
    """

    stream: str
    begun_ms: int
    next_number: int = 1
    holder: str = ""
    held_until_ms: int = 0
    dropped: int = 0
    beyond: dict[Kind, int] = msgspec.field(default_factory=dict)
    has_looked: bool = False
    known: dict[str, ReportedMatter] = msgspec.field(default_factory=dict)
    pending: list[Notice] = msgspec.field(default_factory=list)
    log: list[Notice] = msgspec.field(default_factory=list)
    unread: dict[str, Any] = msgspec.field(default_factory=dict)


def read_outbox(body: bytes | None, now_ms: int) -> WebhookOutbox:
    """Return an outbox out of its value; None = a new one."""
    if not body:
        return WebhookOutbox(stream=secrets.token_hex(4), begun_ms=now_ms)
    written: dict[str, Any] = msgspec.json.decode(body)
    unread = {name: written.pop(name) for name in {*written} - {*WebhookOutbox.__struct_fields__}}
    for name in ("known", "beyond"):
        parts: dict[str, Any] = written.get(name, {})
        left = [key for key in parts if key.partition("\n")[0] not in _KINDS]
        unread[name] = {key: parts.pop(key) for key in left}
    for name in ("pending", "log"):
        unread[name] = [one for one in written.get(name, ()) if not _is_readable(one)]
        written[name] = [one for one in written.get(name, ()) if one not in unread[name]]
    return msgspec.convert({**written, "unread": unread}, WebhookOutbox)


def write_outbox(outbox: WebhookOutbox) -> bytes:
    """Return an outbox's value, with what a newer version wrote in its places."""
    value = msgspec.to_builtins(outbox)
    for name, left in value.pop("unread").items():
        match left:
            case dict():
                value[name] = left | value.get(name, {})
            case list():
                value[name] = [*value.get(name, ()), *left]
            case _:
                value[name] = left
    return msgspec.json.encode(value)


def _is_readable(written: dict[str, Any]) -> bool:
    """Return whether this version knows all that a notice says."""
    try:
        known = msgspec.to_builtins(msgspec.convert(written, Notice))
    except msgspec.ValidationError:
        return False
    pairs = (written, known), (written["matter"], known["matter"])
    return all(name in names for said, names in pairs for name, value in said.items() if value)


def forget_outboxes(schedule: Schedule, names: Collection[str], now_ms: int) -> Iterator[str]:
    """Remove outboxes of other subscriptions but those that were shared and used within a day."""
    for key in {*schedule.value_names(PREFIX)} - {PREFIX + name for name in names}:
        body = schedule.read_value(key) or b""
        is_over = read_outbox(body, now_ms).held_until_ms < now_ms - GIVE_UP_MS
        if is_over and schedule.swap_value(key, body, b""):
            yield key.removeprefix(PREFIX)


class WantedMatters(msgspec.Struct, frozen=True, kw_only=True):
    """The matters that a subscription reports, and its pace.

    Attributes:
        kinds: of matters.
        is_about: whether a destination is included; None = every matter is, even with none.
        oldest_ms: minimum age of a destination's oldest message to report it.
    """

    kinds: frozenset[Kind]
    is_about: Callable[[str], bool] | None = None
    owners: frozenset[str] = frozenset()
    oldest_ms: int = 24 * 3_600_000
    gather_ms: int
    update_ms: int

    def wants(self, matter: Matter, outbox: WebhookOutbox, now_ms: int) -> bool:
        """Whether it is about a matter; causes that began before the outbox are not new."""
        place = matter.destination
        return (
            (self.is_about is None or (bool(place) and self.is_about(place)))
            and (not self.owners or matter.owner in self.owners)
            and (matter.kind is not Kind.NEW_CAUSE or matter.since_ms >= outbox.begun_ms)
            and (matter.kind is not Kind.OLDEST or matter.since_ms < now_ms - self.oldest_ms)
        )


class HolderWatch:
    """The signs of life of an outbox's holder as one process sees them: its clock may be ahead."""

    def __init__(self) -> None:
        self._sign = ("", 0)
        self._since_s = 0.0

    def is_silent(self, outbox: WebhookOutbox, now_s: float) -> bool:
        """Return whether this process has seen no sign for as long as a lease."""
        sign = outbox.holder, outbox.held_until_ms
        if sign != self._sign:
            self._sign, self._since_s = sign, now_s
        return now_s - self._since_s >= LEASE_MS / 1000


def holds(outbox: WebhookOutbox, runner: str, now_ms: int, *, is_silent: bool = False) -> bool:
    """Return whether this process sends, and name it in the outbox.

    Args:
        runner: the name of this process; "" = no other may send.
        is_silent: see `HolderWatch`.
    """
    is_held = now_ms < outbox.held_until_ms and not is_silent
    if runner and outbox.holder not in ("", runner) and is_held:
        return False
    if runner and (outbox.holder != runner or now_ms > outbox.held_until_ms - LEASE_MS // 2):
        outbox.holder, outbox.held_until_ms = runner, now_ms + LEASE_MS
    return True


def collect(
    outbox: WebhookOutbox,
    found: Mapping[Kind, Sequence[Matter]],
    find_group: Callable[[str, str], str],
    now_ms: int,
    wanted: WantedMatters,
) -> None:
    """Add notices of differences from the reported matters, by the current groups."""
    _join_groups(outbox, find_group)
    waiting = {one.matter.key for one in outbox.pending}
    # Why here: nothing is found of a kind that the subscription reports no longer.
    for key in [
        one for one, known in outbox.known.items() if known.matter.kind not in wanted.kinds
    ]:
        if key not in waiting:
            _end(outbox, key, now_ms, is_told=outbox.known[key].matter.kind in _ENDS)
    for kind in wanted.kinds & found.keys():
        matters = {one.key: one for one in found[kind] if wanted.wants(one, outbox, now_ms)}
        for key in [one for one, known in outbox.known.items() if known.matter.kind is kind]:
            if key not in matters and key not in waiting:
                _end(outbox, key, now_ms, is_told=kind in _ENDS)
        beyond, characters = 0, sum(map(len, outbox.known))
        for key, matter in matters.items():
            known = outbox.known.get(key)
            if known is None and not matter.is_quiet:
                is_full = len(outbox.known) >= KNOWN_MAX
                if is_full or characters + len(key) > KNOWN_CHARACTERS_MAX:
                    beyond += 1
                    continue
                characters += len(key)
                known = ReportedMatter(matter=matter, next_ms=now_ms + wanted.gather_ms)
                outbox.known[key] = known
                if kind is Kind.EXHAUSTED and not outbox.has_looked:
                    known.reported = matter.count
            if known is not None:
                known.matter = matter
                if key not in waiting:
                    _compare(outbox, key, now_ms, wanted)
        outbox.dropped += max(0, beyond - outbox.beyond.get(kind, 0))
        outbox.beyond[kind] = beyond
    outbox.has_looked |= Kind.EXHAUSTED in found
    left = outbox.unread.get("pending", ())
    kept = [one for one in left if now_ms - one.get("at_ms", now_ms) < GIVE_UP_MS]
    outbox.dropped += len(left) - len(kept)
    outbox.unread |= {"pending": kept} if left else {}


def _compare(outbox: WebhookOutbox, key: str, now_ms: int, wanted: WantedMatters) -> None:
    """Report a matter if there is more of it than was reported."""
    known = outbox.known[key]
    matter = known.matter
    if matter.is_quiet and not known.reported:
        del outbox.known[key]
        return
    known.reported = matter.count if matter.is_quiet else min(known.reported, matter.count)
    # Why a bound: a process whose clock was ahead may have written it.
    latest_ms = now_ms + max(wanted.gather_ms, wanted.update_ms)
    if matter.count > known.reported and not now_ms < known.next_ms <= latest_ms:
        phase = Phase.UPDATED if known.reported else Phase.BEGUN
        if _add(outbox, phase, matter, matter.count - known.reported, now_ms):
            known.reported, known.next_ms = matter.count, now_ms + wanted.update_ms


def _join_groups(outbox: WebhookOutbox, find_group: Callable[[str, str], str]) -> None:
    """Give matters of former groups to the groups that these became a part of."""
    for key, known in [*outbox.known.items()]:
        matter = known.matter
        group = matter.cause_group and find_group(matter.destination, matter.cause_group)
        if group != matter.cause_group:
            del outbox.known[key]
            known.matter = msgspec.structs.replace(matter, cause_group=group)
            other = outbox.known.setdefault(known.matter.key, known)
            if other is not known:
                other.reported += known.reported


def _end(outbox: WebhookOutbox, key: str, now_ms: int, *, is_told: bool) -> None:
    known = outbox.known[key]
    if is_told and known.reported:
        matter = msgspec.structs.replace(known.matter, count=0)
        if not _add(outbox, Phase.ENDED, matter, 0, now_ms):
            return
    del outbox.known[key]


def _add(outbox: WebhookOutbox, phase: Phase, matter: Matter, more: int, now_ms: int) -> bool:
    if len(outbox.pending) >= PENDING_MAX:
        return False
    number = f"{outbox.stream}-{outbox.next_number}"
    outbox.next_number += 1
    outbox.pending.append(
        Notice(id=number, phase=phase, matter=matter, more=more, at_ms=now_ms, next_ms=now_ms)
    )
    return True


def add_test(outbox: WebhookOutbox, actor: str, now_ms: int) -> bool:
    """Add a notice that says who asked for it; returns False if there is no room."""
    matter = Matter(Kind.TEST, since_ms=now_ms, text=f"{actor} tests this subscription")
    return _add(outbox, Phase.BEGUN, matter, 1, now_ms)


def due_notice(outbox: WebhookOutbox, now_ms: int) -> Notice | None:
    """Return the next notice to send; None = none is due."""
    # Why not before the last attempt: that was by a process whose clock was ahead.
    return next(
        (one for one in outbox.pending if not max(one.at_ms, one.tried_ms) <= now_ms < one.next_ms),
        None,
    )


def settle(
    outbox: WebhookOutbox, number: str, problem: str, now_ms: int, pause_ms: int | None = None
) -> bool:
    """Note an attempt, "" = delivered; drop a notice tried for too long. False: it doesn't wait."""
    if (notice := next((one for one in outbox.pending if one.id == number), None)) is None:
        return False
    notice.attempts, notice.tried_ms, notice.problem = notice.attempts + 1, now_ms, problem
    backoff_ms = min(FIRST_PAUSE_MS * 2 ** (notice.attempts - 1), LONGEST_PAUSE_MS)
    notice.next_ms = now_ms + min(max(backoff_ms, pause_ms or 0), LONGEST_PAUSE_MS)
    # Why one line: of a notice that is tried for a day the last attempt says all.
    outbox.log = [notice, *(one for one in outbox.log if one.id != number)][:LOG_MAX]
    is_given_up = bool(problem) and now_ms - notice.at_ms >= GIVE_UP_MS
    outbox.dropped += is_given_up
    if is_given_up or not problem:
        outbox.pending.remove(notice)
    return True
