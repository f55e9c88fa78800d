"""The judgement on a dead letter: the rules' decision and additions of the sidecar.

Pure: the same delivery, time and chance give the same judgement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import NamedTuple, Protocol, assert_never

import msgspec

from amqsidecar.broker import Delivery
from amqsidecar.engine.judging.dead_letter_names import TrueOrigin, named_origin
from amqsidecar.engine.judging.final_destination import final_destination
from amqsidecar.engine.judging.send_rules import LONGEST_NAME, SendRules
from amqsidecar.errors import EditRefused, SidecarError
from amqsidecar.model.dead_letter import DeadLetter, Facts
from amqsidecar.model.decision import (
    DeadLetterTo,
    Decision,
    Discard,
    Exhaust,
    Park,
    Redeliver,
    Redirect,
    WrittenLine,
)
from amqsidecar.model.destination import (
    Destination,
    DestinationKind,
    final_queue,
)
from amqsidecar.model.event import (
    About,
    AnyEvent,
    Discarded,
    Exhausted,
    Held,
    Parked,
    Received,
    Returned,
    Scheduled,
    about_row,
)
from amqsidecar.model.failure import death_group
from amqsidecar.model.message import MessageEdit
from amqsidecar.model.provenance import LONGEST_REDELIVERY_ID, kept_message_id, life_of_death
from amqsidecar.model.row_changes import waits_until
from amqsidecar.model.schedule import (
    RowState,
    TakenRow,
    age_ms,
    dated_redelivery_id,
    first_redelivery_id,
)
from amqsidecar.model.signal import WAIT_MAX_MS, Signal, signal_name
from amqsidecar.plugin import Chance, Decider

LATEST_DUE_MS = 253_402_300_799_000
"""The last second of the year 9999: a delay that would end later ends there."""
LONG_MAX = 2**63 - 1
MOST_REDELIVERIES = 2**31 - 1
"""Maximum of the int property on the message; the count stays there."""
LONGEST_REASON = 2_048
"""Characters of a reason: it may quote a broker or a sender."""


GroupOf = Callable[[str, bytes], str | None]
"""Encoding and message to its message group; None = none."""
DeathGroupOf = Callable[[Delivery, Destination | None, str | None], str]
"""Delivery, true origin and cause to the group of the death; "" = that of its cause."""


@dataclass(frozen=True, kw_only=True)
class Readers:
    """The functions that read a dead letter beyond its provenance; None = that is not read.

    Attributes:
        true_origin: finds the origin where a message shows another.
        properties: encoding and message to the application properties that events carry.
        cause: encoding and message to the cause of death that its consumer recorded.
        message_group: see `GroupOf`.
        producer: redelivery id, encoding and message to its producer's trace context, as
            `Received.traceparent`.
        death_group: see `DeathGroupOf`; None = each death has the group of its cause.
        facts: delivery, cause and milliseconds since the first death to the facts that rules ask
            for; None = they ask for no facts and no age.
        advice: delivery and its redelivery to the consumer's advice, which may be the redelivery.
        edit: encoding, message and edit to the message after it; raises EditRefused.
        vet: returns a delivery whose claims are proven, or that has a problem.
        records_lives: whether a death records its life, by which later reports of it are found.
    """

    true_origin: TrueOrigin = named_origin
    properties: Callable[[str, bytes], dict[str, str] | None] | None = None
    cause: Callable[[str, bytes], str | None] | None = None
    message_group: GroupOf | None = None
    producer: Callable[[str, str, bytes], str] | None = None
    death_group: DeathGroupOf | None = None
    facts: Callable[[Delivery, str | None, int], Facts] | None = None
    advice: Callable[[Delivery, Redeliver], Decision] | None = None
    edit: Callable[[str, bytes, MessageEdit], bytes] | None = None
    vet: Callable[[Delivery], Delivery] | None = None
    records_lives: bool = True


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """The judgement on a dead letter.

    Attributes:
        row: to keep in the schedule; None = it is discarded.
        events: in order.
        replaces: number of the row that it replaces once the cycle counts; None = no row.
        signal: the external event that it reports, which counts even if the cycle is undone;
            None = it is a dead letter.
    """

    row: TakenRow | None
    events: tuple[AnyEvent, ...]
    replaces: int | None = None
    signal: Signal | None = None


class Judging(Protocol):
    """The questions of a cycle about its deliveries; `Judge` implements them."""

    @property
    def send_rules(self) -> SendRules:
        """The destinations that no message is sent to."""
        ...

    def prepare(self, deliveries: Sequence[Delivery], /) -> Sequence[Delivery]:
        """Learn of deliveries; return those to judge now. The others must wait."""
        ...

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the judgement on a delivery."""
        ...


class Judge:
    """Asks the rules and turns their decision into a row and events.

    Attributes:
        send_rules: where no message is sent.

    Args:
        send_rules: see the attribute.
        chance: where collision avoidance draws from.
        readers: read dead letters.
        keeps_exhausted: exhausted messages stay in the schedule; False = they go to their final
            dead-letter queue.
    """

    def __init__(
        self,
        decider: Decider,
        send_rules: SendRules,
        chance: Chance,
        readers: Readers = Readers(),
        *,
        keeps_exhausted: bool = False,
    ) -> None:
        self._decider = decider
        self.send_rules = send_rules
        self._chance = chance
        self._readers = readers
        self._keeps_exhausted = keeps_exhausted
        self._place_of: _PlaceOf = self._find_place
        self._has_drawn = False

    def life_of(self, delivery: Delivery) -> str:
        """Return the life that `judge` records of a delivery; "" = not known."""
        if not self._readers.records_lives:
            return ""
        delivery = self._vet(delivery)
        provenance = delivery.provenance
        place = self._place_of(provenance.origin, delivery.source, provenance.problem)
        return place.life_of(provenance.number)

    def _vet(self, delivery: Delivery) -> Delivery:
        vet = self._readers.vet
        return delivery if vet is None else vet(delivery)

    def prepare(self, deliveries: Sequence[Delivery], /) -> Sequence[Delivery]:
        """Return all; from now on equal questions are asked once, until the next call."""
        self._place_of = cache(self._find_place)
        return deliveries

    def judge(
        self, delivery: Delivery, uid: str, row_id: int, now_ms: int, *, is_backlog: bool
    ) -> Judgement:
        """Return the judgement on a delivery.

        Args:
            delivery: the dead letter.
            uid: of the store; see `StoreState`.
            row_id: the number that its row gets.
            now_ms: the time of intake; delays count from here.
            is_backlog: it was in the queue before the sidecar came and is held for a person.
        """
        readers = self._readers
        delivery = self._vet(delivery)
        provenance = delivery.provenance
        place = self._place_of(provenance.origin, delivery.source, provenance.problem)
        origin = place.origin
        redelivery_id = provenance.redelivery_id
        if not redelivery_id or len(redelivery_id) > LONGEST_REDELIVERY_ID:
            redelivery_id = first_redelivery_id(uid, row_id)
            if readers.facts is not None:
                redelivery_id = dated_redelivery_id(redelivery_id, now_ms)
        received = self._received(delivery, place, row_id, redelivery_id, now_ms)
        if readers.producer is not None and (
            producer := readers.producer(redelivery_id, delivery.encoding, delivery.message)
        ):
            # Why not with the others: as for rows, fourteen names are the most that are fast.
            received = msgspec.structs.replace(received, traceparent=producer)
        read = readers.message_group
        group = None if read is None else read(delivery.encoding, delivery.message)
        draft = _Draft(delivery, received, place.parked_at, delivery.message, group, is_backlog)
        if origin is None or place.problem:
            return draft.park(place.problem)
        try:
            decision = self._decide(delivery, origin, received, place.decisions)
        except SidecarError:
            raise
        except Exception as error:  # noqa: BLE001 - a stranger's plugin may raise anything
            what = f"{type(error).__name__}: {error}"
            return draft.park(f"the rules failed on this message: {what}")
        if isinstance(decision, str):
            return draft.park(f"the rules failed on this message: {decision}")
        if readers.advice is not None and isinstance(decision, Redeliver):
            decision = self._advised(decision, readers.advice(delivery, decision))
        if isinstance(decision, Redeliver):
            if place.redelivery_problem is not None:
                return draft.park(place.redelivery_problem)
            return self._redeliver(origin, decision, draft)
        return self._carry_out(decision, draft)

    def _find_place(
        self, origin: Destination | None, source: Destination, problem: str | None
    ) -> "_Place":
        """Return the facts shared by all dead letters that name an origin in a queue.

        Args:
            origin: as the message names it.
            problem: of their provenance.
        """
        if origin is not None and len(origin.name) > LONGEST_NAME:
            too_long = f"has {len(origin.name)} characters, more than {LONGEST_NAME}"
            origin, problem = None, problem or f"the name of its origin {too_long}"
        if origin is None:
            problem = problem or "the message does not name its origin"
            return _Place(None, source, problem, None, str(source), None, _no_life, {})
        origin = self._readers.true_origin(origin, source)
        problem = self.send_rules.origin_problem(origin) or problem
        # Why the source: nothing may ever be sent to such an origin.
        is_never = problem and self.send_rules.final_problem(origin) is not None
        parked_at = source if is_never else origin
        unsent = self.send_rules.redelivery_problem(origin)
        life_of = _no_life
        if self._readers.records_lives:
            life_of = cache(partial(life_of_death, source, origin))
        names = str(source), str(origin)
        return _Place(origin, parked_at, problem or "", unsent, *names, life_of, {})

    def _decide(
        self, delivery: Delivery, origin: Destination, received: Received, decisions: "_Decisions"
    ) -> Decision | str | None:
        """Return the rules' decision, or the fault of their answer; None = no decision."""
        provenance, facts = delivery.provenance, self._readers.facts
        kind = (
            provenance.redelivery_count,
            provenance.persistent,
            provenance.expired,
            provenance.is_store_duplicate,
        )
        if facts is None and kind in decisions:
            return decisions[kind]
        dead_letter = _dead_letter(origin, *kind)
        if facts is not None:
            age = age_ms(received.redelivery_id, received.at_ms)
            dead_letter = replace(dead_letter, facts=facts(delivery, received.cause, age))
        self._has_drawn = False
        decision = self._decider.decide(dead_letter, self._draw)
        answer = _fault_of(decision) or decision
        if facts is None and not self._has_drawn:
            decisions[kind] = answer
        return answer

    def _draw(self) -> float:
        self._has_drawn = True
        return self._chance()

    def _received(
        self, delivery: Delivery, place: "_Place", row_id: int, redelivery_id: str, now_ms: int
    ) -> Received:
        readers, provenance, origin = self._readers, delivery.provenance, place.origin
        # Why this order: the consumer's cause is better than the broker's.
        encoding, message = delivery.encoding, delivery.message
        cause = None if readers.cause is None else readers.cause(encoding, message)
        cause = cause or provenance.cause
        properties = None if readers.properties is None else readers.properties(encoding, message)
        return (Received if provenance.redelivery_count == 0 else Returned)(
            at_ms=now_ms,
            id=row_id,
            redelivery_id=redelivery_id,
            source=place.source_name,
            origin=place.origin_name,
            cause=cause,
            expired=provenance.expired,
            redelivery_count=provenance.redelivery_count,
            message_id=kept_message_id(provenance.message_id),
            size_bytes=len(message),
            life=place.life_of(provenance.number),
            persistent=provenance.persistent,
            properties=properties,
            cause_group=(
                "" if readers.death_group is None else readers.death_group(delivery, origin, cause)
            ),
        )

    def _advised(self, decision: Redeliver, advised: Decision) -> Decision:
        """Return the consumer's advice, or the rules' decision if the advice is not allowed."""
        if isinstance(advised, Redirect) and self.send_rules.redirect_problem(advised.destination):
            return decision
        return advised

    def _carry_out(
        self, decision: DeadLetterTo | Discard | Redirect | Exhaust | Park | None, draft: "_Draft"
    ) -> Judgement:
        source, rules, keeps = draft.delivery.source, self.send_rules, self._keeps_exhausted
        match decision:
            case DeadLetterTo():
                final = final_destination(decision, source, rules.is_intake, rules.final_suffix)
                made = draft.exhaust(final, decision, keeps=keeps)
            case Exhaust(rule):
                final = final_queue(source, rules.final_suffix)
                made = draft.exhaust(final, DeadLetterTo(source, 0, rule), keeps=keeps)
            case Discard() if draft.is_backlog:
                final = final_queue(source, rules.final_suffix)
                made = draft.hold(final, f"backlog; the rules say discard: {decision.rule}")
            case Discard():
                made = draft.discard(decision)
            case Redirect(to, delay_ms, count, rule, edit):
                if (reason := rules.redirect_problem(to)) is not None:
                    made = draft.park(f"{rule}: {reason}")
                else:
                    made = self._redeliver(to, Redeliver(delay_ms, count, rule, edit), draft)
            case Park() | None:
                made = draft.park(
                    "no plugin of the chain decided on it" if decision is None else decision.rule
                )
            case _:
                assert_never(decision)
        return made

    def _redeliver(self, to: Destination, decision: Redeliver, draft: "_Draft") -> Judgement:
        if decision.edit is not None:
            try:
                draft.edit(self._readers.edit, decision.edit, decision.redelivery_count)
            except EditRefused as refused:
                # Why not re-sent as it is: the rule has a reason to remove a property.
                return draft.park(f"{decision.rule}: {refused}")
        return draft.redeliver(to, decision)


class _Place(NamedTuple):
    """An origin and a queue: the facts that all their dead letters share.

    Attributes:
        origin: the true origin; None = unknown.
        parked_at: where dead letters with a problem are parked.
        problem: why they are parked, regardless of the rules; "" = they are not.
        redelivery_problem: why no rule may redeliver them; None = rules may.
        source_name, origin_name: canonical texts.
        life_of: the broker's number of a death to the life that ended.
        decisions: the rules' answers so far, where no chance and no facts act.
    """

    origin: Destination | None
    parked_at: Destination
    problem: str
    redelivery_problem: str | None
    source_name: str
    origin_name: str | None
    life_of: Callable[[str], str]
    decisions: "_Decisions"


_PlaceOf = Callable[[Destination | None, Destination, str | None], _Place]
_Decisions = dict[tuple[int, bool, bool, bool], Decision | str | None]
"""By the arguments of `_dead_letter` after its origin."""


def _no_life(_number: str) -> str:
    """Return no life, where none is known or recorded."""
    return ""


def _fault_of(decision: object) -> str | None:
    """Return why the store can't keep an answer of the rules; None = it can.

    A stranger's plugin may answer anything, a delay of 1500.5 milliseconds for one.
    """
    match decision:
        case Redeliver() | Redirect():
            edit: object = decision.edit
            if not isinstance(edit, MessageEdit | None):
                return f"their edit is {edit!r}"
            is_whole = type(decision.delay_ms) is type(decision.redelivery_count) is int
            if isinstance(decision, Redeliver) and decision.until:
                is_whole = is_whole and type(decision.longest_ms) is int
                try:
                    signal_name(decision.until)
                except (ValueError, AttributeError) as error:
                    return str(error)
        case DeadLetterTo():
            is_whole = type(decision.expiration_ms) is int
        case Discard():
            ordered_by: object = decision.ordered_by
            if not isinstance(ordered_by, WrittenLine):
                return (
                    f"they answer Discard({ordered_by!r}), but only a written line orders "
                    "a discard: a plugin makes it of its options' source by `written_line`"
                )
            is_whole = True
        case Exhaust() | Park() | None:
            is_whole = True
        case _:
            return f"they answer {decision!r}"
    return None if is_whole else f"they returned a number that is not an integer: {decision}"


@lru_cache(maxsize=4096)
def _dead_letter(
    origin: Destination, redelivery_count: int, persistent: bool, expired: bool, duplicate: bool, /
) -> DeadLetter:
    """Return the input of policies; of an origin they know the address, without `::queue`."""
    destination = origin
    if "::" in origin.name:
        destination = Destination(DestinationKind(origin.kind), origin.address)
    return DeadLetter(destination, redelivery_count, persistent, expired, duplicate)


class _Draft(msgspec.Struct):
    """The parts of a judgement that don't depend on the decision.

    Attributes:
        origin: where it belongs as long as no rule says another destination.
        message: that is kept; the one that was delivered, perhaps edited.
        group: its message group; None = it has none.
    """

    delivery: Delivery
    received: Received
    origin: Destination
    message: bytes
    group: str | None
    is_backlog: bool

    def _row(
        self,
        state: RowState,
        destination: str,
        rule: str,
        *,
        due_at_ms: int,
        is_final: bool = False,
        final: Destination | None = None,
        redelivery_count: int,
        delay_ms: int = 0,
        expiration_ms: int = 0,
    ) -> TakenRow:
        received = self.received
        # Why by place: msgspec takes ten times as long for more than fourteen names.
        return TakenRow(
            received.id,
            state,
            due_at_ms,
            destination,
            is_final,
            received.source,
            received.redelivery_id,
            redelivery_count,
            delay_ms=delay_ms,
            expiration_ms=expiration_ms,
            rule=rule,
            cause=received.cause,
            message_id=received.message_id,
            received_at_ms=received.at_ms,
            encoding=self.delivery.encoding,
            message=self.message,
            cause_group=death_group(received),
            message_group=None if final is not None else self.group,
            final_queue=None if final is None else str(final),
        )

    def edit(
        self,
        edit_message: Callable[[str, bytes, MessageEdit], bytes] | None,
        edit: MessageEdit,
        count: int,
    ) -> None:
        """Edit the message that is kept.

        Raises:
            EditRefused: it stays as it was.
        """
        if edit_message is None:
            raise EditRefused("properties can't be edited here")
        filled = [
            msgspec.structs.replace(
                one,
                value=one.value.replace("{redelivery_id}", self.received.redelivery_id).replace(
                    "{redelivery_count}", str(count)
                ),
            )
            for one in edit.set_properties
        ]
        edit = msgspec.structs.replace(edit, set_properties=tuple(filled))
        self.message = edit_message(self.delivery.encoding, self.message, edit)

    def park(self, reason: str) -> Judgement:
        count = self.delivery.provenance.redelivery_count
        reason = reason[:LONGEST_REASON]
        row = self._row(
            RowState.PARKED,
            str(self.origin),
            reason,
            due_at_ms=self.received.at_ms,
            redelivery_count=min(count + 1, MOST_REDELIVERIES),
        )
        event = Parked(**self._about(row.destination), reason=reason)
        return Judgement(row, (self.received, event))

    def redeliver(self, to: Destination, decision: Redeliver) -> Judgement:
        received = self.received
        delay_ms = min(max(0, decision.delay_ms), LONG_MAX)
        count = min(max(0, decision.redelivery_count), MOST_REDELIVERIES)
        due_at_ms = min(received.at_ms + delay_ms, LATEST_DUE_MS)
        waits = bool(decision.until) and not self.is_backlog
        row = self._row(
            RowState.HELD if self.is_backlog or waits else RowState.WAITING,
            str(to),
            decision.rule,
            due_at_ms=due_at_ms,
            redelivery_count=count,
            delay_ms=delay_ms,
        )
        scheduled = Scheduled(
            at_ms=received.at_ms,
            id=received.id,
            redelivery_id=received.redelivery_id,
            destination=row.destination,
            delay_ms=delay_ms,
            due_at_ms=due_at_ms,
            redelivery_count=count,
            rule=decision.rule,
        )
        if self.is_backlog:
            return Judgement(row, (received, scheduled, self._held(row.destination, "backlog")))
        if waits:
            until_ms = max(due_at_ms, received.at_ms + min(decision.longest_ms, WAIT_MAX_MS))
            name = signal_name(decision.until)
            row = msgspec.structs.replace(row, gate=name, due_at_ms=until_ms)
            held = self._held(row.destination, waits_until(name, until_ms, decision.rule))
            return Judgement(row, (received, scheduled, held))
        return Judgement(row, (received, scheduled))

    def exhaust(self, final: Destination, decision: DeadLetterTo, *, keeps: bool) -> Judgement:
        is_kept = keeps and not self.is_backlog
        # Why: a time to live that ends later than the clock goes is one for ever.
        expiration_ms = max(0, decision.expiration_ms)
        if self.received.at_ms + expiration_ms > LATEST_DUE_MS:
            expiration_ms = 0
        state = RowState.EXHAUSTED if is_kept else RowState.WAITING
        row = self._row(
            RowState.HELD if self.is_backlog else state,
            str(self.origin),
            decision.rule,
            due_at_ms=self.received.at_ms,
            is_final=not is_kept,
            final=final,
            redelivery_count=self.delivery.provenance.redelivery_count,
            expiration_ms=expiration_ms,
        )
        exhausted = Exhausted(
            **self._about(str(final)),
            rule=decision.rule,
            expiration_ms=expiration_ms,
            decided_destination=(
                None if final == decision.destination else str(decision.destination)
            ),
        )
        if self.is_backlog:
            return Judgement(row, (self.received, exhausted, self._held(str(final), "backlog")))
        return Judgement(row, (self.received, exhausted))

    def hold(self, final: Destination, reason: str) -> Judgement:
        row = self._row(
            RowState.HELD,
            str(self.origin),
            reason,
            due_at_ms=self.received.at_ms,
            is_final=True,
            final=final,
            redelivery_count=self.delivery.provenance.redelivery_count,
        )
        return Judgement(row, (self.received, self._held(str(final), reason)))

    def discard(self, decision: Discard) -> Judgement:
        event = Discarded(**self._about(str(self.origin)), rule=decision.rule)
        return Judgement(None, (self.received, event))

    def _held(self, destination: str, reason: str) -> Held:
        return Held(**self._about(destination), reason=reason)

    def _about(self, destination: str) -> About:
        return about_row(self.received, self.received.at_ms, destination)
