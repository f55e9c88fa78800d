"""The settings that the links of all wires have in common."""

from dataclasses import KW_ONLY, dataclass

from amqsidecar.brokers.connection.endpoint import Endpoint
from amqsidecar.clock import Clock
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.model.sidecar_names import FINAL_SUFFIX


@dataclass(frozen=True)
class LinkSettings:
    """Where a link connects, and as whom.

    Attributes:
        endpoint: of a connector or acceptor that speaks the wire.
        clock: where the time comes from.
        instance: name of this sidecar, part of its client ids.
        final_suffix: suffix of final dead-letter queues, which are not read.
        crash_point: called at each step of a transaction.
        rules_digest: of this sidecar's rules, shown by its token.
    """

    endpoint: Endpoint
    _: KW_ONLY
    clock: Clock
    instance: str
    final_suffix: str = FINAL_SUFFIX
    crash_point: CrashPoint = no_crash
    rules_digest: str = ""

    @property
    def client_id(self) -> str:
        """Name of the sidecar at the broker."""
        return f"amqsidecar-{self.instance}"

    @property
    def timeout_s(self) -> float:
        """Maximum wait for an answer of the broker."""
        return self.endpoint.connect_timeout_s
