"""Judges how full the broker's disk is."""

from collections.abc import Iterator

from amqsidecar.diagnosis.finding import Check, Finding, Severity
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
    yield Finding(
        Check.BROKER,
        Severity.PROBLEM if disk.is_full else Severity.WARNING,
        "disk",
        f"{disk.used:.0%} of the broker's disk is in use: {effect}; make room, or raise the "
        "limit, and run doctor again",
        # Why six: nearer to the limit, doctor would warn again.
        f"<max-disk-usage>{min(99, round(disk.used * 100) + 6)}</max-disk-usage>",
    )
