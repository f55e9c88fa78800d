"""What is combined: who asks for a send, what the destination is, the policy, notes and wires."""

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


class Row(NamedTuple):
    """One combination."""

    wire: Wire
    policy: Policy
    asker: Asker
    place: Place
    note: Note
    death: Death

    def __str__(self) -> str:
        return "/".join(self)


AXES: Final[Mapping[str, Sequence[str]]] = {
    "wire": list(Wire),
    "policy": list(Policy),
    "asker": list(Asker),
    "place": list(Place),
    "note": list(Note),
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
            row.death is Death.FAILED or (row.asker is Asker.FINAL and not row.wire.is_classic),
        )
    )


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
