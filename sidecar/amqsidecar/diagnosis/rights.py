"""Tries each right that a run needs; reports missing rights with the lines that grant them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from amqsidecar.broker import BrokerKind
from amqsidecar.diagnosis.finding import Check, Finding, Severity, new_finding
from amqsidecar.diagnosis.permissions import (
    MANAGEMENT,
    REPLY_MATCH,
    TEMPORARY,
    TOKEN_PREFIX,
    Refusal,
    artemis_line,
    artemis_match,
    artemis_needs,
    classic_line,
    read_refusal,
    scope_of,
)
from amqsidecar.model.destination import Destination, final_queue, queue, topic

_finding = partial(Finding, Check.PERMISSIONS)

ORIGINS = "YOUR.QUEUES"
"""In lines, stands for the queues that redeliveries must reach."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was tried.

    Attributes:
        purpose: why a run needs it, as the end of a sentence.
        words: the broker's refusal; None = it may.
        exists: whether the destination is known to exist; None = not known.
        scope: the pattern that the destination stands for; None = it stands for itself.
        wanted: Artemis: the permission that is needed in the end; "" = not said.
    """

    destination: Destination
    purpose: str
    words: str | None
    exists: bool | None = None
    scope: Destination | None = None
    wanted: str = ""


def group_of(user: str) -> str:
    """Return the placeholder for a Classic user's group, which no broker names."""
    return f"GROUP-OF-{user}"


def role_of(user: str) -> str:
    """Return the placeholder for an Artemis user's role, which no broker names."""
    return f"ROLE-OF-{user}"


RolesOf = Callable[[str], Sequence[Mapping[str, Any]]]
"""The permissions on an address of Artemis; () = not known."""


def permission_findings(
    kind: BrokerKind, user: str, attempts: Sequence[Attempt], roles: RolesOf = lambda _: ()
) -> tuple[Finding, ...]:
    """Return missing permissions by destination, with the lines that grant them."""
    refused = [one for one in attempts if one.words is not None]
    found = [*_unread(refused)]
    if kind is BrokerKind.CLASSIC:
        found += _classic_findings(refused, attempts)
    else:
        found += _artemis_findings(refused, roles)
    if attempts and not refused:
        found.append(new_finding("rights_granted", user or "anonymous", count=len(attempts)))
    return tuple(found)


def untried_findings(
    kind: BrokerKind,
    user: str,
    attempts: Sequence[Attempt],
    needed: Mapping[Destination, Collection[str]],
) -> Iterator[Finding]:
    """Yield, where a right is missing, the lines for all that could not be tried because of it.

    So a user without rights gets every line in one round.
    """
    if all(one.words is None for one in attempts):
        return
    tried = {_scope_in(kind, one.scope or one.destination) for one in attempts} | {
        _scope_in(kind, refusal.destination)
        for one in attempts
        if (refusal := read_refusal(one.words or "")) is not None
    }
    for destination, permissions in needed.items():
        scope = _scope_in(kind, destination)
        if scope in tried:
            continue
        line = (
            classic_line(scope_of(destination), group_of(user), permissions)
            if kind is BrokerKind.CLASSIC
            else artemis_line(scope, role_of(user), permissions)
        )
        yield new_finding("right_not_tried", scope, permissions=", ".join(permissions), mend=line)


def _scope_in(kind: BrokerKind, destination: Destination) -> str:
    if kind is BrokerKind.CLASSIC:
        return str(scope_of(destination))
    return artemis_match(destination.address)


def needed_rights(
    kind: BrokerKind, intake: Iterable[Destination], origins: Iterable[Destination], suffix: str
) -> dict[Destination, tuple[str, ...]]:
    """Return the rights that each run needs, whose destinations are known before.

    Source: `broker-side.md`; `tests/end_to_end/rights` takes each away.
    """
    is_classic = kind is BrokerKind.CLASSIC
    found: dict[Destination, tuple[str, ...]] = {}
    for source in intake:
        found[source] = ("read", "admin") if is_classic else ("consume",)
        final = final_queue(source, suffix)
        found[final] = ("read", "write", "admin") if is_classic else ("send", "consume")
    token = queue(TOKEN_PREFIX + (">" if is_classic else "#"))
    found[token] = ("read", "write", "admin") if is_classic else ("send", "consume")
    for origin in (*origins,) or (queue(ORIGINS),):
        found[origin] = ("write", "admin") if is_classic else ("send",)
    if is_classic:
        found[topic("ActiveMQ.Advisory.>")] = ("read", "admin")
    return found


def _unread(refused: Iterable[Attempt]) -> Iterator[Finding]:
    for one in refused:
        if one.words is not None and read_refusal(one.words) is None:
            yield new_finding(
                "attempt_refused", one.destination, purpose=one.purpose, words=one.words
            )


def _grouped(
    refused: Iterable[Attempt], scope: Callable[[Destination], Any]
) -> dict[Any, list[tuple[Attempt, Refusal]]]:
    groups: dict[Any, list[tuple[Attempt, Refusal]]] = {}
    for one in refused:
        refusal = read_refusal(one.words or "")
        if refusal is None:
            continue
        if one.scope is not None and refusal.destination == one.destination:
            refusal = msgspec.structs.replace(refusal, destination=one.scope)
        groups.setdefault(scope(refusal.destination), []).append((one, refusal))
    return groups


def _classic_findings(refused: Iterable[Attempt], attempts: Sequence[Attempt]) -> Iterator[Finding]:
    for scope, group in _grouped(refused, scope_of).items():
        attributes = {refusal.permission for _, refusal in group}
        # Why: the right to create is asked for last, so that its lack may be hidden.
        of_scope = [one for one in attempts if scope_of(one.scope or one.destination) == scope]
        is_made = any(one.words is None or one.exists for one in of_scope)
        if of_scope and not is_made:
            attributes.add("admin")
        sentence = _sentence(group, str(scope))
        if scope == TEMPORARY:
            sentence += "; one entry covers all temporary destinations: add the user to its groups"
        yield _finding(
            Severity.PROBLEM,
            str(scope),
            sentence,
            classic_line(scope, group_of(group[0][1].user), attributes),
        )


def _artemis_findings(refused: Iterable[Attempt], roles: RolesOf) -> Iterator[Finding]:
    groups = _grouped(refused, lambda destination: artemis_match(destination.address))
    for match, group in groups.items():
        refusals = [refusal for _, refusal in group]
        needs = artemis_needs((refusal, one.wanted) for one, refusal in group)
        address = refusals[0].destination.address
        today = roles(address)
        mend = artemis_line(match, role_of(refusals[0].user), needs, today)
        sentence = _sentence(group, f"on {match}")
        if match == REPLY_MATCH:
            mend = f"<uuid-namespace>uuid</uuid-namespace> {mend}"
            sentence += (
                "; temporary queues get names that a setting can match by uuid-namespace, which "
                "acts after a restart of the broker"
            )
        elif today:
            sentence += (
                "; the line keeps today's rights of other roles and replaces the setting of this "
                "match"
            )
        else:
            sentence += "; only the most specific setting applies: add the permissions to it"
        yield _finding(Severity.PROBLEM, match, sentence, mend)


def management_attempt(words: str, user: str, purpose: str) -> Attempt:
    """Return the finding of a refused management question.

    Quirk (Artemis 2.44): without `manage` the broker answers with a fault of its own, which names
    no permission.
    """
    refusal = read_refusal(words)
    if refusal is None:
        words = f"User: {user} does not have permission='MANAGE' on address {MANAGEMENT}"
    return Attempt(destination=queue(MANAGEMENT), purpose=purpose, words=words)


def _sentence(group: Sequence[tuple[Attempt, Refusal]], place: str) -> str:
    operations = " and ".join(dict.fromkeys(refusal.operation for _, refusal in group))
    permissions = ", ".join(dict.fromkeys(refusal.permission for _, refusal in group))
    purposes = ", ".join(dict.fromkeys(one.purpose for one, _ in group))
    remarks = "".join(
        dict.fromkeys(f" ({refusal.remark})" for _, refusal in group if refusal.remark)
    )
    user = group[0][1].user
    return (
        f"user {user} may not {operations} {place} (permission {permissions}), needed for "
        f"{purposes}{remarks}"
    )
