"""Options `cycle.*`: how much is done in one exactly-once unit of work."""

from amqsidecar.config.option import Section, StrictInt, option


class CycleOptions(Section):
    """How much is done in one exactly-once unit of work."""

    max_messages: StrictInt = option(
        0,
        "How many messages one cycle takes and sends at most; 0 = what suits the broker.",
        why="measured: it differs between brokers",
        unit="messages",
        ge=0,
        le=100_000,
    )
    max_wait_ms: StrictInt = option(
        500,
        "How long the service sleeps at most while nothing arrives and nothing is due; so late it "
        "sees what `retry` and the like changed in the store.",
        why="a person hardly notices it, and two wake-ups a second cost nothing",
        unit="milliseconds",
        ge=1,
        le=60_000,
    )
