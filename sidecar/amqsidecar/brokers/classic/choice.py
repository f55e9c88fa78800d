"""The choice of messages in a queue of Classic.

Classic looks for the messages of a selector among the first 200 of a queue only. So a consumer
without a selector receives everything up to the last chosen message, and acknowledges the chosen
messages alone. The others pass: they stay in hand, where every browser goes on seeing them, and are
at their place when the consumer is closed (measured on 5.18.3 and 6.3.1). After a crash they are
there too, but count as delivered once until the broker restarts, as with every consumer.

Messages in hand take memory of the broker, so that a choice has a reach: ours, or less where the
broker has little memory for the queue (`memoryLimit`), which it does not tell.
"""

from collections.abc import Collection
from typing import Final

from amqsidecar.broker import Delivery

REACH_BYTES: Final = 128 * 1024 * 1024
"""Bytes of messages that pass; Classic blocks producers where its memory is full."""

_LOOKS_AT_REST: Final = 3


class MessageChoice:
    """Chooses messages by redelivery ids.

    Attributes:
        ids: that are chosen; empty = every message is.
        passed: how many messages passed.
    """

    def __init__(self, ids: Collection[str] = ()) -> None:
        self.ids = frozenset(ids)
        self.passed = 0
        self._left_bytes = REACH_BYTES
        self._passed_before = -1
        self._looks = 0

    def takes(self, delivery: Delivery) -> bool:
        """Return whether a message is chosen; the others pass."""
        if not self.ids or delivery.provenance.redelivery_id in self.ids:
            return True
        self.passed += 1
        self._left_bytes -= len(delivery.message)
        return False

    def prefetch(self, share: int) -> int:
        """Return the prefetch with which about `share` messages more arrive.

        Why in steps: each change is a question to the broker.
        """
        if self._left_bytes <= 0:
            return 1
        return share + self.passed - self.passed % max(1, share // 2)

    def is_moving(self) -> bool:
        """Return whether messages have passed lately; call it from time to time."""
        self._looks = self._looks + 1 if self.passed == self._passed_before else 0
        self._passed_before = self.passed
        return self._looks < _LOOKS_AT_REST
