"""Options `observe.*`: looking without touching anything, by `run --observe`."""

from amqsidecar.config.option import Section, StrictInt, option


class ObserveOptions(Section):
    """`run --observe`: looking without touching anything."""

    interval_s: StrictInt = option(
        10,
        "How often `run --observe` looks into the dead-letter queues.",
        why="a look reads each queue from its head; people don't need it faster",
        unit="seconds",
        ge=1,
        le=86_400,
    )
    max_messages: StrictInt = option(
        10_000,
        "How many messages of each dead-letter queue a look goes through. Classic itself shows no "
        "more than 400 (`maxBrowsePageSize`) of a queue on which a policyEntry acts.",
        why="a look costs the broker some work per message",
        unit="messages",
        ge=1,
        le=1_000_000,
    )
    max_log_lines: StrictInt = option(
        20,
        "How many dead letters get a log line of their own in a second; summaries and metrics "
        "count all.",
        why="enough to read along, too few to fill a disk",
        unit="lines per second",
        ge=0,
        le=100_000,
    )
