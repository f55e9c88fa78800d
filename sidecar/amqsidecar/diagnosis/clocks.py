"""Judges the difference between the broker's clock and ours."""

from amqsidecar.broker import BrokerKind
from amqsidecar.diagnosis.finding import Check, Finding, Severity

_WARNING_MS = 1_000
_PROBLEM_MS = 10_000


def difference_ms(broker_ms: int, began_ms: int, ended_ms: int) -> int:
    """Return by how much the broker's clock is ahead of ours at least; negative = behind.

    Example:
        >>> difference_ms(5, 0, 10), difference_ms(15, 0, 10), difference_ms(-3, 0, 10)
        (0, 5, -3)
    """
    if broker_ms < began_ms:
        return broker_ms - began_ms
    return max(0, broker_ms - ended_ms)


def clock_finding(kind: BrokerKind, ahead_ms: int) -> Finding:
    """Return the effect of a clock difference on messages with a time to live.

    On Classic the sidecar writes absolute expiry times and judges them; on Artemis the time to live
    is sent in milliseconds, and the broker counts.

    Args:
        kind: of the broker.
        ahead_ms: by how much its clock is ahead of ours; negative = behind.
    """
    off_ms = abs(ahead_ms)
    direction = "ahead of" if ahead_ms > 0 else "behind"
    mend = ""
    if off_ms < _WARNING_MS:
        severity, what = Severity.OK, "the broker's clock and ours agree within a second"
    else:
        severity = Severity.WARNING
        what = f"the broker's clock is {off_ms / 1000:.1f} s {direction} ours"
        if kind is BrokerKind.CLASSIC:
            if off_ms >= _PROBLEM_MS:
                severity = Severity.PROBLEM
            effect = (
                "redeliveries whose time to live is shorter expire on arrival"
                if ahead_ms > 0
                else "dead letters with less time left count as expired, and redeliveries live "
                "longer than their producers said"
            )
            what = f"{what}: {effect}"
        else:
            what = f"{what}: times in the history and in final queues are wrong by the same amount"
        mend = "timedatectl set-ntp true"
    return Finding(Check.CLOCK, severity, "clock", what, mend)
