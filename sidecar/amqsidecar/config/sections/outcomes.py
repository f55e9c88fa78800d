"""Options `outcomes.*`: what became of re-sends."""

from collections.abc import Iterator

from amqsidecar.config.option import KeyedProblem, Section, StrictBool, StrictInt, option


class OutcomesOptions(Section):
    """What became of re-sends."""

    watch: StrictBool = option(
        True,
        "Whether the sidecar looks at the queues that it re-sends to, over a connection of its own "
        "that only looks. Without it no re-send is called consumed (`outcomes.md`).",
        why="some questions to the broker every few seconds, and none when nothing waits",
    )
    window_s: StrictInt = option(
        60,
        "So long after its re-send a message may come back; only then it may be called consumed.",
        why="longer than most consumers work at a message; one that fails later still comes back",
        unit="seconds",
        ge=2,
        le=86_400,
    )
    interval_s: StrictInt = option(
        5,
        "How often a queue is looked at while its re-sends may still come back.",
        why="a short moment in which a queue is empty should not be missed for long",
        unit="seconds",
        ge=1,
        le=3600,
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield a window that is over before anybody has looked."""
        if self.window_s < 2 * self.interval_s:
            yield "window_s", "has to be at least twice `interval_s`"
