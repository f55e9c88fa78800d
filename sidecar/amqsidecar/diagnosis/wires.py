"""Judges product, version and wire."""

from collections.abc import Collection, Iterator

from amqsidecar.broker import BrokerDescription, BrokerKind
from amqsidecar.diagnosis.fidelity import summary
from amqsidecar.diagnosis.finding import Check, Finding, Severity, new_finding
from amqsidecar.diagnosis.releases import PRODUCT, release_faults, release_name, untested_release
from amqsidecar.model.left_behind import Loss

_BEST = {BrokerKind.CLASSIC: "openwire", BrokerKind.ARTEMIS: "artemis"}
_PORT = 61616
_AMQP = "amqp/1.0"


def version_finding(
    description: BrokerDescription, place: str, expected: BrokerKind | None
) -> Iterator[Finding]:
    """Yield findings about product and version."""
    kind, name = description.kind, release_name(description)
    if expected is not None and expected is not kind:
        yield new_finding(
            "kind_differs", place, name=name, expected=expected.value, kind=kind.value
        )
    elif what := untested_release(description):
        yield Finding(Check.BROKER, Severity.NOTE, place, what)
    else:
        yield new_finding("release_tested", place, name=name)
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
    """Yield findings about limits of this wire, and the wire without them."""
    wire = _wire(scheme)
    best = _BEST[kind]
    if wire == "artemis" and _AMQP not in encodings:
        yield _core_alone(scheme, place, has_amqp=has_amqp)
    elif wire == "core":
        yield new_finding("core_wire", f"{scheme}://")
    elif wire == best:
        yield new_finding("best_wire", f"{scheme}://", best=best, product=PRODUCT[kind])
    elif wire == "amqp" and kind is BrokerKind.ARTEMIS:
        yield new_finding("amqp_wire_converts", f"{scheme}://", mend=_mend(best, place))
    else:
        yield new_finding(
            "wire_loses",
            f"{scheme}://",
            wire=wire,
            product=PRODUCT[kind],
            beyond=" beyond what is allowed" if allowed else "",
            best=best,
            mend=_mend(best, place),
        )
        if allowed:
            yield _allowed(scheme, allowed)
    if wire == "stomp" and kind is BrokerKind.ARTEMIS:
        yield new_finding("stomp_acknowledges_apart", f"{scheme}://")


def _core_alone(scheme: str, place: str, *, has_amqp: bool) -> Finding:
    why, mend = (
        (f"{place} did not accept an AMQP connection", "acceptor: protocols=CORE,AMQP")
        if has_amqp
        else ("the library of AMQP is not installed", 'pip install "amqsidecar[amqp]"')
    )
    return new_finding("core_alone", f"{scheme}://", why=why, mend=mend)


def _mend(wire: str, place: str) -> str:
    """Return the line that chooses a wire, at its usual port."""
    return f"broker: {{url: {wire}://{place.rpartition(':')[0]}:{_PORT}}}"


def _allowed(scheme: str, allowed: Collection[Loss]) -> Finding:
    names = ", ".join(sorted(allowed))
    return new_finding("losses_allowed", "intake.allow_lossy", names=names, scheme=scheme)


def recorded_findings(
    kind: BrokerKind, scheme: str, allowed: Collection[Loss] = ()
) -> Iterator[Finding]:
    """Yield recorded results of this wire on real brokers, with allowed losses."""
    for sentence in summary(kind, _wire(scheme)):
        if "intake.allow_lossy" in sentence and not allowed:
            continue
        yield Finding(Check.FIDELITY, Severity.NOTE, f"{scheme}://", sentence)


def _wire(scheme: str) -> str:
    """Return the wire that a scheme speaks, encrypted or not."""
    return "amqp" if scheme == "amqps" else scheme.partition("+")[0]
