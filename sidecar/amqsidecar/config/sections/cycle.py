"""Options `cycle.*`: how much is done in one exactly-once unit of work."""

from amqsidecar.config.option import Section, StrictInt, option


class CycleOptions(Section):
    """How much is done in one exactly-once unit of work."""

    max_messages: StrictInt = option(
        0,
        "Maximum messages that one cycle takes and sends; 0 = the broker's best value.",
        why="the measured optimum differs between brokers",
        unit="messages",
        ge=0,
        le=100_000,
    )
    max_wait_ms: StrictInt = option(
        500,
        "Maximum sleep of the service while nothing arrives and nothing is due; commands such "
        "as `retry` take effect within this time.",
        why="hardly noticeable, and two wake-ups a second are cheap",
        unit="milliseconds",
        ge=1,
        le=60_000,
    )
