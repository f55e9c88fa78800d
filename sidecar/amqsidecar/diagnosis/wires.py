"""Judges product, version and wire."""

from collections.abc import Collection, Iterator

from amqsidecar.broker import BrokerDescription, BrokerKind
from amqsidecar.diagnosis.fidelity import summary
from amqsidecar.diagnosis.finding import Check, Finding, Severity
from amqsidecar.diagnosis.releases import release_faults, release_name, untested_release
from amqsidecar.model.left_behind import Loss

_PRODUCT = {BrokerKind.CLASSIC: "ActiveMQ Classic", BrokerKind.ARTEMIS: "Apache Artemis"}
_BEST = {BrokerKind.CLASSIC: "openwire", BrokerKind.ARTEMIS: "artemis"}
_PORT = 61616
_AMQP = "amqp/1.0"


def version_finding(
    description: BrokerDescription, place: str, expected: BrokerKind | None
) -> Iterator[Finding]:
    """Yield findings about product and version."""
    kind, name = description.kind, release_name(description)
    if expected is not None and expected is not kind:
        yield Finding(
            Check.BROKER,
            Severity.PROBLEM,
            place,
            f"is {name}, but broker.kind says {expected.value}",
            f"broker: {{kind: {kind.value}}}",
        )
    elif what := untested_release(description):
        yield Finding(Check.BROKER, Severity.NOTE, place, what)
    else:
        yield Finding(Check.BROKER, Severity.OK, place, f"is {name}")
    for what in release_faults(description):
        yield Finding(Check.BROKER, Severity.WARNING, place, what)


def wire_findings(
    kind: BrokerKind,
    scheme: str,
    place: str,
    encodings: Collection[str],
    allowed: Collection[Loss] = (),
    *,
    has_amqp: bool = True,
) -> Iterator[Finding]:
    """Yield findings about limits of this wire, and the wire without them.

    Args:
        kind: of the broker.
        scheme: of its URL.
        place: host and port.
        encodings: that the link can send.
        allowed: what messages may lose by the operator's own word.
        has_amqp: whether the library of AMQP is installed.
    """
    wire = _wire(scheme)
    best = _BEST[kind]
    if wire == "artemis" and _AMQP not in encodings:
        yield _core_alone(scheme, place, has_amqp=has_amqp)
    elif wire == "core":
        what = (
            "core:// carries every message whole except those of AMQP clients: they are not "
            "taken because the broker would convert them"
        )
        yield Finding(Check.FIDELITY, Severity.OK, f"{scheme}://", what)
    elif wire == best:
        what = f"{best}:// is the recommended wire for {_PRODUCT[kind]}"
        yield Finding(Check.FIDELITY, Severity.OK, f"{scheme}://", what)
    elif wire == "amqp" and kind is BrokerKind.ARTEMIS:
        what = (
            "over amqp:// the broker converts what Core, OpenWire, STOMP and MQTT clients have "
            "made; ObjectMessages and StreamMessages of Core and OpenWire clients stay in the "
            "dead-letter queue; artemis:// returns each message as it was"
        )
        yield Finding(Check.FIDELITY, Severity.NOTE, f"{scheme}://", what, _mend(best, place))
    else:
        yield Finding(
            Check.FIDELITY,
            Severity.WARNING,
            f"{scheme}://",
            f"{wire}:// does not carry every message of {_PRODUCT[kind]} whole; messages that "
            f"would be damaged{' beyond what is allowed' if allowed else ''} is not taken; "
            f"{best}:// carries most",
            _mend(best, place),
        )
        if allowed:
            yield _allowed(scheme, allowed)
    if wire == "stomp" and kind is BrokerKind.ARTEMIS:
        yield _stomp_to_artemis(scheme)


def _core_alone(scheme: str, place: str, *, has_amqp: bool) -> Finding:
    why, mend = (
        (f"{place} did not accept an AMQP connection", "acceptor: protocols=CORE,AMQP")
        if has_amqp
        else ("the library of AMQP is not installed", 'pip install "amqsidecar[amqp]"')
    )
    what = (
        "artemis:// uses only Core here: messages of AMQP clients stay in the dead-letter queues "
        f"because {why}"
    )
    return Finding(Check.FIDELITY, Severity.NOTE, f"{scheme}://", what, mend)


def _mend(wire: str, place: str) -> str:
    """Return the line that chooses a wire, at its usual port."""
    return f"broker: {{url: {wire}://{place.rpartition(':')[0]}:{_PORT}}}"


def _allowed(scheme: str, allowed: Collection[Loss]) -> Finding:
    names = ", ".join(sorted(allowed))
    return Finding(
        Check.FIDELITY,
        Severity.WARNING,
        "intake.allow_lossy",
        f"allows {names}: messages that lose this over {scheme}:// are taken and come back altered",
        "intake: {allow_lossy: []}",
    )


def _stomp_to_artemis(scheme: str) -> Finding:
    return Finding(
        Check.TRANSACTIONS,
        Severity.WARNING,
        f"{scheme}://",
        "on Artemis a STOMP transaction does not include acknowledgements: if the sidecar or its "
        "link dies right after a commit, the next sidecar acknowledges the messages that the "
        "token names and does not send them again. A message that is moved, or read by another "
        "sidecar, before that is sent twice",
    )


def recorded_findings(
    kind: BrokerKind, scheme: str, allowed: Collection[Loss] = ()
) -> Iterator[Finding]:
    """Yield what was recorded of this wire on real brokers, with allowed losses where some are."""
    for sentence in summary(kind, _wire(scheme)):
        if "intake.allow_lossy" in sentence and not allowed:
            continue
        yield Finding(Check.FIDELITY, Severity.NOTE, f"{scheme}://", sentence)


def _wire(scheme: str) -> str:
    """Return the wire that a scheme speaks, encrypted or not."""
    return "amqp" if scheme == "amqps" else scheme.partition("+")[0]
