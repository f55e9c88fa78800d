"""The decisions of rules on a dead letter and on its further deaths, without a broker."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from amqsidecar.engine.gates import GatesAt, no_gates
from amqsidecar.engine.judging.final_destination import final_destination
from amqsidecar.engine.judging.judge import ADVISORY_PREFIX
from amqsidecar.engine.judging.resend_copies import ResendProblem, no_resend_problem
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver
from amqsidecar.model.destination import Destination, final_queue, parse_destination, queue
from amqsidecar.model.event import AnyEvent, Received
from amqsidecar.plugin import Chance, Decider
from amqsidecar.policy.artemis_decider import ArtemisDecider

SENDS_MAX: Final = 50
"""Re-sends that a forecast goes on for."""

_PARKS: Final = "the sidecar parks it"
_READ_FROM: Final = queue("the queue that it was read from")
"""Stands for the dead-letter queue, which is unknown from rules alone."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of a dead letter; what has nothing to do with it is unset.

    Attributes:
        action: `redeliver`, `dead_letter`, `discard` or `none`.
        delay_ms: redeliver: how long to wait first; as the broker computes it, may be negative.
        redelivery_count: redeliver: the count that the re-sent message carries.
        destination: dead_letter: where to.
        expiration_ms: dead_letter: how long it may stay there; 0 = for ever.
        rule: the rule that decides, with file and line.
        differs: what the sidecar does otherwise than the rules say.
        max_delivery_attempts, dead_letter_address, redelivery_delay_ms: Artemis: of the address.
        gates: redeliver: what it passes when it is due, where there is anything.
    """

    action: str
    delay_ms: int | UnsetType = UNSET
    redelivery_count: int | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    expiration_ms: int | UnsetType = UNSET
    rule: str
    differs: str | UnsetType = UNSET
    max_delivery_attempts: int | UnsetType = UNSET
    dead_letter_address: str | UnsetType | None = UNSET
    redelivery_delay_ms: int | UnsetType = UNSET
    gates: tuple[str, ...] | UnsetType = UNSET

    @property
    def is_parked(self) -> bool:
        """Whether the sidecar parks it, whatever the rules say."""
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

    Delays are those without collision avoidance, which varies them evenly to both sides.

    Attributes:
        now: about the death it is asked for.
        sends: re-sends until it is given up.
        end: what becomes of it then; None = it is re-sent more often than is shown.
    """

    now: Explanation
    sends: list[PlannedSend]
    end: Explanation | None


class Explainer:
    """Answers by one policy: what the broker's rules say, and where the sidecar differs."""

    def __init__(
        self,
        decider: Decider,
        is_intake: Callable[[Destination], bool],
        *,
        final_suffix: str,
        parks_topics: bool,
        resend_problem: ResendProblem = no_resend_problem,
        chance: Chance | None = None,
        gates_at: GatesAt = no_gates,
    ) -> None:
        """Ask a policy.

        Args:
            decider: the policy.
            is_intake: returns whether a destination is one that the intake reads.
            final_suffix: of final dead-letter queues.
            parks_topics: messages of topics are parked.
            resend_problem: returns why a re-send would be copied or misrouted, and so is parked.
            chance: varies delays; None = they are as without collision avoidance.
            gates_at: returns the active gates.
        """
        self._decider = decider
        self._gates_memo = lru_cache(8192)(gates_at)
        self._chance = chance
        self._suffix = final_suffix
        self._parks_topics = parks_topics
        self._resend_problem = resend_problem
        self._is_intake = lru_cache(8192)(is_intake)
        self._differs_memo = lru_cache(8192)(self._differs)

    def is_origin(self, destination: Destination) -> bool:
        """Return whether messages can have died there: it is no dead-letter queue itself."""
        return self._park_reason(destination) is UNSET

    def explain(self, dead_letter: DeadLetter) -> Explanation:
        """Return the decision on a dead letter."""
        origin = dead_letter.destination
        answer = self._answer(origin, self._decider.decide(dead_letter, self._chance))
        if not isinstance(self._decider, ArtemisDecider):
            return answer
        settings = self._decider.effective(origin.name)
        return msgspec.structs.replace(
            answer,
            max_delivery_attempts=settings.max_delivery_attempts,
            dead_letter_address=settings.dead_letter_address,
            redelivery_delay_ms=settings.redelivery_delay_ms,
        )

    def forecast(self, dead_letter: DeadLetter, sends_max: int = SENDS_MAX) -> Forecast:
        """Return the decisions on a dead letter and on its further deaths."""
        sends: list[PlannedSend] = []
        after_ms = 0
        now = answer = self.explain(dead_letter)
        while isinstance(answer.delay_ms, int) and isinstance(answer.redelivery_count, int):
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
            answer = self.explain(_again(dead_letter, count))
        return Forecast(now=now, sends=sends, end=answer)

    def _answer(self, origin: Destination, decision: Decision | None) -> Explanation:
        match decision:
            case Redeliver(delay_ms, redelivery_count, rule):
                answer = Explanation(
                    action="redeliver",
                    delay_ms=delay_ms,
                    redelivery_count=redelivery_count,
                    rule=rule,
                    differs=self._differs_memo(origin, None, delay_ms < 0),
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
            case Discard(rule):
                return Explanation(action="discard", rule=rule, differs=self._park_reason(origin))
            case None:
                return Explanation(
                    action="none",
                    rule="no plugin of the chain decided",
                    differs=_PARKS,
                )

    def _park_reason(self, origin: Destination) -> str | UnsetType:
        if self._is_intake(origin) or origin.name.endswith(self._suffix):
            return (
                f"{_PARKS}: {origin} is itself a dead-letter queue, so the true origin is not known"
            )
        if origin.name.startswith(ADVISORY_PREFIX):
            return f"{_PARKS}: advisories are not redelivered"
        return UNSET

    def _differs(
        self, origin: Destination, decision: DeadLetterTo | None, is_overdue: bool
    ) -> str | UnsetType:
        """Return what the sidecar does otherwise than the rules say; unset = it does the same.

        Args:
            origin: where the message died.
            decision: that the rules give it up; None = they redeliver it.
            is_overdue: the rules give a delay below 0.
        """
        reason = self._park_reason(origin)
        if reason is not UNSET:
            return reason
        if decision is None:
            if problem := self._problem_of_resend(origin):
                return f"{_PARKS}: {problem}"
            return "the sidecar re-sends it at once, as for 0" if is_overdue else UNSET
        return self._final_differs(decision)

    def _final_differs(self, decision: DeadLetterTo) -> str | UnsetType:
        """Return where the sidecar puts what is given up, where that is not the rules' queue."""
        decided = decision.destination
        final = final_destination(decision, _READ_FROM, self._reads, self._suffix)
        if final == decided:
            return UNSET
        if final != final_queue(_READ_FROM, self._suffix):
            return f"the sidecar reads {decided}: the final dead letter goes to {final}"
        goes = f"the final dead letter goes to the queue that it was read from, plus {self._suffix}"
        if not decision.is_assumed:
            return f"{decided} is a topic: {goes}"
        stock = final_queue(decided, self._suffix)
        return f"no rule names the dead-letter queue: {goes}, such as {stock}"

    def _reads(self, destination: Destination) -> bool:
        return destination == _READ_FROM or self._is_intake(destination)

    def _problem_of_resend(self, origin: Destination) -> str | None:
        if self._parks_topics and not origin.is_queue:
            return "a re-send to a topic would reach every subscriber (policy.topics)"
        return self._resend_problem(origin)


def _again(dead_letter: DeadLetter, redelivery_count: int) -> DeadLetter:
    """Return a message that died again: not because of its age, and it is in no store twice."""
    return DeadLetter(
        dead_letter.destination,
        redelivery_count,
        dead_letter.persistent,
        subscription=dead_letter.subscription,
    )


def last_death(history: Sequence[AnyEvent]) -> DeadLetter | None:
    """Return the latest death of a message as input of the rules; None = unknown."""
    for event in reversed(history):
        if isinstance(event, Received):
            if event.origin is None:
                return None
            return DeadLetter(
                parse_destination(event.origin),
                event.redelivery_count,
                event.persistent,
                event.expired,
            )
    return None
