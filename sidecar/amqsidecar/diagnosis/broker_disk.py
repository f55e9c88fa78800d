"""Judges how full the broker's disk is."""

from collections.abc import Iterator

from amqsidecar.diagnosis.finding import Finding, Severity, new_finding
from amqsidecar.trials import BrokerDisk

_NEAR = 0.05


def disk_findings(disk: BrokerDisk) -> Iterator[Finding]:
    """Yield the effect of a full or nearly full disk on redeliveries.

    Artemis blocks all producers while more of the disk is in use than `max-disk-usage`
    (`PagingManagerImpl`), so that nothing is re-sent.
    """
    if disk.is_full:
        limit = "there is more room" if disk.limit is None else f"less than {disk.limit:.0%} is"
        effect = (
            f"it blocks all producers until {limit}, so nothing is re-sent; the rest of the "
            "examination was skipped"
        )
    elif disk.limit is not None and disk.used >= disk.limit - _NEAR:
        effect = f"above {disk.limit:.0%} it blocks all producers, and nothing is re-sent"
    else:
        return
    yield new_finding(
        "broker_disk_full",
        "disk",
        severity=Severity.PROBLEM if disk.is_full else Severity.WARNING,
        used=disk.used,
        effect=effect,
        # Why six: nearer to the limit, doctor would warn again.
        limit=min(99, round(disk.used * 100) + 6),
    )
