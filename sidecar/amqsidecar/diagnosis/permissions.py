"""Turns a broker's refusals into the lines of configuration that grant the missing rights.

The texts were read from real brokers: Classic's `authorizationPlugin` and Artemis's
`security-settings`, over each wire; STOMP drops the colon after "User".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from amqsidecar.model.destination import Destination, DestinationKind, parse_destination, queue

TOKEN_PREFIX = "amqsidecar.token."  # noqa: S105 - no password
MANAGEMENT = "activemq.management"
TEMPORARY = Destination(DestinationKind.TEMP_QUEUE, ">")
"""All temporary queues and topics; Classic has one entry for them."""

_CLASSIC = re.compile(
    r"User (?P<user>.+?) is not authorized to (?P<operation>read from|write to|create|remove):"
    r" (?P<destination>(?:queue|topic|temp-queue|temp-topic)://[^\s\]]+)"
)
_CLASSIC_ATTRIBUTES = {
    "read from": "read",
    "write to": "write",
    "create": "admin",
    "remove": "admin",
}
_ARTEMIS = re.compile(
    r"User:? (?P<user>.+?) does not have permission='(?P<permission>\w+)'"
    r"(?: for queue (?P<queue>\S+))? on address (?P<address>[^\s,;)]+)"
    r"(?: \((?P<remark>over STOMP [^)]+)\))?"
)
_ARTEMIS_TYPES = {
    "SEND": "send",
    "CONSUME": "consume",
    "BROWSE": "browse",
    "MANAGE": "manage",
    "CREATE_ADDRESS": "createAddress",
    "DELETE_ADDRESS": "deleteAddress",
    "CREATE_DURABLE_QUEUE": "createDurableQueue",
    "DELETE_DURABLE_QUEUE": "deleteDurableQueue",
    "CREATE_NON_DURABLE_QUEUE": "createNonDurableQueue",
    "DELETE_NON_DURABLE_QUEUE": "deleteNonDurableQueue",
    "VIEW": "view",
    "EDIT": "edit",
}
CREATE = ("createAddress", "createDurableQueue")
"""Permissions for creating queues by use."""

STOMP_REPLIES = "amqsidecar.replies."
"""Prefix of the reply addresses of a STOMP link to Artemis."""

_STOMP_REPLY_RIGHTS = (
    *("createAddress", "deleteAddress", "createNonDurableQueue", "deleteNonDurableQueue"),
    *("consume", "send"),
)
_REPLY_RIGHTS = ("createNonDurableQueue", "createAddress", "consume", "send")
_UUID = re.compile(r"^(?:[\w.-]+\.)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
REPLY_MATCH = "uuid.#"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that a broker refused.

    Attributes:
        operation: in the broker's words, such as `read from` or `CONSUME`.
        permission: its name in the configuration, such as `read` or `consume`.
        destination: on Artemis an address, as a queue.
        remark: how sure that is, where the broker has not said it; "" = it has.
    """

    user: str
    operation: str
    permission: str
    destination: Destination
    remark: str = ""


def read_refusal(words: str) -> Refusal | None:
    """Return the permission that an error text refuses; None = it is about something else.

    Example:
        >>> read_refusal("User x is not authorized to read from: queue://DLQ").permission
        'read'
    """
    found = _CLASSIC.search(words)
    if found is not None:
        operation = found["operation"]
        destination = parse_destination(found["destination"].rstrip(",;)"))
        return Refusal(
            user=found["user"],
            operation=operation,
            permission=_CLASSIC_ATTRIBUTES[operation],
            destination=destination,
        )
    found = _ARTEMIS.search(words)
    if found is None:
        return None
    permission = found["permission"]
    return Refusal(
        user=found["user"],
        operation=permission,
        permission=_ARTEMIS_TYPES.get(permission, permission),
        destination=queue(found["address"]),
        remark=found["remark"] or "",
    )


def scope_of(destination: Destination) -> Destination:
    """Return the pattern of a line for a destination: itself, or all of its kind.

    Token queues are named after instances, advisories after everything, reply queues by chance.
    """
    if destination.is_temporary:
        return TEMPORARY
    if destination.name.startswith(TOKEN_PREFIX):
        return queue(TOKEN_PREFIX + ">")
    if destination.name.startswith("ActiveMQ.Advisory."):
        return Destination(DestinationKind.TOPIC, "ActiveMQ.Advisory.>")
    return destination


def quoted(text: str) -> str:
    """Return an XML attribute's value in quotes; wildcards stay as people write them."""
    return '"' + text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;") + '"'


def classic_line(scope: Destination, group: str, attributes: Iterable[str]) -> str:
    """Return the entry to add to `<authorizationEntries>`; entries add up.

    Example:
        >>> classic_line(queue("DLQ"), "sidecar", ["read"])
        '<authorizationEntry queue="DLQ" read="sidecar"/>'
    """
    if scope == TEMPORARY:
        each = " ".join(f"{name}={quoted(group)}" for name in ("read", "write", "admin"))
        # Why twice: the property of the map is named like the entry in it.
        tag = "tempDestinationAuthorizationEntry"
        return f"<{tag}><{tag} {each}/></{tag}>"
    kind = "queue" if scope.is_queue else "topic"
    wanted = set(attributes)
    rights = [f"{name}={quoted(group)}" for name in ("read", "write", "admin") if name in wanted]
    return f"<authorizationEntry {kind}={quoted(scope.name)} {' '.join(rights)}/>"


def artemis_match(address: str) -> str:
    """Return the match of the security setting that a right on an address belongs into."""
    for prefix in (TOKEN_PREFIX, STOMP_REPLIES):
        if address.startswith(prefix):
            return prefix + "#"
    return REPLY_MATCH if is_reply_queue(address) else address


def is_reply_queue(address: str) -> bool:
    """Return whether an address was named by chance, as temporary queues are."""
    return _UUID.match(address) is not None


def artemis_line(
    match: str, role: str, permissions: Iterable[str], today: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return a security setting that grants permissions.

    Settings don't add up: the most specific match acts alone. Where the roles are known
    today, all of that is in the setting too, so that it can replace the one of the same match.
    """
    wanted = set(permissions)
    types = [*dict.fromkeys(_ARTEMIS_TYPES.values())]
    lines = []
    for kind in types:
        roles = [str(entry["name"]) for entry in today if entry.get(kind)]
        if kind in wanted and role not in roles:
            roles.append(role)
        if roles:
            lines.append(f'<permission type="{kind}" roles={quoted(",".join(roles))}/>')
    inside = "".join(lines)
    return f"<security-setting match={quoted(match)}>{inside}</security-setting>"


def artemis_needs(refusals: Iterable[tuple[Refusal, str]]) -> frozenset[str]:
    """Return the permissions to grant, including the permissions that the broker checks next.

    The broker names only the first missing permission.

    Args:
        refusals: each with the permission finally wanted; "" = the refused permission.
    """
    needed = set()
    for refusal, wanted in refusals:
        needed.add(refusal.permission)
        name = refusal.destination.name
        if is_reply_queue(name):
            needed = set(_REPLY_RIGHTS)
        elif name.startswith(STOMP_REPLIES):
            needed = set(_STOMP_REPLY_RIGHTS)
        elif name == MANAGEMENT:
            needed.update(("send", "manage"))
        elif refusal.permission in CREATE:
            needed.update((*CREATE, wanted))
    return frozenset(needed - {""})
