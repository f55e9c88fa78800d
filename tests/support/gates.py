"""Makes gates from options, and plays due messages through one."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from amqsidecar.model.destination import Destination, queue
from amqsidecar.plugin import DueMessage, Gate, GatePlugin, RuleSource

SOURCE = RuleSource("sidecar.yaml", 7)


def gate_of(plugin: GatePlugin, **options: Any) -> Gate:
    return plugin.compile(plugin.parse_options(options, SOURCE))


def due(
    at_ms: int, destination: Destination | None = None, *, passes_gates: bool = False
) -> DueMessage:
    where = queue("orders") if destination is None else destination
    return DueMessage(
        destination=where, due_at_ms=at_ms, redelivery_count=1, passes_gates=passes_gates
    )


def play(
    gate: Gate, due_ms: Iterable[int], late_ms: Callable[[], int], until_ms: int
) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Ask a gate whenever messages are due, as cycles do.

    Returns:
        Of each message that went, when and its index in `due_ms`; how often each had to wait.
    """
    waiting = [(at_ms, index) for index, at_ms in enumerate(due_ms)]
    heapq.heapify(waiting)
    went: list[tuple[int, int]] = []
    waits: dict[int, int] = {}
    now_ms = 0
    while waiting and waiting[0][0] < until_ms:
        now_ms = max(now_ms, waiting[0][0]) + late_ms()
        batch = []
        while waiting and waiting[0][0] <= now_ms:
            batch.append(heapq.heappop(waiting))
        for at_ms, index in batch:
            message = due(at_ms)
            wait = gate.wait_of(message, now_ms)
            if wait is None:
                gate.passed(message, now_ms)
                gate.resent(message.destination, now_ms)
                went.append((now_ms, index))
            else:
                assert wait.until_ms > now_ms
                waits[index] = waits.get(index, 0) + 1
                heapq.heappush(waiting, (wait.until_ms, index))
    return went, waits
