"""The decisions of rules on a dead letter and on its further deaths, without a broker."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from amqsidecar.engine.gates import GatesAt, no_gates
from amqsidecar.engine.judging.final_destination import final_destination
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.messages.facts import MessageFacts
from amqsidecar.messages.fields import OpenMessage
from amqsidecar.model.dead_letter import DeadLetter, Facts, KnownFacts
from amqsidecar.model.decision import (
    DeadLetterTo,
    Decision,
    Discard,
    Exhaust,
    Park,
    Redeliver,
    Redirect,
)
from amqsidecar.model.destination import Destination, final_queue, parse_destination, queue
from amqsidecar.model.event import AnyEvent, Received
from amqsidecar.model.message import describe_edit
from amqsidecar.model.schedule import RowView, age_ms
from amqsidecar.plugin import Chance, Decider
from amqsidecar.policy.artemis_decider import ArtemisDecider
from amqsidecar.policy.chain import Chain
from amqsidecar.schedule import ScheduleView

SENDS_MAX: Final = 50
"""Re-sends that a forecast goes on for."""

OPENED_BYTES_MAX: Final = 1024 * 1024
"""A larger message is not opened to ask rules about it."""

_PARKS: Final = "the sidecar parks it"
_READ_FROM: Final = queue("the queue that it was read from")
"""Stands for the dead-letter queue, which is unknown from rules alone."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The decision on a dead letter; fields that don't apply are unset.

    Attributes:
        action: `redeliver`, `dead_letter`, `discard` or `none`; by rules beyond the broker's also
            `redirect`, `exhaust` (as `dead_letter`, beside the queue that it was read from) and
            `park`.
        delay_ms: redeliver, redirect: how long to wait first; as the broker computes it, may be
            negative.
        redelivery_count: redeliver, redirect: the count that the re-sent message carries.
        destination: dead_letter, redirect: where to.
        expiration_ms: dead_letter: how long it may stay there; 0 = for ever.
        rule: the rule that decides, with file and line.
        differs: deliberate differences of the sidecar from the rules.
        assumed: Artemis: settings that the rules leave out, so the broker's defaults are assumed; a
            run uses the broker's own settings where it may read them.
        max_delivery_attempts, dead_letter_address, redelivery_delay_ms: Artemis: of the address.
        gates: redeliver: the gates that it passes when due, if any.
        edit: redeliver, redirect: the properties that the rule removes and sets.
    """

    action: str
    delay_ms: int | UnsetType = UNSET
    redelivery_count: int | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    expiration_ms: int | UnsetType = UNSET
    rule: str
    differs: str | UnsetType = UNSET
    assumed: str | UnsetType = UNSET
    max_delivery_attempts: int | UnsetType = UNSET
    dead_letter_address: str | UnsetType | None = UNSET
    redelivery_delay_ms: int | UnsetType = UNSET
    gates: tuple[str, ...] | UnsetType = UNSET
    edit: str | UnsetType = UNSET

    @property
    def is_parked(self) -> bool:
        """Whether the sidecar parks it despite the rules."""
        return isinstance(self.differs, str) and self.differs.startswith(_PARKS)


class PlannedSend(msgspec.Struct, frozen=True, kw_only=True):
    """A re-send to come.

    Attributes:
        redelivery_count: the count that it carries.
        delay_ms: after the death before it.
        after_ms: after the first of these deaths, if each re-send fails at once.
    """

    redelivery_count: int
    delay_ms: int
    after_ms: int
    rule: str


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions of rules on a message that dies after each re-send.

    Delays leave out collision avoidance, which varies them evenly in both directions.

    Attributes:
        now: the decision on the given death.
        sends: re-sends until it is given up.
        end: the final decision; None = it is re-sent more often than is shown.
    """

    now: Explanation
    sends: list[PlannedSend]
    end: Explanation | None


class Explainer:
    """Answers by one policy: the rules' decision, and the sidecar's differences.

    Attributes:
        asks_facts: whether answers depend on more than destination and count; see `DeadLetter`.

    Args:
        send_rules: the gate's answers that need no broker.
        chance: varies delays; None = they are as without collision avoidance.
        gates_at: returns the active gates.
    """

    def __init__(
        self,
        decider: Decider,
        send_rules: SendRules,
        *,
        chance: Chance | None = None,
        gates_at: GatesAt = no_gates,
    ) -> None:
        self._decider = decider
        self.asks_facts = bool(getattr(decider, "asks", ()))
        self._settings = decider.innermost if isinstance(decider, Chain) else decider
        self._gates_memo = lru_cache(8192)(gates_at)
        self._chance = chance
        self._rules = send_rules
        self._differs_memo = lru_cache(8192)(self._differs)

    def is_origin(self, destination: Destination) -> bool:
        """Return whether messages can have died there: it is no dead-letter queue itself."""
        return self._rules.origin_problem(destination) is None

    def explain(self, dead_letter: DeadLetter) -> Explanation:
        """Return the decision on a dead letter."""
        origin = dead_letter.destination
        answer = self._answer(origin, self._decider.decide(dead_letter, self._chance))
        if not isinstance(self._settings, ArtemisDecider):
            return answer
        settings = self._settings.effective(origin.name)
        return msgspec.structs.replace(
            answer,
            assumed=settings.assumed or UNSET,
            max_delivery_attempts=settings.max_delivery_attempts,
            dead_letter_address=settings.dead_letter_address,
            redelivery_delay_ms=settings.redelivery_delay_ms,
        )

    def forecast(self, dead_letter: DeadLetter, sends_max: int = SENDS_MAX) -> Forecast:
        """Return the decisions on a dead letter and on its further deaths."""
        sends: list[PlannedSend] = []
        after_ms = 0
        now = answer = self.explain(dead_letter)
        # Why the action: a redirected message dies elsewhere, if at all.
        while answer.action == "redeliver":
            assert isinstance(answer.delay_ms, int)  # noqa: S101 - each redelivery has both
            assert isinstance(answer.redelivery_count, int)  # noqa: S101 - as above
            if answer.is_parked:
                break
            if len(sends) == sends_max:
                return Forecast(now=now, sends=sends, end=None)
            delay_ms, count = max(0, answer.delay_ms), answer.redelivery_count
            after_ms += delay_ms
            sends.append(
                PlannedSend(
                    redelivery_count=count, delay_ms=delay_ms, after_ms=after_ms, rule=answer.rule
                )
            )
            dead_letter = dead_letter.again(count, delay_ms)
            answer = self.explain(dead_letter)
        return Forecast(now=now, sends=sends, end=answer)

    def _answer(self, origin: Destination, decision: Decision | None) -> Explanation:
        match decision:
            case Redeliver(delay_ms, redelivery_count, rule, edit):
                answer = Explanation(
                    action="redeliver",
                    delay_ms=delay_ms,
                    redelivery_count=redelivery_count,
                    rule=rule,
                    differs=self._differs_memo(origin, None, delay_ms < 0),
                    edit=describe_edit(edit) or UNSET,
                )
                gates = () if answer.is_parked else self._gates_memo(origin)
                return msgspec.structs.replace(answer, gates=gates) if gates else answer
            case DeadLetterTo(destination, expiration_ms, rule):
                return Explanation(
                    action="dead_letter",
                    destination=str(destination),
                    expiration_ms=expiration_ms,
                    rule=rule,
                    differs=self._differs_memo(origin, decision, False),
                )
            case Redirect() | Exhaust() | Park():
                return self._answer_beyond(origin, decision)
            case Discard():
                return Explanation(
                    action="discard", rule=decision.rule, differs=self._park_reason(origin)
                )
            case None:
                return Explanation(
                    action="none",
                    rule="no plugin of the chain decided",
                    differs=_PARKS,
                )

    def _answer_beyond(
        self, origin: Destination, decision: Redirect | Exhaust | Park
    ) -> Explanation:
        """Explain a decision that no rule of a broker makes."""
        match decision:
            case Redirect(destination, delay_ms, redelivery_count, rule, edit):
                return Explanation(
                    action="redirect",
                    destination=str(destination),
                    delay_ms=delay_ms,
                    redelivery_count=redelivery_count,
                    rule=rule,
                    differs=self._redirect_differs(origin, destination),
                    edit=describe_edit(edit) or UNSET,
                )
            case Exhaust(rule, is_discard_of_broker):
                differs = self._park_reason(origin)
                if is_discard_of_broker and differs is UNSET:
                    differs = f"no written line orders a discard: {self._to_final_queue()}"
                action = "discard" if is_discard_of_broker else "exhaust"
                return Explanation(action=action, rule=rule, differs=differs)
            case Park(rule):
                return Explanation(action="park", rule=rule, differs=self._park_reason(origin))

    def _redirect_differs(self, origin: Destination, target: Destination) -> str | UnsetType:
        rules = self._rules
        return _parked(rules.origin_problem(origin) or rules.redirect_problem(target))

    def _park_reason(self, origin: Destination) -> str | UnsetType:
        return _parked(self._rules.origin_problem(origin))

    def _differs(
        self, origin: Destination, decision: DeadLetterTo | None, is_overdue: bool
    ) -> str | UnsetType:
        """Return the sidecar's differences from the rules; unset = none.

        Args:
            origin: where the message died.
            decision: that the rules give it up; None = they redeliver it.
            is_overdue: the rules give a delay below 0.
        """
        reason = self._park_reason(origin)
        if reason is not UNSET:
            return reason
        if decision is None:
            if (problem := self._rules.redelivery_problem(origin)) is not None:
                return _parked(problem)
            return "the sidecar re-sends it at once, as for 0" if is_overdue else UNSET
        return self._final_differs(decision)

    def _final_differs(self, decision: DeadLetterTo) -> str | UnsetType:
        """Return the sidecar's queue of exhausted messages, if it isn't the rules' queue."""
        decided = decision.destination
        suffix = self._rules.final_suffix
        final = final_destination(decision, _READ_FROM, self._reads, suffix)
        if (problem := self._rules.final_problem(final)) is not None:
            return f"the sidecar keeps it: {problem}"
        if final == decided:
            return UNSET
        if final != final_queue(_READ_FROM, suffix):
            return f"the sidecar reads {decided}: the final dead letter goes to {final}"
        goes = self._to_final_queue()
        if not decision.is_assumed:
            return f"{decided} is a topic: {goes}"
        stock = final_queue(decided, suffix)
        return f"no rule names the dead-letter queue: {goes}, such as {stock}"

    def _to_final_queue(self) -> str:
        return (
            "the final dead letter goes to the name of the queue that it was read from, plus "
            f"{self._rules.final_suffix}"
        )

    def _reads(self, destination: Destination) -> bool:
        return destination == _READ_FROM or self._rules.is_intake(destination)


def _parked(problem: str | None) -> str | UnsetType:
    return UNSET if problem is None else f"{_PARKS}: {problem}"


def kept_message(schedule: ScheduleView, rows: Sequence[RowView]) -> OpenMessage | None:
    """Return the kept message of a row; None = it is not in the store, or very large."""
    for row in rows:
        message = schedule.message(row.id) if row.size_bytes <= OPENED_BYTES_MAX else None
        if message is not None:
            return OpenMessage(row.encoding, message)
    return None


def _facts_of(death: Received, message: OpenMessage | None) -> Facts:
    since_first_ms = age_ms(death.redelivery_id, death.at_ms)
    if message is None:
        return KnownFacts(since_first_ms, death.cause, properties=death.properties or {})
    return MessageFacts(message, death.cause, since_first_ms)


def last_death(
    history: Sequence[AnyEvent], message: OpenMessage | None = None
) -> DeadLetter | None:
    """Return the latest death of a message as input of the rules; None = unknown.

    Args:
        message: as it is kept; None = it is not here, and only the properties that history has are
            known.
    """
    for event in reversed(history):
        if isinstance(event, Received):
            if event.origin is None:
                return None
            return DeadLetter(
                parse_destination(event.origin),
                event.redelivery_count,
                event.persistent,
                event.expired,
                facts=_facts_of(event, message),
            )
    return None
