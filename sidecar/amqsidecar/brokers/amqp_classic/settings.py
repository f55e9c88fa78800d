"""The settings of a link to Classic over AMQP."""

from dataclasses import dataclass

from amqsidecar.brokers.amqp_classic.watch import OriginNames
from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.model.left_behind import Loss


@dataclass(frozen=True, kw_only=True)
class AmqpClassicSettings(ClassicLinkSettings):
    """Settings of an `AmqpClassicLink`.

    Attributes:
        names: where the messages of a dead-letter queue died, unless `IntakeQueue.origin` says.
        amqp_producers_only: read only what AMQP applications have made, where the connector keeps
            such messages whole and no others.
        allowed_losses: what messages may lose; only `Loss.BODY_TYPE` acts.
    """

    names: OriginNames
    amqp_producers_only: bool = False
    allowed_losses: frozenset[Loss] = frozenset()
