"""Side effects of Artemis on a message that is sent to a queue; pure.

Measured on 2.44 (`deploy/reference/origins.md`): a fully qualified name keeps a message out of the
other queues of the address, but not out of its diverts. So no name avoids any of these effects.

Source: Artemis, BindingsImpl.route, DivertImpl.route, QueueImpl.route, PagingStoreImpl.page.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from amqsidecar.brokers.artemis.management import QueueRow
from amqsidecar.engine.judging.resend_copies import FIRST_SENDS_ONLY, takes_first_sends_only
from amqsidecar.model.send_terms import ResendEffect, SideEffect


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
) -> Iterator[SideEffect]:
    """Yield the side effects of a send.

    Args:
        queues: that get it; none = the broker makes the queue by its settings.
        settings: merged, of its address.
    """
    for divert in diverts:
        yield from _of_divert(divert)
    for queue in queues:
        yield from _of_queue(queue)
    for kind, what, element in _of_settings(settings, is_made=bool(queues)):
        line = f"<address-setting match={quoteattr(address)}>{element}</address-setting>"
        yield SideEffect(kind, what, line)


def _of_divert(divert: Divert) -> Iterator[SideEffect]:
    if takes_first_sends_only(divert.filter):
        return
    if divert.is_exclusive:
        what = f"the exclusive divert {divert.name} would take the message away from its queue"
    else:
        what = f"the divert {divert.name} would copy the message again"
    own = f"({divert.filter}) AND {FIRST_SENDS_ONLY}" if divert.filter else FIRST_SENDS_ONLY
    inside = f"<filter string={quoteattr(own)}/>"
    mend = f"<divert name={quoteattr(divert.name)}>{inside}</divert>"
    yield SideEffect(ResendEffect.DIVERT, what, mend, divert.filter, loses=divert.is_exclusive)


def _of_queue(queue: QueueRow) -> Iterator[SideEffect]:
    begin = f"<queue name={quoteattr(queue.name)}"
    if queue.is_last_value:
        yield SideEffect(
            ResendEffect.LAST_VALUE,
            f"{queue.name} is a last-value queue: the message would replace a newer message "
            "with the same key",
            f'{begin} last-value="false"/>',
        )
    if queue.ring_size >= 0:
        yield SideEffect(
            ResendEffect.RING,
            f"{queue.name} is a ring queue of {queue.ring_size} messages: the message would "
            "push the oldest one out when it is full",
            f'{begin} ring-size="-1"/>',
        )
    if queue.is_purged:
        yield SideEffect(
            ResendEffect.DROP,
            f"{queue.name} has purge-on-no-consumers: the broker drops messages that are sent "
            "while it has no consumer",
            f'{begin} purge-on-no-consumers="false"/>',
        )


def _of_settings(
    settings: Mapping[str, Any], *, is_made: bool
) -> Iterator[tuple[ResendEffect, str, str]]:
    """Yield kind and sentence of each effect, and the setting that removes it."""
    if settings.get("defaultNonDestructive"):
        yield (
            ResendEffect.NON_DESTRUCTIVE,
            "the queue is non-destructive: consumers that have read the message would get it again",
            "<default-non-destructive>false</default-non-destructive>",
        )
    if settings.get("addressFullMessagePolicy") == "DROP":
        yield (
            ResendEffect.DROP,
            "address-full-policy is DROP: the broker accepts a message and drops it once the "
            "address is full",
            "<address-full-policy>PAGE</address-full-policy>",
        )
    if settings.get("pageFullMessagePolicy") == "DROP":
        yield (
            ResendEffect.DROP,
            "page-full-policy is DROP: the broker accepts a message and drops it once the pages "
            "are full",
            "<page-full-policy>FAIL</page-full-policy>",
        )
    if is_made:
        return
    if settings.get("defaultLastValueQueue") or settings.get("defaultLastValueKey"):
        yield (
            ResendEffect.LAST_VALUE,
            "the broker would make a last-value queue: the message would replace a newer "
            "message with the same key",
            "<default-last-value-queue>false</default-last-value-queue>",
        )
    if int(settings.get("defaultRingSize", -1)) >= 0:
        yield (
            ResendEffect.RING,
            "the broker would make a ring queue: the message would push the oldest message out "
            "when it is full",
            "<default-ring-size>-1</default-ring-size>",
        )
