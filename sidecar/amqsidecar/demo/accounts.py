"""Counts messages by id: ended, lost or doubled, as applications saw them."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from amqsidecar.demo.applications import ConsumedMessage


@dataclass(frozen=True)
class Count:
    """How a run ended, by id."""

    sent: int
    recovered: Sequence[str]
    exhausted: Sequence[str]
    discarded: Sequence[str]
    lost: Sequence[str]
    doubled: Sequence[str]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost or doubled."""
        return not (self.lost or self.doubled)


def count(
    sent: Iterable[str],
    deliveries: Iterable[ConsumedMessage],
    exhausted: Iterable[str] = (),
    discarded: Iterable[str] = (),
    unknown: Iterable[str] = (),
) -> Count:
    """Count a run.

    Args:
        sent: the ids of all messages that a producer sent.
        deliveries: the consumers' reports, each consumer's in order.
        exhausted: ids as found in the final queue, duplicates included.
        discarded: ids discarded according to the sidecar's history.
        unknown: sent while the producer lost its broker; they may be missing.
    """
    known = set(sent)
    final, dropped = Counter(exhausted), Counter(discarded)
    processed = Counter(one.id for one in _processed(deliveries, final.keys() | dropped.keys()))
    ends = processed + final + dropped
    return Count(
        sent=len(known),
        recovered=sorted(processed),
        exhausted=sorted(final),
        discarded=sorted(dropped),
        lost=sorted(known - set(unknown) - ends.keys()),
        doubled=sorted(one for one, times in ends.items() if times > 1 or one not in known),
    )


def _processed(
    deliveries: Iterable[ConsumedMessage], ended: Collection[str]
) -> list[ConsumedMessage]:
    """Return the receipts that led to success.

    A consumer that loses its broker while it commits can't know whether that happened. Such a
    receipt counts only when the message does not come again and has not `ended` otherwise.
    """
    found: list[ConsumedMessage] = []
    in_hand: dict[str, ConsumedMessage] = {}
    in_doubt: dict[str, ConsumedMessage] = {}
    for delivery in deliveries:
        if delivery.outcome == "succeeding":
            in_doubt.pop(delivery.id, None)
            in_hand[delivery.id] = delivery
        elif delivery.outcome == "failing":
            in_doubt.pop(delivery.id, None)
        elif delivery.outcome == "succeeded":
            found.append(in_hand.pop(delivery.id))
        elif delivery.outcome == "disconnected":
            in_doubt.update(in_hand)
            in_hand.clear()
    unsure = {**in_doubt, **in_hand}
    return [*found, *(one for one in unsure.values() if one.id not in ended)]
