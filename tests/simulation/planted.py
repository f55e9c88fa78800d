"""Faults planted into engine, link and store, to show that the checkers find them.

Each is a mistake that somebody could make, with the checkers one of which has to speak up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pytest

from amqsidecar.broker import Delivery
from amqsidecar.engine.backlog import AskStore, BacklogGate
from amqsidecar.engine.blockage import Blockage
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.dispatch import Dispatch
from amqsidecar.engine.judging.judge import Judge, Judgement
from amqsidecar.engine.loss import GUILT_BEFORE_PARKING
from amqsidecar.engine.recovery import Recovery
from amqsidecar.errors import LinkLost
from amqsidecar.model.schedule import TakenRow
from support.brokers.memory import AckLaterLink, MemoryBroker, MemoryLink, Session, Token
from support.stores.memory import MemoryStore, MemoryTransaction

Patch = pytest.MonkeyPatch


FOUND_BY_SEED = {
    "backlog_is_asked_before_it_is_settled": 151,
    "blocked_rows_stay_due": 34,
    "count_is_not_raised": 47,
    "delay_counts_from_the_begin_of_the_cycle": 71,
    "it_counts_from_when_it_passed": 725,
    "operators_change_what_is_in_flight": 65,
    "token_is_no_fence": 9,
    "what_a_person_sends_is_not_out": 329,
}
"""A seed that has found a mistake of which most histories show nothing, or only after long, by the
mistake's name."""


def seeds_for(name: str, count: int) -> Iterator[int]:
    """Return the seeds to find a mistake with: one that has found it, then the first `count`."""
    known = [FOUND_BY_SEED[name]] if name in FOUND_BY_SEED else []
    return chain(known, range(count))


class Planted(NamedTuple):
    """A mistake and the checker that finds it.

    Attributes:
        plant: makes the mistake.
        found_by: the checkers of which one has to find it first.
    """

    plant: Callable[[Patch], None]
    found_by: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.plant.__name__


def accepted_before_it_is_stored(patch: Patch) -> None:
    """The broker acknowledges what it hands out by itself: nothing in hand ever comes back."""

    def end(broker: MemoryBroker, session: Session, *, executes_request: bool = False) -> None:
        if executes_request and session.request is not None and not session.is_over:
            session.request()
        session.in_hand.clear()
        give_back(broker, session)

    give_back = MemoryBroker.end
    patch.setattr(MemoryBroker, "end", end)


def token_exchanged_after_the_transaction(patch: Patch) -> None:
    """Sends and accepts are committed; a moment later the token, in a transaction of its own."""
    next_tokens: dict[MemoryLink, int] = {}

    def commit(
        link: MemoryLink,
        session: Session,
        accepts: Sequence[Delivery],
        sends: Sequence[Any],
        token: int,
    ) -> None:
        for delivery in accepts:
            link.broker.accept(session, delivery.handle)
        link.broker.put(sends)
        next_tokens[link] = token

    def settle(link: MemoryLink, session: Session, _accepts: Sequence[Delivery]) -> None:
        session.token = Token(next_tokens[link])
        link.broker.watcher.committed(next_tokens[link])

    patch.setattr(MemoryLink, "_commit", commit)
    patch.setattr(MemoryLink, "_settle", settle)


def accepted_before_the_commit_where_that_is_no_transaction(patch: Patch) -> None:
    check = AckLaterLink._check_sends

    def check_and_accept(link: AckLaterLink, sends: Sequence[Any]) -> Any:
        refusal = check(link, sends)
        if refusal is not None:
            return refusal
        session = link._check_open()
        for handle in list(session.in_hand):
            message = session.in_hand.pop(handle)[1]
            link.broker.watcher.accepted(message)
        link.step("acknowledging")
        link._check_open()
        return None

    def commit(
        link: AckLaterLink, _session: Session, _accepts: object, sends: Sequence[Any], token: int
    ) -> None:
        link.broker.put(sends)
        link.broker.tokens.append(Token(token))

    def settle(link: AckLaterLink, session: Session, _accepts: object) -> None:
        session.token = link.broker.tokens.pop()

    patch.setattr(AckLaterLink, "_check_sends", check_and_accept)
    patch.setattr(AckLaterLink, "_commit", commit)
    patch.setattr(AckLaterLink, "_settle", settle)


def token_names_nothing(patch: Patch) -> None:
    """The heir of a link that acknowledges after the commit takes its dead letters again."""
    patch.setattr(AckLaterLink, "_token_taken", lambda _link, _token: None)


def token_is_no_fence(patch: Patch) -> None:
    """Every process gets the token, even while another has it, and may commit with it."""

    def take(link: MemoryLink, _timeout_s: float) -> int | None:
        session = link._check_open()
        broker = link.broker
        tokens = [*broker.tokens, *(one.token for one in broker.sessions if one.token is not None)]
        session.token = max(tokens, key=lambda one: one.cycle, default=None)
        return None if session.token is None else session.token.cycle

    patch.setattr(MemoryLink, "take_token", take)


def undone_cycle_is_finished(patch: Patch) -> None:
    def finish(tx: MemoryTransaction, cycle: int) -> None:
        tx.finish_cycle(cycle)
        tx.set_cycle(cycle - 1)

    patch.setattr(MemoryTransaction, "undo_cycle", finish)


def finish_is_skipped(patch: Patch) -> None:
    """What a cycle sent stays in the store."""

    def finish(tx: MemoryTransaction, cycle: int) -> None:
        begun = tx._contents.begun
        assert begun is not None
        tx._contents.begun = msgspec.structs.replace(begun, sent=frozenset())
        finish_cycle(tx, cycle)

    finish_cycle = MemoryTransaction.finish_cycle
    patch.setattr(MemoryTransaction, "finish_cycle", finish)


def _settle_always(patch: Patch, end: str) -> None:
    """Settle an interrupted cycle always in the same way, whatever the token says."""

    def settle_always(
        recovery: Recovery, tx: MemoryTransaction, state: Any, token: Any, *values: Any
    ) -> int:
        if state.unfinished is None:
            return settle(recovery, tx, state, token, *values)
        getattr(tx, end)(state.unfinished.cycle)
        cycle: int = state.cycle if token is None else token
        tx.set_cycle(cycle)
        return cycle

    settle = Recovery._settle
    patch.setattr(Recovery, "_settle", settle_always)


def lost_answer_counts_as_not_committed(patch: Patch) -> None:
    _settle_always(patch, "undo_cycle")


def lost_answer_counts_as_committed(patch: Patch) -> None:
    _settle_always(patch, "finish_cycle")


def doubt_counts_as_not_committed(patch: Patch) -> None:
    def settle(tx: MemoryTransaction, cycle: int) -> None:
        tx.undo_cycle(cycle)
        tx.set_cycle(cycle)

    patch.setattr(MemoryTransaction, "settle_in_doubt", settle)


def due_time_is_ignored(patch: Patch) -> None:
    claim = MemoryTransaction.claim_due
    patch.setattr(
        MemoryTransaction, "claim_due", lambda tx, now_ms, limit: claim(tx, now_ms + 10**9, limit)
    )


def delay_counts_from_the_begin_of_the_cycle(patch: Patch) -> None:
    """Was so until the simulation found it."""
    decide = CycleEngine._decide

    def early(engine: CycleEngine, cycle: Any, deliveries: Sequence[Delivery], _now_ms: int) -> Any:
        return decide(engine, cycle, deliveries, cycle.now_ms)

    patch.setattr(CycleEngine, "_decide", early)


def count_is_not_raised(patch: Patch) -> None:
    judge = Judge.judge

    def stale(one: Judge, delivery: Delivery, *values: Any, **named: Any) -> Judgement:
        verdict = judge(one, delivery, *values, **named)
        if verdict.row is None or verdict.row.is_final:
            return verdict
        count = delivery.provenance.redelivery_count
        row = msgspec.structs.replace(verdict.row, redelivery_count=count)
        return Judgement(row, verdict.events)

    patch.setattr(Judge, "judge", stale)


def blocked_rows_are_dropped(patch: Patch) -> None:
    patch.setattr(MemoryTransaction, "postpone", lambda tx, ids, _due, _reason: tx.remove(ids))


def parked_rows_are_dropped(patch: Patch) -> None:
    patch.setattr(MemoryTransaction, "park", lambda tx, ids, _reason: tx.remove(ids))


def events_are_written_after_the_cycle(patch: Patch) -> None:
    """In a transaction of their own, so that a crash in between loses them."""
    record, succeed = MemoryTransaction.record_cycle, CycleEngine._succeed
    left_out: list[Any] = []

    def record_without(
        tx: MemoryTransaction, cycle: int, taken: Any, sent: Any, events: Any, *others: Any
    ) -> None:
        record(tx, cycle, taken, sent, [], *others)
        left_out[:] = events

    def succeed_and_record(engine: CycleEngine, *values: Any) -> None:
        succeed(engine, *values)
        engine._give_up_ahead()
        with engine._store.transaction() as tx:
            tx.record(left_out)

    patch.setattr(MemoryTransaction, "record_cycle", record_without)
    patch.setattr(CycleEngine, "_succeed", succeed_and_record)


def told_before_it_is_true(patch: Patch) -> None:
    """Log and metrics hear of a cycle that is undone afterwards."""
    begin = CycleEngine._begin

    def tell(engine: CycleEngine, cycle: Any, *values: Any, **named: Any) -> None:
        begin(engine, cycle, *values, **named)
        engine._observe(cycle.events, None)

    patch.setattr(CycleEngine, "_begin", tell)


def refused_commit_counts_as_done(patch: Patch) -> None:
    def go_on(engine: CycleEngine, cycle: Any, _refused: Any, _now: int) -> None:
        engine._in_hand.remove(cycle.deliveries)
        engine._succeed(cycle)

    patch.setattr(CycleEngine, "_narrow", go_on)


def next_cycle_is_stored_before_this_one_is_committed(patch: Patch) -> None:
    """The end of a cycle becomes durable before it is known whether the broker committed it."""
    begin_ahead = CycleEngine._begin_ahead

    def begin_and_keep(engine: CycleEngine) -> None:
        begin_ahead(engine)
        begun = engine._ahead._begun
        if begun is not None:
            begun.store.close()

    patch.setattr(CycleEngine, "_begin_ahead", begin_and_keep)


def next_cycle_goes_on_though_this_one_failed(patch: Patch) -> None:
    def keep(engine: CycleEngine) -> bool:
        ahead = engine._ahead.take()
        if ahead is not None:
            ahead.store.close()
        return ahead is not None

    patch.setattr(CycleEngine, "_give_up_ahead", keep)


def one_delivery_is_not_accepted(patch: Patch) -> None:
    accept = MemoryBroker.put

    def commit(
        link: MemoryLink, session: Session, accepts: Any, sends: Sequence[Any], token: int
    ) -> None:
        for delivery in accepts[:-1]:
            link.broker.accept(session, delivery.handle)
        accept(link.broker, sends)
        session.token = Token(token)
        link.broker.watcher.committed(token)

    patch.setattr(MemoryLink, "_commit", commit)


def numbers_are_used_again(patch: Patch) -> None:
    """After an undone cycle, so that two messages may get the same redelivery id."""

    def undo(tx: MemoryTransaction, cycle: int) -> None:
        begun = tx._contents.begun
        undo_cycle(tx, cycle)
        if begun is not None and begun.taken:
            tx._contents.next_id = 1

    undo_cycle = MemoryTransaction.undo_cycle
    patch.setattr(MemoryTransaction, "undo_cycle", undo)


def transaction_is_torn(patch: Patch) -> None:
    """Rows reach the disk before the record that they belong to, and stay without it."""
    record = MemoryTransaction.record_cycle

    def record_torn(
        tx: MemoryTransaction, cycle: int, taken: Sequence[TakenRow], *values: Any
    ) -> None:
        record(tx, cycle, taken, *values)
        assert tx._medium.contents is not None
        tx._medium.contents.rows |= {row.id: row for row in taken}

    patch.setattr(MemoryTransaction, "record_cycle", record_torn)


def backlog_is_not_stored(patch: Patch) -> None:
    """After a restart it is counted again."""
    record = MemoryTransaction.record_cycle

    def without_holds(
        tx: MemoryTransaction, cycle: int, taken: Any, sent: Any, events: Any, *_: Any
    ) -> None:
        record(tx, cycle, taken, sent, events, None)

    patch.setattr(MemoryTransaction, "record_cycle", without_holds)


def backlog_is_asked_before_it_is_settled(patch: Patch) -> None:
    """Was so until the simulation found it."""
    recover = CycleEngine.recover

    def early(engine: CycleEngine, *values: Any) -> bool:
        holds = engine._store.holds()
        is_owner = recover(engine, *values)
        engine._backlog.remember(holds)
        return is_owner

    begin = BacklogGate.begin

    def begin_without_asking(gate: BacklogGate, ask: AskStore) -> None:
        begin(gate, ask)
        gate._ask = None

    patch.setattr(CycleEngine, "recover", early)
    patch.setattr(BacklogGate, "begin", begin_without_asking)


def operators_change_what_is_in_flight(patch: Patch) -> None:
    change = MemoryStore.change

    def change_all(store: MemoryStore, *arguments: Any) -> int:
        contents = store._contents
        begun = contents.begun
        if begun is not None and store.medium.writer is None:
            contents.begun = None
            changed = change(store, *arguments)
            store._contents.begun = begun
            return changed
        return change(store, *arguments)

    patch.setattr(MemoryStore, "change", change_all)


def final_ones_are_forgotten(patch: Patch) -> None:
    """What was sent to the final queue is removed as if it had been redelivered."""
    patch.setattr(MemoryTransaction, "_settle_sent", MemoryTransaction._forget)


def due_rows_are_forgotten(patch: Patch) -> None:
    """Nothing wakes up for them."""
    patch.setattr(MemoryStore, "next_due_ms", lambda _store: None)


def blockage_never_ends(patch: Patch) -> None:
    patch.setattr(Blockage, "is_over", lambda _blockage, _now_ms: False)


def blocked_rows_stay_due(patch: Patch) -> None:
    """They hide the others behind them."""
    patch.setattr(MemoryTransaction, "postpone", lambda _tx, _ids, _due, _reason: None)


def who_was_near_when_a_link_was_held_up_is_parked(patch: Patch) -> None:
    suspect = CycleEngine._suspect

    def blame(engine: CycleEngine, cycles: Any, lost: LinkLost, now_ms: int) -> None:
        suspect(engine, cycles, lost, now_ms)
        if lost.held_up_by:
            near = {row.id: GUILT_BEFORE_PARKING for one in cycles for row in one.due}
            engine._losses._guilts |= near

    patch.setattr(CycleEngine, "_suspect", blame)


def suspects_are_parked_at_once(patch: Patch) -> None:
    patch.setattr(Dispatch, "_guilt_reason", lambda _dispatch, _row: "perhaps it did")


def final_ones_go_home(patch: Patch) -> None:
    patch.setattr(
        "amqsidecar.engine.judging.judge.final_destination",
        lambda decision, *_: decision.destination,
    )


def refused_commit_is_unexpected(patch: Patch) -> None:
    def fall(_engine: CycleEngine, _cycle: Any, refused: Any, _now: int) -> None:
        raise RuntimeError(f"can't be: {refused}")

    patch.setattr(CycleEngine, "_narrow", fall)


def sends_are_repeated_after_a_lost_answer(patch: Patch) -> None:
    commit = MemoryLink.commit_cycle

    def commit_twice(link: MemoryLink, accepts: Any, sends: Any, token: int) -> None:
        try:
            commit(link, accepts, sends, token)
        except LinkLost:
            link.broker.put(sends)
            raise

    patch.setattr(MemoryLink, "commit_cycle", commit_twice)


PLANTED: tuple[Planted, ...] = (
    Planted(accepted_before_it_is_stored, ("Conserved",)),
    Planted(token_exchanged_after_the_transaction, ("SentOnce", "Conserved")),
    Planted(accepted_before_the_commit_where_that_is_no_transaction, ("Conserved",)),
    Planted(token_names_nothing, ("SentOnce", "Conserved")),
    Planted(token_is_no_fence, ("TokenGrows",)),
    Planted(undone_cycle_is_finished, ("Conserved",)),
    Planted(finish_is_skipped, ("SentOnce",)),
    Planted(lost_answer_counts_as_not_committed, ("SentOnce",)),
    Planted(lost_answer_counts_as_committed, ("Conserved",)),
    Planted(doubt_counts_as_not_committed, ("Conserved",)),
    Planted(due_time_is_ignored, ("NeverEarly",)),
    Planted(delay_counts_from_the_begin_of_the_cycle, ("NeverEarly",)),
    Planted(count_is_not_raised, ("CountsGrow",)),
    Planted(blocked_rows_are_dropped, ("Conserved",)),
    Planted(parked_rows_are_dropped, ("Conserved",)),
    Planted(events_are_written_after_the_cycle, ("JournalEqualsState",)),
    Planted(told_before_it_is_true, ("ToldIsTrue",)),
    Planted(refused_commit_counts_as_done, ("Conserved",)),
    Planted(next_cycle_is_stored_before_this_one_is_committed, ("Conserved",)),
    Planted(next_cycle_goes_on_though_this_one_failed, ("Conserved",)),
    Planted(one_delivery_is_not_accepted, ("SentOnce", "Conserved")),
    Planted(numbers_are_used_again, ("Conserved",)),
    Planted(transaction_is_torn, ("Conserved",)),
    Planted(backlog_is_not_stored, ("BacklogHeld",)),
    Planted(backlog_is_asked_before_it_is_settled, ("BacklogHeld",)),
    Planted(operators_change_what_is_in_flight, ("JournalEqualsState",)),
    Planted(due_rows_are_forgotten, ("Drains",)),
    Planted(blockage_never_ends, ("Drains",)),
    Planted(blocked_rows_stay_due, ("OthersFlow",)),
    Planted(who_was_near_when_a_link_was_held_up_is_parked, ("ParkedForCause",)),
    Planted(suspects_are_parked_at_once, ("ParkedForCause",)),
    Planted(final_ones_go_home, ("GoesHome",)),
    Planted(final_ones_are_forgotten, ("KnownToLie",)),
    Planted(refused_commit_is_unexpected, ("NeverFalls",)),
    Planted(sends_are_repeated_after_a_lost_answer, ("SentOnce",)),
)
