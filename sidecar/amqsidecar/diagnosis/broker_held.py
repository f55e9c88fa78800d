"""Judges whether the broker can keep what waits (`store.url broker:`)."""

from collections.abc import Iterator, Sequence

from amqsidecar.broker import KeepsDelayed, Link
from amqsidecar.diagnosis.finding import Check, Finding, Severity
from amqsidecar.engine.kept_by_broker import NOT_KEPT, PARKED_QUEUE
from amqsidecar.model.destination import Destination

_SUBJECT = "broker:"
_CLOCK_MS = 1_000


def keeping_findings(link: Link, origins: Sequence[Destination]) -> Iterator[Finding]:
    """Yield whether the broker keeps what waits, and where it may lose it.

    Args:
        link: open.
        origins: where dead letters come from.
    """
    if not isinstance(link, KeepsDelayed):
        why = NOT_KEPT[link.description.kind]
        yield _finding(
            Severity.PROBLEM, _SUBJECT, why, "store: {url: sqlite:///path/that/can/be/written}"
        )
        return
    yield _finding(Severity.OK, _SUBJECT, "the broker keeps what waits, in its own queues")
    for origin in dict.fromkeys(origins):
        problem = link.waiting_problem(origin)
        if problem is not None:
            what = f"what has to wait for it is moved to {PARKED_QUEUE.name} instead: {problem}"
            yield _finding(Severity.WARNING, str(origin), what)


def keeping_clock_findings(ahead_ms: int) -> Iterator[Finding]:
    """Yield what a difference of the clocks does to what waits.

    Args:
        ahead_ms: by how much the broker's clock is ahead of ours; negative = behind.
    """
    if abs(ahead_ms) >= _CLOCK_MS:
        what = (
            "what waits in the broker is due by its clock: the difference is reckoned in when a "
            "link is opened, but what a clock is set by afterwards comes too early or too late"
        )
        yield Finding(
            check=Check.CLOCK,
            severity=Severity.WARNING,
            subject=_SUBJECT,
            what=what,
            mend="timedatectl set-ntp true",
        )


def _finding(severity: Severity, subject: str, what: str, mend: str = "") -> Finding:
    return Finding(check=Check.SCHEDULE, severity=severity, subject=subject, what=what, mend=mend)
