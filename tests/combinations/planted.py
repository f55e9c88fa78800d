"""Faults planted into the sidecar's process, to show that the array finds them.

Each is of a kind that has been in the product between two features. A sidecar that is forked by
tests makes it before it starts (`support.sidecar.forked.BEFORE`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from amqsidecar.broker import Resend
from amqsidecar.engine.cause_notebook import CauseNotebook
from amqsidecar.engine.judging.judge import Judge
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.send_gate import GateAction, GateAnswer, SendGate
from amqsidecar.model.cause_note import CauseNote
from amqsidecar.model.decision import DeadLetterTo
from amqsidecar.model.destination import Destination


def _plant(owner: type, name: str, method: Callable[..., Any]) -> None:
    setattr(owner, name, method)


def silence_discards() -> None:
    """What no line of a policy sends to a dead-letter queue is dropped."""
    carry_out = Judge._carry_out

    def discard(judge: Judge, decision: Any, draft: Any) -> Any:
        judgement = carry_out(judge, decision, draft)
        if isinstance(decision, DeadLetterTo):
            return msgspec.structs.replace(judgement, row=None)
        return judgement

    _plant(Judge, "_carry_out", discard)


def filters_are_not_evaluated() -> None:
    """The gate asks for the routes of a destination, and not whether this message takes one."""
    admit = SendGate.admit

    def pass_all(gate: SendGate, row: Any, answer: GateAnswer, **options: Any) -> Any:
        return admit(gate, row, msgspec.structs.replace(answer, filters=()), **options)

    _plant(SendGate, "admit", pass_all)


def filters_are_evaluated_before_the_edit() -> None:
    """What a rule or a person has changed is not looked at."""
    admit = SendGate.admit

    def pass_edited(gate: SendGate, row: Any, answer: GateAnswer, **options: Any) -> Any:
        if any("blue".encode(name) in row.message for name in ("utf-8", "utf-16-le")):
            answer = msgspec.structs.replace(answer, filters=())
        return admit(gate, row, answer, **options)

    _plant(SendGate, "admit", pass_edited)


def final_queues_are_not_asked_about() -> None:
    """A final dead-letter queue takes everything, it is thought."""
    ask = SendGate.ask

    def trust(
        gate: SendGate, destination: Destination, *, is_final: bool = False, makes: bool = False
    ) -> GateAnswer:
        if is_final:
            return GateAnswer(GateAction.SEND)
        return ask(gate, destination, is_final=is_final, makes=makes)

    _plant(SendGate, "ask", trust)


def own_and_internal_queues_are_accepted() -> None:
    """Nothing is forbidden: what the broker takes is sent."""
    _plant(SendRules, "problem", lambda *_args, **_options: None)


def side_effects_are_overlooked() -> None:
    """The gate knows whether a destination routes, and not what else acts on it."""
    ask = SendGate.ask

    def overlook(gate: SendGate, destination: Destination, **options: Any) -> GateAnswer:
        answer = ask(gate, destination, **options)
        return GateAnswer(GateAction.SEND) if answer.terms.effects else answer

    _plant(SendGate, "ask", overlook)


def dead_ends_are_overlooked() -> None:
    """The gate does not ask whether anything gets what is sent there."""
    ask = SendGate.ask

    def overlook(gate: SendGate, destination: Destination, **options: Any) -> GateAnswer:
        answer = ask(gate, destination, **options)
        return GateAnswer(GateAction.SEND) if answer.terms.problem else answer

    _plant(SendGate, "ask", overlook)


def notes_are_joined_by_id_alone() -> None:
    """A note is about each message of its id, whatever queue it names."""
    add = CauseNotebook.add

    def forget_queues(book: CauseNotebook, note: CauseNote, *args: Any, **options: Any) -> None:
        add(book, msgspec.structs.replace(note, queue=()), *args, **options)

    _plant(CauseNotebook, "add", forget_queues)
    _plant(CauseNotebook, "_is_about", lambda *_args, **_options: True)


def bodies_are_altered() -> None:
    """The message that is sent is not byte for byte the one that died."""
    admit = SendGate.admit

    def alter(gate: SendGate, row: Any, answer: GateAnswer, **options: Any) -> Any:
        found = admit(gate, row, answer, **options)
        if isinstance(found, Resend):
            altered = bytes(found.message).replace(b"an order", b"no order")
            wide = "utf-16-le"  # of Core
            altered = altered.replace("an order".encode(wide), "no order".encode(wide))
            return msgspec.structs.replace(found, message=altered)
        return found

    _plant(SendGate, "admit", alter)


FAULTS: Final[Mapping[str, Callable[[], None]]] = {
    one.__name__: one
    for one in (
        silence_discards,
        filters_are_not_evaluated,
        filters_are_evaluated_before_the_edit,
        final_queues_are_not_asked_about,
        own_and_internal_queues_are_accepted,
        side_effects_are_overlooked,
        dead_ends_are_overlooked,
        notes_are_joined_by_id_alone,
        bodies_are_altered,
    )
}
