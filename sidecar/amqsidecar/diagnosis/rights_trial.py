"""Tries a run's operations on each queue, and records the broker's answers."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from amqsidecar.broker import BrokerKind, LookSession
from amqsidecar.diagnosis.finding import Check, Findings, Severity
from amqsidecar.diagnosis.permissions import CREATE, quoted, read_refusal
from amqsidecar.diagnosis.rights import Attempt
from amqsidecar.engine.broker_held_queues import PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.engine.send_gate import GateAction, answer_of
from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.send_terms import SendTerms
from amqsidecar.trials import ExaminedSession, Trials

_TRIED_MAX = 50
_TAKING = "taking dead letters"


class RightsTrial:
    """The attempts of an examination and their results.

    Attributes:
        found: findings that are not about rights.
        existing: names of the queues (Artemis: addresses) that are there; None = not known.
        roles: Artemis: roles and their rights on each address with a refusal.
        is_made_for_us: Artemis: whether a run makes queues through management, so that a user with
            the right to manage needs no right to create them.
    """

    def __init__(self, final_suffix: str) -> None:
        self._final_suffix = final_suffix
        self.attempts: list[Attempt] = []
        self.found = Findings()
        self.existing: frozenset[str] | None = None
        self.roles: dict[str, Sequence[Mapping[str, Any]]] = {}
        self.is_made_for_us = False

    def note(
        self,
        destination: Destination,
        purpose: str,
        words: str | None,
        *,
        exists: bool | None = None,
        wanted: str = "",
    ) -> bool:
        """Keep one attempt; return whether it was allowed."""
        refusal = read_refusal(words or "")
        if self.is_made_for_us and refusal is not None and refusal.permission in CREATE:
            return False
        if exists is None and self.existing is not None:
            exists = destination.address in self.existing
        self.attempts.append(
            Attempt(
                destination=destination,
                purpose=purpose,
                words=words,
                exists=exists,
                wanted=wanted,
            )
        )
        return words is None

    @property
    def may_take(self) -> bool:
        """Whether no dead-letter queue that was tried is closed to the user."""
        return all(one.words is None for one in self.attempts if one.purpose == _TAKING)

    def try_sources(self, trials: Trials, sources: Sequence[Destination]) -> None:
        """Begin to read each dead-letter queue, and take nothing."""
        tells = trials.features.roles
        for source in sources:
            if source.name.endswith(self._final_suffix):
                continue
            if tells is not None and tells.is_purged(source):
                name = source.name.rpartition("::")[2]
                self.found.report("dead_letters_purged", source, name=quoted(name))
                continue
            self.note(source, _TAKING, trials.read(source), wanted="consume")

    def try_finals(self, link: LookSession, trials: Trials, finals: Sequence[Destination]) -> None:
        """Make each final queue, and send nothing that stays."""
        for final in finals[:_TRIED_MAX]:
            problem = None
            if _is_asked(link, trials):
                problem = _final_problem(link.send_terms(final, makes=True))
            if problem is None:
                problem = trials.write(final)
            if problem is not None and read_refusal(problem) is None:
                self.found.add(Check.FINAL_QUEUES, Severity.PROBLEM, str(final), problem)
            elif self.note(final, "sending final messages", problem, wanted="send"):
                self.found.report("final_queue_usable", final)

    def try_origins(
        self, link: LookSession, trials: Trials, origins: Sequence[Destination]
    ) -> None:
        """Find out whether redeliveries get there, and send nothing that stays."""
        for origin in list(dict.fromkeys(origins))[:_TRIED_MAX]:
            answer = answer_of(link.send_terms(origin), is_final=False)
            if answer.action is GateAction.WAIT:
                self.found.report("redelivery_waits", origin, answer=answer)
                continue
            words = trials.write(origin)
            is_allowed = self.note(origin, "sending redeliveries", words, wanted="send")
            if is_allowed and answer.filters:
                self.found.report("redelivery_filtered", origin, selector=answer.selector)
            elif is_allowed and answer.action is GateAction.SEND:
                self.found.report("redelivery_arrives", origin)

    def try_token(self, link: ExaminedSession, token: Destination) -> bool:
        """Try each right on the token queue; a run ends at the first that is missing.

        Returns:
            Whether it can be used; where not, nothing of it is left, as far as it can be removed.
        """
        trials = link.trials()
        before = len(self.attempts)
        # Why not on Classic: a missing queue shows whether the user may create it.
        is_artemis = link.description.kind is BrokerKind.ARTEMIS
        problem = (
            link.send_terms(token, makes=True).problem
            if is_artemis and _is_asked(link, trials)
            else None
        )
        if problem is not None:
            self.note(token, "making the token queue", problem)
        self.note(token, "taking the token", trials.read(token), wanted="consume")
        self.note(token, "sending the token", trials.write(token), wanted="send")
        is_tried = len(self.attempts) >= before + 2
        if is_tried and all(one.words is None for one in self.attempts[before:]):
            return True
        self.note_roles(trials)
        trials.remove(token)
        return False

    def try_keeping(self, link: LookSession, trials: Trials) -> None:
        """Make the queues of a schedule in the broker, and use them like a run."""
        for own in (WAITING_QUEUE, PARKED_QUEUE):
            problem = link.send_terms(own, makes=True).problem or trials.write(own)
            self.note(own, "sending messages that must wait or are parked", problem, wanted="send")
        words = trials.read(WAITING_QUEUE)
        self.note(WAITING_QUEUE, "taking messages that have waited", words, wanted="consume")

    def try_pattern(self, trials: Trials, pattern: Destination) -> None:
        """Find out whether redeliveries reach queues whose names are not known yet.

        The queue that stands for them has a name of the doctor's own, and is removed at once.
        """
        own = f"amqsidecar-doctor-{secrets.token_hex(4)}"
        parts = [own if part in ("*", ">") else part for part in pattern.name.split(".")]
        stand_in = queue(".".join(parts))
        words = trials.write(stand_in)
        attempt = Attempt(
            destination=stand_in,
            purpose="sending redeliveries",
            words=words,
            exists=False,
            scope=pattern,
        )
        self.attempts.append(attempt)
        problem = trials.remove(stand_in) if words is None else None
        if problem is not None:
            self.found.report("stand_in_left", stand_in, problem=problem)

    def note_roles(self, trials: Trials) -> None:
        """Ask for the roles of each address with a refusal."""
        tells = trials.features.roles
        if tells is None:
            return
        for one in self.attempts:
            refusal = read_refusal(one.words or "")
            if refusal is not None and refusal.destination.address not in self.roles:
                address = refusal.destination.address
                self.roles[address] = tells.roles(address)


def _final_problem(terms: SendTerms) -> str | None:
    """Return why the gate would let no message, or not each, into a final queue; None = each."""
    answer = answer_of(terms, is_final=True)
    if answer.action is not GateAction.SEND:
        return str(answer)
    if answer.filters:
        return f"it takes only messages that match {answer.selector}; others wait"
    return None


def _is_asked(link: LookSession, trials: Trials) -> bool:
    """Return whether the link can make queues; without management on Artemis, a sender does."""
    tells = trials.features.roles
    return link.description.kind is BrokerKind.CLASSIC or tells is None or not tells.refusals()
