"""Tokens of other instances on Classic, whatever wire shows them.

A browser of a wildcard shows the messages of all token queues, handed out or not. The broker sends
its consumers to each new subscriber of the consumer advisories.

Source: ActiveMQ Classic, AdvisoryBroker.addConsumer (it replays the consumers that there are).
"""

from collections.abc import Collection, Iterable

from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX, is_examiner
from amqsidecar.model.destination import Destination, queue, topic
from amqsidecar.model.foreign_token import ForeignToken

TOKEN_QUEUES = queue(f"{TOKEN_QUEUE_PREFIX}>")
TOKENS_ONLY = "amqsidecarCycle IS NOT NULL"
"""A selector: no other messages are read."""

_CONSUMERS = "ActiveMQ.Advisory.Consumer.Queue."
TOKEN_CONSUMERS = topic(f"{_CONSUMERS}{TOKEN_QUEUE_PREFIX}>")
BROWSED_MAX = 1000
CONSUMERS_MAX = 1000


class ForeignTokens:
    """Collects browsed tokens; of several in a queue the youngest counts."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._latest: dict[str, tuple[int, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._latest)

    def note(self, place: Destination | None, sent_at_ms: int, rules_digest: str) -> None:
        """Take note of a token; a place that is no token queue does not count."""
        if place is None or not place.name.startswith(TOKEN_QUEUE_PREFIX):
            return
        instance = place.name.removeprefix(TOKEN_QUEUE_PREFIX)
        if instance not in self._known and not is_examiner(instance):
            known = self._latest.get(instance, (0, ""))
            self._latest[instance] = max((sent_at_ms, rules_digest), known)

    def found(self, advisories: Iterable[Destination | None]) -> tuple[ForeignToken, ...]:
        """Return them, with the topics of the advisories about consumers."""
        held = {one.name.removeprefix(_CONSUMERS + TOKEN_QUEUE_PREFIX) for one in advisories if one}
        return tuple(
            ForeignToken(
                instance=instance,
                sent_at_ms=sent_at_ms or None,
                is_held=instance in held,
                rules_digest=rules_digest,
            )
            for instance, (sent_at_ms, rules_digest) in sorted(self._latest.items())
        )
