"""Judges product, version and wire."""

from collections.abc import Collection, Iterator

from amqsidecar.broker import BrokerDescription, BrokerKind, Loss
from amqsidecar.diagnosis.fidelity import summary
from amqsidecar.diagnosis.finding import Check, Finding, Severity

TESTED = {
    BrokerKind.CLASSIC: ("5.18.3", "6.3.1"),
    BrokerKind.ARTEMIS: ("2.44.0",),
}
"""Versions that the sidecar's own tests run against."""

_PRODUCT = {BrokerKind.CLASSIC: "ActiveMQ Classic", BrokerKind.ARTEMIS: "Apache Artemis"}
_BEST = {BrokerKind.CLASSIC: "openwire", BrokerKind.ARTEMIS: "amqp"}
_BEST_PORT = {BrokerKind.CLASSIC: 61616, BrokerKind.ARTEMIS: 5672}


def version_finding(
    description: BrokerDescription, place: str, expected: BrokerKind | None
) -> Iterator[Finding]:
    """Yield what product and version answer."""
    kind, version = description.kind, description.version
    tested = TESTED[kind]
    name = f"{_PRODUCT[kind]} {version or 'of an untold version'}"
    if expected is not None and expected is not kind:
        yield _finding(
            Check.BROKER,
            Severity.PROBLEM,
            place,
            f"is {name}, but broker.kind says {expected.value}",
            f"broker: {{kind: {kind.value}}}",
        )
    elif version in tested:
        yield _finding(Check.BROKER, Severity.OK, place, f"is {name}")
    else:
        what = f"is {name}; tested are {' and '.join(tested)}"
        yield _finding(Check.BROKER, Severity.NOTE, place, what)


def wire_findings(
    kind: BrokerKind, scheme: str, place: str, allowed: Collection[Loss] = ()
) -> Iterator[Finding]:
    """Yield what this wire can't carry, and which one can.

    Args:
        kind: of the broker.
        scheme: of its URL.
        place: host and port.
        allowed: what messages may lose by the operator's own word.
    """
    wire = _wire(scheme)
    best = _BEST[kind]
    if wire == best:
        what = f"{best}:// is the recommended wire for {_PRODUCT[kind]}"
        yield _finding(Check.FIDELITY, Severity.OK, f"{scheme}://", what)
    else:
        host = place.rpartition(":")[0]
        yield _finding(
            Check.FIDELITY,
            Severity.WARNING,
            f"{scheme}://",
            f"{wire}:// does not carry every message of {_PRODUCT[kind]} whole; what would be "
            f"damaged{' in another way than allowed' if allowed else ''} is not taken; {best}:// "
            "carries most",
            f"broker: {{url: {best}://{host}:{_BEST_PORT[kind]}}}",
        )
        if allowed:
            yield _allowed(scheme, allowed)
    if wire == "stomp" and kind is BrokerKind.ARTEMIS:
        yield _stomp_to_artemis(scheme)


def _allowed(scheme: str, allowed: Collection[Loss]) -> Finding:
    names = ", ".join(sorted(allowed))
    return _finding(
        Check.FIDELITY,
        Severity.WARNING,
        "intake.allow_lossy",
        f"allows {names}: messages that lose it over {scheme}:// are taken, and come back altered",
        "intake: {allow_lossy: []}",
    )


def _stomp_to_artemis(scheme: str) -> Finding:
    return _finding(
        Check.TRANSACTIONS,
        Severity.WARNING,
        f"{scheme}://",
        "on Artemis an acknowledgement is no part of a STOMP transaction: if the sidecar or its "
        "link dies right after a commit, the next one acknowledges the messages that the token "
        "names and does not send them again. What is moved, or read by another sidecar, before "
        "that is sent twice",
    )


def recorded_findings(
    kind: BrokerKind, scheme: str, allowed: Collection[Loss] = ()
) -> Iterator[Finding]:
    """Yield what was recorded of this wire on real brokers, with allowed losses where some are."""
    for sentence in summary(kind, _wire(scheme)):
        if "intake.allow_lossy" in sentence and not allowed:
            continue
        yield _finding(Check.FIDELITY, Severity.NOTE, f"{scheme}://", sentence)


def _wire(scheme: str) -> str:
    """Return the wire that a scheme speaks, encrypted or not."""
    return "amqp" if scheme == "amqps" else scheme.partition("+")[0]


def _finding(check: Check, severity: Severity, subject: str, what: str, mend: str = "") -> Finding:
    return Finding(check=check, severity=severity, subject=subject, what=what, mend=mend)
