"""Whether the sidecar itself is well, in the words of its health answer and its metrics."""

import msgspec

from amqsidecar.engine.foreign_tokens import describe
from amqsidecar.model.foreign_token import orphans
from amqsidecar.model.outcome import COUNTING_MENDS, NOT_COUNTED
from amqsidecar.telemetry.health import Health, Readiness
from amqsidecar.telemetry.metrics import Metrics


class LeftInQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that stay in their queue, and why; see the metric of that name."""

    queue: str
    reason: str
    count: int
    meaning: str
    at_least: bool


class SidecarStatus(msgspec.Struct, frozen=True, kw_only=True):
    """State of the sidecar itself.

    Attributes:
        is_well: nothing of this needs a person.
        broker: product, version and address of the last link; "" = there was none.
        cycles: cycles committed since the process started.
        cycles_in_doubt: cycles whose commit could not be confirmed.
        reconnects: how often the link was lost and came up again.
        journal_lag_seconds: age of the oldest event that is not in the journal yet.
        outcomes_doubt: why consumption is unknown, and the fix; "" = it is known.
        orphans: queue and age of tokens of schedules that no sidecar works on.
        left_behind: messages that the link does not take; most first.
    """

    is_well: bool
    broker: str
    readiness: Readiness
    cycles: int
    cycles_in_doubt: int
    reconnects: int
    journal_lag_seconds: float
    left_behind: list[LeftInQueue]
    orphans: list[str]
    outcomes_doubt: str


def sidecar_status(health: Health, metrics: Metrics) -> SidecarStatus:
    """Return the sidecar's own state: health, and counts of its metrics."""
    state, counts = health.state(), metrics.counts()
    readiness = state.readiness
    left_behind = [
        LeftInQueue(
            queue=str(one.queue),
            reason=one.reason,
            count=one.count,
            meaning=one.meaning,
            at_least=one.at_least,
        )
        for one in state.left_behind
    ]
    in_doubt = counts.cycles_in_doubt
    left_alone = [describe(one) for one in orphans(readiness.other_schedules)]
    return SidecarStatus(
        is_well=readiness.is_ready
        and readiness.taking.ok
        and not (readiness.intake.refused or in_doubt or left_alone),
        broker=state.broker,
        readiness=readiness,
        cycles=counts.cycles,
        cycles_in_doubt=in_doubt,
        reconnects=state.reconnects,
        journal_lag_seconds=counts.journal_lag_seconds,
        left_behind=sorted(left_behind, key=lambda one: -one.count),
        orphans=left_alone,
        outcomes_doubt=("" if counts.outcomes_are_counted else f"{NOT_COUNTED}: {COUNTING_MENDS}"),
    )
