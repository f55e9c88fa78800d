"""What Artemis does with a redelivery besides putting it into its queue; pure.

Measured on 2.44 (`deploy/reference/origins.md`): a fully qualified name keeps a message out of the
other queues of the address, but not out of its diverts. So no name avoids any of these effects.

Source: Artemis, BindingsImpl.route, DivertImpl.route, QueueImpl.route, PagingStoreImpl.page.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from amqsidecar.broker import PROPERTY_REDELIVERY_COUNT, Effect
from amqsidecar.brokers.artemis_management import QueueRow
from amqsidecar.model.resend_effect import ResendEffect

EXCLUDING = f"{PROPERTY_REDELIVERY_COUNT} IS NULL"
"""A filter that no redelivery matches."""

# Properties that a redelivery has otherwise than the message had at its first delivery.
_CHANGED_NAMES = (
    "amqsidecar",
    "redeliveryDelay",
    "_AMQ_ORIG",
    "_AMQ_DUPL_ID",
    "_AMQ_ACTUAL_EXPIRY",
    "JMSXDeliveryCount",
    "JMSExpiration",
    "AMQExpiration",
    "AMQSize",
    "AMQUserID",
    "JMSMessageID",
    "x-opt-",
)
_WORD = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|[()]|[^\s()'"]+""")


class Divert(NamedTuple):
    """A divert of an address.

    Attributes:
        filter: its selector; "" = it takes every message.
    """

    name: str
    is_exclusive: bool
    filter: str


def resend_effects(
    address: str,
    queues: Sequence[QueueRow],
    diverts: Sequence[Divert],
    settings: Mapping[str, Any],
) -> Iterator[Effect]:
    """Yield what the broker does with a redelivery besides putting it into its queue.

    Args:
        address: of the queue.
        queues: which get it; none = the broker makes the queue as the settings say.
        diverts: of its address.
        settings: merged, of its address.
    """
    for divert in diverts:
        yield from _of_divert(divert)
    for queue in queues:
        yield from _of_queue(queue)
    for kind, what, element in _of_settings(settings, is_made=bool(queues)):
        line = f"<address-setting match={quoteattr(address)}>{element}</address-setting>"
        yield Effect(kind, what, line)


def _of_divert(divert: Divert) -> Iterator[Effect]:
    if excludes_redeliveries(divert.filter):
        return
    if divert.is_exclusive:
        # Why: the message got past its filter once, and does so again unless it asks for a change.
        if divert.filter and not asks_for_changes(divert.filter):
            return
        what = f"the exclusive divert {divert.name} would take the redelivery away from its queue"
    else:
        what = f"the divert {divert.name} would copy the redelivery once more"
    own = f"({divert.filter}) AND {EXCLUDING}" if divert.filter else EXCLUDING
    inside = f"<filter string={quoteattr(own)}/>"
    mend = f"<divert name={quoteattr(divert.name)}>{inside}</divert>"
    yield Effect(ResendEffect.DIVERT, what, mend)


def _of_queue(queue: QueueRow) -> Iterator[Effect]:
    begin = f"<queue name={quoteattr(queue.name)}"
    if queue.is_last_value:
        yield Effect(
            ResendEffect.LAST_VALUE,
            f"{queue.name} is a last-value queue: the redelivery would replace a newer message "
            "with the same key",
            f'{begin} last-value="false"/>',
        )
    if queue.ring_size >= 0:
        yield Effect(
            ResendEffect.RING,
            f"{queue.name} is a ring queue of {queue.ring_size} messages: the redelivery would "
            "push the oldest one out when it is full",
            f'{begin} ring-size="-1"/>',
        )
    if queue.is_purged:
        yield Effect(
            ResendEffect.DROP,
            f"{queue.name} has purge-on-no-consumers: the broker drops what is sent while nobody "
            "consumes",
            f'{begin} purge-on-no-consumers="false"/>',
        )


def _of_settings(
    settings: Mapping[str, Any], *, is_made: bool
) -> Iterator[tuple[ResendEffect, str, str]]:
    """Yield kind and sentence of each effect, and the setting that mends it."""
    if settings.get("defaultNonDestructive"):
        yield (
            ResendEffect.NON_DESTRUCTIVE,
            "the queue is non-destructive: consumers that have read the message would get it again",
            "<default-non-destructive>false</default-non-destructive>",
        )
    if settings.get("addressFullMessagePolicy") == "DROP":
        yield (
            ResendEffect.DROP,
            "address-full-policy is DROP: the broker accepts a redelivery and drops it once the "
            "address is full",
            "<address-full-policy>PAGE</address-full-policy>",
        )
    if settings.get("pageFullMessagePolicy") == "DROP":
        yield (
            ResendEffect.DROP,
            "page-full-policy is DROP: the broker accepts a redelivery and drops it once the pages "
            "are full",
            "<page-full-policy>FAIL</page-full-policy>",
        )
    if is_made:
        return
    if settings.get("defaultLastValueQueue") or settings.get("defaultLastValueKey"):
        yield (
            ResendEffect.LAST_VALUE,
            "the broker would make a last-value queue: the redelivery would replace a newer "
            "message with the same key",
            "<default-last-value-queue>false</default-last-value-queue>",
        )
    if int(settings.get("defaultRingSize", -1)) >= 0:
        yield (
            ResendEffect.RING,
            "the broker would make a ring queue: the redelivery would push the oldest message out "
            "when it is full",
            "<default-ring-size>-1</default-ring-size>",
        )


def asks_for_changes(selector: str) -> bool:
    """Tell whether a selector asks for something that a redelivery changes."""
    return any(name in selector for name in _CHANGED_NAMES)


def excludes_redeliveries(selector: str) -> bool:
    """Tell whether a selector certainly matches no redelivery.

    It does not where one of the terms that it joins by AND is `EXCLUDING`.

    Example:
        >>> excludes_redeliveries("colour = 'red' and (amqsidecarRedeliveryCount is null)")
        True
        >>> excludes_redeliveries("colour = 'red' OR amqsidecarRedeliveryCount IS NULL")
        False
    """
    return any(
        term.split()[:1] == [PROPERTY_REDELIVERY_COUNT]
        and term.upper().split()[1:] == ["IS", "NULL"]
        for term in _joined_terms(_WORD.findall(selector))
    )


def _joined_terms(words: Sequence[str]) -> list[str]:
    """Return the terms that all have to hold, without the parentheses around them."""
    while len(words) > 2 and words[0] == "(" and _closing(words) == len(words) - 1:
        words = words[1:-1]
    terms: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        operator = word.upper() if depth == 0 else ""
        if operator == "OR":
            return []
        if operator == "AND":
            terms.append([])
        else:
            terms[-1].append(word)
    if len(terms) == 1:
        return [" ".join(terms[0])]
    return [one for term in terms for one in _joined_terms(term)]


def _closing(words: Sequence[str]) -> int:
    """Return the index of the parenthesis that closes the first one; -1 = none does."""
    depth = 0
    for index, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return index
    return -1
