"""Options `observe.*`: looking at what lies in dead-letter queues."""

from amqsidecar.config.option import Section, StrictInt, option


class ObserveOptions(Section):
    """Looking at what lies in dead-letter queues, in manual mode and by `run --observe`."""

    interval_s: StrictInt = option(
        10,
        "From one pass through the dead-letter queues to the next; a long pass rests as long as it "
        "took.",
        why="each browse reads the queues from their heads, which costs the broker work",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    max_messages: StrictInt = option(
        1_000_000,
        "Maximum messages of each dead-letter queue that are shown, from its head.",
        unit="messages",
        ge=1,
        le=10_000_000,
    )
    max_per_second: StrictInt = option(
        5_000,
        "Maximum messages per second that are browsed, over all queues.",
        why="the broker reads each browsed message from its memory or disk",
        unit="messages per second",
        ge=1,
        le=1_000_000,
    )
