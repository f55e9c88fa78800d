"""Options `history.*`: how long `show` has the history of a message."""

from amqsidecar.config.option import Section, StrictInt, option


class HistoryOptions(Section):
    """How long `show` has the history of a message."""

    keep_days: StrictInt = option(
        30,
        "Events older than this are removed from the store.",
        unit="days",
        ge=1,
        le=36_500,
    )
    max_events: StrictInt = option(
        1_000_000,
        "Maximum events kept; the oldest are removed first.",
        why="some hundred megabytes",
        unit="events",
        ge=1000,
    )
