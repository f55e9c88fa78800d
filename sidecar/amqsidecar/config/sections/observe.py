"""Options `observe.*`: looking without touching anything, by `run --observe`."""

from amqsidecar.config.option import Section, StrictInt, option


class ObserveOptions(Section):
    """`run --observe`: looking without touching anything."""

    interval_s: StrictInt = option(
        10,
        "How often `run --observe` browses the dead-letter queues.",
        why="each browse reads the queues from their heads, which costs the broker work",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    max_messages: StrictInt = option(
        10_000,
        "Maximum messages of each dead-letter queue that are browsed. Classic shows at most 400 "
        "(`maxBrowsePageSize`) of a queue with a policyEntry.",
        unit="messages",
        ge=1,
        le=1_000_000,
    )
    max_log_lines: StrictInt = option(
        20,
        "Maximum dead letters per second with a log line of their own; summaries and metrics "
        "count all.",
        unit="lines per second",
        ge=0,
        le=100_000,
    )
