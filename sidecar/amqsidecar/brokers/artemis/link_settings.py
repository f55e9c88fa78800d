"""The settings that the links to Artemis have in common."""

from collections.abc import Collection
from dataclasses import dataclass

from amqsidecar.brokers.link_settings import LinkSettings
from amqsidecar.model.resend_effect import ResendEffect


@dataclass(frozen=True, kw_only=True)
class ArtemisLinkSettings(LinkSettings):
    """Settings of a link to Artemis.

    Attributes:
        allowed_effects: what redeliveries may do besides going to their queue.
    """

    allowed_effects: Collection[ResendEffect] = ()
