"""Options `discovery.*`: finding dead-letter queues."""

from amqsidecar.config.option import Section, StrictInt, option


class DiscoveryOptions(Section):
    """Finding dead-letter queues."""

    interval_s: StrictInt = option(
        60,
        "How often the broker is asked for new dead-letter queues and changed settings.",
        unit="seconds",
        ge=1,
        le=86_400,
    )
