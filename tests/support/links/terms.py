"""The answer of the gate over a link, as one sentence."""

from amqsidecar.broker import LookSession, Resend
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.engine.send_gate import GateAction, SendGate, refusal_by_filters
from amqsidecar.model.send_terms import SendTerms


def effects_of(terms: SendTerms) -> str | None:
    """Return the effects of a send and their cures; None = it has none."""
    return "; ".join(f"{one.what}; {one.cure}" for one in terms.effects) or None


def refusal_of(link: LookSession, resend: Resend) -> str | None:
    """Return why the gate does not let a message through; None = it does."""
    rules = SendRules(link.description.kind, lambda _: False, ".exhausted")
    answer = SendGate(link, rules).ask(resend.destination, is_final=resend.is_final)
    if answer.action is not GateAction.SEND:
        return f"{answer.action}: {answer}"
    refused = refusal_by_filters(answer.terms, link.filter_view(resend), is_final=resend.is_final)
    return None if refused is None else f"{refused.action}: {refused}"
