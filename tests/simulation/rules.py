"""The rules that simulated sidecars go by."""

from __future__ import annotations

from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import DeadLetterTo, Decision, Discard, Redeliver, WrittenLine
from amqsidecar.model.destination import queue
from amqsidecar.plugin import Chance, Decider, RuleSource
from amqsidecar_rules import plugin

DLQ = "DLQ"


class CountingRules:
    """Redelivers `maximum` times after `delay_ms`, then gives up; discards what is named so."""

    def __init__(self, maximum: int = 2, delay_ms: int = 1_000) -> None:
        self.maximum = maximum
        self.delay_ms = delay_ms

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision:
        if dead_letter.destination.name.startswith("discard"):
            return Discard(WrittenLine("discard rule", "sim:1"))
        if dead_letter.redelivery_count < self.maximum:
            return Redeliver(self.delay_ms, dead_letter.redelivery_count + 1, "counting rule")
        return DeadLetterTo(queue(DLQ), 0, "counting rule: exhausted")


class TableRules(CountingRules):
    """Decides alike by a table of the plugin `rules`, whose time budget never runs out."""

    asks = frozenset({"age"})

    def __init__(self, maximum: int = 2, delay_ms: int = 1_000) -> None:
        super().__init__(maximum, delay_ms)
        curve = {
            "maximum_redeliveries": maximum,
            "initial_redelivery_delay_ms": delay_ms,
            "redelivery_delay_ms": delay_ms,
            "within_ms": 10**12,
        }
        table = [
            {"queue": "discard.>", "action": "discard"},
            {"redeliver": curve, "remove_properties": ["x"]},
        ]
        options = plugin.parse_options({"rules": table}, RuleSource("sim", 1))
        self._table: Decider = plugin.compile(options)

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision:
        decision = self._table.decide(dead_letter, chance)
        assert decision is not None
        assert "(sim:1)" in decision.rule
        assert isinstance(decision, Discard) or "removes x" in decision.rule or "=" in decision.rule
        return decision
