"""The rules that simulated sidecars go by."""

from __future__ import annotations

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver
from amqsidecar.model.destination import queue
from amqsidecar.plugin import Chance

DLQ = "DLQ"


class CountingRules:
    """Redelivers `maximum` times after `delay_ms`, then gives up; discards what is named so."""

    def __init__(self, maximum: int = 2, delay_ms: int = 1_000) -> None:
        self.maximum = maximum
        self.delay_ms = delay_ms

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision:
        if dead_letter.destination.name.startswith("discard"):
            return Discard("discard rule")
        if dead_letter.redelivery_count < self.maximum:
            return Redeliver(self.delay_ms, dead_letter.redelivery_count + 1, "counting rule")
        return DeadLetterTo(queue(DLQ), 0, "counting rule: exhausted")
