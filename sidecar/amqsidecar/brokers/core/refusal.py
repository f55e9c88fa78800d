"""A refusal of the broker over Core."""

from amqsidecar.brokers.connection.refusal import RequestRefused

# Source: api.core.ActiveMQExceptionType.
QUEUE_MISSING, QUEUE_EXISTS, SECURITY, INCOMPATIBLE_VERSIONS = 100, 101, 105, 108
ROLLED_BACK, DUPLICATE_ID, ADDRESS_FULL = 111, 113, 210
CLUSTER_SECURITY = 212
LOGIN_REFUSALS = (SECURITY, CLUSTER_SECURITY)


class CoreRefused(RequestRefused):
    """The broker answered with an exception; never leaves `brokers/`.

    Attributes:
        kind: the code of ActiveMQExceptionType.
    """

    def __init__(self, kind: int, message: str | None) -> None:
        self.kind = kind
        super().__init__(message or f"exception {kind} without a message")
