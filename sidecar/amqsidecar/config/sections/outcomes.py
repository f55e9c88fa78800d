"""Options `outcomes.*`: outcomes of re-sends."""

from collections.abc import Iterator

from amqsidecar.config.option import KeyedProblem, Section, StrictBool, StrictInt, option


class OutcomesOptions(Section):
    """Outcomes of re-sends."""

    watch: StrictBool = option(
        True,
        "Whether the sidecar watches the queues that it re-sends to, over a separate read-only "
        "connection. If not, no re-send is reported as consumed (`operations.md`).",
        why="a few requests to the broker every few seconds, and none when nothing waits",
    )
    window_s: StrictInt = option(
        60,
        "Time after a re-send in which the message may come back; only afterwards it can be "
        "reported as consumed.",
        why="longer than most consumers process a message; a later return is still recognised",
        unit="seconds",
        ge=2,
        le=86_400,
    )
    interval_s: StrictInt = option(
        5,
        "How often a queue is checked while its re-sends may still come back.",
        why="a queue may be empty for only a short time",
        unit="seconds",
        ge=1,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield a window that is over before the first look."""
        if self.window_s < 2 * self.interval_s:
            yield "window_s", "has to be at least twice `interval_s`"
