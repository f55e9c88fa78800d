"""Options `history.*`: how long `show` can tell what happened."""

from amqsidecar.config.option import Section, StrictInt, option


class HistoryOptions(Section):
    """How long `show` can tell what happened."""

    keep_days: StrictInt = option(
        30,
        "Events older than this are removed from the store.",
        why="a month covers the usual post-mortem",
        unit="days",
        ge=1,
        le=36_500,
    )
    max_events: StrictInt = option(
        1_000_000,
        "The oldest events beyond so many are removed earlier.",
        why="some hundred megabytes",
        unit="events",
        ge=1000,
    )
