"""The combined features: asker of a send, kind of destination, policy, notes and wires.

A row of a change is of `AXES`; a longer array dresses each row with values of `DRESSES`, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple


class Wire(StrEnum):
    """The sidecar's wire, and so the kind of broker."""

    ARTEMIS = "artemis"
    CORE = "core"
    AMQP = "amqp"
    STOMP = "stomp"
    CLASSIC_OPENWIRE = "classic-openwire"
    CLASSIC_STOMP = "classic-stomp"
    CLASSIC_AMQP = "classic-amqp"

    @property
    def is_classic(self) -> bool:
        """Whether the broker is a Classic."""
        return self.startswith("classic")

    @property
    def reads_notes(self) -> bool:
        """Whether notes can be read over it."""
        return self not in (Wire.STOMP, Wire.CLASSIC_AMQP)


class Asker(StrEnum):
    """Who asks for the send whose destination is tried."""

    POLICY = "policy"
    RULE_REDIRECT = "rule-redirect"
    RULE_EDIT = "rule-edit"
    VERDICT = "verdict"
    CONSOLE_RETRY = "console-retry"
    CONSOLE_REDIRECT = "console-redirect"
    RETRY = "retry"
    REDIRECT = "redirect"
    EDIT = "edit"
    RECALL = "recall"
    IDS_FILE = "ids-file"
    FINAL = "final"

    @property
    def redirects(self) -> bool:
        """Whether it names another destination than the origin."""
        return self in _REDIRECTING

    @property
    def edits(self) -> bool:
        """Whether it changes a property."""
        return self in (Asker.RULE_EDIT, Asker.EDIT)

    @property
    def course(self) -> str:
        """The policy of the message's origin.

        `now`, `soon`, `hour` (the delay) or `once` (no redelivery).

        It is part of the names of the row's queues.
        """
        if self in (Asker.RECALL, Asker.FINAL):
            return "once"
        if self is Asker.VERDICT:
            # Why not at once: a verdict that is read a second after the death is too late then.
            return "soon"
        return "hour" if self in _OF_WHAT_WAITS else "now"


_REDIRECTING: Final = frozenset(
    {Asker.RULE_REDIRECT, Asker.VERDICT, Asker.CONSOLE_REDIRECT, Asker.REDIRECT}
)
_OF_WHAT_WAITS: Final = frozenset(
    {
        Asker.CONSOLE_RETRY,
        Asker.CONSOLE_REDIRECT,
        Asker.RETRY,
        Asker.REDIRECT,
        Asker.EDIT,
        Asker.IDS_FILE,
    }
)


ASKED: Final = _OF_WHAT_WAITS | {Asker.RECALL}
"""Who asks through a running sidecar, once it has the message."""


class Place(StrEnum):
    """What the destination is when the message is sent there.

    Where it is the message's origin, the message was there before the origin became so.
    """

    PLAIN = "plain"
    FILTER_MATCHES = "filter-matches"
    FILTER_REFUSES = "filter-refuses"
    TWO_QUEUES = "two-queues"
    SUBSCRIPTION = "subscription"
    SHARED_SUBSCRIPTION = "shared-subscription"
    VIRTUAL_TOPIC = "virtual-topic"
    COMPOSITE = "composite"
    COMPOSITE_COPIES = "composite-copies"
    DIVERT_COPIES = "divert-copies"
    DIVERT_TAKES = "divert-takes"
    RING = "ring"
    LAST_VALUE = "last-value"
    FULL_DROPS = "full-drops"
    FULL_FAILS = "full-fails"
    DELETED = "deleted"
    MISSING = "missing"
    DISABLED = "disabled"
    INTERNAL = "internal"
    TEMPORARY = "temporary"
    NO_SUBSCRIBER = "no-subscriber"
    NOTES = "notes"
    DEAD_LETTERS = "dead-letters"


class Policy(StrEnum):
    """Where the rules come from.

    Attributes:
        LIVE: the broker's own settings.
        FULL: a file that says all that they say.
        PARTIAL: a file with delays and counts that names no dead-letter and no expiry address;
            on Classic one without strategies and interceptors.
        SILENT: a file that says nothing of the row's queues.
    """

    LIVE = "live"
    FULL = "full"
    PARTIAL = "partial"
    SILENT = "silent"


class Note(StrEnum):
    """The notes of consumers about the message.

    Attributes:
        OWN: of the consumer that failed.
        FOREIGN_VERDICT: of another queue's consumer, about the same message id: never redeliver.
        FOREIGN_CAUSE: likewise, with a cause by which a rule discards.
    """

    NONE = "none"
    OWN = "own"
    FOREIGN_VERDICT = "foreign-verdict"
    FOREIGN_CAUSE = "foreign-cause"


class Death(StrEnum):
    """Why the message was in a dead-letter queue."""

    FAILED = "failed"
    EXPIRED = "expired"


class Setup(StrEnum):
    """How the sidecar of a group is set up.

    Attributes:
        KEEP: `redelivery.exhausted: keep`.
        BACKLOG: all messages are held in a backlog until a person releases them.
        MANUAL: `redelivery.mode: manual`.
        PARTLY_MANUAL: `redelivery.manual` names the origins whose messages wait.
        IN_PLACE: `redelivery.mode: in_place`.
        GATED: each kind of gate stands before each destination, and opens.
        POSTGRES: the schedule is in PostgreSQL.
        SHARED: two sidecars share a schedule in PostgreSQL.
        MOVED: before a person asks, the schedule moves from a file to PostgreSQL.
        KILLED: it dies at each place of a cycle in turn.
    """

    PLAIN = "plain"
    KEEP = "keep"
    BACKLOG = "backlog"
    MANUAL = "manual"
    PARTLY_MANUAL = "partly-manual"
    IN_PLACE = "in-place"
    GATED = "gated"
    POSTGRES = "postgres"
    SHARED = "shared"
    MOVED = "moved"
    KILLED = "killed"


class Content(StrEnum):
    """The kind of the message; an expiring message lives for an hour."""

    TEXT = "text"
    BYTES = "bytes"
    MAP = "map"
    OBJECT = "object"
    LARGE = "large"
    GROUPED = "grouped"
    NON_PERSISTENT = "non-persistent"
    EXPIRING = "expiring"
    RICH = "rich"


class Detour(StrEnum):
    """The action of a person on the message, before its asker asks.

    Attributes:
        EVENT: it waits for an event, and the event releases it.
        AWAITS: it waits for an event that does not come.
        ANOTHER_EVENT: it waits for an event, and by a second hold for another one, which comes.
        RULED: by a rule, or the verdict of its own note, it waits for an event, which comes.
    """

    NONE = "none"
    HELD = "held"
    RELEASED = "released"
    EVENT = "event"
    AWAITS = "awaits"
    ANOTHER_EVENT = "another-event"
    RULED = "ruled"
    UNDONE = "undone"
    GIVEN_UP = "given-up"
    TAKEN_BACK = "taken-back"


class Row(NamedTuple):
    """One combination."""

    wire: Wire
    policy: Policy
    asker: Asker
    place: Place
    note: Note
    death: Death
    setup: Setup = Setup.PLAIN
    content: Content = Content.TEXT
    detour: Detour = Detour.NONE

    def __str__(self) -> str:
        return "/".join(self if self.is_dressed else self[: len(AXES)])

    @property
    def is_dressed(self) -> bool:
        """Whether it has a value that no row of `AXES` has."""
        dress = (Setup.PLAIN, Content.TEXT, Detour.NONE)
        return self[len(AXES) :] != dress or self._expires_unusually

    @property
    def _expires_unusually(self) -> bool:
        return self.death is Death.EXPIRED and self.asker is not Asker.FINAL

    @property
    def course(self) -> str:
        """See `Asker.course`."""
        if self.asker is Asker.POLICY and self.detour is Detour.RULED and self.note is Note.OWN:
            return "soon"
        is_final = self.asker is Asker.FINAL and self.detour is Detour.GIVEN_UP
        waits = self.asker is Asker.POLICY and self.detour in _EVENTS
        return "hour" if is_final or waits else self.asker.course


_EVENTS: Final = (Detour.EVENT, Detour.ANOTHER_EVENT)

AXES: Final[Mapping[str, Sequence[str]]] = {
    "wire": list(Wire),
    "policy": list(Policy),
    "asker": list(Asker),
    "place": list(Place),
    "note": list(Note),
    "death": list(Death),
}
DRESSES: Final[Mapping[str, Sequence[str]]] = {
    "setup": list(Setup),
    "content": list(Content),
    "detour": list(Detour),
    "death": list(Death),
}

_ARTEMIS_PLACES: Final = frozenset(Place) - {
    Place.VIRTUAL_TOPIC,
    Place.COMPOSITE,
    Place.COMPOSITE_COPIES,
}
_CLASSIC_PLACES: Final = frozenset(
    {
        Place.PLAIN,
        Place.VIRTUAL_TOPIC,
        Place.COMPOSITE,
        Place.COMPOSITE_COPIES,
        Place.MISSING,
        Place.INTERNAL,
        Place.TEMPORARY,
        Place.NO_SUBSCRIBER,
        Place.NOTES,
        Place.DEAD_LETTERS,
    }
)
_TARGETS_ONLY: Final = frozenset(
    {Place.COMPOSITE, Place.TEMPORARY, Place.NO_SUBSCRIBER, Place.NOTES, Place.DEAD_LETTERS}
)
"""No message dies there, or it can't be made to in a row."""
_FINAL_QUEUES: Final = frozenset(
    {
        Place.PLAIN,
        Place.FILTER_MATCHES,
        Place.FILTER_REFUSES,
        Place.DIVERT_COPIES,
        Place.DIVERT_TAKES,
        Place.RING,
        Place.LAST_VALUE,
        Place.FULL_DROPS,
        Place.FULL_FAILS,
        Place.DISABLED,
    }
)
ARRIVES: Final = frozenset(
    {
        Place.PLAIN,
        Place.FILTER_MATCHES,
        Place.TWO_QUEUES,
        Place.SUBSCRIPTION,
        Place.SHARED_SUBSCRIPTION,
        Place.VIRTUAL_TOPIC,
    }
)
"""Where nothing keeps a message from arriving, and so it must."""
NEVER_SENT: Final = frozenset(
    {Place.INTERNAL, Place.TEMPORARY, Place.NOTES, Place.DEAD_LETTERS, Place.NO_SUBSCRIBER}
)
"""Where no message may be sent, whether it would stay there or not."""


def exists(row: Row) -> bool:
    """Return whether a combination can be made."""
    return all(
        (
            row.place in (_CLASSIC_PLACES if row.wire.is_classic else _ARTEMIS_PLACES),
            _policy_exists(row),
            _place_exists(row),
            _note_exists(row),
            row.death is Death.FAILED or _expires(row),
            _setup_exists(row),
            _content_exists(row),
            _detour_exists(row),
        )
    )


def _expires(row: Row) -> bool:
    return row.asker in (Asker.FINAL, Asker.RECALL) and not row.wire.is_classic


def _setup_exists(row: Row) -> bool:
    is_stomp_artemis = row.wire is Wire.STOMP
    is_asked = row.asker in ASKED
    match row.setup:
        case Setup.KEEP:
            return row.asker is not Asker.FINAL or row.detour is Detour.GIVEN_UP
        case Setup.MANUAL:
            return is_asked and not is_stomp_artemis
        case Setup.PARTLY_MANUAL | Setup.IN_PLACE:
            # Why: elsewhere only whole dead-letter queues can be left to a person.
            return not (is_stomp_artemis or row.wire.is_classic)
        case Setup.POSTGRES | Setup.MOVED:
            return not is_stomp_artemis
        case Setup.SHARED:
            return row.wire in (Wire.ARTEMIS, Wire.CORE, Wire.AMQP, Wire.CLASSIC_OPENWIRE)
        case Setup.KILLED:
            # Why: a killed STOMP client leaves messages stuck in this Artemis (`wires.md`).
            is_by_console = row.asker in (Asker.CONSOLE_RETRY, Asker.CONSOLE_REDIRECT)
            return not (is_stomp_artemis or is_by_console)
        case _:
            return True


def _content_exists(row: Row) -> bool:
    is_stomp = row.wire in (Wire.STOMP, Wire.CLASSIC_STOMP)
    match row.content:
        case Content.MAP | Content.OBJECT | Content.RICH:
            return not is_stomp
        case Content.GROUPED:
            return row.wire is not Wire.CLASSIC_STOMP
        case Content.NON_PERSISTENT:
            return not row.wire.is_classic
        case Content.EXPIRING:
            return row.wire is not Wire.CLASSIC_AMQP
        case _:
            return True


def _detour_exists(row: Row) -> bool:
    is_waiting = row.asker.course == "hour"
    is_manual = row.setup in (Setup.MANUAL, Setup.PARTLY_MANUAL)
    match row.detour:
        case Detour.NONE:
            return True
        case Detour.HELD | Detour.RELEASED:
            # Why: only a retry or another action ends a hold in place.
            is_ended = row.setup is not Setup.IN_PLACE or row.detour is Detour.HELD
            return is_waiting and not is_manual and row.setup is not Setup.BACKLOG and is_ended
        case Detour.AWAITS | Detour.EVENT | Detour.ANOTHER_EVENT:
            # Why by the policy alone: what an event releases is sent to its origin at once. Why not
            # in place: there no event releases a hold.
            is_left = is_manual or row.setup in (Setup.BACKLOG, Setup.IN_PLACE)
            is_asked = row.detour is Detour.AWAITS
            return (is_waiting if is_asked else row.asker is Asker.POLICY) and not is_left
        case Detour.RULED:
            return row.asker is Asker.POLICY and row.setup is not Setup.BACKLOG
        case Detour.UNDONE:
            return is_waiting or row.asker is Asker.RECALL
        case Detour.GIVEN_UP:
            return (is_waiting or row.asker is Asker.FINAL) and not is_manual
        case Detour.TAKEN_BACK:
            is_exhausted = row.asker is Asker.RECALL and row.setup is not Setup.KEEP
            return is_exhausted or (is_waiting and is_manual)


def _policy_exists(row: Row) -> bool:
    if not row.wire.is_classic:
        return True
    # Why only in full: no client can ask Classic for its interceptors (`origins.md`).
    if row.place in (Place.COMPOSITE, Place.COMPOSITE_COPIES):
        return row.policy is Policy.FULL
    return row.policy in (Policy.FULL, Policy.PARTIAL)


def _place_exists(row: Row) -> bool:
    if row.asker is Asker.FINAL:
        return row.place in (
            {Place.PLAIN, Place.COMPOSITE_COPIES} if row.wire.is_classic else _FINAL_QUEUES
        )
    if row.asker.redirects:
        return row.place is not Place.NOTES or row.wire.reads_notes
    if row.wire.is_classic and row.place in (Place.MISSING, Place.INTERNAL):
        return False
    return row.place not in _TARGETS_ONLY


def _note_exists(row: Row) -> bool:
    if row.asker is Asker.VERDICT:
        return row.note is Note.OWN and row.wire.reads_notes
    if row.note is Note.NONE:
        return True
    return row.wire.reads_notes and row.death is Death.FAILED
