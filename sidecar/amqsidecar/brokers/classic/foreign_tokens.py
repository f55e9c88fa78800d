"""Tokens of other instances on Classic, over any wire.

A browser of a wildcard shows the messages of all token queues, handed out or not. The broker sends
its consumers to each new subscriber of the consumer advisories.

Source: ActiveMQ Classic, AdvisoryBroker.addConsumer (it replays the existing consumers).
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from amqsidecar.brokers.classic.consumers import Hear
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX, is_examiner
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.foreign_token import ForeignToken

TOKEN_QUEUES = queue(f"{TOKEN_QUEUE_PREFIX}>")
TOKENS_ONLY = "amqsidecarCycle IS NOT NULL"
"""A selector: no other messages are read."""

_CONSUMERS = "ActiveMQ.Advisory.Consumer.Queue."
_TOKEN_CONSUMERS = topic(f"{_CONSUMERS}{TOKEN_QUEUE_PREFIX}>")
BROWSED_MAX = 1000
_CONSUMERS_MAX = 1000


class BrowsedToken(NamedTuple):
    """A token that a browse has shown.

    Attributes:
        place: its queue; None = it does not show it.
        sent_at_ms: 0 = unknown.
        rules_digest: "" = it shows none.
    """

    place: Destination | None
    sent_at_ms: int
    rules_digest: str


def find_foreign_tokens(
    browsed: Iterable[BrowsedToken], known: Collection[str], hear: Hear
) -> tuple[ForeignToken, ...]:
    """Return the tokens of all instances but these; of several in a queue the youngest counts."""
    latest: dict[str, tuple[int, str]] = {}
    for place, sent_at_ms, rules_digest in browsed:
        if place is None or not place.name.startswith(TOKEN_QUEUE_PREFIX):
            continue
        instance = place.name.removeprefix(TOKEN_QUEUE_PREFIX)
        if instance not in known and not is_examiner(instance):
            before = latest.get(instance, (0, ""))
            latest[instance] = max((sent_at_ms, rules_digest), before)
    advisories = hear(_TOKEN_CONSUMERS, _CONSUMERS_MAX) if latest else ()
    held = {one.name.removeprefix(_CONSUMERS + TOKEN_QUEUE_PREFIX) for one in advisories if one}
    return tuple(
        ForeignToken(
            instance=instance,
            sent_at_ms=sent_at_ms or None,
            is_held=instance in held,
            rules_digest=rules_digest,
        )
        for instance, (sent_at_ms, rules_digest) in sorted(latest.items())
    )
