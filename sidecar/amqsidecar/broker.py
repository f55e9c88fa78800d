"""The broker contract: one connection, its intake, and transactions that carry a token.

Opening a link returns a session for the purpose that it was opened for. `Features` lists the
optional abilities of its wire. A session belongs to one thread; only `wake` may be called from
another.

It never decodes bodies: `Delivery.message` holds the bytes of the wire. `Resend.message` is a copy
in which only the parts that a redelivery must change differ (`0003-bytes-instead-of-decoding.md`).

Exactly once rests on the **token**: a private queue of the instance holds one message, the number
of the last committed cycle. Every broker transaction takes token k-1 and sends token k. A process
that can't receive the token doesn't own the instance.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from amqsidecar.model.destination import Destination
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.left_behind import LeftBehind
from amqsidecar.model.outcome import Counters
from amqsidecar.model.provenance import Provenance
from amqsidecar.model.send_terms import SendTerms
from amqsidecar.policy.selector import PropertyOf


class BrokerKind(StrEnum):
    """The two broker products."""

    CLASSIC = "classic"
    ARTEMIS = "artemis"


class BrokerDescription(msgspec.Struct, frozen=True):
    """The broker's description of itself when the link was opened.

    Attributes:
        kind: the product.
        version: as the broker words it; "" = unknown.
        encodings: of messages over this link, such as `amqp/1.0`; only rows with one of them can
            be sent over it.
    """

    kind: BrokerKind
    version: str
    encodings: tuple[str, ...]


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A dead letter in hand, not yet accepted.

    Attributes:
        handle: the link's own reference; meaningless after the link is closed.
        source: the dead-letter queue it was found in.
        message: the encoded message, whole.
        provenance: its past, as far as the message records it.
        encoding: of the message; one of `BrokerDescription.encodings`.
    """

    handle: object
    source: Destination
    message: bytes
    provenance: Provenance
    encoding: str


class Resend(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One message to send in a transaction; only `engine/send_gate.py` makes it.

    Attributes:
        destination: where to; its kind says the routing type on Artemis.
        message: the encoded dead letter as it was received.
        is_final: True = a final dead letter: provenance and cause stay on the message, and the
            sidecar properties give the last count. False = a redelivery: dead-letter
            annotations are stripped, the time to live restarts.
        redelivery_id: written as `amqsidecarRedeliveryId` (string).
        redelivery_count: written as `amqsidecarRedeliveryCount` (int) and as the delivery count
            where the wire has one.
        redelivery_delay_ms: written as `redeliveryDelay` (long).
        expiration_ms: final dead letters only: time to live from now; 0 = for ever.
        deliver_at_ms: not to be delivered before, by the broker's clock; 0 = at once. Only a
            `MoveSession` carries it.
        encoding: of the message; only links of several encodings ask for it.
    """

    destination: Destination
    message: bytes
    is_final: bool
    redelivery_id: str
    redelivery_count: int
    redelivery_delay_ms: int
    expiration_ms: int = 0
    deliver_at_ms: int = 0
    encoding: str = ""


class IntakeQueue(msgspec.Struct, frozen=True):
    """A dead-letter queue to read from.

    Attributes:
        destination: the queue; on Artemis `address::queue` where they differ. On Classic it may
            hold the broker's wildcards.
        expires: messages come here because their time to live ran out (Artemis expiry address).
        origin: where all of its messages died; None = each message shows its own. Needed
            where the wire doesn't show it (Classic over AMQP), ignored elsewhere.
        selector: JMS selector of the messages to read; "" = all messages.
        is_final: a final dead-letter queue, whose messages are taken back; a link may refuse to
            read a final queue without this mark, because the sidecar writes to it.
        redelivery_ids: only messages of these ids are browsed, or read by `TakesChosen`; () = all.
        except_count: of those, messages redelivered this often are not read (Artemis); 0 = all.
    """

    destination: Destination
    expires: bool = False
    origin: Destination | None = None
    selector: str = ""
    is_final: bool = False
    redelivery_ids: tuple[str, ...] = ()
    except_count: int = 0


class KeepsDelayed(Protocol):
    """A link to a broker that itself keeps waiting messages, and delivers them when due."""

    def waiting_problem(self, destination: Destination) -> str | None:
        """Return why a message that waits there may be lost, as a sentence; None = it is kept.

        Cheap: results are cached for some seconds.
        """


class CommitsInBackground(Protocol):
    """A link on which the next transaction can be begun while the broker commits one."""

    def while_committing(self, begin_next: Callable[[], None]) -> None:
        """Call this in each `commit_cycle`, once the broker was asked to commit.

        It may call everything but `attach` and `commit_cycle`. An error that it raises ends the
        connection, or leaves it to `close`. After a failed commit the caller calls `abandon`.
        """


REACH_BYTES: Final = 128 * 1024 * 1024
"""Bytes of other messages before a chosen one, with which Classic's links still take it alone."""


class TakesChosen(Protocol):
    """A link that can take chosen messages out of a queue and leave the others in their place.

    Its `attach` does so with queues that name `IntakeQueue.redelivery_ids`.
    """

    def holds_chosen(self, queue: Destination, redelivery_ids: Collection[str]) -> bool | None:
        """Return whether a queue may hold a message of these ids that has not come.

        None = only reading the whole queue shows it, because the choice does not reach its end.

        Raises:
            BrokerRefused: this user may not ask; the sentence names the permission.
            LinkLost: the connection is gone.
        """


class ListsQueues(Protocol):
    """A link to Classic that can list the broker's queues."""

    def queue_names(self) -> tuple[str, ...]:
        """Return the names of all queues but the sidecar's own; `queues_changed` reports new ones.

        Raises:
            DiscoveryRefused: the broker refuses to answer; the message names the fix.
            LinkLost: the connection is gone.
        """

    def final_names(self) -> tuple[str, ...]:
        """Return the names of the queues that end with the suffix of final dead-letter queues.

        Raises:
            As `queue_names`.
        """


class TellsSettings(Protocol):
    """A link that can ask for the merged settings of addresses (Artemis)."""

    def address_settings(self, addresses: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the merged settings of each address, in order.

        Raises:
            BrokerRefused: this user may not ask.
        """


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """The optional features of a link; None = its wire lacks it.

    Attributes:
        preferred_batch: messages of a transaction beyond which it gets no faster; 0 = no bound.
        background: begins the next transaction while the broker commits one.
        choosing: takes chosen messages out of a queue.
        listing: lists the queues of Classic.
        settings: asks for the address settings of Artemis.
        delayed: the broker's own places for waiting messages.
        selects_origins: reads a part of a queue by an `IntakeQueue.selector` of origins, to its
            end or to the end of the messages that the broker has in memory.
    """

    preferred_batch: int = 0
    background: CommitsInBackground | None = None
    choosing: TakesChosen | None = None
    listing: ListsQueues | None = None
    settings: TellsSettings | None = None
    delayed: KeepsDelayed | None = None
    selects_origins: bool = False


class LookSession(Protocol):
    """An open connection that makes nothing in the broker and keeps no other connection out."""

    description: BrokerDescription

    @property
    def features(self) -> Features:
        """The optional features of this wire."""

    def close(self) -> None:
        """Give everything in hand back without counting it as a failure, then disconnect.

        Never raises; safe to call twice and after `LinkLost`.
        """

    def wait(self, timeout_s: float) -> None:
        """Block until something arrived, `wake` was called, or time is over; keeps the link alive.

        Raises:
            LinkLost: the connection is gone.
        """

    def wake(self) -> None:
        """End a running or the next `wait` at once; the only method for other threads."""

    def discover(self) -> tuple[IntakeQueue, ...]:
        """Return the dead-letter queues that the live broker has; empty if it can't list them.

        Raises:
            DiscoveryRefused: this user may not ask; the message names the permission.
        """

    def count(self, queue: IntakeQueue, at_most: int) -> int:
        """Return how many messages a dead-letter queue holds, counting up to `at_most`."""

    def browse(self, queue: IntakeQueue, at_most: int) -> Iterator[Delivery]:
        """Return the messages of a dead-letter queue, in order, without taking or changing them.

        The broker hands the messages over as they are read, so memory is bounded; the link can be
        used for other questions between two messages. Dropping the iterator ends the browse.

        Classic also shows messages that another reader has in hand, Artemis doesn't. A browsed
        message can't be accepted: its handle is None, or identifies it within its queue. It is b""
        where the broker shows only its past, but never where `IntakeQueue.redelivery_ids` names it.
        A missing queue is empty, and is not created.

        Quirk (Classic): where a policyEntry acts on the queue, a browse over STOMP and AMQP ends at
        its maxBrowsePageSize, 400 unless configured.

        Args:
            queue: to browse; a wildcard stands for all queues that it matches now.
            at_most: messages of each queue, from its head.

        Raises:
            BrokerRefused: this wire or this user can't browse; the sentence names the permission,
                or a wire that can.
            LinkLost: the connection is gone.
        """

    def left_behind(self) -> tuple[LeftBehind, ...]:
        """Return the messages of the attached queues that are not taken, or not browsed, and why.

        Also messages of any queue that the broker counts as handed out and no consumer has, where
        it says so, from the second call on. May ask the broker; called now and then, never per
        cycle.
        """

    def queue_counters(self, destinations: Sequence[Destination]) -> Mapping[Destination, Counters]:
        """Return the counters of these destinations.

        Without destinations that have no counters: a topic, which is many queues, a missing queue.

        Raises:
            BrokerRefused: this user may not ask; the sentence names the permission.
            LinkLost: the connection is gone.
        """

    def foreign_tokens(self, known: Collection[str]) -> tuple[ForeignToken, ...]:
        """Return the tokens of all instances but these, by name.

        It leaves each where it is. A token that is being exchanged at this moment may be missed.

        Raises:
            BrokerRefused: this user may not look; the sentence names the permission.
            LinkLost: the connection is gone.
        """

    def send_terms(self, destination: Destination, *, makes: bool = False) -> SendTerms:
        """Return the terms of a send to a destination.

        Cheap: results are cached for some seconds and refreshed on change. The broker is asked each
        time only if the destination has filters or held up a link before (`LinkLost.held_up_by`).

        Args:
            makes: create a missing queue as a final dead-letter queue: durable and never removed by
                the broker. `problem` says why it can't be created.
        """

    def ask_terms_ahead(self, destinations: Sequence[Destination]) -> None:
        """Ask about many at once, so that the next `send_terms` of each knows the answer.

        Does nothing where `send_terms` asks no broker.

        Raises:
            LinkLost: the connection is gone.
        """

    def filter_view(self, resend: Resend) -> PropertyOf:
        """Return the fields that a filter of the broker sees once a message is sent over this link.

        Raises:
            UndecodableMessage: the message can't be taken apart, and so can't be sent.
        """


class IntakeSession(LookSession, Protocol):
    """An open connection that reads dead-letter queues."""

    def attach(self, queues: Sequence[IntakeQueue], prefetch: int) -> None:
        """Read from these queues from now on, and only from these; may be called again.

        Called after each discovery, even if the queues are unchanged: it retries queues that were
        refused through a wildcard, or are unread since their deletion. A missing queue is created
        where the broker creates queues for consumers.

        Args:
            queues: the dead-letter queues; wildcards allowed on Classic.
            prefetch: deliveries that the broker may hand us ahead, over all queues at most; Core
                counts bytes instead, and `receive` then returns no more than these.

        Raises:
            QueueRefused: a queue can't be read; the error and its message name it. The others may
                or may not be read now; attach again without it.
        """

    def receive(self, limit: int) -> list[Delivery]:
        """Return newly arrived messages in order; never blocks.

        All of it is of one encoding; a link of several returns them in turn.

        Raises:
            LinkLost: the connection is gone.
        """

    def queues_changed(self) -> bool:
        """Return whether discovery may find other queues than last time, once.

        Cheap: called after each turn.
        """

    def queues_read(self) -> tuple[Destination, ...]:
        """Return the queues that are read now, each by name."""

    def is_newborn(self, destination: Destination) -> bool:
        """Return whether a queue was made while this link was open, so that all in it is new."""


class InstanceToken(Protocol):
    """The token of an instance, which one process holds at a time."""

    def take(self, timeout_s: float) -> int | None:
        """Return the cycle number of the token once the broker hands it over; None = not in time.

        The token stays unsettled in our hand until a transaction takes it. Of several tokens (a
        crash while the first was made) the highest counts and the others are removed.

        Raises:
            LinkLost: the connection is gone.
        """

    def exists(self) -> bool | None:
        """Return whether the token queue holds a token, handed out or not; None = unknown."""

    def create(self, number: int) -> None:
        """Put a first token into the token queue; durable when this returns.

        If the process dies inside, the queue holds no token or this one.

        Raises:
            BrokerRefused: the broker does not take it.
            LinkLost: no answer in time.
        """


class BegunSends(Protocol):
    """The sends of the next transaction."""

    def begin(self, sends: Sequence[Resend]) -> None:
        """Start the sends, so that the broker works on them meanwhile.

        Nothing is visible to anyone before `commit_cycle`, which must get this very sequence and
        raises the refusals. If the process dies before that, nothing happened.

        Raises:
            LinkLost: the connection is gone.
        """

    def abandon(self) -> None:
        """Undo `begin`; does nothing if nothing was begun.

        Raises:
            LinkLost: the connection is gone, and the begun sends with it.
        """


class TakeSession(IntakeSession, Protocol):
    """An open connection of an instance: takes and sends commit with the instance's token."""

    @property
    def token(self) -> InstanceToken:
        """The token of the instance."""

    @property
    def ahead(self) -> BegunSends:
        """The sends of the next transaction."""

    def commit_cycle(
        self, accepts: Sequence[Delivery], sends: Sequence[Resend], token: int
    ) -> None:
        """Accept, send, and exchange the token in one broker transaction; durable when it returns.

        If the process dies inside, either all of it happened and the token is `token`, or none.

        Args:
            accepts: deliveries of this link, each at most once, in the order received; of the same
                encoding as `sends`.
            sends: messages to send, unless `ahead` has begun with this very sequence; an
                error's index refers to it.
            token: the new cycle number.

        Raises:
            SendsRefused: nothing happened; the deliveries are still in hand.
            CommitRefused: as above.
            LinkLost: unknown whether it happened; the token shows it.
        """


class MoveSession(IntakeSession, KeepsDelayed, Protocol):
    """An open connection without a token: the broker keeps the waiting messages.

    Exactly once rests on the broker's transaction alone: a process that can accept a message may
    move it, and an abandoned predecessor has nothing left to accept. So several sidecars may read
    the same queues.
    """

    def move(self, accepts: Sequence[Delivery], sends: Sequence[Resend]) -> None:
        """Accept and send in one broker transaction; durable when it returns.

        If the process dies inside, either all of it happened or none. After a lost link, a dead
        letter that arrives again was not moved.

        Args:
            accepts: deliveries of this link, each at most once, in the order received; of the same
                encoding as `sends`.
            sends: messages to send; an error's index refers to it.

        Raises:
            SendsRefused: nothing happened; the deliveries are still in hand.
            CommitRefused: as above.
            LinkLost: unknown whether it happened.
        """

    def clock_ahead_ms(self) -> int:
        """Return by how much the broker's clock is ahead of ours at most; negative = behind."""


class Link(Protocol):
    """Opens connections to one broker, one after the other; each belongs to one thread.

    Where opening fails, nothing stays open.
    """

    def look(self) -> LookSession:
        """Connect and log in, only to look.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: credentials, permissions, or another product.
        """

    def take(self, token_queue: str) -> TakeSession:
        """Connect, log in, prepare transactions and begin to wait for the token.

        Args:
            token_queue: its name.

        Raises:
            LinkLost: the broker can't be reached, or another connection of the instance is open.
            BrokerRefused: credentials, permissions, or a capability that is missing.
        """

    def move(self) -> MoveSession:
        """Connect, log in and prepare transactions, without a token.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: as above, or this broker can't keep waiting messages over this wire.
        """
