"""The settings of a link to Artemis over Core."""

from collections.abc import Callable
from dataclasses import dataclass

from amqsidecar.brokers.artemis.amqp_made import MADE_BY_OTHERS, why_left_by_core
from amqsidecar.brokers.artemis.link_settings import ArtemisLinkSettings


@dataclass(frozen=True, kw_only=True)
class CoreArtemisSettings(ArtemisLinkSettings):
    """Settings of a `CoreArtemisLink`.

    Attributes:
        selector: of what may be read; what it leaves is reported. "" = everything.
        why_amqp_left: returns why messages of AMQP clients stay; raises LinkLost where another
            link would take them by now.
    """

    selector: str = MADE_BY_OTHERS
    why_amqp_left: Callable[[], str] = why_left_by_core
