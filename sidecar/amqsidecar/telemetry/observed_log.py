"""The log of an observer: the decision on each dead letter, and totals."""

from collections.abc import Sequence
from typing import Final

import structlog

from amqsidecar.clock import Clock
from amqsidecar.engine.gates import GatesAt, no_gates
from amqsidecar.engine.observation import DISCARD, HOLD, PARK, REDELIVER, ObservationTally, Observed
from amqsidecar.model.destination import parse_destination
from amqsidecar.telemetry.logs import Logger, cut

DESTINATIONS_MAX: Final = 20
"""Maximum destinations named in a summary, those with most dead letters first."""

PERIOD_S: Final = 1.0


class LogObserved:
    """Writes a line about each observed dead letter, up to a number per second, and summaries."""

    def __init__(
        self,
        clock: Clock,
        lines_per_s: int,
        logger: Logger | None = None,
        gates_at: GatesAt = no_gates,
    ) -> None:
        self._clock = clock
        self._lines_per_s = lines_per_s
        self._log = structlog.get_logger("amqsidecar.observed") if logger is None else logger
        self._gates_at = gates_at
        self._lines = 0
        self._left_out = 0
        self._until_s = 0.0

    def observe(self, items: Sequence[Observed]) -> None:
        """Write a line about each of these, or count it as left out."""
        for item in items:
            now_s = self._clock.monotonic_s()
            if now_s >= self._until_s:
                self._until_s = now_s + PERIOD_S
                self._lines = 0
            if self._lines >= self._lines_per_s:
                self._left_out += 1
                continue
            self._lines += 1
            self._write(item)

    def _write(self, item: Observed) -> None:
        told: dict[str, object] = {
            "message_id": item.message_id,
            "source": item.source,
            "origin": item.origin,
        }
        if item.action != DISCARD:
            told["destination"] = item.destination
        if item.action == REDELIVER:
            told |= {"delay_ms": item.delay_ms, "redelivery_count": item.redelivery_count}
            gates = self._gates_at(parse_destination(item.destination))
            if gates:
                told["gates"] = list(gates)
        told["reason" if item.action in (PARK, HOLD) else "rule"] = cut(item.rule)
        self._log.info(f"would_{item.action}", **told)

    def summary(self, tally: ObservationTally) -> None:
        """Log the totals of all that was observed since the start."""
        most = sorted(tally.destinations.items(), key=lambda item: -item[1].total())
        self._log.info(
            "observed",
            **{f"would_{action}": count for action, count in sorted(tally.actions.items())},
            destinations={name: dict(counts) for name, counts in most[:DESTINATIONS_MAX]},
            lines_left_out=self._left_out,
            meaning=tally.sentence(),
        )
