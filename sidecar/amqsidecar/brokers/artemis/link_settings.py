"""The settings of links to Artemis."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from amqsidecar.brokers.artemis.left_behind import MADE_BY_OTHERS, why_left_by_core
from amqsidecar.brokers.link_settings import LinkSettings
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.send_terms import ResendEffect


@dataclass(frozen=True, kw_only=True)
class ArtemisLinkSettings(LinkSettings):
    """Settings of a link to Artemis.

    Attributes:
        allowed_effects: effects that redeliveries may have besides going to their queue.
        allowed_losses: over STOMP: losses with which messages are taken nevertheless.
        is_own_only: over AMQP: only messages that AMQP clients have made are read.
        selector: over Core: of messages to read; the others are reported. "" = all.
        why_amqp_left: over Core: returns why messages of AMQP clients stay; raises LinkLost where
            another link would take them by now.
    """

    allowed_effects: Collection[ResendEffect] = ()
    allowed_losses: frozenset[Loss] = frozenset()
    is_own_only: bool = False
    selector: str = MADE_BY_OTHERS
    why_amqp_left: Callable[[], str] = why_left_by_core
