"""The settings of a link to Artemis over AMQP."""

from dataclasses import dataclass

from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings


@dataclass(frozen=True, kw_only=True)
class AmqpArtemisSettings(ArtemisLinkSettings):
    """Settings of an `AmqpArtemisLink`.

    Attributes:
        is_own_only: only what AMQP clients have made is read.
    """

    is_own_only: bool = False
