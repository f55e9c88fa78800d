"""The gate that every message passes last, whoever asked for its send.

It joins the rules that need no broker (`SendRules`), the broker's answer (`SendTerms`) and the
properties of the message, and only it makes a `Resend`. A message that does not pass stays where
it is: it waits if it may route later, and is parked if it needs a person.
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from amqsidecar.broker import LookSession, Resend
from amqsidecar.engine.broker_held_queues import PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.errors import UndecodableMessage
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.schedule import DueRow, TakenRow
from amqsidecar.model.send_terms import ROUTES, ResendEffect, SendTerms, SideEffect
from amqsidecar.policy.selector import PropertyOf, parse_selector

ANSWERS_MAX = 10_000
"""Destinations whose answers are kept; beyond it all are made again."""


class GateAction(StrEnum):
    """The gate's treatment of a message.

    Attributes:
        SEND: it is sent.
        WAIT: it is not sent now, and is tried again by itself.
        PARK: it waits for a person.
    """

    SEND = "send"
    WAIT = "wait"
    PARK = "park"


class GateAnswer(msgspec.Struct, frozen=True):
    """The answer of the gate, about a destination or about one message for it.

    Attributes:
        reason: why it is not sent; "" = it is sent.
        cure: how a person can have it sent; "" = the reason says it.
        filters: of a destination: SEND holds only for messages that match all of these selectors.
        terms: of the broker; `exists` is False if the first send would create the destination.
    """

    action: GateAction
    reason: str = ""
    cure: str = ""
    filters: tuple[str, ...] = ()
    terms: SendTerms = ROUTES

    @property
    def selector(self) -> str:
        """The filters as one selector."""
        several = len(self.filters) > 1
        return " AND ".join(f"({one})" if several else one for one in self.filters)

    def __str__(self) -> str:
        """Return reason and cure as one sentence."""
        return f"{self.reason}; {self.cure}" if self.cure else self.reason


class SendGate:
    """The gate of one link; it belongs to the thread of the link.

    Args:
        link: over which messages are sent.
    """

    def __init__(self, link: LookSession, rules: SendRules) -> None:
        self._link = link
        self._rules = rules
        self._answers: dict[tuple[Destination, bool], GateAnswer] = {}

    def ask_ahead(self, destinations: Iterable[str]) -> None:
        """Ask the broker about many destinations at once, so that `ask` knows them.

        Raises:
            LinkLost: the connection is gone.
        """
        self._link.ask_terms_ahead([parse_destination(name) for name in destinations])

    def forbid(self, destination: Destination, *, is_final: bool = False) -> GateAnswer | None:
        """Return why nothing may ever be sent to a destination; None = ask the broker.

        Needs no broker. It is PARK, and WAIT for a final dead-letter queue.
        """
        if is_final:
            problem = self._rules.final_problem(destination)
            return None if problem is None else GateAnswer(GateAction.WAIT, problem)
        problem = self._rules.problem(destination)
        return None if problem is None else GateAnswer(GateAction.PARK, problem)

    def ask(
        self, destination: Destination, *, is_final: bool = False, makes: bool = False
    ) -> GateAnswer:
        """Return the answer for a destination, as far as no message has to be seen.

        Args:
            destination: where they go: their origin, or where a rule or a person sends them.
            is_final: it is their final dead-letter queue.
            makes: see `broker.LookSession.send_terms`.

        Raises:
            LinkLost: the connection is gone.
        """
        forbidden = self.forbid(destination, is_final=is_final)
        if forbidden is not None:
            return forbidden
        terms = self._link.send_terms(destination, makes=makes)
        known = self._answers.get((destination, is_final))
        if known is not None and known.terms is terms:
            return known
        if len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
        answer = self._answers[destination, is_final] = answer_of(terms, is_final=is_final)
        return answer

    def admit(
        self, row: DueRow | TakenRow, answer: GateAnswer, *, deliver_at_ms: int = 0
    ) -> Resend | GateAnswer:
        """Return the message to send, or why it must not be sent.

        Args:
            row: with the message as it will be sent, after all edits; `destination` is where to.
            answer: of `ask` about its destination, which says SEND.
            deliver_at_ms: see `Resend`.
        """
        resend = _resend(row, parse_destination(row.destination), deliver_at_ms)
        if not answer.filters:
            return resend
        try:
            view = self._link.filter_view(resend)
        except UndecodableMessage:
            # Why: the link refuses it, in its own words.
            return resend
        return refusal_by_filters(answer.terms, view, is_final=row.is_final) or resend

    @staticmethod
    def keep(row: TakenRow, queue: Destination, deliver_at_ms: int) -> Resend:
        """Return a dead letter that stays as it is in a queue of the sidecar.

        Args:
            row: with the message as it was received.
            queue: `WAITING_QUEUE` or `PARKED_QUEUE`.
            deliver_at_ms: see `Resend`.
        """
        assert queue in (WAITING_QUEUE, PARKED_QUEUE)  # noqa: S101 - no other queue is ours
        return _resend(row, queue, deliver_at_ms)


def answer_of(terms: SendTerms, *, is_final: bool) -> GateAnswer:
    """Return the answer under these terms, unless the properties of messages decide."""
    if terms.problem is not None:
        return GateAnswer(GateAction.WAIT, terms.problem, terms=terms)
    effects = _effects_on(terms, is_final=is_final)
    certain = [one for one in effects if not one.filter]
    if certain:
        return GateAnswer(
            GateAction.WAIT if is_final else GateAction.PARK,
            "; ".join(one.what for one in certain),
            "; ".join(one.cure for one in certain),
            terms=terms,
        )
    filters = [f"NOT ({one.filter})" for one in effects]
    if terms.queues and all(one.filter for one in terms.queues):
        filters.append(" OR ".join(f"({one.filter})" for one in terms.queues))
    return GateAnswer(GateAction.SEND, filters=tuple(filters), terms=terms)


def _effects_on(terms: SendTerms, *, is_final: bool) -> list[SideEffect]:
    """Return the effects that count: a copy of a message in its final queue is no second send."""
    return [one for one in terms.effects if one.loses or not is_final]


def refusal_by_filters(terms: SendTerms, view: PropertyOf, *, is_final: bool) -> GateAnswer | None:
    """Return why a message with these properties would get lost or be copied; None = it passes."""
    for effect in _effects_on(terms, is_final=is_final):
        if effect.filter and parse_selector(effect.filter).matches(view) is not False:
            return GateAnswer(GateAction.PARK, effect.what, effect.cure, terms=terms)
    if not terms.queues:
        return None
    answers = [not one.filter or parse_selector(one.filter).matches(view) for one in terms.queues]
    if True in answers or (None in answers and terms.trusts_filters):
        return None
    filters = " and ".join(f"the filter of queue {one.name} ({one.filter})" for one in terms.queues)
    if None in answers:
        return GateAnswer(
            GateAction.PARK,
            f"whether it matches {filters} can't be evaluated by the sidecar, and what does not "
            "match is lost",
            f"write the filter without XPATH, or {ResendEffect.FILTER.advice}",
        )
    return GateAnswer(
        GateAction.PARK,
        f"it does not match {filters}: the broker would accept it and put it nowhere",
        "change its properties (`amqsidecar edit`), the filter (`updateQueue`), or redirect it",
    )


def unsendable(destination: Destination) -> Resend:
    """Return a message that every link refuses before it leaves, to try a rollback with."""
    return Resend(
        destination=destination,
        message=b"\xff",
        is_final=False,
        redelivery_id="amqsidecar-doctor",
        redelivery_count=0,
        redelivery_delay_ms=0,
    )


def _resend(row: DueRow | TakenRow, destination: Destination, deliver_at_ms: int) -> Resend:
    return Resend(
        destination=destination,
        message=row.message,
        is_final=row.is_final,
        redelivery_id=row.redelivery_id,
        redelivery_count=row.redelivery_count,
        redelivery_delay_ms=row.delay_ms,
        expiration_ms=row.expiration_ms,
        deliver_at_ms=deliver_at_ms,
        encoding=row.encoding,
    )
