"""The outbox of a subscription: what was reported, what is to be sent, and how that went.

It is one value of the schedule, changed by compare and swap: an outbox that somebody else has
changed meanwhile is not overwritten. Reported is the difference between the schedule and what was
reported before, so a notice that was not sent before a crash is found again after it.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

KNOWN_MAX: Final = 1_000
"""Maximum matters of a subscription at a time; further ones are dropped and counted."""
PENDING_MAX: Final = 50
"""Maximum notices that wait; a matter is reported later while there is no room."""
LOG_MAX: Final = 100
FIRST_PAUSE_MS: Final = 5_000
LONGEST_PAUSE_MS: Final = 3_600_000
GIVE_UP_MS: Final = 24 * 3_600_000
"""A notice that was not delivered for so long is dropped and counted."""

PREFIX: Final = "webhook:"
"""Begins the name of an outbox in the schedule; the subscription's name follows."""


class Kind(StrEnum):
    """What is reported."""

    NEW_CAUSE = "new_cause"
    EXHAUSTED = "exhausted"
    OPERATION = "operation"
    NOT_RECOVERING = "not_recovering"
    OLDEST = "oldest"
    STRANDED = "stranded"
    TEST = "test"
    """A person asked for it."""


class Phase(StrEnum):
    """Where a matter stands at a notice."""

    BEGUN = "begun"
    UPDATED = "updated"
    ENDED = "ended"


_ENDS: Final = (Kind.EXHAUSTED, Kind.OLDEST, Kind.STRANDED)
"""Kinds that have ended when they are not there any more."""


class Matter(msgspec.Struct, frozen=True, kw_only=True):
    """Something that people may want to know, as it is now.

    Attributes:
        destination: canonical text; "" = of all, or of several.
        cause_group: "" = of no single cause.
        reference: what else names it, such as the number of an operation.
        count: grows while there is more of it.
        since_ms: when it began.
        last_ms: the last change of the count.
        owner: the person or team responsible; "" = unknown.
        text: a sentence about it, or what it is called.
        is_quiet: it is not to be reported now; what was reported stays so.
        is_over: it is known to have ended.
    """

    kind: Kind
    destination: str = ""
    cause_group: str = ""
    reference: str = ""
    count: int = 1
    since_ms: int = 0
    last_ms: int = 0
    owner: str = ""
    text: str = ""
    is_quiet: bool = False
    is_over: bool = False

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
    """

    id: str
    phase: Phase
    matter: Matter
    more: int
    at_ms: int
    attempts: int = 0
    next_ms: int = 0


class SendAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log: `problem` is empty if the notice was delivered."""

    at_ms: int
    notice: Notice
    problem: str = ""


class WebhookOutbox(msgspec.Struct, kw_only=True):
    """See the module.

    Attributes:
        stream: begins the ids of notices.
        begun_ms: groups that had begun before are not new.
        holder: the process that sends; "" = none.
        beat: changes while the holder lives.
        dropped: matters and notices that were dropped.
        beyond: matters of each kind that there is no room for now.
        has_looked: exhausted messages that were there before are not reported.
    """

    stream: str
    begun_ms: int
    next_number: int = 1
    holder: str = ""
    beat: int = 0
    dropped: int = 0
    beyond: dict[Kind, int] = msgspec.field(default_factory=dict)
    has_looked: bool = False
    known: dict[str, ReportedMatter] = msgspec.field(default_factory=dict)
    pending: list[Notice] = msgspec.field(default_factory=list)
    log: list[SendAttempt] = msgspec.field(default_factory=list)


_decode: Final = msgspec.json.Decoder(WebhookOutbox).decode


def read_outbox(body: bytes | None, now_ms: int) -> WebhookOutbox:
    """Return an outbox out of its value; None = a new one."""
    return _decode(body) if body else WebhookOutbox(stream=secrets.token_hex(4), begun_ms=now_ms)


def pack_outbox(outbox: WebhookOutbox) -> bytes:
    """Return the value of an outbox."""
    return msgspec.json.encode(outbox)


def seen_outbox(body: bytes, sees: Callable[[str], bool]) -> bytes:
    """Return the value of an outbox with what is of destinations that a person sees."""
    outbox = read_outbox(body, 0)
    return pack_outbox(
        WebhookOutbox(
            stream="",
            begun_ms=0,
            pending=[one for one in outbox.pending if sees(one.matter.destination)],
            # Why without: ids count the notices of all, and a problem may name the receiver.
            log=[
                SendAttempt(
                    at_ms=one.at_ms,
                    notice=msgspec.structs.replace(one.notice, id=""),
                    problem=one.problem and "see the sidecar's log",
                )
                for one in outbox.log
                if sees(one.notice.matter.destination)
            ],
        )
    )


class NoticePace(msgspec.Struct, frozen=True, kw_only=True):
    """How long a matter gathers before its first notice, and the time between updates."""

    gather_ms: int
    update_ms: int


def collect(
    outbox: WebhookOutbox,
    found: Mapping[Kind, Sequence[Matter]],
    find_group: Callable[[str, str], str],
    now_ms: int,
    pace: NoticePace,
) -> None:
    """Add notices about what differs from what was reported.

    Args:
        outbox: is changed.
        found: the matters of each kind that was looked for.
        find_group: the cause group of today of a former one at a destination.
        now_ms: the time.
        pace: of notices.
    """
    _join_groups(outbox, find_group)
    waiting = {one.matter.key for one in outbox.pending}
    for kind, matters in found.items():
        by_key = {one.key: one for one in matters}
        for key in [one for one, known in outbox.known.items() if known.matter.kind is kind]:
            if key not in by_key and key not in waiting:
                _end(outbox, key, now_ms, is_told=kind in _ENDS)
        beyond = 0
        for key, matter in by_key.items():
            known = outbox.known.get(key)
            if known is None and not (matter.is_quiet or matter.is_over):
                if len(outbox.known) >= KNOWN_MAX:
                    beyond += 1
                    continue
                known = outbox.known[key] = ReportedMatter(
                    matter=matter, next_ms=now_ms + pace.gather_ms
                )
                if kind is Kind.EXHAUSTED and not outbox.has_looked:
                    known.reported = matter.count
            if known is not None:
                known.matter = matter
                if key not in waiting:
                    _compare(outbox, key, now_ms, pace)
        outbox.dropped += max(0, beyond - outbox.beyond.get(kind, 0))
        outbox.beyond[kind] = beyond
    outbox.has_looked |= Kind.EXHAUSTED in found


def _compare(outbox: WebhookOutbox, key: str, now_ms: int, pace: NoticePace) -> None:
    """Report a matter if there is more of it than was reported, or if it is over."""
    known = outbox.known[key]
    matter = known.matter
    if matter.is_over or (matter.is_quiet and not known.reported):
        _end(outbox, key, now_ms, is_told=matter.is_over)
        return
    known.reported = matter.count if matter.is_quiet else min(known.reported, matter.count)
    if matter.count > known.reported and now_ms >= known.next_ms:
        phase = Phase.UPDATED if known.reported else Phase.BEGUN
        if _add(outbox, phase, matter, matter.count - known.reported, now_ms):
            known.reported, known.next_ms = matter.count, now_ms + pace.update_ms


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
        matter = msgspec.structs.replace(known.matter, count=0, last_ms=now_ms)
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
    text = f"{actor} tests this subscription"
    matter = Matter(kind=Kind.TEST, since_ms=now_ms, last_ms=now_ms, text=text)
    return _add(outbox, Phase.BEGUN, matter, 1, now_ms)


def due_notice(outbox: WebhookOutbox, now_ms: int) -> Notice | None:
    """Return the next notice to send; None = none is due."""
    return next((one for one in outbox.pending if one.next_ms <= now_ms), None)


def settle(
    outbox: WebhookOutbox, number: str, problem: str, now_ms: int, pause_ms: int | None = None
) -> Notice | None:
    """Note the outcome of an attempt; returns the notice if it was dropped.

    Args:
        outbox: is changed.
        number: the notice's id.
        problem: why it was not delivered; "" = it was.
        now_ms: the time.
        pause_ms: how long the receiver wants to be left alone; None = it does not say.
    """
    for notice in _with_id(outbox.pending, number):
        notice.attempts += 1
        backoff_ms = min(FIRST_PAUSE_MS * 2 ** (notice.attempts - 1), LONGEST_PAUSE_MS)
        notice.next_ms = now_ms + min(max(backoff_ms, pause_ms or 0), LONGEST_PAUSE_MS)
        line = SendAttempt(at_ms=now_ms, notice=msgspec.structs.replace(notice), problem=problem)
        # Why one line: of a notice that is tried for a day the last attempt says all.
        rest = [one for one in outbox.log if one.notice.id != number]
        outbox.log = [line, *rest][:LOG_MAX]
        is_given_up = bool(problem) and now_ms - notice.at_ms >= GIVE_UP_MS
        if is_given_up:
            outbox.dropped += 1
        if is_given_up or not problem:
            outbox.pending = [one for one in outbox.pending if one.id != number]
        return notice if is_given_up else None
    return None


def _with_id(notices: Iterable[Notice], number: str) -> list[Notice]:
    return [one for one in notices if one.id == number][:1]
